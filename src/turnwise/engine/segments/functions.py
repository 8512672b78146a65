"""What the functions of the runtime do with unknown values.

`HANDLERS` has a function for each one that can do something with them; its first arguments are the recorder and the
function that it replaces. Every other one refuses unknown values, wherever they are in its arguments, and so does
each of these for what it does not know.

What survives a round of a loop over messages other than in namespaces is refused: lists that are changed, and streams
that are read in another section than that in which they were made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from turnwise.engine.program import NAMES
from turnwise.engine.runtime.formatting import make_json_writer
from turnwise.engine.runtime.limits import Runtime
from turnwise.engine.runtime.methods import METHODS
from turnwise.engine.runtime.operations import match_arguments
from turnwise.engine.runtime.values import (
    Cycler,
    Function,
    Loop,
    Macro,
    Namespace,
    Pair,
    Stream,
    Undefined,
    View,
)
from turnwise.engine.segments.symbols import (
    UNKNOWN,
    MessageField,
    NotRecordable,
    RoundCounter,
    Sourced,
    StatePairs,
    TextSlot,
    UnknownMapping,
    UnknownMessages,
    UnknownNumber,
    UnknownText,
    refuse,
)
from turnwise.engine.segments.texts import (
    OPERATION_BYTES,
    call_text_method,
    concatenate_texts,
    price_search,
)

if TYPE_CHECKING:
    from turnwise.engine.segments.recorder import Recorder

JSON_COST = 12  # bytes for each character of a text that is written as JSON
MUTATORS = frozenset(
    [
        *("append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse"),
        *("update", "setdefault", "popitem", "next", "reset"),
    ]
)
FILTER_METHODS = {
    "filter_trim": "strip",
    "filter_replace": "replace",
    "filter_lower": "lower",
    "filter_upper": "upper",
}
LENGTHS = frozenset(["filter_count", "filter_length", "length"])
# Functions that read the elements of a list, and nothing of what is in them.
SEQUENCE_FUNCTIONS = frozenset(
    ["filter_first", "filter_last", "filter_reverse", "spread_arguments", "unpack_values"]
)
# Tests that ask for the type of a value, and a value of that type.
TYPE_TESTS = frozenset(
    [
        *("boolean", "callable", "defined", "false", "float", "integer", "iterable", "mapping"),
        *("none", "number", "sequence", "string", "true", "undefined"),
    ]
)
SAMPLES: dict[type, Any] = {
    UnknownText: "x",
    UnknownNumber: 2,
    RoundCounter: 2,
    UnknownMapping: {},
    UnknownMessages: [],
}
EQUALITIES = {"==": True, "eq": True, "equalto": True, "!=": False, "ne": False}
REMAINDERS = {"odd": "{0} % 2 == 1", "even": "{0} % 2 == 0", "divisibleby": "{0} % {1} == 0"}
ORDERS = {"lt": "<", "lteq": "<=", "gt": ">", "gteq": ">="}
ARITHMETIC = {"do_Sub": "__sub__", "do_Mod": "__mod__", "do_FloorDiv": "__floordiv__"}


def replace_function(recorder: Recorder, name: str, function: Any) -> Any:
    """Return what runs in the place of a function; anything else stays as it is."""
    if not callable(function) or isinstance(function, (type, Undefined)):
        return function
    if name in LENGTHS:
        return partial(_run_length, recorder, function)
    if name in SEQUENCE_FUNCTIONS:
        return partial(_run_sequence_function, recorder, function)
    if name in FILTER_METHODS:
        return partial(_run_as_method, recorder, FILTER_METHODS[name], function)
    if name in ARITHMETIC:
        return partial(_run_arithmetic, recorder, ARITHMETIC[name], function)
    if name.startswith("str_"):
        return partial(_run_as_method, recorder, name.removeprefix("str_"), function)
    return partial(HANDLERS.get(name, _run_guarded), recorder, function)


def replace_test(recorder: Recorder, name: str, test: Any) -> Any:
    if name in EQUALITIES:
        equal = NAMES["is_equal"]
        return lambda rt, *args: _run_is_equal(recorder, equal, rt, *args) is EQUALITIES[name]
    if name == "in":
        return partial(_run_contains, recorder, test)

    def run(rt: Runtime, value: Any, *args: Any) -> Any:
        if name in TYPE_TESTS:
            return test(rt, SAMPLES.get(type(value), value), *args)
        if isinstance(value, UnknownNumber) and name in REMAINDERS:
            _run_guarded(recorder, test, rt, 2, *args)  # fails for wrong arguments
            return recorder.ask(REMAINDERS[name].format(value.source, *args))
        return _run_guarded(recorder, test, rt, value, *args)

    return run


def _run_guarded(recorder: Recorder, function: Any, *args: Any, **more: Any) -> Any:
    """Run a function that may read all of its arguments."""
    if holds_unknown(recorder, (args, more)):
        raise NotRecordable
    return _keep_stream(recorder, function(*args, **more))


def _keep_stream(recorder: Recorder, found: Any) -> Any:
    """Note in which section a stream was made: it can be read once."""
    if type(found) is tuple and found and type(found[0]) is Stream:
        recorder.streams[id(found[0])] = found[0], recorder.serial
    return found


def _check_stream(recorder: Recorder, value: Any) -> None:
    """Refuse a stream that an earlier section may have read."""
    if type(value) is Stream and recorder.streams.get(id(value), (None, -1))[1] != recorder.serial:
        raise NotRecordable


def holds_unknown(recorder: Recorder, root: Any) -> bool:
    """Whether there is an unknown value, or one that may change between rounds, in a value."""
    waiting, seen = [root], set()
    while waiting:
        value = waiting.pop()
        kind = type(value)
        if kind in UNKNOWN or kind is Namespace or kind is Cycler:
            return True
        if kind is Stream and recorder.streams.get(id(value), (None, -1))[1] != recorder.serial:
            return True
        if kind in CONTAINERS and id(value) not in seen:
            seen.add(id(value))
            waiting += CONTAINERS[kind](value)
    return False


def measure(recorder: Recorder, value: Any) -> Any:
    """Run `len`."""
    if type(value) is UnknownMessages:
        return UnknownNumber(recorder, value.count)
    return refuse() if type(value) in UNKNOWN else len(value)


def zip_rounds(recorder: Recorder, *values: Any) -> Any:
    """Run `zip`, which generated code uses for loops only."""
    for value in values:
        if type(value) is UnknownMessages:
            return recorder.iterate(value, len(values) > 2)
    return zip(*values, strict=False)


def _run_start_count(recorder: Recorder, function: Any, elements: Any) -> Any:
    if type(elements) is not UnknownMessages:
        return function(elements)
    recorder.namespaces += 1
    key = f"{recorder.namespaces}"
    recorder.state[key] = "-1"
    return RoundCounter(recorder, key)


def _run_start_message_loop(
    recorder: Recorder, _: Any, rt: Runtime, messages: Any, weight: int
) -> Any:
    recorder.weight = weight
    return ()


def _run_start_loop(
    recorder: Recorder, function: Any, rt: Runtime, value: Any, trail: Any, weight: int
) -> Any:
    if type(value) is UnknownMessages:
        recorder.weight = weight
        return value, (), True
    if type(value) is UnknownMapping:
        value = dict.fromkeys(value.keys())
    if type(value) in UNKNOWN or (type(value) is dict and holds_unknown(recorder, value)):
        raise NotRecordable
    _check_stream(recorder, value)
    return function(rt, value, trail, weight)


def _run_length(
    recorder: Recorder, function: Any, rt: Runtime, value: Any, *more: Any, **named: Any
) -> Any:
    if type(value) is UnknownMessages:
        return UnknownNumber(recorder, value.count), None
    if type(value) is UnknownText:
        return UnknownNumber(recorder, f"len({value.source})"), None
    return _run_sequence_function(recorder, function, rt, value, *more, **named)


def _run_sequence_function(recorder: Recorder, function: Any, *args: Any, **more: Any) -> Any:
    value = args[1] if len(args) > 1 else None
    if type(value) is UnknownMessages and function in (FIRST, LAST):
        if not value:
            raise NotRecordable
        return value[0 if function is FIRST else -1], None
    if any(type(arg) in UNKNOWN for arg in args) or any(type(arg) is dict for arg in args):
        return _run_guarded(recorder, function, *args, **more)
    _check_stream(recorder, value)
    return function(*args, **more)


def _run_filter_selectattr(
    recorder: Recorder,
    function: Any,
    rt: Runtime,
    value: Any,
    trail: Any,
    *args: Pair,
    **more: Pair,
) -> Any:
    return _select(recorder, function, "", rt, value, trail, *args, **more)


def _run_filter_rejectattr(
    recorder: Recorder,
    function: Any,
    rt: Runtime,
    value: Any,
    trail: Any,
    *args: Pair,
    **more: Pair,
) -> Any:
    return _select(recorder, function, "not ", rt, value, trail, *args, **more)


def _select(
    recorder: Recorder,
    function: Any,
    sign: str,
    rt: Runtime,
    value: Any,
    trail: Any,
    *args: Pair,
    **more: Pair,
) -> Any:
    """Select messages by their roles."""
    if type(value) is not UnknownMessages:
        return _run_guarded(recorder, function, rt, value, trail, *args, **more)
    attribute, test, wanted = [*(pair[0] for pair in args), None, None, None][:3]
    if more or attribute != "role" or holds_unknown(recorder, wanted):
        raise NotRecordable
    _run_guarded(recorder, function, rt, [{"role": ""}], trail, *args)  # fails for wrong arguments
    role = f"{value.get('p').source}.get('role')"
    if test in EQUALITIES and type(wanted) is str:
        test = f"{role} {'==' if EQUALITIES[test] else '!='} {recorder.name(wanted)}"
    elif test == "in" and type(wanted) in (list, tuple):
        test = f"{role} in {wanted!r}"
    else:
        raise NotRecordable
    chosen = f"[p for p in range({value.count}) if {sign}({test})]"
    return UnknownMessages(recorder, value.form.format(f"{chosen}[{{0}}]"), f"len({chosen})"), None


def _run_filter_list(recorder: Recorder, function: Any, rt: Runtime, value: Any, trail: Any) -> Any:
    if type(value) is UnknownMessages:
        return value, None
    return _run_sequence_function(recorder, function, rt, value, trail)


def _run_get_neighbour(
    recorder: Recorder, function: Any, items: Any, trails: Any, index: Any, no: Any
) -> Any:
    if type(items) is not UnknownMessages:
        return _run_guarded(recorder, function, items, trails, index, no)
    place = index.source
    if not recorder.ask(f"0 <= {place} < {items.count}"):
        return no, None
    return items.get(place), None


def _run_get_slice(
    recorder: Recorder, function: Any, rt: Runtime, value: Any, trail: Any, *bounds: Any
) -> Any:
    if type(value) is UnknownMessages:
        return value.cut(*bounds), None
    if type(value) is UnknownText:
        if not all(type(bound) in (int, type(None)) for bound in bounds):
            raise NotRecordable
        sources = ":".join("" if bound is None else repr(bound) for bound in bounds)
        slot = value.parts[0] if len(value.parts) == 1 else None
        # JSON without its first or its last bracket has all of its text.
        is_json = isinstance(slot, TextSlot) and slot.is_json and bounds in JSON_SLICES
        field = slot.field if is_json and isinstance(slot, TextSlot) else None
        recorder.pay(value)
        return recorder.make_text((recorder.make_slot(f"{value.source}[{sources}]", field),)), None
    if holds_unknown(recorder, bounds):
        raise NotRecordable
    return function(rt, value, trail, *bounds)


def _run_get_attribute(
    recorder: Recorder, function: Any, rt: Runtime, value: Any, trail: Any, key: Any
) -> Any:
    if type(value) is UnknownMapping:
        if type(key) is not str or key in METHODS[dict]:
            raise NotRecordable
        if key in value:
            return value[key], (trail, key)
        return function(rt, {}, trail, key)
    if type(value) is UnknownMessages and isinstance(key, int):
        return value[key], None
    if type(value) is UnknownText and type(key) is str and key not in METHODS[str]:
        return function(rt, "", None, key)
    if type(value) is Namespace:
        return function(rt, value, trail, key)
    if type(value) in (list, tuple) and type(key) is int or type(value) is dict:
        if type(key) in UNKNOWN:
            raise NotRecordable
        found = function(rt, value, trail, key)
        if type(found[0]) is Function:
            raise NotRecordable
        return found
    return _run_guarded(recorder, function, rt, value, trail, key)


def _run_to_text(recorder: Recorder, function: Any, rt: Runtime, value: Any, trail: Any) -> Any:
    if type(value) is UnknownText:
        return value, None
    if isinstance(value, UnknownNumber):
        return recorder.make_text((recorder.make_slot(f"str({value.source})"),), True), None
    return _run_guarded(recorder, function, rt, value, trail)


def _run_to_texts(recorder: Recorder, _: Any, rt: Runtime, parts: Sequence[Any]) -> Any:
    texts: list[Any] = []
    for value, trail in zip(parts[::2], parts[1::2], strict=True):
        texts += _run_to_text(recorder, NAMES["to_text"], rt, value, trail)
    return texts


def _run_require_text(recorder: Recorder, function: Any, value: Any, trail: Any) -> Any:
    if type(value) is UnknownText:
        return value, None
    return _run_guarded(recorder, function, value, trail)


def _run_concatenate(recorder: Recorder, function: Any, rt: Runtime, parts: Sequence[Any]) -> Any:
    return _run_add_values(recorder, function, rt, _run_to_texts(recorder, function, rt, parts))


def _run_add_values(recorder: Recorder, function: Any, rt: Runtime, parts: Sequence[Any]) -> Any:
    kinds = set(map(type, parts[::2]))
    if UnknownText in kinds:
        return concatenate_texts(recorder, parts[::2])
    if len(parts) == 4 and any(isinstance(one, UnknownNumber) for one in parts[::2]):
        return parts[0] + parts[2], None
    if kinds & set(UNKNOWN):
        raise NotRecordable
    # lists may have unknown elements
    return function(rt, parts)


def _run_arithmetic(
    recorder: Recorder,
    name: str,
    function: Any,
    rt: Runtime,
    left: Any,
    left_trail: Any,
    right: Any,
    *more: Any,
) -> Any:
    if isinstance(left, UnknownNumber) and isinstance(right, int):
        if name != "__sub__" and (type(right) is not int or right == 0):
            raise NotRecordable
        return getattr(left, name)(right), None
    if isinstance(right, UnknownNumber) and type(left) is int and name == "__sub__":
        return right.__rsub__(left), None  # type: ignore[attr-defined]  # set in a loop
    return _run_guarded(recorder, function, rt, left, left_trail, right, *more)


def _run_compare(
    recorder: Recorder, function: Any, rt: Runtime, name: str, left: Any, right: Any
) -> Any:
    pair = (left, right)
    if any(isinstance(one, UnknownNumber) for one in pair):
        if not all(isinstance(one, int) for one in pair):
            raise NotRecordable
        sources = [one.source if isinstance(one, UnknownNumber) else repr(one) for one in pair]
        return recorder.ask(f"{sources[0]} {ORDERS[name]} {sources[1]}")
    return _run_guarded(recorder, function, rt, name, left, right)


def _run_contains(
    recorder: Recorder, function: Any, rt: Runtime, value: Any, container: Any
) -> Any:
    if type(container) is UnknownText:
        if type(value) is not str:
            raise NotRecordable
        recorder.pay(container, price_search(len(value)))
        return recorder.ask_text(container, f"{recorder.name(value)} in {container.source}", value)
    if type(container) is UnknownMapping and type(value) is str:
        return value in container
    if type(value) is UnknownText and type(container) in (list, tuple, dict):
        return any([value == item for item in container])
    if type(value) is UnknownText and type(container) is str:
        recorder.pay(value, price_search(len(container)))
        return recorder.ask_text(value, f"{value.source} in {recorder.name(container)}")
    return _run_guarded(recorder, function, rt, value, container)


def _run_is_equal(recorder: Recorder, function: Any, rt: Runtime, left: Any, right: Any) -> Any:
    if any(isinstance(one, (UnknownText, Sourced)) for one in (left, right)):
        rt.charge_bytes(OPERATION_BYTES)
        return bool(left == right)
    return _run_guarded(recorder, function, rt, left, right)


def _run_call_method(
    recorder: Recorder,
    function: Any,
    rt: Runtime,
    value: Any,
    trail: Any,
    name: str,
    /,
    *args: Pair,
    **more: Pair,
) -> Any:
    if name in MUTATORS:
        raise NotRecordable
    values = [pair[0] for pair in args]
    if type(value) is UnknownText:
        if more or holds_unknown(recorder, values):
            raise NotRecordable
        function(rt, "", None, name, *args)  # fails for wrong arguments
        return call_text_method(recorder, value, name, values), None
    if type(value) is UnknownMapping and not more:
        return _call_mapping(function, rt, value, trail, name, *args)
    if type(value) is dict and name in ("get", "items", "keys", "values"):
        if holds_unknown(recorder, values):
            raise NotRecordable
        return function(rt, value, trail, name, *args, **more)
    return _run_guarded(recorder, function, rt, value, trail, name, *args, **more)


def _call_mapping(
    function: Any, rt: Runtime, value: UnknownMapping, trail: Any, name: str, *args: Pair
) -> Any:
    if name == "get" and args and type(args[0][0]) is str:
        if args[0][0] in value:
            return value[args[0][0]], None
        return args[1] if len(args) > 1 else (None, None)
    if name not in ("items", "keys", "values") or args:
        raise NotRecordable
    return function(rt, value.read(), trail, name)


def _run_as_method(
    recorder: Recorder,
    method: str,
    function: Any,
    rt: Runtime,
    value: Any,
    trail: Any,
    /,
    *args: Pair,
    **more: Pair,
) -> Any:
    """Run a filter that does what a method does."""
    if type(value) is not UnknownText:
        return _run_guarded(recorder, function, rt, value, trail, *args, **more)
    function(rt, "", None, *args, **more)  # fails for wrong arguments
    return _run_call_method(recorder, NAMES["call_method"], rt, value, trail, method, *args, **more)


def _run_filter_items(
    recorder: Recorder, function: Any, rt: Runtime, value: Any, trail: Any
) -> Any:
    if type(value) is UnknownMapping:
        value = value.read()
    elif type(value) in UNKNOWN:
        raise NotRecordable
    return _keep_stream(recorder, function(rt, value, trail))


def _run_filter_default(
    recorder: Recorder,
    function: Any,
    rt: Runtime,
    value: Any,
    trail: Any,
    *args: Pair,
    **more: Pair,
) -> Any:
    if type(value) not in UNKNOWN:
        return function(rt, value, trail, *args, **more)
    is_wanted = (*args, *more.values())[1:] and (more.get("boolean") or args[1])[0]
    if not is_wanted or value:
        return value, trail
    return function(rt, "", None, *args, **more)


def _run_filter_tojson(
    recorder: Recorder,
    function: Any,
    rt: Runtime,
    value: Any,
    trail: Any,
    *args: Pair,
    node: Any = None,
    **more: Pair,
) -> Any:
    if not holds_unknown(recorder, value):
        return _run_guarded(recorder, function, rt, value, trail, *args, node=node, **more)
    _, (_, _, _, style, *_) = _run_guarded(
        recorder, function, rt, "", trail, *args, node=node, **more
    )
    source = f"{recorder.name(make_json_writer(style))}({_write_value(recorder, value)})"
    recorder.cost += JSON_COST
    rt.charge_bytes(OPERATION_BYTES)
    slot = recorder.make_slot(source, _find_field(recorder, value))._replace(is_json=True)
    return recorder.make_text((slot,), True), None


def _find_field(recorder: Recorder, value: Any) -> MessageField | None:
    """Return the field that a value is."""
    if type(value) is UnknownMapping:
        return value.field
    slot = recorder.sources[id(value)][1] if id(value) in recorder.sources else None
    if type(value) is UnknownText and len(value.parts) == 1:
        slot = value.parts[0] if isinstance(value.parts[0], TextSlot) else None
    return slot.field if slot else None


def _write_value(recorder: Recorder, value: Any) -> str:
    """Return the source of a value with unknown ones in it."""
    if type(value) in UNKNOWN and type(value) is not UnknownMessages:
        source: str = value.source
        return source
    if id(value) in recorder.sources:
        return recorder.write_part(recorder.sources[id(value)][1])
    if type(value) is dict and all(type(key) is str for key in value):
        items = [
            f"{recorder.name(key)}: {_write_value(recorder, one)}" for key, one in value.items()
        ]
        return f"{{{', '.join(items)}}}"
    if type(value) is list:
        return f"[{', '.join(_write_value(recorder, one) for one in value)}]"
    if value is None or type(value) in (str, bool, int):
        return recorder.name(value)
    raise NotRecordable


def _run_filter_join(
    recorder: Recorder,
    function: Any,
    rt: Runtime,
    value: Any,
    trail: Any,
    *args: Pair,
    **more: Pair,
) -> Any:
    kinds = set(map(type, value)) if type(value) is list else set()
    if UnknownText not in kinds or not kinds <= {UnknownText, str} or more or len(args) > 1:
        return _run_guarded(recorder, function, rt, value, trail, *args, **more)
    between = args[0][0] if args else ""
    texts = [text for one in value for text in (between, one)][1:]
    return concatenate_texts(recorder, texts)


def _run_call_value(
    recorder: Recorder,
    function: Any,
    rt: Runtime,
    callee: Any,
    trail: Any,
    /,
    *args: Pair,
    **more: Pair,
) -> Any:
    if isinstance(callee, Macro):
        out = callee.body(*match_arguments(callee, args, more))
        return _run_add_values(recorder, NAMES["capture_output"], rt, out)
    return _run_guarded(recorder, function, rt, callee, trail, *args, **more)


def _run_assign_attribute(recorder: Recorder, function: Any, *args: Any) -> Any:
    function(*args)


def _run_call_namespace(
    recorder: Recorder, function: Any, rt: Runtime, /, *args: Pair, **more: Pair
) -> Any:
    if args:
        raise NotRecordable
    space, trail = function(rt, **more)
    number = None
    if not recorder.is_in_round:
        recorder.namespaces += 1
        number = recorder.namespaces
    space.pairs = StatePairs(recorder, number, space.pairs)
    return space, trail


def _run_call_strftime_now(recorder: Recorder, function: Any, rt: Runtime, form: Pair) -> Any:
    rt.now = recorder.now
    found = _run_guarded(recorder, function, rt, form)
    rt.now = refuse
    recorder.clock[form[0]] = found[0]
    return recorder.ask(f"format_now(S['now'], {form[0]!r})"), found[1]


FIRST, LAST = NAMES["filter_first"], NAMES["filter_last"]
JSON_SLICES = ((None, -1, None), (1, None, None), (1, -1, None))
CONTAINERS: dict[type, Callable[[Any], Any]] = {
    dict: lambda value: [*value.keys(), *value.values()],
    list: list,
    tuple: list,
    Loop: lambda value: [value.items, value.last_seen],
    Stream: lambda value: value.items,
    View: lambda value: value.items,
}


HANDLERS: dict[str, Callable[..., Any]] = {
    "add_values": _run_add_values,
    "assign_attribute": _run_assign_attribute,
    "call_method": _run_call_method,
    "call_namespace": _run_call_namespace,
    "call_strftime_now": _run_call_strftime_now,
    "call_value": _run_call_value,
    "capture_output": _run_add_values,
    "compare": _run_compare,
    "concatenate": _run_concatenate,
    "contains": _run_contains,
    "filter_d": _run_filter_default,
    "filter_default": _run_filter_default,
    "filter_items": _run_filter_items,
    "filter_join": _run_filter_join,
    "filter_list": _run_filter_list,
    "filter_rejectattr": _run_filter_rejectattr,
    "filter_selectattr": _run_filter_selectattr,
    "filter_string": _run_to_text,
    "filter_tojson": _run_filter_tojson,
    "get_attribute": _run_get_attribute,
    "get_constant_slice": _run_get_slice,
    "get_item": _run_get_attribute,
    "get_neighbour": _run_get_neighbour,
    "get_slice": _run_get_slice,
    "is_equal": _run_is_equal,
    "require_text": _run_require_text,
    "start_count": _run_start_count,
    "start_loop": _run_start_loop,
    "start_message_loop": _run_start_message_loop,
    "to_text": _run_to_text,
    "to_texts": _run_to_texts,
}
