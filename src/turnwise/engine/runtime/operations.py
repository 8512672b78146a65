"""Operators, calls and assignments that the generated code cannot write as one line of Python.

Python's own operators decide what is an error, as they do in jinja2. Added here: an operation pays
before it allocates, and its result has a trail.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from markupsafe import escape

from turnwise.engine.provenance.container_rules import TIMES, chain_trails
from turnwise.engine.provenance.text_rules import RECASED, REPEATED
from turnwise.engine.provenance.trails import Trail
from turnwise.engine.runtime.access import (
    get_attribute,
    list_pairs,
    name_pairs,
    to_sequence,
    type_name,
)
from turnwise.engine.runtime.costs import charge_call
from turnwise.engine.runtime.formatting import format_percent, join_parts
from turnwise.engine.runtime.limits import MAX_INTEGER_BITS, Runtime, limit_error
from turnwise.engine.runtime.measures import (
    ELEMENT_BYTES,
    ITEM_BYTES,
    MAX_FREE_LENGTH,
    RESULT_BYTES,
    bound_integer,
    char_bytes,
    charge_comparison,
    charge_key,
    charge_search,
    list_elements,
    search_bytes,
)
from turnwise.engine.runtime.methods import METHODS
from turnwise.engine.runtime.values import (
    ABSENT,
    Builtin,
    Failure,
    Function,
    Loop,
    Macro,
    NamedPairs,
    Namespace,
    Pair,
    Safe,
    Stream,
    Undefined,
    ValueFailure,
    View,
    check_defined,
    refuse_private,
)
from turnwise.errors import short_repr


def add_values(rt: Runtime, parts: tuple[Any, ...]) -> Pair:
    """Return `a + b + c`, given flat.

    Value, trail, value, trail. Text is the common case and is joined once.
    """
    if type(parts[0]) is str and all([type(value) is str for value in parts[::2]]):
        return join_parts(rt, parts)
    value, trail = parts[0], parts[1]
    for right, right_trail in zip(parts[2::2], parts[3::2], strict=True):
        value, trail = add_pair(rt, value, trail, right, right_trail)
    return value, trail


def add_pair(rt: Runtime, left: Any, left_trail: Trail, right: Any, right_trail: Trail) -> Pair:
    """Return `left + right`."""
    if isinstance(left, str) and isinstance(right, str):
        if type(left) is Safe or type(right) is Safe:
            parts = (
                *_escape_beside_safe(left, left_trail),
                *_escape_beside_safe(right, right_trail),
            )
            result, trail = join_parts(rt, parts)
            return Safe(result), trail
        return join_parts(rt, (left, left_trail, right, right_trail))
    if type(left) is type(right) and isinstance(left, (list, tuple)):
        rt.charge_bytes(RESULT_BYTES + 8 * (len(left) + len(right)))
        return left + right, chain_trails(len(left), left_trail, len(right), right_trail)
    rt.charge_bytes(RESULT_BYTES)
    return _compute(operator.add, left, right), None


def _escape_beside_safe(value: str, trail: Trail) -> Pair:
    """Escape HTML in text that is added to safe text."""
    if type(value) is Safe:
        return value, trail
    return escape_html(value), (RECASED, value, trail, escape_html)


def escape_html(value: str) -> str:
    return str(escape(value))


def _compute(operation: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """Apply an operation to numbers, which are bounded; for anything else Python gives the error."""
    try:
        result = operation(bound_integer(left), bound_integer(right))
    except (TypeError, ZeroDivisionError, OverflowError, ValueError) as error:
        raise _operand_failure(error, left, right) from None
    return bound_integer(result)


def _operand_failure(error: Exception, left: Any, right: Any) -> Failure:
    hint = f"the values are {short_repr(left)} and {short_repr(right)}"
    return Failure(_rename_types(error, left, right), hint)


def _rename_types(error: Exception, left: Any, right: Any) -> str:
    """Return Python's message with the names of our classes replaced by those of Python's."""
    text = str(error)
    for value in (left, right):
        text = text.replace(type(value).__name__, type_name(value))
    return text


def multiply(rt: Runtime, left: Any, left_trail: Trail, right: Any, right_trail: Trail) -> Pair:
    if isinstance(left, int) and isinstance(right, (str, list, tuple)):
        left, left_trail, right, right_trail = right, right_trail, left, left_trail
    if isinstance(left, (str, list, tuple)) and isinstance(right, int):
        each = char_bytes(left) if isinstance(left, str) else ITEM_BYTES // 2
        rt.charge_bytes(each * len(left) * max(int(right), 0))
        if isinstance(left, str):
            return left * right, (REPEATED, left, left_trail)
        return left * right, (TIMES, left_trail, len(left) or 1)
    if isinstance(left, int) and isinstance(right, int):
        _refuse_bits(left.bit_length() + right.bit_length())
    return _compute(operator.mul, left, right), None


def raise_to_power(
    rt: Runtime, left: Any, left_trail: Trail, right: Any, right_trail: Trail
) -> Pair:
    if isinstance(left, int) and isinstance(right, int):
        _refuse_bits(left.bit_length() * max(bound_integer(right), 0))
    return _compute(operator.pow, left, right), None


def _refuse_bits(bits: int) -> None:
    if bits > MAX_INTEGER_BITS:
        raise limit_error("bytes")


def take_modulo(rt: Runtime, left: Any, left_trail: Trail, right: Any, right_trail: Trail) -> Pair:
    if isinstance(left, str):
        return format_percent(rt, left, left_trail, right, right_trail)
    return _compute(operator.mod, left, right), None


def make_operator(operation: Callable[[Any, Any], Any]) -> Builtin:
    return lambda rt, left, left_trail, right, right_trail: (_compute(operation, left, right), None)


OPERATORS: dict[str, Builtin] = {
    "Sub": charge_call(make_operator(operator.sub), 50),
    "Mul": charge_call(multiply, 50),
    "Div": charge_call(make_operator(operator.truediv), 50),
    "FloorDiv": charge_call(make_operator(operator.floordiv), 50),
    "Mod": charge_call(take_modulo, 50),
    "Pow": charge_call(raise_to_power, 100),
}


def apply_sign(value: Any, negative: bool) -> Any:
    bound_integer(value)
    try:
        return -value if negative else +value
    except TypeError as error:
        raise ValueFailure(_rename_types(error, value, value), value) from None


# ---- comparing ----

COMPARISONS = {
    "eq": operator.eq,
    "lt": operator.lt,
    "lteq": operator.le,
    "gt": operator.gt,
    "gteq": operator.ge,
}


def is_equal(rt: Runtime, left: Any, right: Any) -> bool:
    """Return `left == right`; only long texts and containers pay for it."""
    kind = type(left)
    if kind is int or kind is bool or left is None or (kind is str and len(left) < MAX_FREE_LENGTH):
        return bool(left == right)
    return bool(compare(rt, "eq", left, right))


def compare(rt: Runtime, name: str, left: Any, right: Any) -> Any:
    """Return `left < right` and the like; `name` is jinja2's name of the operator."""
    charge_comparison(rt, left, right)
    try:
        return COMPARISONS[name](left, right)
    except TypeError as error:
        raise _operand_failure(error, left, right) from None


