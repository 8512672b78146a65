"""Where the calls of a probe stand in its turn, and how each is laid out.

Three layouts are looked for, in this order: one JSON object for the call, or a list of them (`objects.py`); a name and
JSON arguments between markers; a name and arguments one by one (`pairs.py`). What stands before the first slot of a
call and behind its last is not looked at here: comparing one call with two tells what of it belongs to every call.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from turnwise.replies.grammar import JsonCall, Marker, TaggedCall
from turnwise.replies.objects import Found, find_call, find_list, spacing
from turnwise.replies.pairs import Ask, find_pairs, pairs_of, with_kinds
from turnwise.replies.probing import ARGUMENTS, CONTENTS, IDS, NAMES, Prober, Shape
from turnwise.replies.stretch import Stretch

Span = tuple[int, int]
Slot = tuple[int, int, str]


@dataclass(frozen=True)
class Written:
    """The calls of one turn: how they are laid out, and from where to where each one's slots go."""

    turn: Stretch
    call: JsonCall | TaggedCall
    spans: tuple[Span, ...]
    shape: Shape
    plain: bool = True  # the arguments came out as JSON or in pairs, and not as something that no one can have meant


def written(turn: Stretch, count: int, shape: Shape) -> Written | None:
    """The calls in a turn that was asked for so many of them."""
    for layout in (as_objects, as_json, as_pairs):
        found = layout(turn, count, shape)
        if found is not None:
            return found
    return None


def find_calls(text: str, count: int) -> list[Found] | None:
    found: list[Found] = []
    start = 0
    for number in range(count):
        call = find_call(text, number, ARGUMENTS[number], start)
        if call is None:
            return None
        found.append(call)
        start = (call.object or call.arguments).end
    return found


def as_objects(turn: Stretch, count: int, shape: Shape) -> Written | None:
    calls = find_calls(turn.text, count)
    if calls is None or calls[0].object is None or calls[0].call is None:
        return None
    objects = [call.object for call in calls if call.object is not None]
    if len(objects) != count:
        return None
    last = objects[-1]  # the first number may be a text of the template, a later one is counted
    parts = parts_of(turn, slots_in(turn, count - 1, (last.start, last.end), calls[-1]), last[:2])
    plain = calls[0].arguments.syntax == "json"
    call = replace(calls[0].call, parts=parts, spacing=spacing(turn, calls[0].arguments))
    listed = find_list(turn.text, calls, 0)
    if listed is None:
        return Written(turn, call, tuple((one.start, one.end) for one in objects), shape, plain)
    first = objects[0]
    middle = turn.text[first.end : objects[1].start] if count > 1 else ", "
    around = (turn.text[listed.start : first.start], middle, turn.text[last.end : listed.end])
    return Written(turn, replace(call, listed=True, around=around), ((listed.start, listed.end),), shape, plain)


def as_json(turn: Stretch, count: int, shape: Shape) -> Written | None:
    calls = find_calls(turn.text, count)
    if calls is None:
        return None
    spans: list[Span] = []
    parts: tuple[Marker | str, ...] = ()
    start = 0
    for number, call in enumerate(calls):
        slots = slots_in(turn, number, (start, call.arguments.end), call)
        if not any(slot in ("name", "id") for _, _, slot in slots):
            return None
        spans.append((slots[0][0], slots[-1][1]))
        parts = parts or parts_of(turn, slots)
        start = call.arguments.end
    layout = TaggedCall(parts, spacing=spacing(turn, calls[0].arguments))
    return Written(turn, layout, tuple(spans), shape, calls[0].arguments.syntax == "json")


def as_pairs(turn: Stretch, count: int, shape: Shape) -> Written | None:
    spans, call, start = [], None, 0
    for number in range(count):
        name = turn.text.find(NAMES[number], start)
        places = find_pairs(turn.text, ARGUMENTS[number], name) if name >= 0 else None
        if places is None:
            return None
        slots = slots_in(turn, number, (start, places.keys[0][0]))
        layout = pairs_of(turn, places, slots[-1][1], ARGUMENTS[number])
        slots.append((slots[-1][1] + len(layout.before), layout.behind, "arguments"))
        spans.append((slots[0][0], layout.behind))
        call = call or TaggedCall(parts_of(turn, slots), layout.pairs)
        start = layout.behind
    return Written(turn, call, tuple(spans), shape) if call is not None else None


def slots_in(turn: Stretch, number: int, span: Span, call: Found | None = None) -> list[Slot]:
    """The slots of one call in this part of the turn, in order."""
    slots: list[Slot] = []
    start, end = span
    if call is not None:
        slots.append((call.arguments.start, call.arguments.end, "arguments"))
        end = call.arguments.end if call.object is None else end
    for word, slot in ((NAMES[number], "name"), (IDS[number], "id")):
        at = turn.text.find(word, start, end)
        while at >= 0:
            slots.append((at, at + len(word), slot))
            at = turn.text.find(word, at + len(word), end)
    for at, origin, following in zip(turn.starts, turn.origins, (*turn.starts[1:], len(turn)), strict=True):
        if start <= at and following <= end and origin.kind == "computed" and turn.text[at:following].isdigit():
            slots.append((at, following, "index"))
    return sorted(slots)


def parts_of(turn: Stretch, slots: list[Slot], around: Any = None) -> tuple[Marker | str, ...]:
    """Slots and the markers between them; with those at both ends if it is said how far they go."""
    parts: list[Marker | str] = []
    at = around[0] if around else slots[0][0]
    for start, end, slot in slots:
        if start > at:
            parts.append(turn.part(at, start).marker())
        parts.append(slot)
        at = end
    if around and around[1] > at:
        parts.append(turn.part(at, around[1]).marker())
    return tuple(parts)


def one_call(prober: Prober) -> Written | None:
    """The turn of one call, in the first shape that the template takes and that makes sense."""
    found: list[Written] = []
    if not prober.mentions("tool_calls"):
        return None
    for as_text, bare in ((False, False), (True, False), (False, True)):
        for content in CONTENTS:
            shape = Shape(content, as_text, bare)
            turn = prober.turn(prober.calls(shape, ARGUMENTS[0]))
            if turn is None or not any(word in turn.text for word in (NAMES[0], IDS[0])):
                continue
            call = written(turn, 1, shape)
            if call is not None:
                found.append(call)
                break
        if found and found[0].plain and not (isinstance(found[0].call, JsonCall) and found[0].call.as_text):
            break
    return next((call for call in found if call.plain), found[0] if found else None)


def two_calls(prober: Prober, one: Written) -> Written | None:
    turn = prober.turn(prober.calls(one.shape, *ARGUMENTS))
    if turn is None:
        return None
    return written(turn, 2, one.shape)


def asking(prober: Prober, shape: Shape) -> Ask:
    """Ask for a call with other arguments."""

    def ask(arguments: dict[str, Any]) -> Stretch | None:
        return prober.turn(prober.calls(shape, arguments))

    return ask


def completed(prober: Prober, one: Written) -> tuple[JsonCall | TaggedCall, list[str]]:
    """The call with what the other kinds of values tell; and what could not be learned."""
    call = one.call
    if isinstance(call, JsonCall) or call.pairs is None:
        return call, []
    pairs, unread = with_kinds(call.pairs, asking(prober, one.shape), next(iter(ARGUMENTS[0])))
    return replace(call, pairs=pairs), unread
