"""Arguments that are written one by one: `<parameter=city>Oslo</parameter>`, `city="Oslo"`, `{city:<|"|>Oslo<|"|>}`.

Read off a call whose arguments are a text, a number, a text. Between the name and the first key stands what opens the
arguments and a key; between a text and the next key its end, a separator and the opening of a key; and so on. How
other kinds of values are written is asked one by one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from turnwise.analysis.segment import NONE, Stretch, between, shared_end
from turnwise.replies.grammar import KEY, Marker, Pairs, Region

ODD = 'zs"zt\n\nzu\\zw'  # a text that every language of literals must escape
MARKUP = "zx<b>zy&zz"
CHANGED = "texts: a `<` or `&` in them does not come out as it is"
KINDS: dict[str, Any] = {
    "integer": 90417,
    "number": 3.25,
    "boolean": True,
    "null": None,
    "array": [90417, "zitem"],
    "object": {"zinner": "zdeep"},
}
WORDS = {"boolean": ("true", "True"), "null": ("null", "None"), "array": ("[",), "object": ("{",)}

Ask = Callable[[dict[str, Any]], Stretch | None]  # the turn that calls with these arguments


class Places(NamedTuple):
    """Where keys and values stand: pairs of (start, end)."""

    keys: list[tuple[int, int]]
    values: list[tuple[int, int]]


def find_pairs(text: str, arguments: dict[str, Any], start: int) -> Places | None:
    """Where each key and its value are written, in order."""
    keys: list[tuple[int, int]] = []
    values: list[tuple[int, int]] = []
    for key, value in arguments.items():
        for word, places in ((key, keys), (str(value), values)):
            at = text.find(word, start)
            if at < 0:
                return None
            places.append((at, at + len(word)))
            start = at + len(word)
    return Places(keys, values)


class Layout(NamedTuple):
    pairs: Pairs
    before: Stretch  # between what stands before the arguments and the first key
    behind: int  # where the last value ends, its closing marker included


def pairs_of(turn: Stretch, places: Places, start: int, arguments: dict[str, Any]) -> Layout:
    """The markers of three pairs, a text, a number, a text; `start` is where the slot before them ends."""
    (key1, key2, key3), (value1, value2, value3) = places
    head = turn.part(start, key1[0])
    first, second = turn.part(value1[1], key2[0]), turn.part(value2[1], key3[0])
    tail = turn.part(value3[1])
    names = list(arguments)
    echoed = names[0] in first.text
    if echoed:
        tail = named(tail, names[2])
        first, second = named(first, names[0]), named(second, names[1])
    close, separator, key = between(first, head, tail)
    other = other_close(second, separator, key)
    pairs = Pairs(
        key=key.marker(),
        string=Region(turn.part(key1[1], value1[0]).marker(), close.marker()),
        other=Region(turn.part(key2[1], value2[0]).marker(), other.marker()),
        between=separator.marker(),
        echoed=echoed,
    )
    size = len(close.text.replace(KEY, names[2]))
    return Layout(pairs, head.part(0, len(head) - len(key)), value3[1] + size)


def named(stretch: Stretch, key: str) -> Stretch:
    """The stretch with the key's place marked."""
    at = stretch.text.find(key)
    if at < 0:
        return stretch
    shift = len(KEY) - len(key)
    starts = tuple(start + shift if start > at else start for start in stretch.starts)
    return Stretch(stretch.text.replace(key, KEY, 1), starts, stretch.origins, stretch.tokens)


def other_close(second: Stretch, separator: Stretch, key: Stretch) -> Stretch:
    """What ends a number: what stands before separator and key."""
    rest = separator.text + key.text
    if second.text.endswith(rest):
        return second.part(0, len(second) - len(rest))
    return second.part(0, len(second) - shared_end(second, key))


