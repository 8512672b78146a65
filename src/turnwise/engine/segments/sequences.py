"""Messages and lists: loops over them, slices, selections, lengths.

A loop over the messages becomes the rounds of the recorder. Of a list in a message only the elements are read.
"""

from __future__ import annotations

from typing import Any

from turnwise.engine.program import NAMES
from turnwise.engine.provenance.container_rules import is_from_input
from turnwise.engine.provenance.text_rules import PART
from turnwise.engine.runtime.limits import Runtime
from turnwise.engine.runtime.methods import METHODS
from turnwise.engine.runtime.values import Pair, Stream
from turnwise.engine.segments.guards import check_stream, keep_stream, run_guarded
from turnwise.engine.segments.prices import pay
from turnwise.engine.segments.recorder import Recorder
from turnwise.engine.segments.sources import UNTRACED
from turnwise.engine.segments.symbols import (
    OPERATION_BYTES,
    UNKNOWN,
    InTrail,
    NotRecordable,
    RoundCounter,
    UnknownList,
    UnknownMapping,
    UnknownMessages,
    UnknownNumber,
    UnknownRange,
    UnknownText,
    holds_unknown,
    number_namespace,
    refuse,
    write_number,
    write_slice,
)

LENGTHS = ("filter_count", "filter_length")
# Functions that read the elements of a list, and nothing of what is in them.
SEQUENCE_FUNCTIONS = (
    "filter_first",
    "filter_last",
    "filter_list",
    "filter_reverse",
    "spread_arguments",
    "unpack_values",
)
JSON_SLICES = ((None, -1, None), (1, None, None), (1, -1, None))
REJECT = NAMES["filter_rejectattr"]
FIRST, LAST, LIST = NAMES["filter_first"], NAMES["filter_last"], NAMES["filter_list"]
ROUNDS = (UnknownMessages, UnknownRange, UnknownList)
DEFINED = {"defined": True, "undefined": False}
EQUALITIES = {"==": True, "eq": True, "equalto": True, "!=": False, "ne": False}


def measure(recorder: Recorder, value: Any) -> Any:
    """Run `len`."""
    if type(value) in ROUNDS:
        return UnknownNumber(recorder, value.count)
    return refuse() if type(value) in UNKNOWN else len(value)


def zip_rounds(recorder: Recorder, *values: Any) -> Any:
    """Run `zip`, which generated code uses for loops only."""
    for value in values:
        if type(value) in ROUNDS:
            return recorder.iterate(value, len(values) > 2)
    return zip(*values, strict=False)


def run_start_count(recorder: Recorder, function: Any, elements: Any) -> Any:
    if type(elements) not in UNKNOWN:
        return function(elements)
    if type(elements) is not UnknownMessages or recorder.depth:
        return None
    key = number_namespace(recorder)
    recorder.state[key] = "-1"
    return RoundCounter(recorder, key)


def run_call_range(recorder: Recorder, _: Any, rt: Runtime, *bounds: Pair) -> Any:
    numbers: list[Any] = [bound for bound, _ in bounds]
    if UnknownNumber not in map(type, numbers):
        return None
    sources = [*map(write_number, numbers)]
    found = UnknownRange(recorder, skipped=0)
    if sources not in (["n"], ["0", "n"]):
        found = found.pick(f"range({', '.join(sources)})")
    if not recorder.ask(f"{found.count} <= n"):
        raise NotRecordable
    rt.charge_bytes(OPERATION_BYTES)
    return found, None


def run_start_loop(
    recorder: Recorder,
    function: Any,
    rt: Runtime,
    value: Any,
    trail: Any,
    weight: int,
    *skips: bool,
) -> Any:
    if type(value) is UnknownText and skips:
        return (), (), False
    value = take_messages(recorder, value)
    if type(value) is UnknownList:
        value.trail = trail if value.are_marked else refuse()
    if type(value) in ROUNDS:
        recorder.weight = weight
        return value, (), type(value) is not UnknownRange
    if type(value) is UnknownMapping:
        value = dict.fromkeys(value.keys())
    if type(value) in UNKNOWN:
        raise NotRecordable
    check_stream(recorder, value)
    if id(value) not in recorder.sources:
        return function(rt, value, trail, weight, *skips)
    kinds = [{} if type(one) is UnknownMapping else one for one in value]
    return value, *function(rt, kinds, trail, weight, *skips)[1:]


