"""Split an output tag where trained text begins or ends, so that every tag is trained as a whole or not at all.

    {{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}

becomes three tags, of which the second is what the model writes:

    {{ '<|im_start|>' + message.role + '\\n' }}{{ message.content + '<|im_end|>' }}{{ '\\n' }}

Operands that stay together keep the author's text. An operand that is chosen (`a if b else c`) and differs in its two
outcomes becomes an `{% if %}`. Of an expression that is no literal, the text before the trained one must be known: the
expression is then split at it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from turnwise.repair.atom_roles import AtomRole
from turnwise.repair.edits import INDENTATION
from turnwise.repair.source_tree import (
    Choice,
    Expression,
    Leaf,
    Operand,
    Output,
    SourceTree,
    Sum,
    find_leaves,
)

ESCAPE = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{1,3}|.)|.", re.S)
NO_VALUE = "''"


class SplitPart(NamedTuple):
    """A part of the tags that an output becomes: an expression, or a tag between expressions (`if b`)."""

    text: str
    is_inside: bool | None  # None: nothing is known, or it is a tag
    is_tag: bool = False


class OutputSplitter:
    """Splits the outputs of one template.

    Args:
        tree: The template.
        roles: What was seen of its operands.
        joined: Keep an operand that stands alone joined to an empty text, so that what is no text is still refused.
    """

    def __init__(self, tree: SourceTree, roles: Mapping[Leaf, AtomRole], joined: bool) -> None:
        self.tree = tree
        self.roles = roles
        self.joined = joined

    def needs_split(self, output: Output) -> bool:
        """Whether a part of an output is trained and another one is not."""
        segments = list(self._segments(output.expression))
        known = {segment.is_inside for segment in segments if segment.is_inside is not None}
        return len(known) > 1

    def split(self, output: Output) -> str:
        """Return the tags that write the same as an output."""
        segments = list(self._segments(output.expression))
        left, right = output.signs
        line = INDENTATION.search(self.tree.text[: output.start])
        spaced = left == "-" and line is not None
        between = f"\n{line[1]}" if spaced and line is not None else ""
        sign = "-" if spaced else ""
        tags = []
        for number, segment in enumerate(segments):
            first = left if number == 0 else sign
            last = right if number == len(segments) - 1 else ""
            marks = ("{%", "%}") if segment.is_tag else ("{{", "}}")
            tags.append(f"{marks[0]}{first} {segment.text} {last}{marks[1]}")
        return between.join(tags)

    def _segments(self, found: Expression) -> Iterator[SplitPart]:
        if isinstance(found, Leaf):
            yield from self._split_leaf(found)
        elif isinstance(found, Choice):
            yield SplitPart(f"if {self.tree.show(*found.test)}", None, True)
            yield from self._segments(found.yes)
            if found.no is not None:
                yield SplitPart("else", None, True)
                yield from self._segments(found.no)
            yield SplitPart("endif", None, True)
        else:
            yield from self._split_sum(found)

    def _split_sum(self, found: Sum) -> Iterator[SplitPart]:
        """Yield the operands of a sum; neighbours that are trained alike stay one expression."""
        run: list[SplitPart] = []
        places: list[tuple[int, int]] = []
        for operand in found.operands:
            segments, place = self._split_operand(operand)
            for segment in segments:
                is_source = place[0] >= 0
                if run and not (segment.is_tag or run[-1].is_tag) and _fits(run[-1], segment):
                    before = run.pop()
                    text = f"{before.text} + {segment.text}"
                    if is_source and places[-1][0] >= 0:
                        text = self.tree.show(places[-1][0], place[1])
                        places[-1] = (places[-1][0], place[1])
                    else:
                        places[-1] = (-1, -1)
                    inside = segment.is_inside if before.is_inside is None else before.is_inside
                    run.append(SplitPart(text, inside))
                else:
                    run.append(segment)
                    places.append(place)
        for segment in run:
            is_joined = segment.is_tag or " + " in segment.text or segment.text[:1] in "'\""
            guarded = self.joined and not is_joined
            yield segment._replace(text=f"{NO_VALUE} + {segment.text}") if guarded else segment

    def _split_operand(self, operand: Operand) -> tuple[list[SplitPart], tuple[int, int]]:
        """Return the parts of an operand, and its place in the source if it is one part."""
        known = self._find_trained(operand.expression)
        if len(known) > 1:
            return list(self._segments(operand.expression)), (-1, -1)
        is_trained = known.pop() if known else None
        text = self.tree.show(operand.start, operand.end)
        return [SplitPart(text, is_trained)], (operand.start, operand.end)

    def _find_trained(self, found: Expression) -> set[bool | None]:
        """Return whether the parts of an expression are trained: both if it has to be split, none if unknown."""
        known: set[bool | None] = set()
        for leaf in find_leaves(found):
            role = self.roles.get(leaf)
            if role is None or not role.executions:
                continue
            if role.is_cut:
                return {True, False}
            known.add(role.is_inside)
        return known

    def _split_leaf(self, leaf: Leaf) -> Iterator[SplitPart]:
        text, role = self.tree.show(leaf.start, leaf.end), self.roles.get(leaf)
        if role is None or not role.executions:
            yield SplitPart(text, None)
        elif not role.is_cut:
            yield SplitPart(text, role.is_inside)
        elif role.is_literal:
            for part in role.parts():
                yield SplitPart(cut_literal(text, part.start, part.end), part.is_inside)
        else:
            yield from _split_at_texts(text, role)


def _fits(before: SplitPart, segment: SplitPart) -> bool:
    """Whether two expressions may be one: both are trained, or none is, or one is unknown."""
    return before.is_inside == segment.is_inside or None in (before.is_inside, segment.is_inside)


def _split_at_texts(text: str, role: AtomRole) -> Iterator[SplitPart]:
    """Yield an expression as the text up to what is trained, what is trained, and the text after it."""
    value = text if re.fullmatch(r"\w+", text) else f"({text})"
    trained, head, tail = value, role.head, role.tail
    if head:
        known = quote(head)
        yield SplitPart(f"if {known} in {value}", None, True)
        yield SplitPart(f"{value}.split({known}, 1)[0] + {known}", False)
        trained = f"{value}.split({known}, 1)[1]"
    if tail:
        yield SplitPart(f"{trained}[:-{len(tail)}]", True)
        yield SplitPart(f"{value}[-{len(tail)}:]", False)
    else:
        yield SplitPart(trained, True)
    if head:
        yield SplitPart("else", None, True)
        yield SplitPart(text, None)
        yield SplitPart("endif", None, True)


def quote(text: str) -> str:
    """Return a text as a literal of Jinja."""
    shown = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"'{shown}'"


def cut_literal(source: str, start: int, end: int | None) -> str:
    """Return characters `start` to `end` of a literal's value as a literal, spelled as in the source."""
    mark = source[0]
    letters: Sequence[str] = ESCAPE.findall(source[1:-1])
    values = [_count_letters(letter) for letter in letters]
    kept, place = [], 0
    for letter, count in zip(letters, values, strict=True):
        if place >= start and (end is None or place < end):
            kept.append(letter)
        place += count
    return f"{mark}{''.join(kept)}{mark}"


def _count_letters(letter: str) -> int:
    """Return how many characters a letter or an escape of a literal stands for."""
    if len(letter) == 1:
        return 1
    decoded = letter.encode("ascii", "backslashreplace").decode("unicode-escape")
    return len(decoded)