def with_kinds(pairs: Pairs, ask: Ask, key: str) -> tuple[Pairs, list[str]]:
    """What the other kinds of values add, and what could not be learned."""
    unread: list[str] = []
    pairs = with_strings(pairs, ask, key, unread)
    typed, values, scalars = [], "json", "json"
    for kind, value in KINDS.items():
        turn = ask({key: value})
        at = turn.text.find(key) + len(key) if turn is not None and key in turn.text else 0
        if turn is None or not at:
            unread.append(f"arguments of kind {kind}: the template refuses them")
            continue
        if not turn.text.startswith(pairs.other.open.text, at):
            region = typed_region(turn, at, kind, value, pairs)
            if region is None:
                unread.append(f"arguments of kind {kind}: their markers were not found")
                continue
            typed.append((kind, region))
            at += len(region.open.text)
        else:
            at += len(pairs.other.open.text)
        if kind == "boolean":
            scalars = "python" if turn.text.startswith(WORDS[kind][1], at) else scalars
        elif kind in ("array", "object"):
            values = language(turn.text, at, kind, pairs, values)
    return replace(pairs, typed=tuple(typed), values=values, scalars=scalars), unread


def typed_region(turn: Stretch, at: int, kind: str, value: Any, pairs: Pairs) -> Region | None:
    """The markers around a value of a kind that has its own."""
    end = turn.text.find(pairs.other.close.core, at) if pairs.other.close.core else len(turn)
    for word in (json.dumps(value, ensure_ascii=False), *WORDS.get(kind, ()), str(value)):
        start = turn.text.rfind(word, at, end) if kind == "null" else turn.text.find(word, at, end)
        if start >= 0:
            return Region(turn.part(at, start).marker(), pairs.other.close)
    return None


def language(text: str, at: int, kind: str, pairs: Pairs, known: str) -> str:
    """In which language values are written, as far as this one tells."""
    value, opener = KINDS[kind], pairs.string.open.text
    if text.startswith(json.dumps(value), at) or text.startswith(
        json.dumps(value, separators=(",", ":")), at
    ):
        return known
    if text.startswith(str(value), at):
        return "python"
    mark = pairs.string.close.core
    inner = "zitem" if kind == "array" else "zdeep"
    if mark and opener.endswith(mark) and mark + inner + mark in text:
        return "quoted"
    return "tags" if pairs.echoed or text[at : at + 1] not in "[{" else known


def with_strings(pairs: Pairs, ask: Ask, key: str, unread: list[str]) -> Pairs:
    """How texts are written: as they are, or as literals; and what is put around texts that hold markup."""
    turn = ask({key: ODD})
    text = turn.text if turn is not None else ""
    forms = {"json": (json.dumps(ODD), json.dumps(ODD, ensure_ascii=False)), "python": (repr(ODD),)}
    for language, written in forms.items():
        for form in written:
            if form in text:
                return unquoted(pairs, language)
    if ODD not in text:
        unread.append("texts: how they are escaped")
    elif not (pairs.string.close.core or pairs.string.open.core.strip("=") or "\n" in ends(pairs)):
        unread.append("texts: they are written without quotes, and read as literals")
        return replace(pairs, strings="python")
    elif quoted_value(pairs):
        unread.append("texts: their quotes are not escaped, and they are read as literals")
        return unquoted(pairs, "python" if pairs.string.open.text.endswith("'") else "json")
    turn = ask({key: MARKUP})
    if turn is None or MARKUP not in turn.text:
        unread.append(CHANGED)
        return pairs
    at, end = turn.text.find(MARKUP), turn.text.find(MARKUP) + len(MARKUP)
    start = turn.text.rfind(pairs.string.open.text, 0, at) + len(pairs.string.open.text)
    stop = turn.text.find(pairs.string.close.text, end) if pairs.string.close else end
    opens, closes = turn.part(start, at), turn.part(end, max(stop, end))
    return (
        replace(pairs, wrap=Region(opens.marker(), closes.marker())) if opens is not NONE else pairs
    )


def ends(pairs: Pairs) -> str:
    """What stands between a text and the next key."""
    return pairs.string.close.text + pairs.between.text


def quoted_value(pairs: Pairs) -> bool:
    """A text differs from a number by its quotes alone."""
    opens, closes, plain = pairs.string.open.text, pairs.string.close.text, pairs.other
    mark = opens[-1:]
    return (
        mark in ("'", '"') and opens[:-1] == plain.open.text and closes == mark + plain.close.text
    )


def unquoted(pairs: Pairs, language: str) -> Pairs:
    """The quotes belong to the literal, not to the markers."""
    opens, closes = pairs.string.open, pairs.string.close
    if opens.text[-1:] in "\"'":
        opens = Marker(opens.text[:-1], opens.origin)
    if closes.text[:1] in "\"'":
        closes = Marker(closes.text[1:], closes.origin)
    return replace(pairs, string=Region(opens, closes), strings=language)
