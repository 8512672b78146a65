"""What a template wrote differently for the same messages, once more of them followed.

The rendering of a conversation should begin with that of a shorter one: only then can a server reuse what it computed
for the shorter one. Where it does not, `find_rewrite` tells the first character that changed, the message and the field
it belongs to, and the condition of the template that decided (`decisions.py`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from turnwise.analysis.decisions import Decision, map_branches
from turnwise.engine.provenance.rendering import Piece, Rendering
from turnwise.engine.renderer import TOOL_USE, Renderer
from turnwise.errors import short_repr
from turnwise.messages import format_path

MAX_SHOWN_LENGTH = 60  # characters of a text
MAX_WORD_LENGTH = 40  # characters before the first difference in which a word or marker may begin
# The last opening bracket without white space or a closing one after it, else the last word.
_BEGUN_MARKER = re.compile(r"[<\[{][^<\[{>\]}\s]*\Z")
_BEGUN_WORD = re.compile(r"\w+\Z")

FieldPath = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Earlier text that changed.

    Attributes:
        at: The index of the first character that is not the same.
        before: The earlier text from the marker or word on in which it changed.
        now: The same of the later text.
        message: The index of the message to which it belongs; None if it belongs to none.
        field: The field that is not written any more, or newly written, such as `messages[1].reasoning_content`.
        decision: The line of the template that decided.
    """

    at: int
    before: str
    now: str
    message: int | None
    field: str | None
    decision: Decision | None

    @property
    def place(self) -> str:
        """The field, else the message, that changed."""
        if self.field is not None:
            return self.field
        return (
            "text outside of the messages" if self.message is None else f"messages[{self.message}]"
        )

    def show_change(self) -> str:
        """Return the beginnings of both texts."""
        before, now = (short_repr(text[:MAX_SHOWN_LENGTH]) for text in (self.before, self.now))
        return f"{self.place}: {before} became {now}"

    def __str__(self) -> str:
        where = "" if self.decision is None else f" ({self.decision})"
        return self.show_change() + where


def find_rewrite(
    renderer: Renderer, before: Rendering, after: Rendering, with_tools: bool
) -> Rewrite | None:
    """Return what changed of an earlier rendering; None if the later one begins with it.

    Args:
        renderer: What rendered both.
        before: The rendering of some messages.
        after: The rendering of these and more messages.
        with_tools: Whether tools were given, for which some models have another template.
    """
    if after.text.startswith(before.text):
        return None
    at = common_length(before.text, after.text)
    old, new = pieces_from(before, at), pieces_from(after, at)
    start = find_word_start(before.text, at)
    path = _find_changed_field(before, after, old, new)
    message = old[0].origin.message
    if path is not None:
        message = path[1]
    return Rewrite(
        at,
        before.text[start:],
        after.text[start:],
        message,
        None if path is None else format_path(path),
        find_decision(renderer, with_tools, old, new),
    )


def find_decision(
    renderer: Renderer, with_tools: bool, before: Sequence[Piece], after: Sequence[Piece] = ()
) -> Decision | None:
    """Return what decided in the program that wrote pieces; some models have another one for tools."""
    program = renderer.named.get(TOOL_USE, renderer.program) if with_tools else renderer.program
    return map_branches(program.text).find(before, after)


def common_length(first: Sequence[Any], second: Sequence[Any]) -> int:
    """Return how many elements two texts or lists have in common at their beginning, by bisection."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def pieces_from(rendering: Rendering, at: int) -> list[Piece]:
    """Return the pieces from a character on; the first is the one that it is in."""
    start = 0
    for index, piece in enumerate(rendering.pieces):
        start += len(piece.text)
        if start > at:
            return list(rendering.pieces[index:])
    return []


def _find_changed_field(
    before: Rendering, after: Rendering, old: list[Piece], new: list[Piece]
) -> FieldPath | None:
    """Return the first field that only one of two renderings has, else the field in which they part."""
    written_before, written_after = _fields_of(before.pieces), _fields_of(after.pieces)
    for piece in old:
        for path in _field_paths(piece):
            if path not in written_after:
                return path
    last = max((path[1] for path in written_before), default=-1)
    for piece in new:
        for path in _field_paths(piece):
            if path not in written_before and path[1] <= last:
                return path
    return next(iter(_field_paths(old[0])), None)


def _fields_of(pieces: Sequence[Piece]) -> set[FieldPath]:
    return {path for piece in pieces for path in _field_paths(piece)}


def _field_paths(piece: Piece) -> list[FieldPath]:
    """Return the fields of messages that a piece is made of; the role is none, since it is part of a header."""
    origin = piece.origin
    paths = [origin.path] if origin.path else [*origin.sources]
    found = [tuple(path[:3]) for path in paths if len(path) > 2 and path[0] == "messages"]
    return [path for path in found if path[2] != "role"]


def find_word_start(text: str, place: int) -> int:
    """Return where the marker or word begins that a character is a part of, or the character itself."""
    window_start = max(0, place - MAX_WORD_LENGTH)
    window = text[window_start:place]
    begun = _BEGUN_MARKER.search(window) or _BEGUN_WORD.search(window)
    return window_start + begun.start() if begun else place
