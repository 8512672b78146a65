"""Arguments that are written one by one: `<parameter=city>Oslo</parameter>`, `city="Oslo"`, `{city:<|"|>Oslo<|"|>}`.

Derived from a call whose arguments are a string, a number, a string:

    NAME  (  zkeya  ="  zvala  "  ,  zkeyb  =  90417  ,  zkeyc  ="  zvalc  "  )

Between the name and the first key is what opens the arguments and a key; between a string and the next key are its
end, a separator and the opening of a key; and so on. How values of other types are written is asked one by one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from turnwise.analysis.segment import EMPTY, Segment, Span, common_suffix, split_between
from turnwise.messages import JsonObject
from turnwise.replies.derive.markers import to_marker, to_region
from turnwise.replies.grammar_parts import KEY, UNQUOTED, Marker, Pairs, Region

NEEDS_ESCAPES = 'zs"zt\n\nzu\\zw'  # a text that every language of literals must escape
MARKUP = "zx<b>zy&zz"
CHANGED = "texts: a `<` or `&` in them is escaped or changed"
VALUES_BY_TYPE: JsonObject = {
    "integer": 90417,
    "number": 3.25,
    "boolean": True,
    "null": None,
    "array": [90417, "zitem"],
    "object": {"zinner": "zdeep"},
}
SPELLINGS = {
    "boolean": ("true", "True"),
    "null": ("null", "None"),
    "array": ("[",),
    "object": ("{",),
}
QUOTES = ("'", '"')

AskForCall = Callable[[JsonObject], Segment | None]  # the turn that calls with these arguments


class PairSpans(NamedTuple):
    """Where keys and values are."""

    keys: list[Span]
    values: list[Span]


class PairsLayout(NamedTuple):
    """The markers of arguments, and where the arguments begin and end."""

    pairs: Pairs
    before: Segment  # between the slot before the arguments and the first key
    end: int  # where the last value ends, its closing marker included


def find_pairs(text: str, arguments: JsonObject, start: int) -> PairSpans | None:
    """Find each key and its value, in order."""
    spans = PairSpans([], [])
    for key, value in arguments.items():
        for word, found in ((key, spans.keys), (str(value), spans.values)):
            place = text.find(word, start)
            if place < 0:
                return None
            start = place + len(word)
            found.append((place, start))
    return spans


def layout_pairs(turn: Segment, spans: PairSpans, start: int, arguments: JsonObject) -> PairsLayout:
    """Find the markers of three pairs: a string, a number, a string; `start` is the end of the slot before them."""
    (key1, key2, key3), (value1, value2, value3) = spans
    head = turn.slice(start, key1[0])
    first, second = turn.slice(value1[1], key2[0]), turn.slice(value2[1], key3[0])
    tail = turn.slice(value3[1])
    names = list(arguments)
    echoed = names[0] in first.text
    if echoed:
        first, second = _mark_key(first, names[0]), _mark_key(second, names[1])
        tail = _mark_key(tail, names[2])
    closer, separator, key_opener = split_between(first, head, tail)
    other_closer = _find_number_closer(second, separator, key_opener)
    pairs = Pairs(
        key=to_marker(key_opener),
        string=to_region(turn.slice(key1[1], value1[0]), closer),
        other=to_region(turn.slice(key2[1], value2[0]), other_closer),
        between=to_marker(separator),
        echoed=echoed,
    )
    closer_length = len(closer.text.replace(KEY, names[2]))
    before_key = head.slice(0, len(head) - len(key_opener))
    return PairsLayout(pairs, before_key, value3[1] + closer_length)


def _mark_key(segment: Segment, key: str) -> Segment:
    place = segment.text.find(key)
    if place < 0:
        return segment
    shift = len(KEY) - len(key)
    starts = tuple(start + shift if start > place else start for start in segment.starts)
    return Segment(segment.text.replace(key, KEY, 1), starts, segment.origins)


def _find_number_closer(second: Segment, separator: Segment, key_opener: Segment) -> Segment:
    rest = separator.text + key_opener.text
    size = len(rest) if second.text.endswith(rest) else common_suffix(second, key_opener)
    return second.slice(0, len(second) - size)


# Values of other types


def with_other_types(pairs: Pairs, ask: AskForCall, key: str) -> tuple[Pairs, list[str]]:
    """Return the layout with what values of other types show, and notes on what could not be learned."""
    unread: list[str] = []
    pairs = _with_string_syntax(pairs, ask, key, unread)
    typed: list[tuple[str, Region]] = []
    values = scalars = "json"
    for kind, value in VALUES_BY_TYPE.items():
        turn = ask({key: value})
        if turn is None or key not in turn.text:
            unread.append(f"arguments of kind {kind}: the template refuses them")
            continue
        start = turn.text.find(key) + len(key)
        opener = pairs.other.open.text
        if not turn.text.startswith(opener, start):
            region = _find_typed_region(turn, start, kind, pairs)
            if region is None:
                unread.append(f"arguments of kind {kind}: their markers were not found")
                continue
            typed.append((kind, region))
            opener = region.open.text
        start += len(opener)
        if kind == "boolean" and turn.text.startswith("True", start):
            scalars = "python"
        elif kind in ("array", "object"):
            values = _find_value_syntax(turn.text, start, kind, pairs, values)
    return replace(pairs, typed=tuple(typed), values=values, scalars=scalars), unread


def _find_typed_region(turn: Segment, start: int, kind: str, pairs: Pairs) -> Region | None:
    value, closer = VALUES_BY_TYPE[kind], pairs.other.close
    end = turn.text.find(closer.core, start) if closer.core else len(turn)
    # A marker may contain "null"; the value is the last one.
    find = turn.text.rfind if kind == "null" else turn.text.find
    spellings = (json.dumps(value, ensure_ascii=False), *SPELLINGS.get(kind, ()), str(value))
    for spelling in spellings:
        place = find(spelling, start, end)
        if place >= 0:
            return Region(to_marker(turn.slice(start, place)), closer)
    return None


def _find_value_syntax(text: str, start: int, kind: str, pairs: Pairs, known: str) -> str:
    value = VALUES_BY_TYPE[kind]
    compact = json.dumps(value, separators=(",", ":"))
    if text.startswith((json.dumps(value), compact), start):
        return known
    if text.startswith(str(value), start):
        return "python"
    quote = pairs.string.close.core
    inner = "zitem" if kind == "array" else "zdeep"
    if quote and pairs.string.open.text.endswith(quote) and quote + inner + quote in text:
        return "quoted"
    return "tags" if pairs.echoed or text[start : start + 1] not in "[{" else known


def _with_string_syntax(pairs: Pairs, ask: AskForCall, key: str, unread: list[str]) -> Pairs:
    """Find how strings are written: as they are or as literals, and what surrounds strings with markup."""
    turn = ask({key: NEEDS_ESCAPES})
    text = turn.text if turn is not None else ""
    if any(json.dumps(NEEDS_ESCAPES, ensure_ascii=ascii) in text for ascii in (True, False)):
        return _without_quotes(pairs, "json")
    if repr(NEEDS_ESCAPES) in text:
        return _without_quotes(pairs, "python")
    if NEEDS_ESCAPES not in text:
        unread.append("texts: how they are escaped")
    elif not _delimits_strings(pairs):
        unread.append(UNQUOTED)
        return replace(pairs, strings="python")
    elif _differs_by_quotes(pairs):
        unread.append("texts: their quotes are not escaped, and they are read as literals")
        quote = pairs.string.open.text[-1]
        return _without_quotes(pairs, "python" if quote == "'" else "json")
    return _with_markup_wrapper(pairs, ask({key: MARKUP}), unread)


def _with_markup_wrapper(pairs: Pairs, turn: Segment | None, unread: list[str]) -> Pairs:
    if turn is None or MARKUP not in turn.text:
        unread.append(CHANGED)
        return pairs
    start = turn.text.find(MARKUP)
    end = start + len(MARKUP)
    opener, closer = pairs.string.open.text, pairs.string.close.text
    value_start = turn.text.rfind(opener, 0, start) + len(opener)
    value_end = turn.text.find(closer, end) if closer else end
    wrapper = turn.slice(value_start, start)
    if wrapper is EMPTY:
        return pairs
    return replace(pairs, wrap=to_region(wrapper, turn.slice(end, max(value_end, end))))


def _delimits_strings(pairs: Pairs) -> bool:
    string, separator = pairs.string, pairs.between.text
    has_marker = string.close.core or string.open.core.strip("=")
    return bool(has_marker) or "\n" in string.close.text + separator


def _differs_by_quotes(pairs: Pairs) -> bool:
    opener, closer = pairs.string.open.text, pairs.string.close.text
    quote = opener[-1:]
    if quote not in QUOTES:
        return False
    return opener[:-1] == pairs.other.open.text and closer == quote + pairs.other.close.text


def _without_quotes(pairs: Pairs, syntax: str) -> Pairs:
    """Return the layout with the quotes as part of the literal instead of the markers."""
    opener, closer = pairs.string.open, pairs.string.close
    if opener.text.endswith(QUOTES):
        opener = Marker(opener.text[:-1], opener.origin)
    if closer.text.startswith(QUOTES):
        closer = Marker(closer.text[1:], closer.origin)
    return replace(pairs, string=Region(opener, closer), strings=syntax)
