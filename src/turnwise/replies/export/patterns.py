r"""A regular expression of a JSON schema as nodes, so that each target and each notation can write it.

JSON Schema's patterns are searched for: `^` and `$` anchor them, and without them any text may come before and after.
The syntax is what schemas use: characters, classes, groups, alternatives, repetition. Lookarounds, back references and
word boundaries are not regular, or depend on what is around them: they are errors.

The characters of the text are written by a function of the notation (in JSON, `"` is `\"`), and `.` and negated classes
leave out what that notation cannot write in one character.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from turnwise.errors import MessageError, short_repr
from turnwise.replies.export.constraint_tree import (
    CharacterNode,
    LiteralNode,
    Node,
    RepeatNode,
    make_choice,
    make_repeat,
    make_sequence,
)

__all__ = ["ANY_CHARACTER", "CharacterWriter", "pattern_node"]

MAX_COUNT = 1000
MAX_COUNT_DIGITS = 9
MAX_GROUPS = 64  # within each other
CLASSES = {
    "d": (("0", "9"),),
    "w": (("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z")),
    "s": ((" ", " "), ("\t", "\r")),
}
ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "0": "\0"}
HEX_LENGTHS = {"x": 2, "u": 4}


@dataclass(frozen=True, slots=True)
class CharacterWriter:
    """How one notation writes the characters of a string."""

    plain: CharacterNode  # the characters that are written as they are
    escape: Callable[[str], str]  # how any other character is written

    def literal(self, character: str) -> Node:
        """Return the node of one character."""
        plain = self.plain.accepts(character)
        return LiteralNode(character if plain else self.escape(character))

    def any_of(self, node: CharacterNode) -> Node:
        """Return the node of a set of characters: those that are written as they are, and escapes of the others."""
        options: list[Node] = []
        kept = node.without(self.plain.ranges)
        if kept.ranges or kept.negated:
            options.append(kept)
        if not node.negated:
            single = [first for first, last in node.ranges if first == last]
            escaped = [one for one in single if not self.plain.accepts(one)]
            options += [LiteralNode(self.escape(one)) for one in escaped]
        return make_choice(options)


ANY_CHARACTER = CharacterWriter(CharacterNode((), negated=True), str)  # to check a pattern alone


def pattern_node(pattern: str, writer: CharacterWriter) -> Node:
    """Return the node of all strings in which a pattern occurs.

    Raises:
        MessageError: the pattern is not valid, or not regular.
    """
    reader = _PatternReader(pattern, writer)
    node = reader.read_alternatives(0)
    if reader.position < len(pattern):
        reader.refuse("a parenthesis too many")
    return node


class _PatternReader:
    def __init__(self, pattern: str, writer: CharacterWriter) -> None:
        self.position = 0
        self._pattern = pattern
        self._writer = writer
        self._any_character = writer.any_of(CharacterNode((("\n", "\n"), ("\r", "\r")), True))

    def refuse(self, problem: str) -> NoReturn:
        where = f"at character {self.position}"
        raise MessageError(
            f"the pattern {short_repr(self._pattern)} cannot be part of a grammar: {problem} {where}",
            hint="Characters, classes, groups, alternatives and repetition are accepted.",
        )

    def _next(self) -> str:
        return self._pattern[self.position : self.position + 1]

    def _take(self, text: str) -> bool:
        found = self._pattern.startswith(text, self.position)
        self.position += len(text) * found
        return found

    def read_alternatives(self, depth: int) -> Node:
        """Return the alternatives up to a closing parenthesis, or the end."""
        options = [self._read_sequence(depth)]
        while self._take("|"):
            options.append(self._read_sequence(depth))
        return make_choice(options)

    def _read_sequence(self, depth: int) -> Node:
        """Return one alternative. At the outermost level, an anchor that is missing stands for any text."""
        any_text = RepeatNode(self._any_character)
        parts: list[Node] = []
        is_outer = depth == 0
        is_anchored_start = self._take("^")
        is_anchored_end = False
        while self._next() and self._next() not in "|)":
            if is_anchored_end:
                self.refuse("text after an anchor")
            if self._take("$"):
                is_anchored_end = True
            elif self._take("^"):
                self.refuse("an anchor")
            else:
                parts.append(self._read_repeated(depth))
        if not is_outer and (is_anchored_start or is_anchored_end):
            self.refuse("an anchor within a group")
        if is_outer and not is_anchored_start:
            parts.insert(0, any_text)
        if is_outer and not is_anchored_end:
            parts.append(any_text)
        return make_sequence(*parts)

    def _read_repeated(self, depth: int) -> Node:
        node = self._read_atom(depth)
        sign = self._next()
        bounds = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(sign)
        if bounds is not None:
            self.position += 1
        elif sign == "{":
            bounds = self._read_count()
        if bounds is None:
            return node
        self._take("?")  # a lazy repetition matches the same strings
        if self._next() in ("*", "+", "{"):
            self.refuse("a repetition of a repetition")
        return make_repeat(node, *bounds)

    def _read_count(self) -> tuple[int, int | None] | None:
        end = self._pattern.find("}", self.position)
        low, comma, high = self._pattern[self.position + 1 : end].partition(",")
        if end < 0 or not low.isdecimal() or (high and not high.isdecimal()):
            self.refuse("a count that is no count")
        if len(low) > MAX_COUNT_DIGITS or len(high) > MAX_COUNT_DIGITS:
            self.refuse("a count that is too large")
        least = int(low)
        most = int(high) if high else None if comma else least
        if least > MAX_COUNT or (most is not None and (most > MAX_COUNT or most < least)):
            self.refuse("a count that is too large or upside down")
        self.position = end + 1
        return least, most

    def _read_atom(self, depth: int) -> Node:
        if self._take("("):
            if self._take("?") and not self._take(":"):
                self.refuse("a lookaround or a flag")
            if depth >= MAX_GROUPS:
                self.refuse("too many groups within groups")
            node = self.read_alternatives(depth + 1)
            if not self._take(")"):
                self.refuse("a parenthesis is missing")
            return node
        if self._take("["):
            return self._writer.any_of(self._read_class())
        if self._take("."):
            return self._any_character
        if self._next() == "\\":
            found = self._read_escape()
            if isinstance(found, CharacterNode):
                return self._writer.any_of(found)
            return self._writer.literal(found)
        if self._next() in ("*", "+", "?"):
            self.refuse("nothing to repeat")
        character = self._next()
        self.position += 1
        return self._writer.literal(character)

    def _read_escape(self) -> str | CharacterNode:
        sign = self._pattern[self.position + 1 : self.position + 2]
        self.position += 2
        if sign.lower() in CLASSES:
            return CharacterNode(CLASSES[sign.lower()], negated=sign.isupper())
        if sign in HEX_LENGTHS:
            digits = self._pattern[self.position : self.position + HEX_LENGTHS[sign]]
            self.position += len(digits)
            try:
                return chr(int(digits, 16))
            except ValueError:
                self.refuse("digits that are not hexadecimal")
        if sign in ESCAPES:
            return ESCAPES[sign]
        if not sign or sign.isalnum():
            self.refuse(f"the escape \\{sign}")
        return sign

    def _read_class(self) -> CharacterNode:
        is_negated = self._take("^")
        ranges: list[tuple[str, str]] = []
        while not self._take("]"):
            first = self._read_class_item()
            if isinstance(first, CharacterNode):
                if first.negated:
                    self.refuse("a negated class within a class")
                ranges += first.ranges
                continue
            last = first
            is_range = self._next() == "-" and self._pattern[self.position + 1 :][:1] not in (
                "]",
                "",
            )
            if is_range:
                self.position += 1
                end = self._read_class_item()
                if not isinstance(end, str) or end < first:
                    self.refuse("a range that is upside down")
                last = end
            ranges.append((first, last))
        if not ranges and not is_negated:
            self.refuse("an empty class")
        return CharacterNode(tuple(ranges), is_negated)

    def _read_class_item(self) -> str | CharacterNode:
        if self._next() == "\\":
            if self._pattern[self.position + 1 :][:1] == "b":
                self.position += 2
                return "\b"
            return self._read_escape()
        if not self._next():
            self.refuse("a bracket is missing")
        self.position += 1
        return self._pattern[self.position - 1]
