r"""A regular expression of a JSON schema as nodes, so that each target and each notation can write it.

JSON Schema's patterns are searched for: `^` and `$` anchor them, and without them any text may come before and after.
The syntax is what schemas use: characters, classes, groups, alternatives, repetition. Lookarounds, back references and
word boundaries are not regular, or depend on what is around them: they are errors.

The characters of the text are written by a function of the notation (in JSON, `"` is `\"`), and `.` and negated classes
leave out what that notation cannot write in one character.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence

# The parser of `re`, which has no public name. What it does not find is an error here, so a change of it shows.
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple, NoReturn

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

MAX_COUNT = 1000
MAX_GROUPS = 64  # within each other
CLASSES = {
    "DIGIT": (("0", "9"),),
    "WORD": (("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z")),
    "SPACE": ((" ", " "), ("\t", "\r")),
}
START, END = (_constants.AT, _constants.AT_BEGINNING), (_constants.AT, _constants.AT_END)
Items = Sequence[tuple[Any, Any]]  # the operations of a pattern, and what they are about


class CharacterWriter(NamedTuple):
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
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of signs that may mean more one day
            found = _parser.parse(pattern)
    except RecursionError:
        reader.refuse("too many groups within groups")
    except (OverflowError, ValueError):  # of a number with thousands of digits
        reader.refuse("a count that is too large")
    except re.error as error:
        reader.refuse(str(error))
    if found.state.flags & ~re.UNICODE:
        reader.refuse("a flag")
    return reader.read_searched(list(found))


class _PatternReader:
    def __init__(self, pattern: str, writer: CharacterWriter) -> None:
        self._pattern = pattern
        self._any_character = writer.any_of(CharacterNode((("\n", "\n"), ("\r", "\r")), True))
        self._any_text = RepeatNode(self._any_character)
        self._depth = 0
        self._readers: dict[Any, Callable[[Any], Node]] = {
            _constants.LITERAL: lambda code: writer.literal(chr(code)),
            _constants.NOT_LITERAL: lambda code: writer.any_of(
                CharacterNode(((chr(code), chr(code)),), negated=True)
            ),
            _constants.ANY: lambda _: self._any_character,
            _constants.IN: lambda members: writer.any_of(self._read_class(members)),
            _constants.BRANCH: lambda branch: make_choice(map(self._read_all, branch[1])),
            _constants.SUBPATTERN: lambda group: self._read_all(group[-1]),
            _constants.MAX_REPEAT: self._read_repeated,
            _constants.MIN_REPEAT: self._read_repeated,  # it matches the same strings
        }

    def refuse(self, problem: str) -> NoReturn:
        raise MessageError(
            f"the pattern {short_repr(self._pattern)} cannot be part of a grammar: {problem}",
            hint="Characters, classes, groups, alternatives and repetition are accepted.",
        )

    def read_searched(self, items: Items, is_start: bool = True) -> Node:
        """Return the end of a pattern, or all of it: an anchor that is missing stands for any text."""
        last, operand = items[-1] if items else (None, (None, ()))
        options = operand[1] if last is _constants.BRANCH else ()
        if is_start and options and len(items) == 1:
            return make_choice(self.read_searched(list(option)) for option in options)
        before: list[Node] = []
        if is_start and list(items[:1]) == [START]:
            items = items[1:]
        elif is_start:
            before.append(self._any_text)
        if options:
            ends = make_choice(self.read_searched(list(option), False) for option in options)
            return make_sequence(*before, self._read_all(items[:-1]), ends)
        if list(items[-1:]) == [END]:
            return make_sequence(*before, self._read_all(items[:-1]))
        return make_sequence(*before, self._read_all(items), self._any_text)

    def _read_all(self, items: Items) -> Node:
        if self._depth > MAX_GROUPS:
            self.refuse("too many groups within groups")
        self._depth += 1
        nodes = []
        for operation, operand in items:
            if operation not in self._readers:
                self.refuse("an anchor, a lookaround or a back reference")
            nodes.append(self._readers[operation](operand))
        self._depth -= 1
        return make_sequence(*nodes)

    def _read_repeated(self, repeat: tuple[int, Any, Items]) -> Node:
        least, most, items = repeat
        limit = None if most is _constants.MAXREPEAT else most
        if max(least, limit or 0) > MAX_COUNT:
            self.refuse("a count that is too large")
        return make_repeat(self._read_all(items), least, limit)

    def _read_class(self, members: Items) -> CharacterNode:
        ranges: list[tuple[str, str]] = []
        is_negated = False
        for kind, member in members:
            if kind is _constants.NEGATE:
                is_negated = True
            elif kind is _constants.CATEGORY:
                name = str(member).removeprefix("CATEGORY_")
                if name not in CLASSES and len(members) > 1:
                    self.refuse("a negated class within a class")
                is_negated = is_negated or name not in CLASSES
                ranges += CLASSES[name.removeprefix("NOT_")]
            else:
                first, last = member if kind is _constants.RANGE else (member, member)
                ranges.append((chr(first), chr(last)))
        return CharacterNode(tuple(ranges), is_negated)
