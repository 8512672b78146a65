"""Methods of unknown texts: Python's own, applied to the expression of the text.

A method that returns a text gives another unknown text. One that returns a list asks how long that is; one that
searches asks whether the text is there, because mostly it is not, and then nothing changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turnwise.engine.provenance.container_rules import ITEMS, SPLIT, is_from_input
from turnwise.engine.provenance.text_rules import JOINED, REPLACED, STRIPPED
from turnwise.engine.provenance.trails import Trail
from turnwise.engine.provenance.written_fields import unwrap_trail
from turnwise.engine.runtime.limits import MAX_CHARACTER_SIZE
from turnwise.engine.runtime.methods import AFFIX_QUERIES
from turnwise.engine.runtime.values import Pair, Safe
from turnwise.engine.segments.prices import pay
from turnwise.engine.segments.recorder import Recorder
from turnwise.engine.segments.sources import write_value
from turnwise.engine.segments.symbols import (
    MAX_LIST,
    InTrail,
    NotRecordable,
    SafeText,
    UnknownText,
    join_parts,
)

SAFE = (Safe, SafeText)
STRIPS = {"lstrip": ["lstrip"], "rstrip": ["rstrip"], "strip": ["lstrip", "rstrip"]}
SEARCHES = ("replace", "split", "rsplit")


def concatenate_texts(recorder: Recorder, items: Sequence[Any]) -> Pair:
    """Return the concatenation of texts, which are given with their trails."""
    texts = items[::2]
    if not all(isinstance(text, str) for text in texts):
        raise NotRecordable
    kind = UnknownText
    if any(type(text) in SAFE for text in texts):
        kind, recorder.reads_contents = SafeText, True
        for (
            text
        ) in texts:  # others are escaped: if there is nothing to escape, they stay as they are
            source = "''" if type(text) in SAFE else write_value(recorder, text)
            if not recorder.ask(f"escape({source}) == {source}"):
                raise NotRecordable
    is_full = any(text.is_full for text in texts if type(text) is UnknownText)
    found = recorder.make_text(join_parts(texts), is_full, kind)
    pay(recorder, found)
    return found, (JOINED, _hide_texts(items))


def _hide_texts(values: Sequence[Any]) -> list[Any]:
    return [InTrail(value) if isinstance(value, UnknownText) else value for value in values]


def call_text_method(
    recorder: Recorder, text: UnknownText, trail: Trail, name: str, pairs: Sequence[Pair]
) -> Pair:
    """Call a method of an unknown text."""
    args = [value for value, _ in pairs]
    if any(type(arg) not in (str, int, type(None)) for arg in args):
        raise NotRecordable
    wanted: Any = args[0] if name in SEARCHES and args and type(args[0]) is str else ""
    if name not in AFFIX_QUERIES:
        pay(recorder, text, MAX_CHARACTER_SIZE + 2 * price_search(len(wanted)))
    source = f"{text.source}.{name}({', '.join(map(recorder.name, args))})"
    if name in AFFIX_QUERIES:
        return recorder.ask_text(text, source, args[0] if args else None), None
    if name in STRIPS:
        stripped = _strip(recorder, text, name, *args)
        stripped = stripped or recorder.make_text((recorder.make_slot(source),))
        own = unwrap_trail(trail)
        return stripped, own if is_from_input(own) else (STRIPPED, InTrail(text), trail)
    if not wanted:
        raise NotRecordable
    if not recorder.ask_text(text, f"{recorder.name(wanted)} in {text.source}", wanted):
        return (text, trail) if name == "replace" else ([text], (ITEMS, [trail]))
    return _call_found(recorder, text, trail, name, source, pairs)


def _call_found(
    recorder: Recorder,
    text: UnknownText,
    trail: Trail,
    name: str,
    source: str,
    pairs: Sequence[Pair],
) -> Pair:
    """Call a method that searches for a text which is there."""
    (wanted, _), *more = pairs
    if name == "replace":
        (new, new_trail), *limit = more
        if len(new) > len(wanted):
            raise NotRecordable  # the text grows
        replaced = recorder.make_text((recorder.make_slot(source),))
        count = limit[0][0] if limit else -1
        return replaced, (REPLACED, InTrail(text), trail, wanted, new, new_trail, count)
    parts: list[Any] = []
    if name == "split" and not more and isinstance(text.parts[0], str):
        *constants, end = text.parts[0].split(wanted)
        rest = recorder.make_text(join_parts([end, *text.parts[1:]]))
        if not recorder.ask_text(rest, f"{recorder.name(wanted)} in {rest.source}", wanted):
            parts = [*constants, rest]
    count = len(parts) or recorder.ask_text(text, f"len({source})")
    if count > MAX_LIST:
        raise NotRecordable
    parts = parts or [
        recorder.make_text((recorder.make_slot(f"{source}[{index}]"),)) for index in range(count)
    ]
    if is_from_input(trail):
        return parts, (ITEMS, [trail] * count)
    return parts, (SPLIT, InTrail(text), trail, _hide_texts(parts))


def _strip(
    recorder: Recorder, text: UnknownText, name: str, letters: str | None = None
) -> UnknownText | None:
    """Return a text without white space at its ends; None if what is there may be blank, or more is stripped.

    A field that is not blank keeps some text, so what is beyond it stays as it is.
    """
    if not (letters or " ").isspace():
        return None
    parts = list(text.parts)
    for side in STRIPS[name]:
        end = 0 if side == "lstrip" else -1
        while parts and isinstance(parts[end], str):
            parts[end] = getattr(parts[end], side)(letters)
            if parts[end]:
                break
            del parts[end]
        slot = parts[end] if parts else None
        if isinstance(slot, str):
            continue
        if slot is None or slot.field is None or slot.field.state or slot.is_json:
            return None
        source = f"{slot.source}.{side}({'' if letters is None else repr(letters)})"
        trimmed = recorder.make_slot(source, slot.field)
        parts[end] = trimmed._replace(trims=(*slot.trims, (side, letters)))
    return recorder.make_text(tuple(parts), is_full=True)


def price_search(length: int) -> int:
    """Return what a search for a text of this length pays at most for each character (`runtime/measures.py`)."""
    return 5 + length // 8 if length else 0
