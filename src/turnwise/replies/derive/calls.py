"""Where the calls of a probe are in its turn, and how each is laid out.

Three layouts are looked for, in this order: one JSON object for the call, or a list of them (`objects.py`); a name and
JSON arguments between markers; a name and arguments one by one (`pairs.py`). The text before the first slot of a call
and after its last is not looked at here: comparing one call with two shows what of it belongs to every call
(`call_sections.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from turnwise.analysis.prober import (
    ARGUMENTS,
    EMPTY_CONTENTS,
    IDS,
    NAMES,
    CallShape,
    Prober,
    mentions,
)
from turnwise.analysis.segment import Segment, Span
from turnwise.replies.derive.markers import to_marker
from turnwise.replies.derive.objects import (
    FoundCall,
    find_arguments,
    find_call,
    find_list,
    find_spacing,
)
from turnwise.replies.derive.pairs import (
    CHANGED,
    MARKUP,
    NEEDS_ESCAPES,
    AskForCall,
    find_pairs,
    layout_pairs,
    with_other_types,
)
from turnwise.replies.grammar_parts import JsonCall, Marker, TaggedCall

Slot = tuple[int, int, str]  # start, end, and which of `grammar.SLOTS` it is


@dataclass(frozen=True)
class WrittenCalls:
    """The calls of one turn: how they are laid out, and the span of each from its first slot to its last."""

    turn: Segment
    call: JsonCall | TaggedCall
    spans: tuple[Span, ...]
    shape: CallShape
    plain: bool = True  # the arguments are JSON or pairs, not a Python repr

    @property
    def before(self) -> Segment:
        """The text before the first call."""
        return self.turn.slice(0, self.spans[0][0])

    @property
    def after(self) -> Segment:
        """The text after the last call."""
        return self.turn.slice(self.spans[-1][1])


def find_written_calls(turn: Segment, count: int, shape: CallShape) -> WrittenCalls | None:
    """Find so many calls in a turn; None if no layout fits."""
    return _find_objects(turn, count, shape) or _find_tagged(turn, count, shape)


def _find_json_calls(text: str, count: int) -> list[FoundCall] | None:
    calls: list[FoundCall] = []
    start = 0
    for number in range(count):
        call = find_call(text, number, ARGUMENTS[number], start)
        if call is None:
            return None
        calls.append(call)
        start = (call.object or call.arguments).end
    return calls


def _find_objects(turn: Segment, count: int, shape: CallShape) -> WrittenCalls | None:
    """Calls that are JSON objects, alone or in a list."""
    calls = _find_json_calls(turn.text, count)
    if calls is None or calls[0].call is None:
        return None
    objects = [call.object for call in calls if call.object is not None]
    if len(objects) != count:
        return None
    first, last = objects[0], objects[-1]
    # The number of the first call may be a text of the template, that of a later one is counted.
    span = (last.start, last.end)
    parts = _parts_between(turn, _find_slots(turn, count - 1, span, calls[-1]), span)
    is_plain = calls[0].arguments.syntax == "json"
    spacing = find_spacing(turn, calls[0].arguments)
    call = replace(calls[0].call, parts=parts, spacing=spacing)
    found = find_list(turn.text, calls)
    if found is None:
        spans = tuple((one.start, one.end) for one in objects)
        return WrittenCalls(turn, call, spans, shape, is_plain)
    separator = turn.text[first.end : objects[1].start] if count > 1 else ", "
    around = (turn.text[found.start : first.start], separator, turn.text[last.end : found.end])
    call = replace(call, listed=True, around=around)
    return WrittenCalls(turn, call, ((found.start, found.end),), shape, is_plain)


def _find_tagged(turn: Segment, count: int, shape: CallShape) -> WrittenCalls | None:
    """Calls with name and id between markers, and arguments that are JSON, or written one by one."""
    calls = _find_json_calls(turn.text, count)
    rows: list[list[Slot]] = []
    pairs, start = None, 0
    for number in range(count):
        if calls is not None:
            end = calls[number].arguments.end
            slots = _find_slots(turn, number, (start, end), calls[number])
        else:
            name = turn.text.find(NAMES[number], start)
            places = find_pairs(turn.text, ARGUMENTS[number], name) if name >= 0 else None
            if places is None:
                return None
            slots = _find_slots(turn, number, (start, places.keys[0][0]))
            layout = layout_pairs(turn, places, slots[-1][1], ARGUMENTS[number])
            end = layout.end
            slots.append((slots[-1][1] + len(layout.before), end, "arguments"))
            pairs = pairs or layout.pairs
        slots = sorted(slots + _find_words(turn, number, end))
        if not any(slot in ("name", "id") for _, _, slot in slots):
            return None
        rows.append(slots)
        start = slots[-1][1]
    rows[0] = _with_number(turn, rows)
    call = TaggedCall(_parts_between(turn, rows[0]), pairs)
    spans = tuple((slots[0][0], slots[-1][1]) for slots in rows)
    if calls is None:
        return WrittenCalls(turn, call, spans, shape)
    arguments = calls[0].arguments
    call = replace(call, spacing=find_spacing(turn, arguments))
    return WrittenCalls(turn, call, spans, shape, arguments.syntax == "json")


def _find_slots(
    turn: Segment, number: int, span: Span, call: FoundCall | None = None
) -> list[Slot]:
    slots: list[Slot] = []
    start, end = span
    if call is not None:
        slots.append((call.arguments.start, call.arguments.end, "arguments"))
        end = call.arguments.end if call.object is None else end
    slots += _find_words(turn, number, start, end)
    for number_start, number_end, kind in find_numbers(turn, start, end):
        if kind == "computed":
            slots.append((number_start, number_end, "index"))
    return sorted(slots)


def _find_words(turn: Segment, number: int, start: int, end: int | None = None) -> list[Slot]:
    slots: list[Slot] = []
    for word, slot in ((NAMES[number], "name"), (IDS[number], "id")):
        matches = re.compile(re.escape(word)).finditer(turn.text[:end], start)
        slots += [(*match.span(), slot) for match in matches]
    return sorted(slots)


def find_numbers(
    segment: Segment, start: int = 0, end: int | None = None
) -> Iterator[tuple[int, int, str]]:
    """Start, end and kind of origin of each number that is a piece of its own."""
    end = len(segment) if end is None else end
    for piece_start, piece_end, origin in segment.origin_spans:
        inside = start <= piece_start and piece_end <= end
        if inside and segment.text[piece_start:piece_end].isdigit():
            yield piece_start, piece_end, origin.kind


def _with_number(turn: Segment, rows: list[list[Slot]]) -> list[Slot]:
    """Return the slots of the first call; if a later one is counted, with the number of the first."""
    first, last = rows[0], rows[-1]
    place = next((i for i, slot in enumerate(last) if slot[2] == "index"), None)
    if place is None or any(slot == "index" for _, _, slot in first):
        return first
    start = first[place - 1][1] if place else 0
    numbers = list(find_numbers(turn, start, first[place][0]))
    found = [(number_start, number_end, "index") for number_start, number_end, _ in numbers[-1:]]
    return [*first[:place], *found, *first[place:]]


def _parts_between(
    turn: Segment, slots: list[Slot], around: Span | None = None
) -> tuple[Marker | str, ...]:
    """Return slots and the markers between them; with those at both ends if a span is given."""
    parts: list[Marker | str] = []
    position = around[0] if around else slots[0][0]
    for start, end, slot in slots:
        if start > position:
            parts.append(to_marker(turn.slice(position, start)))
        parts.append(slot)
        position = end
    if around and around[1] > position:
        parts.append(to_marker(turn.slice(position, around[1])))
    return tuple(parts)


# Asking for calls

SHAPES_BY_KEY = {
    "tool_calls": (CallShape(), CallShape(as_text=True), CallShape(bare=True)),
    "function_call": (CallShape(single=True), CallShape(as_text=True, single=True)),
}
"""The shapes of calls that a template may accept, by the key that its source then mentions."""


def find_one_call(prober: Prober) -> tuple[Prober, WrittenCalls | None]:
    """Return the turn of one call, and a prober with the settings under which it is rendered."""
    wants_documents = "documents" in prober.renderer.variables and mentions(
        prober.renderer, "tool_calls"
    )
    candidates = [prober, prober.with_settings(documents=True)] if wants_documents else [prober]
    for candidate in candidates:
        for results_follow in (False, True):
            asked = candidate.with_settings(results_follow=results_follow)
            found = _find_best_shape(asked)
            if found is not None:
                return asked, found
    return prober.with_settings(results_follow=False), None


def _shapes(prober: Prober) -> Iterator[CallShape]:
    for key, shapes in SHAPES_BY_KEY.items():
        if mentions(prober.renderer, key):
            yield from shapes


def _find_best_shape(prober: Prober) -> WrittenCalls | None:
    """Return the call in the first shape in which it makes sense, else in the one that makes most sense."""
    found: list[WrittenCalls] = []
    for shape in _shapes(prober):
        calls = [
            call
            for content in EMPTY_CONTENTS
            if (call := _ask_for_call(prober, shape._replace(content=content))) is not None
        ]
        if calls:
            # Content that is empty may have markers of its own.
            found.append(min(calls, key=lambda call: len(call.turn)))
        if found and found[0].plain and not _is_text_in_json(found[0]):
            break
    return min(found, key=_unlikeliness, default=None)


def _unlikeliness(found: WrittenCalls) -> int:
    if _is_text_in_json(found):
        return 1
    if not found.plain:
        return 3
    is_pairs = isinstance(found.call, TaggedCall) and found.call.pairs is not None
    return 2 if found.shape.as_text and is_pairs else 0


def _is_text_in_json(found: WrittenCalls) -> bool:
    return isinstance(found.call, JsonCall) and found.call.as_text


def has_call(text: str) -> bool:
    """Whether the first call of a probe is in a text, by name or id."""
    return NAMES[0] in text or IDS[0] in text


def _ask_for_call(prober: Prober, shape: CallShape) -> WrittenCalls | None:
    turn = prober.turn(prober.call(shape, ARGUMENTS[0]))
    if turn is None or not has_call(turn.text):
        return None
    return find_written_calls(turn, 1, shape)


def find_two_calls(prober: Prober, one: WrittenCalls) -> WrittenCalls | None:
    """Return the turn of two calls; None if the template does not write two."""
    if one.shape.single:
        return None
    turn = prober.turn(prober.call(one.shape, *ARGUMENTS))
    return find_written_calls(turn, 2, one.shape) if turn is not None else None


def complete_call(prober: Prober, one: WrittenCalls) -> tuple[JsonCall | TaggedCall, Iterable[str]]:
    """Return the call with what other types of values show, and notes on what could not be learned."""

    def ask(arguments: dict[str, Any]) -> Segment | None:
        return prober.turn(prober.call(one.shape, arguments))

    call, key = one.call, next(iter(ARGUMENTS[0]))
    if isinstance(call, JsonCall) or call.pairs is None:
        return call, _find_changed_texts(ask, key)
    pairs, unread = with_other_types(call.pairs, ask, key)
    return replace(call, pairs=pairs), unread


def _find_changed_texts(ask: AskForCall, key: str) -> Iterator[str]:
    """Notes on texts that are not the same in the JSON that the template writes."""
    for text, note in ((NEEDS_ESCAPES, "texts: how they are escaped"), (MARKUP, CHANGED)):
        turn = ask({key: text})
        if turn is not None and find_arguments(turn.text, {key: text}, 0) is None:
            yield note


def describe_unknown_calls(prober: Prober) -> str:
    """Return what is rendered of a call that no layout fits."""
    words = [str(word) for pair in ARGUMENTS[0].items() for word in pair]
    turns = [prober.turn(prober.call(shape, ARGUMENTS[0])) for shape in _shapes(prober)]
    texts = [turn.text for turn in turns if turn is not None and has_call(turn.text)]
    if not texts:
        return "no rendering shows a call's name with its arguments"
    if any(all(word in text for word in words) for text in texts):
        return "name and arguments are rendered, in an unknown layout"
    return "the name of a call is rendered, its arguments are changed"