SEARCHABLE = (str, list, tuple, dict, range, Safe, Undefined, View)


def contains(rt: Runtime, value: Any, container: Any) -> bool:
    """Return `value in container`."""
    if isinstance(container, str):
        rt.charge_bytes(search_bytes(container, value))
    elif isinstance(container, dict):
        charge_key(rt, value, len(container))
    elif type(container) is range:
        rt.charge_steps(1 if type(value) in (int, bool) else 3 * len(container))
    elif isinstance(container, (list, tuple, View, Stream)):
        charge_search(rt, list_elements(container), value)
    if type(container) is Stream:
        container = container.take_items()
    elif type(container) not in SEARCHABLE:
        raise ValueFailure(
            f"argument of type {type_name(container)!r} is not iterable",
            container,
        )
    try:
        return value in container
    except TypeError as error:
        check_defined(value)
        raise Failure(_rename_types(error, value, container)) from None


# ---- calling ----


def call_method(
    rt: Runtime, value: Any, trail: Trail, name: str, /, *args: Pair, **kwargs: Pair
) -> Pair:
    """Return `value.name(...)`, without making a value of the method in between."""
    table = METHODS.get(type(value))
    if table is not None and name in table:
        result = table[name](rt, value, trail, *args, **kwargs)
        if type(value) is Safe and type(result[0]) is str:
            return Safe(result[0]), result[1]
        return result
    found, found_trail = get_attribute(rt, value, trail, name)
    return call_value(rt, found, found_trail, *args, **kwargs)


