"""Find where an assistant turn ends: after its stop.

Templates differ in where they write the stop, and tokenizers in what they make of it, so candidates are tried in this
order:

1. a stop token inside the turn, after its last character of content;
2. a stop that the tokenizer does not know as a token, spelled by the template inside the turn;
3. a stop that opens the next turn, as a token or spelled (GLM writes none of its own);
4. any special token at the very end of the turn (a stop that is not declared).

A turn without any of these has no stop: it ends with its content. Only text of the template counts, never a message
that spells a stop.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from turnwise.engine.provenance.piece_table import PieceTable
from turnwise.engine.provenance.trails import Computed, Field
from turnwise.messages import Path
from turnwise.tokens.token_matcher import TokenMatch

SPACE = " \t\r\n"
NAME_FIELDS = ("name", "id")  # a tool result repeats them of the call that it answers
_SPACES = re.compile(f"[{SPACE}]*")
_get_start = attrgetter("start")  # of a TokenMatch


class TextSpan(NamedTuple):
    """The characters from `start` to `end` of a text."""

    start: int
    end: int


def find_turn_end(
    table: PieceTable,
    text: str,
    turn: TextSpan,
    specials: Sequence[TokenMatch],
    stops: frozenset[str],
) -> TextSpan:
    """Return the span of the stop that ends a turn, or an empty span at the end of its content.

    Args:
        table: the rendered text with its origins.
        text: the same as a string.
        turn: from the model's first character to the end of the message.
        specials: the special tokens that the template wrote, in order.
        stops: the texts that end turns.
    """
    first = bisect_left(specials, turn.start, key=_get_start)
    after = bisect_left(specials, turn.end, first, key=_get_start)
    inside = specials[first:after]
    if stop := _find_stop_after_content(table, text, turn, inside, stops):
        return _without_stripped_space(text, stop)
    if spelled := _find_spelled_stop(table, text, turn, stops):
        return spelled
    if after < len(specials):
        following = specials[after]
        if following.token.text in stops and is_blank(text, turn.end, following.start):
            return _without_stripped_space(text, following)
    if spelled := _find_spelled_opening(table, text, turn.end, stops):
        return spelled
    if inside and is_blank(text, inside[-1].end, turn.end):
        return _without_stripped_space(text, inside[-1])
    text_end = turn.start + len(text[turn.start : turn.end].rstrip(SPACE))
    end = max(text_end, find_content_end(table, turn))
    return TextSpan(end, end)


def _find_stop_after_content(
    table: PieceTable,
    text: str,
    turn: TextSpan,
    inside: Sequence[TokenMatch],
    stops: frozenset[str],
) -> TokenMatch | None:
    """Return the first stop token after the last character of content, if any."""
    candidates = [match for match in inside if match.token.text in stops]
    if not candidates:
        return None
    if len(candidates) == 1 and is_blank(text, candidates[0].end, turn.end):
        return candidates[0]  # the usual case: nothing but white space is left
    content_end = _find_reply_end(table, turn)
    return next((match for match in candidates if match.start >= content_end), None)


def _find_spelled_stop(
    table: PieceTable, text: str, turn: TextSpan, stops: frozenset[str]
) -> TextSpan | None:
    """Return the first stop that is spelled in the turn after its last character of content, if any."""
    written = [stop for stop in stops if text.find(stop, turn.start, turn.end) >= 0]
    if not written:
        return None
    content_end = _find_reply_end(table, turn)
    found = [
        TextSpan(start, start + len(stop))
        for stop in written
        if (start := text.find(stop, content_end, turn.end)) >= 0
    ]
    return min(found, key=lambda span: (span.start, -span.end), default=None)


def _find_spelled_opening(
    table: PieceTable, text: str, turn_end: int, stops: frozenset[str]
) -> TextSpan | None:
    """Return the stop that the template spells directly after a turn, if any."""
    start = _SPACES.match(text, turn_end).end()  # type: ignore[union-attr]  # it matches everywhere
    written = [stop for stop in stops if text.startswith(stop, start)]
    if not written:
        return None
    span = TextSpan(start, start + len(max(written, key=len)))
    is_template_text = all(
        _field_of_message(leaf) is None for _, _, leaf in origins_in(table, span)
    )
    return span if is_template_text else None


def _find_reply_end(table: PieceTable, turn: TextSpan) -> int:
    """Return where the last field of a message ends that the model itself wrote.

    A tool result may repeat the name and the id of its call. So a name counts once, and an id not at all: no stop is
    written between the rest of a call and its id.
    """
    reply_end = turn.start
    names: set[Path] = set()
    for _, end, leaf in origins_in(table, turn):
        path = _field_of_message(leaf)
        if path is None or path[-1] == "id" or path in names:
            continue
        if path[-1] == "name":
            names.add(path)
        reply_end = min(end, turn.end)
    return reply_end


def _field_of_message(leaf: Any) -> Path | None:
    """Return the path of a text that came from a message, but from its role; else None."""
    paths = leaf.sources if isinstance(leaf, Computed) else ()
    if isinstance(leaf, Field):
        paths = (leaf.path,)
    for path in paths:
        if path[0] == "messages" and path[-1] != "role":
            return tuple(path)
    return None


def is_blank(text: str, start: int, end: int) -> bool:
    """Return whether there is only white space between two characters."""
    return not text[start:end].strip(SPACE)


def _without_stripped_space(text: str, match: TokenMatch) -> TextSpan:
    """Return the span of a token without the white space that it strips."""
    if not (match.token.lstrip or match.token.rstrip):
        return TextSpan(match.start, match.end)
    content = text[match.start : match.end]
    start = match.start + len(content) - len(content.lstrip(SPACE))
    return TextSpan(start, match.start + len(content.rstrip(SPACE)))


def find_content_end(table: PieceTable, span: TextSpan) -> int:
    """Return the end of the last character within `span` that came from a field; its start if none did."""
    for index in range(table.index_at(span.end - 1), -1, -1):
        if table.starts[index] < span.start:
            break
        if type(table.trails[index]) is int:
            continue  # the template's own text
        end = table.starts[index + 1]
        for part, leaf in reversed(table.split(index)):
            if isinstance(leaf, Field):
                return end
            end -= len(part)
    return span.start


def origins_in(
    table: PieceTable, span: TextSpan, backwards: bool = False
) -> Iterator[tuple[int, int, Any]]:
    """Yield the first character, the end and the origin of every text in a span."""
    indices = range(table.index_at(span.start), table.index_at(span.end - 1) + 1)
    for index in reversed(indices) if backwards else indices:
        place = table.starts[index]
        found = []
        for part, leaf in table.split(index):
            end = place + len(part)
            if end > span.start and place < min(end, span.end):
                found.append((place, end, leaf))
            place = end
        yield from reversed(found) if backwards else found
