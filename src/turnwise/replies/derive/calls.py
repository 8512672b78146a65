"""Where the calls of a probe stand in its turn, and how each is laid out.

Three layouts are looked for, in this order: one JSON object for the call, or a list of them (`objects.py`); a name and
JSON arguments between markers; a name and arguments one by one (`pairs.py`). What stands before the first slot of a
call and behind its last is not looked at here: comparing one call with two tells what of it belongs to every call.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from turnwise.analysis.prober import ARGUMENTS, CONTENTS, IDS, NAMES, Prober, Shape
from turnwise.analysis.segment import Stretch, places
from turnwise.replies.derive.objects import Found, find_arguments, find_call, find_list, spacing
from turnwise.replies.derive.pairs import (
    CHANGED,
    MARKUP,
    ODD,
    Ask,
    find_pairs,
    pairs_of,
    with_kinds,
)
from turnwise.replies.grammar import JsonCall, Marker, TaggedCall

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
    return Written(
        turn, replace(call, listed=True, around=around), ((listed.start, listed.end),), shape, plain
    )


def as_json(turn: Stretch, count: int, shape: Shape) -> Written | None:
    calls = find_calls(turn.text, count)
    if calls is None:
        return None
    rows, start = [], 0
    for number, call in enumerate(calls):
        slots = slots_in(turn, number, (start, call.arguments.end), call)
        slots = sorted(slots + words_in(turn, number, call.arguments.end))
        if not any(slot in ("name", "id") for _, _, slot in slots):
            return None
        rows.append(slots)
        start = slots[-1][1]
    rows[0] = numbered(turn, rows)
    layout = TaggedCall(parts_of(turn, rows[0]), spacing=spacing(turn, calls[0].arguments))
    return Written(turn, layout, spans_of(rows), shape, calls[0].arguments.syntax == "json")


def as_pairs(turn: Stretch, count: int, shape: Shape) -> Written | None:
    rows, pairs, start = [], None, 0
    for number in range(count):
        name = turn.text.find(NAMES[number], start)
        found = find_pairs(turn.text, ARGUMENTS[number], name) if name >= 0 else None
        if found is None:
            return None
        slots = slots_in(turn, number, (start, found.keys[0][0]))
        layout = pairs_of(turn, found, slots[-1][1], ARGUMENTS[number])
        slots.append((slots[-1][1] + len(layout.before), layout.behind, "arguments"))
        slots += words_in(turn, number, layout.behind)
        rows.append(slots)
        pairs = pairs or layout.pairs
        start = slots[-1][1]
    rows[0] = numbered(turn, rows)
    return Written(turn, TaggedCall(parts_of(turn, rows[0]), pairs), spans_of(rows), shape)


def spans_of(rows: list[list[Slot]]) -> tuple[Span, ...]:
    return tuple((slots[0][0], slots[-1][1]) for slots in rows)


def slots_in(turn: Stretch, number: int, span: Span, call: Found | None = None) -> list[Slot]:
    """The slots of one call in this part of the turn, in order."""
    slots: list[Slot] = []
    start, end = span
    if call is not None:
        slots.append((call.arguments.start, call.arguments.end, "arguments"))
        end = call.arguments.end if call.object is None else end
    slots += words_in(turn, number, start, end)
    slots += [
        (at, to, "index") for at, to, kind in digits_in(turn, start, end) if kind == "computed"
    ]
    return sorted(slots)


def words_in(turn: Stretch, number: int, start: int, end: int | None = None) -> list[Slot]:
    """Name and id of one call in this part of the turn."""
    words = ((NAMES[number], "name"), (IDS[number], "id"))
    found = [
        (*span, slot)
        for word, slot in words
        for span in places(turn.text[:end], word)
        if span[0] >= start
    ]
    return sorted(found)


def digits_in(
    turn: Stretch, start: int = 0, end: int | None = None
) -> Iterator[tuple[int, int, str]]:
    """Numbers that are pieces of their own, and of which kind they are."""
    end = len(turn) if end is None else end
    for at, following, origin in turn.pieces:
        if start <= at and following <= end and turn.text[at:following].isdigit():
            yield at, following, origin.kind


def numbered(turn: Stretch, rows: list[list[Slot]]) -> list[Slot]:
    """The slots of the first call; if a later one is counted, with the number from which the template counts."""
    first, last = rows[0], rows[-1]
    place = next((at for at, slot in enumerate(last) if slot[2] == "index"), None)
    if place is None or any(slot == "index" for _, _, slot in first):
        return first
    start = first[place - 1][1] if place else 0
    found = [(at, to, "index") for at, to, _ in digits_in(turn, start, first[place][0])]
    return [*first[:place], *found[-1:], *first[place:]]


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


FORMS = {  # which form of a call a template may take, by the word that its source has then
    "tool_calls": (Shape(), Shape(as_text=True), Shape(bare=True)),
    "function_call": (Shape(single=True), Shape(as_text=True, single=True)),
}


def one_call(prober: Prober) -> Written | None:
    """The turn of one call, in the first shape that the template takes and that makes sense."""
    given = prober.given
    for more in prober.widened():
        if more is not given:
            prober.give(more)
        for prober.answered in (False, True):
            found = shaped(prober)
            if found is not None:
                return found
    prober.answered = False
    if prober.given is not given:
        prober.give(given)
    return None


def shaped(prober: Prober) -> Written | None:
    found: list[Written] = []
    for form in (form for word, forms in FORMS.items() if prober.mentions(word) for form in forms):
        calls = [
            call
            for content in CONTENTS
            if (call := asked(prober, form._replace(content=content))) is not None
        ]
        if calls:
            found.append(
                min(calls, key=lambda call: len(call.turn))
            )  # content that is empty may have markers
        if (
            found
            and found[0].plain
            and not (isinstance(found[0].call, JsonCall) and found[0].call.as_text)
        ):
            break
    return min(found, key=doubt, default=None)


def doubt(call: Written) -> int:
    """How little sense a layout makes: the more, the less likely that somebody meant it so."""
    if isinstance(call.call, JsonCall) and call.call.as_text:
        return 1
    if not call.plain:
        return 3
    return (
        2
        if call.shape.as_text and isinstance(call.call, TaggedCall) and call.call.pairs is not None
        else 0
    )


def asked(prober: Prober, shape: Shape) -> Written | None:
    turn = prober.turn(prober.calls(shape, ARGUMENTS[0]))
    if turn is None or not any(word in turn.text for word in (NAMES[0], IDS[0])):
        return None
    return written(turn, 1, shape)


def two_calls(prober: Prober, one: Written) -> Written | None:
    turn = prober.turn(prober.calls(one.shape, *ARGUMENTS)) if not one.shape.single else None
    return written(turn, 2, one.shape) if turn is not None else None


def asking(prober: Prober, shape: Shape) -> Ask:
    """Ask for a call with other arguments."""

    def ask(arguments: dict[str, Any]) -> Stretch | None:
        return prober.turn(prober.calls(shape, arguments))

    return ask


def changed(ask: Ask, key: str) -> Iterator[str]:
    """What JSON that the template writes does not say as it was given."""
    for text, note in ((ODD, "texts: how they are escaped"), (MARKUP, CHANGED)):
        turn = ask({key: text})
        if turn is not None and find_arguments(turn.text, {key: text}, 0) is None:
            yield note


def shown(prober: Prober) -> str:
    """What comes out of a call that no layout fits."""
    words = [str(word) for pair in ARGUMENTS[0].items() for word in pair]
    forms = [form for word, forms in FORMS.items() if prober.mentions(word) for form in forms]
    turns = [prober.turn(prober.calls(form, ARGUMENTS[0])) for form in forms]
    named = [
        turn.text
        for turn in turns
        if turn is not None and (NAMES[0] in turn.text or IDS[0] in turn.text)
    ]
    if not named:
        return "no rendering shows a call's name with its arguments"
    if any(all(word in text for word in words) for text in named):
        return "name and arguments come out, in a layout that is not known"
    return "a call's name comes out, its arguments do not come out as they are"


def completed(prober: Prober, one: Written) -> tuple[JsonCall | TaggedCall, list[str]]:
    """The call with what the other kinds of values tell; and what could not be learned."""
    call = one.call
    if isinstance(call, JsonCall) or call.pairs is None:
        return call, list(changed(asking(prober, one.shape), next(iter(ARGUMENTS[0]))))
    pairs, unread = with_kinds(call.pairs, asking(prober, one.shape), next(iter(ARGUMENTS[0])))
    return replace(call, pairs=pairs), unread