def call_value(rt: Runtime, callee: Any, trail: Trail, /, *args: Pair, **kwargs: Pair) -> Pair:
    """Return `callee(...)`."""
    if isinstance(callee, Function):
        return callee.run(rt, *args, **kwargs)
    if isinstance(callee, Macro):
        return capture_output(rt, callee.body(*match_arguments(callee, args, kwargs)))
    check_defined(callee)
    if isinstance(callee, Loop) and callee.again is not None:
        return callee.again(*args)
    raise ValueFailure(f"{type_name(callee)!r} object is not callable", callee)


def match_arguments(macro: Macro, args: tuple[Pair, ...], kwargs: NamedPairs) -> list[Pair]:
    """Match arguments to the parameters of a macro, as jinja2 does: missing ones are `ABSENT`."""
    names = macro.arguments
    given = list(args[: len(names)])
    missing = names[len(given) :]
    has_caller = "caller" in missing or ("caller" in names and not missing)
    given += [kwargs.pop(name, ABSENT) for name in missing]
    if macro.caller and not has_caller:
        given.append(kwargs.pop("caller", (Undefined("No caller defined"), None)))
    if macro.catch_kwargs:
        given.append(name_pairs(kwargs))
    elif kwargs:
        name = short_repr(next(iter(kwargs)))
        raise Failure(f"macro {macro.name!r} takes no keyword argument {name}")
    if macro.catch_varargs:
        rest, trail = list_pairs(args[len(names) :])
        given.append((tuple(rest), trail))
    elif len(args) > len(names):
        raise Failure(f"macro {macro.name!r} takes not more than {len(names)} argument(s)")
    return given


capture_output = join_parts  # what a block or macro wrote, as one text


def spread_arguments(rt: Runtime, value: Any, trail: Trail) -> list[Pair]:
    """Return the arguments of `*value` in a call."""
    if isinstance(value, (str, dict, View, Stream, Undefined)):
        value, trail = to_sequence(rt, value, trail)
    if not isinstance(value, (list, tuple, range)):
        raise Failure(f"argument after * must be an iterable, not {type_name(value)}")
    rt.charge_each(len(value), 8, ELEMENT_BYTES)
    return [(item, (trail, number)) for number, item in enumerate(value)]


def spread_keywords(rt: Runtime, value: Any, trail: Trail) -> NamedPairs:
    """Return the arguments of `**value` in a call."""
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise Failure(f"argument after ** must be a mapping, not {type_name(value)}")
    rt.charge_each(len(value), 8, ELEMENT_BYTES)
    return {key: (item, (trail, key)) for key, item in value.items()}


def require_text(value: Any, trail: Trail) -> Pair:
    """Check the result of a filter block: jinja2 does not print it, so it must be text already."""
    if not isinstance(value, str):
        raise Failure(f"the filter of a block must give text, not {type_name(value)}")
    return str(value), trail


# ---- assigning ----


def unpack_values(rt: Runtime, value: Any, trail: Trail, count: int) -> list[Any]:
    """Return the values and trails of `a, b = value`, flat."""
    if not isinstance(value, (str, dict, list, tuple)):
        raise Failure(f"cannot unpack non-iterable {type_name(value)} object")
    if len(value) != count:
        quantity = "not enough" if len(value) < count else "too many"
        raise Failure(f"{quantity} values to unpack (expected {count}, got {len(value)})")
    flat: list[Any] = []
    for number, item in enumerate(value):
        flat += (item, (trail, number))
    return flat


def assign_attribute(namespace: Any, name: str, value: Any, trail: Trail) -> None:
    """Do `{% set namespace.name = value %}`."""
    if type(namespace) is not Namespace:
        raise ValueFailure("cannot assign attribute on non-namespace object", namespace)
    refuse_private(name)
    namespace.pairs[name] = (value, trail)