def run_length(
    recorder: Recorder, function: Any, rt: Runtime, value: Any, *more: Any, **named: Any
) -> Any:
    if type(value) in ROUNDS:
        return measure(recorder, value), None
    if type(value) in (UnknownText, UnknownMapping):
        recorder.reads_contents = True  # whatever is asked about it
        return UnknownNumber(recorder, f"len({value.source})"), None
    return run_sequence_function(recorder, function, rt, value, *more, **named)


def run_sequence_function(recorder: Recorder, function: Any, *args: Any, **more: Any) -> Any:
    value = take_messages(recorder, args[1])
    if type(value) is UnknownMessages and function in (FIRST, LAST, LIST):
        if function is LIST:
            return value, InTrail(value)
        if not value:
            raise NotRecordable
        return value.read(0 if function is FIRST else -1)
    if any(type(arg) in (*UNKNOWN, dict) for arg in args):
        return None
    check_stream(recorder, value)
    found = function(*args, **more)
    return (value, found[1]) if function is LIST and id(value) in recorder.sources else found


def run_filter_by_role(
    recorder: Recorder,
    function: Any,
    rt: Runtime,
    value: Any,
    trail: Any,
    *args: Pair,
    **more: Pair,
) -> Any:
    """Run `selectattr` or `rejectattr` on messages: by their roles, or by whether there is a field."""
    value = take_messages(recorder, value)
    if type(value) is not UnknownMessages:
        return None
    key, test, wanted = [*(pair[0] for pair in args), None, None, None][:3]
    if more or type(key) is not str or holds_unknown(recorder, wanted):
        raise NotRecordable
    run_guarded(recorder, function, rt, [{key: ""}], trail, *args)  # fails for wrong arguments
    is_role = test in EQUALITIES and type(wanted) is str and key == "role"
    is_field = test in DEFINED and key.isidentifier() and key not in METHODS[dict]
    if not is_role and not is_field:
        raise NotRecordable
    is_wanted = (EQUALITIES | DEFINED)[test] is not (function is REJECT)
    found: Any = value.select((key, wanted if is_role else None, is_wanted))
    return keep_stream(recorder, (Stream(found, None), InTrail(found)))


def take_messages(recorder: Recorder, value: Any) -> Any:
    """Return the messages of a stream, which can be read once; any other value as it is."""
    items: Any = value.items if type(value) is Stream else None
    if type(items) is not UnknownMessages:
        return value
    check_stream(recorder, value)
    return value.take_items()


def run_get_neighbour(
    recorder: Recorder, _: Any, items: Any, trails: Any, index: Any, no: Any
) -> Any:
    if type(items) is not UnknownMessages:
        return None
    place = index.source
    if not recorder.ask(f"0 <= {place} < {items.count}"):
        return no, None
    found = items.get(place)
    return found, found.trail


def run_get_slice(
    recorder: Recorder, function: Any, rt: Runtime, value: Any, trail: Any, *bounds: Any
) -> Any:
    if type(value) is UnknownMessages:
        found = value.cut(*bounds)
        return found, InTrail(found)
    if type(value) is UnknownText:
        slot, (start, _, step) = value.slot, bounds
        # JSON without its first or its last bracket has all of its text.
        field = slot.field if slot and slot.is_json and bounds in JSON_SLICES else None
        pay(recorder, value)
        cut = recorder.make_slot(f"{value.source}[{write_slice(bounds)}]", field)._replace(
            is_json=bool(field)
        )
        own = trail
        if not is_from_input(trail):
            is_after = type(start) is not UnknownNumber and (start or 0) >= 0
            own = (PART, InTrail(value), trail, start or 0) if is_after else UNTRACED
        if step not in (None, 1):
            own = UNTRACED
        return recorder.make_text((cut,)), own
    if holds_unknown(recorder, bounds):
        raise NotRecordable
    return function(rt, value, trail, *bounds)
