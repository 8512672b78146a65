"""Methods of unknown texts: Python's own, applied to the expression of the text.

A method that returns a text gives another unknown text. One that returns a list asks how long that is; one that
searches asks whether the text is there, because mostly it is not, and then nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from turnwise.engine.runtime.limits import MAX_CHARACTER_SIZE
from turnwise.engine.runtime.values import Pair
from turnwise.engine.segments.recorder import Recorder
from turnwise.engine.segments.symbols import (
    MAX_LIST,
    NotRecordable,
    UnknownNumber,
    UnknownText,
    join_parts,
)

TEXT_METHODS = frozenset(
    ["lstrip", "rstrip", "strip", "replace", "lower", "upper", "removeprefix", "removesuffix"]
)
QUESTION_METHODS = frozenset(["startswith", "endswith"])
NUMBER_METHODS = frozenset(["find", "rfind", "count"])
STRIPS = {"lstrip": ["lstrip"], "rstrip": ["rstrip"], "strip": ["lstrip", "rstrip"]}
# Results of methods that search for a text which is absent.
ABSENT_RESULTS: dict[str, Callable[[UnknownText], Any]] = {
    "count": lambda text: 0,
    "find": lambda text: -1,
    "partition": lambda text: (text, "", ""),
    "removeprefix": lambda text: text,
    "removesuffix": lambda text: text,
    "replace": lambda text: text,
    "rfind": lambda text: -1,
    "rpartition": lambda text: ("", "", text),
    "rsplit": lambda text: [text],
    "split": lambda text: [text],
}


def concatenate_texts(recorder: Recorder, texts: Sequence[Any]) -> Pair:
    if not all(isinstance(text, str) for text in texts):
        raise NotRecordable
    parts = join_parts(texts)
    found = recorder.make_text(
        parts, any(text.is_full for text in texts if type(text) is UnknownText)
    )
    recorder.pay(found)
    return found, None


def call_text_method(recorder: Recorder, text: UnknownText, name: str, args: Sequence[Any]) -> Any:
    """Call a method of an unknown text."""
    if any(type(arg) not in (str, int, type(None)) for arg in args):
        raise NotRecordable
    is_search = name in ABSENT_RESULTS and args and type(args[0]) is str and args[0]
    if name not in QUESTION_METHODS:
        searched = len(args[0]) if is_search else 0
        recorder.pay(text, MAX_CHARACTER_SIZE + 2 * price_search(searched))
    source = f"{text.source}.{name}({', '.join(map(recorder.name, args))})"
    if name in QUESTION_METHODS:
        return recorder.ask_text(text, source, args[0] if args else None)
    if name in STRIPS:
        stripped = _strip(recorder, text, name, *args)
        return stripped or recorder.make_text((recorder.make_slot(source),))
    if not is_search:
        raise NotRecordable
    if not recorder.ask_text(text, f"{recorder.name(args[0])} in {text.source}", args[0]):
        return ABSENT_RESULTS[name](text)
    return _call_found(recorder, text, name, source, args)


def _call_found(
    recorder: Recorder, text: UnknownText, name: str, source: str, args: Sequence[Any]
) -> Any:
    """Return the result of a method that searches for a text which is there."""
    if name == "replace" and len(args[1]) > len(args[0]):
        raise NotRecordable  # the text grows
    if name in NUMBER_METHODS:
        return UnknownNumber(recorder, source)
    if name in TEXT_METHODS:
        return recorder.make_text((recorder.make_slot(source),))
    count = 3 if "partition" in name else recorder.ask_text(text, f"len({source})")
    if count > MAX_LIST:
        raise NotRecordable
    found = [
        recorder.make_text((recorder.make_slot(f"{source}[{index}]"),)) for index in range(count)
    ]
    return tuple(found) if "partition" in name else found


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
