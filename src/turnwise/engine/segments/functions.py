"""What the functions of the runtime do with unknown values.

`HANDLERS` has a function for each one that can do something with them; its first arguments are the recorder and the
function that it replaces. It returns None for arguments that it does not know. For those, and in every other function,
unknown values are refused, wherever they are in the arguments.

What survives a round of a loop over messages other than in namespaces is refused: lists that are changed, and streams
that are read in another section than that in which they were made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from turnwise.engine.compiler.history_proof import MUTATING
from turnwise.engine.program import NAMES, Program
from turnwise.engine.provenance.written_values import REPR
from turnwise.engine.runtime.formatting import make_json_writer
from turnwise.engine.runtime.jinja_tests import TYPE_TESTS
from turnwise.engine.runtime.limits import Runtime
from turnwise.engine.runtime.methods import METHODS
from turnwise.engine.runtime.operations import COMPARISONS, match_arguments
from turnwise.engine.runtime.values import (
    Function,
    Macro,
    Namespace,
    Pair,
    Undefined,
)
from turnwise.engine.segments.guards import keep_stream, run_guarded, run_handler
from turnwise.engine.segments.lists import add_lists, join_list
from turnwise.engine.segments.prices import check_size, pay
from turnwise.engine.segments.recorder import Recorder
from turnwise.engine.segments.sequences import (
    EQUALITIES,
    LENGTHS,
    SEQUENCE_FUNCTIONS,
    measure,
    run_call_range,
    run_filter_by_role,
    run_get_neighbour,
    run_get_slice,
    run_length,
    run_sequence_function,
    run_start_count,
    run_start_loop,
    zip_rounds,
)
from turnwise.engine.segments.symbols import (
    OPERATION_BYTES,
    UNKNOWN,
    InTrail,
    MessageField,
    NotRecordable,
    SafeText,
    Sourced,
    StatePairs,
    UnknownList,
    UnknownMapping,
    UnknownMessages,
    UnknownNumber,
    UnknownText,
    holds_unknown,
    number_namespace,
    refuse,
)
from turnwise.engine.segments.texts import (
    call_text_method,
    concatenate_texts,
    price_search,
)

# Code whose rounds share more than namespaces: `{% for %}` with `else`, and recursive loops.
SHARING_ROUNDS = re.compile(r"^ *(?:e\d+ = True|def again\d+)", re.M)
JSON_COST = 12  # bytes for each character of a text that is written as JSON
FILTERS_OF_TEXTS = {"filter_trim": "strip", "filter_replace": "replace"}
REMAINDERS = {"odd": 1, "even": 0}
ARITHMETIC = {"do_Sub": "__sub__", "do_Mod": "__mod__", "do_FloorDiv": "__floordiv__"}


def replace_function(recorder: Recorder, name: str, function: Any) -> Any:
    """Return what runs in the place of a function; anything else stays as it is."""
    is_known = callable(function) and not isinstance(function, (type, Undefined))
    if not is_known or name == "assign_attribute":  # which leaves it to `StatePairs`
        return function
    if name in HANDLERS:
        return partial(run_handler, HANDLERS[name], recorder, function)
    return partial(run_guarded, recorder, function)


def replace_test(recorder: Recorder, name: str, test: Any) -> Any:
    if name in EQUALITIES:
        equal = replace_function(recorder, "is_equal", NAMES["is_equal"])
        return lambda rt, *args: equal(rt, *args) is EQUALITIES[name]
    if name == "in":
        return partial(run_handler, _run_contains, recorder, test)
    if name == "sameas":
        return refuse  # equal texts are not the same object

    def run(rt: Runtime, value: Any, *args: Any) -> Any:
        if name in TYPE_TESTS:
            return test(rt, UNKNOWN.get(type(value), value), *args)
        if isinstance(value, UnknownNumber) and name in REMAINDERS and not args:
            return recorder.ask(f"{value.source} % 2 == {REMAINDERS[name]}")
        return run_guarded(recorder, test, rt, value, *args)

    return run


def _run_get_attribute(
    recorder: Recorder, function: Any, rt: Runtime, value: Any, trail: Any, key: Any
) -> Any:
    if type(value) is UnknownMapping:
        if type(key) is not str or key in METHODS[dict]:
            raise NotRecordable
        if key in value:
            return value[key], (trail, key)
        return function(rt, {}, trail, key)
    if type(value) in (UnknownMessages, UnknownList):
        return value.read(key, trail)
    if type(value) is UnknownText:
        if repr(key) == "0" and value:
            return run_get_slice(recorder, function, rt, value, trail, 0, 1, None)
        is_unset = type(key) is str and key not in METHODS[str]
        return function(rt, "", None, key) if is_unset else refuse()
    if type(value) in (list, tuple) and type(key) is int or type(value) in (dict, Namespace):
        found = refuse() if type(key) in UNKNOWN else function(rt, value, trail, key)
        return refuse() if type(found[0]) is Function else found
    return None


def _run_to_text(recorder: Recorder, function: Any, rt: Runtime, value: Any, trail: Any) -> Any:
    if type(value) is UnknownText:
        return value, trail
    if type(value) is SafeText:
        pay(recorder, value)
        return recorder.make_text(value.parts, value.is_full), trail
    if not holds_unknown(recorder, value):
        return None
    text = _write_whole(recorder, value, "str")
    return text, trail if isinstance(value, UnknownNumber) else (REPR, InTrail(value), trail)


def _write_whole(recorder: Recorder, value: Any, writer: str) -> UnknownText:
    """Return what a function writes for a value: a number, or with brackets or quotes that may be cut off."""
    source = f"{writer}({check_size(recorder, value)})"
    is_number = isinstance(value, UnknownNumber)
    # What is written as Python prints it does not count as written: nobody may have warned of it.
    field = _find_field(recorder, value) if is_number or writer != "str" else None
    slot = recorder.make_slot(source, field)._replace(is_json=not is_number)
    text = recorder.make_text((slot,), True)
    pay(recorder, text, JSON_COST)
    return text


def _run_to_texts(recorder: Recorder, _: Any, rt: Runtime, parts: Sequence[Any]) -> Any:
    write = replace_function(recorder, "to_text", NAMES["to_text"])
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return [one for pair in pairs for one in write(rt, *pair)]


def _run_concatenate(recorder: Recorder, function: Any, rt: Runtime, parts: Sequence[Any]) -> Any:
    return _run_add_values(recorder, function, rt, _run_to_texts(recorder, function, rt, parts))


def _run_add_values(recorder: Recorder, function: Any, rt: Runtime, parts: Sequence[Any]) -> Any:
    kinds = set(map(type, parts[::2]))
    if kinds & {UnknownText, SafeText}:
        return concatenate_texts(recorder, parts)
    if len(parts) == 4 and any(isinstance(one, UnknownNumber) for one in parts[::2]):
        return parts[0] + parts[2], None
    if kinds & {UnknownMessages, UnknownList}:
        return add_lists(recorder, parts)
    if kinds & set(UNKNOWN):
        raise NotRecordable
    # lists may have unknown elements
    return function(rt, parts)


def _run_arithmetic(
    name: str, recorder: Recorder, _: Any, rt: Runtime, left: Any, trail: Any, right: Any, *__: Any
) -> Any:
    if isinstance(left, UnknownNumber) and isinstance(right, int):
        if name != "__sub__" and (type(right) is not int or right == 0):
            raise NotRecordable
        return getattr(left, name)(right), None
    return None


def _run_compare(recorder: Recorder, _: Any, rt: Runtime, name: str, left: Any, right: Any) -> Any:
    return COMPARISONS[name](left, right) if holds_unknown(recorder, (left, right)) else None


def _run_contains(recorder: Recorder, _: Any, rt: Runtime, value: Any, container: Any) -> Any:
    if type(container) is UnknownText:
        pay(recorder, container, price_search(len(value)))
        return recorder.ask_text(container, f"{recorder.name(value)} in {container.source}", value)
    if type(value) is UnknownText and type(container) in (list, tuple, dict):
        return any([value == item for item in container])
    return None


def _run_is_equal(recorder: Recorder, _: Any, rt: Runtime, left: Any, right: Any) -> Any:
    if any(isinstance(one, (UnknownText, Sourced)) for one in (left, right)):
        rt.charge_bytes(OPERATION_BYTES)
        return bool(left == right)
    return None


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
    if name in MUTATING:
        raise NotRecordable
    if type(value) is UnknownMapping and not more:
        return _call_mapping(function, rt, value, trail, name, *args)
    if holds_unknown(recorder, [pair[0] for pair in args]):
        raise NotRecordable
    if type(value) is UnknownText and not more:
        function(rt, "", None, name, *args)  # fails for wrong arguments
        return call_text_method(recorder, value, trail, name, args)
    if type(value) is dict and name in ("get", "items", "keys", "values"):
        return function(rt, value, trail, name, *args, **more)
    return None


def _call_mapping(
    function: Any, rt: Runtime, value: UnknownMapping, trail: Any, name: str, *args: Pair
) -> Any:
    key = args[0][0] if args else None
    if name == "get" and type(key) is str:
        if key in value:
            return value[key], (trail, key)
        return args[1] if len(args) > 1 else (None, None)
    if name not in ("items", "keys", "values") or args:
        raise NotRecordable
    return function(rt, value.read(), trail, name)


def _run_as_method(
    method: str,
    recorder: Recorder,
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
        return None
    function(rt, "", None, *args, **more)  # fails for wrong arguments
    return _run_call_method(recorder, NAMES["call_method"], rt, value, trail, method, *args, **more)


def _run_filter_safe(recorder: Recorder, _: Any, rt: Runtime, value: Any, trail: Any) -> Any:
    if type(value) is not UnknownText:
        return None
    pay(recorder, value)
    return recorder.make_text(value.parts, value.is_full, SafeText), trail


def _run_filter_items(
    recorder: Recorder,
    function: Any,
    rt: Runtime,
    value: Any,
    trail: Any,
    *args: Pair,
    **more: Pair,
) -> Any:
    """Run `items`, or `dictsort` by keys."""
    if type(value) is UnknownMapping:
        value = value.read()
    if type(value) is not dict or args or more:
        return None
    return keep_stream(recorder, function(rt, value, trail))


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
    given = more.get("boolean") or (args[1] if len(args) > 1 else (False, None))
    if not given[0] or value:
        return value, trail
    return function(rt, "", None, *args, **more)


def _run_filter_tojson(
    recorder: Recorder,
    function: Any,
    rt: Runtime,
    value: Any,
    trail: Any,
    *args: Pair,
    **more: Any,
) -> Any:
    if not holds_unknown(recorder, value):
        return None
    _, (rule, _, _, style, node) = run_guarded(recorder, function, rt, "", None, *args, **more)
    recorder.reads_contents |= style.indent is not None  # it may be nested too deeply for that
    text = _write_whole(recorder, value, recorder.name(make_json_writer(style)))
    return text, (rule, InTrail(value), trail, style, node)


def _find_field(recorder: Recorder, value: Any) -> MessageField | None:
    """Return the field that a value is."""
    if type(value) is UnknownMapping:
        return value.field
    if isinstance(value, UnknownNumber):
        return recorder.numbers.get(value.source)
    _, slot = recorder.sources.get(id(value), (None, None))
    if type(value) is UnknownText:
        slot = value.slot
    return slot.field if slot else None


def _run_filter_format(
    recorder: Recorder, function: Any, rt: Runtime, form: Any, trail: Any, *args: Pair
) -> Any:
    """Run `format` with values for each `%s`."""
    if not holds_unknown(recorder, args):
        return None
    first, *texts = form.split("%s")
    if "%" in form.replace("%s", ""):
        raise NotRecordable
    function(rt, form, trail, *[("", None)] * len(args))  # fails for wrong arguments
    parts = [first, trail]
    for pair, text in zip(args, texts, strict=True):
        parts += (*pair, text, trail)
    return _run_concatenate(recorder, function, rt, parts)


def _run_filter_join(
    recorder: Recorder,
    _: Any,
    rt: Runtime,
    value: Any,
    trail: Any,
    *args: Pair,
    **more: Pair,
) -> Any:
    if type(value) is UnknownList and not more:
        return join_list(recorder, value, trail, *args)
    kinds = set(map(type, value)) if type(value) is list else set()
    if UnknownText not in kinds or not kinds <= {UnknownText, str} or more or len(args) > 1:
        return None
    between = args[0] if args else ("", None)
    parts: list[Any] = []
    for index, text in enumerate(value):
        parts += (*between, text, (trail, index))
    return concatenate_texts(recorder, parts[2:])


def _run_call_value(
    recorder: Recorder,
    _: Any,
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
    return None


def _run_call_namespace(
    recorder: Recorder, function: Any, rt: Runtime, /, *args: Pair, **more: Pair
) -> Any:
    if args:
        raise NotRecordable
    space, trail = function(rt, **more)
    space.pairs = StatePairs(recorder, number_namespace(recorder), space.pairs)
    return space, trail


def _run_call_strftime_now(recorder: Recorder, function: Any, rt: Runtime, form: Pair) -> Any:
    rt.now = recorder.now
    found = run_guarded(recorder, function, rt, form)
    rt.now = refuse
    recorder.clock[form[0]] = found[0]
    return recorder.ask(f"format_now(S['now'], {form[0]!r})"), found[1]


HANDLERS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(LENGTHS, run_length),
    **dict.fromkeys(SEQUENCE_FUNCTIONS, run_sequence_function),
    **{name: partial(_run_arithmetic, method) for name, method in ARITHMETIC.items()},
    **{name: partial(_run_as_method, method) for name, method in FILTERS_OF_TEXTS.items()},
    "add_values": _run_add_values,
    "call_method": _run_call_method,
    "call_range": run_call_range,
    "call_namespace": _run_call_namespace,
    "call_strftime_now": _run_call_strftime_now,
    "call_value": _run_call_value,
    "capture_output": _run_add_values,
    "compare": _run_compare,
    "concatenate": _run_concatenate,
    "contains": _run_contains,
    "filter_d": _run_filter_default,
    "filter_default": _run_filter_default,
    "filter_dictsort": _run_filter_items,
    "filter_format": _run_filter_format,
    "filter_items": _run_filter_items,
    "filter_join": _run_filter_join,
    "filter_rejectattr": run_filter_by_role,
    "filter_safe": _run_filter_safe,
    "filter_selectattr": run_filter_by_role,
    "filter_string": _run_to_text,
    "filter_tojson": _run_filter_tojson,
    "get_attribute": _run_get_attribute,
    "get_constant_slice": run_get_slice,
    "get_item": _run_get_attribute,
    "get_neighbour": run_get_neighbour,
    "get_slice": run_get_slice,
    "is_equal": _run_is_equal,
    "start_count": run_start_count,
    "start_loop": run_start_loop,
    "to_text": _run_to_text,
    "to_texts": _run_to_texts,
}


def instrument(recorder: Recorder, program: Program) -> Program:
    """Return a program that runs with unknown messages, and with functions that know of them.

    Raises:
        NotRecordable: rounds of a loop share more than namespaces.
    """
    if SHARING_ROUNDS.search(program.python):
        raise NotRecordable
    names = {name: replace_function(recorder, name, value) for name, value in NAMES.items()}
    tests = {name: replace_test(recorder, name, test) for name, test in NAMES["tests"].items()}
    builtins = {
        **{each.__name__: each for each in (bool, dict, float, int, list, str, tuple)},
        "len": partial(measure, recorder),
        "zip": partial(zip_rounds, recorder),
    }
    return program.instrument(
        {**names, "tests": tests, "__builtins__": builtins}, recorder.run_program
    )
