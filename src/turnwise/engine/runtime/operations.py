"""Operators, calls, and the ends of blocks: what the generated code calls when a line of Python will not do.

Python's own operators decide what is an error, as they do in jinja2; what is added is the charge before an operation
allocates, and the trail of the result.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from markupsafe import escape

from turnwise.engine.provenance.trails import CHAIN, ITEMS, JOINED, RECASED, REPEATED, TIMES, Trail
from turnwise.engine.runtime.access import attribute, kind_name, sequence
from turnwise.engine.runtime.formatting import glued, hashable, measure, percent
from turnwise.engine.runtime.limits import INTEGER_BITS, Runtime, limit_error
from turnwise.engine.runtime.methods import METHODS
from turnwise.engine.runtime.values import (
    ABSENT,
    Failure,
    Function,
    Loop,
    Macro,
    Namespace,
    Pair,
    Safe,
    Stream,
    Undefined,
    View,
)
from turnwise.errors import short_repr

CALL_WEIGHT = 12  # what calling a macro costs beside its body
CONTAINERS = (list, tuple, dict)
SHORT = 4096  # characters that can be looked at without being charged for


def added(rt: Runtime, parts: tuple[Any, ...]) -> Pair:
    """`a + b + c`, given flat: value, trail, value, trail. Text is the common case and is built once."""
    if all([type(value) is str for value in parts[::2]]):
        return glued(rt, parts)
    value, trail = parts[0], parts[1]
    for right, right_trail in zip(parts[2::2], parts[3::2], strict=True):
        value, trail = plus(rt, value, trail, right, right_trail)
    return value, trail


def plus(rt: Runtime, left: Any, left_trail: Trail, right: Any, right_trail: Trail) -> Pair:
    if isinstance(left, str) and isinstance(right, str):
        if type(left) is Safe or type(right) is Safe:
            parts = (*harmless(left, left_trail), *harmless(right, right_trail))
            result, trail = glued(rt, parts)
            return Safe(result), trail
        return glued(rt, (left, left_trail, right, right_trail))
    if type(left) is type(right) and isinstance(left, (list, tuple)):
        rt.take(8 * (len(left) + len(right)))
        return left + right, (CHAIN, len(left), left_trail, right_trail)
    return computed(operator.add, left, right), None


def harmless(value: str, trail: Trail) -> Pair:
    """Text that is added to safe text, with HTML's characters escaped."""
    return (
        (value, trail)
        if type(value) is Safe
        else (escaped(value), (RECASED, value, trail, escaped))
    )


def escaped(value: str) -> str:
    return str(escape(value))


def computed(operation: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """An operation on numbers, or the error that Python gives for anything else."""
    try:
        result = operation(left, right)
    except (TypeError, ZeroDivisionError, OverflowError, ValueError) as error:
        raise Failure(
            message_of(error, left, right),
            f"the values are {short_repr(left)} and {short_repr(right)}",
        ) from None
    if type(result) is int and result.bit_length() > INTEGER_BITS:
        raise limit_error("bytes")
    return result


def message_of(error: Exception, left: Any, right: Any) -> str:
    """Python's message with our type names turned into the ones that people know."""
    text = str(error)
    for value in (left, right):
        text = text.replace(type(value).__name__, kind_name(value))
    return text


def times(rt: Runtime, left: Any, left_trail: Trail, right: Any, right_trail: Trail) -> Pair:
    if isinstance(left, int) and isinstance(right, (str, list, tuple)):
        left, left_trail, right, right_trail = right, right_trail, left, left_trail
    if isinstance(left, (str, list, tuple)) and isinstance(right, int):
        rt.take(len(left) * max(int(right), 0) * (1 if isinstance(left, str) else 8))
        if isinstance(left, str):
            return left * right, (REPEATED, left, left_trail)
        return left * right, (TIMES, left_trail, len(left) or 1)
    big(left, right, lambda a, b: a.bit_length() + b.bit_length())
    return computed(operator.mul, left, right), None


def power(rt: Runtime, left: Any, left_trail: Trail, right: Any, right_trail: Trail) -> Pair:
    big(left, right, lambda a, b: a.bit_length() * max(b, 0))
    return computed(operator.pow, left, right), None


def big(left: Any, right: Any, bits: Callable[[int, int], int]) -> None:
    if isinstance(left, int) and isinstance(right, int) and bits(left, right) > INTEGER_BITS:
        raise limit_error("bytes")


def modulo(rt: Runtime, left: Any, left_trail: Trail, right: Any, right_trail: Trail) -> Pair:
    if isinstance(left, str):
        return percent(rt, left, left_trail, right, right_trail)
    return computed(operator.mod, left, right), None


def arithmetic(operation: Callable[[Any, Any], Any]) -> Callable[..., Pair]:
    def run(rt: Runtime, left: Any, left_trail: Trail, right: Any, right_trail: Trail) -> Pair:
        return computed(operation, left, right), None

    return run


OPERATORS: dict[str, Callable[..., Pair]] = {
    "Sub": arithmetic(operator.sub),
    "Mul": times,
    "Div": arithmetic(operator.truediv),
    "FloorDiv": arithmetic(operator.floordiv),
    "Mod": modulo,
    "Pow": power,
}


def signed(value: Any, negative: bool) -> Any:
    try:
        return -value if negative else +value
    except TypeError as error:
        raise Failure(
            message_of(error, value, value), f"the value is {short_repr(value)}"
        ) from None


# ---- comparing ----

ORDER: dict[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "lteq": operator.le,
    "gt": operator.gt,
    "gteq": operator.ge,
}


def size(value: Any) -> int:
    return len(value) if isinstance(value, (str, list, tuple, dict)) else 1


def equal(rt: Runtime, left: Any, right: Any) -> bool:
    """`left == right`, charged where it is not at once decided."""
    kind = type(left)
    if kind is int or kind is bool or left is None or (kind is str and len(left) < SHORT):
        return bool(left == right)
    return bool(compared(rt, "eq", left, right))


def compared(rt: Runtime, name: str, left: Any, right: Any) -> Any:
    rt.take(min(size(left), size(right)))
    if (
        isinstance(left, CONTAINERS)
        and isinstance(right, CONTAINERS)
        and left is not right
        and nested(left)
    ):
        measure(rt, left, None)
    try:
        return ORDER[name](left, right)
    except TypeError as error:
        raise Failure(
            message_of(error, left, right),
            f"the values are {short_repr(left)} and {short_repr(right)}",
        ) from None


def nested(value: Any) -> bool:
    """Whether a container has containers inside."""
    return any(
        isinstance(item, CONTAINERS)
        for item in (value.values() if isinstance(value, dict) else value)
    )


def contained(rt: Runtime, value: Any, container: Any) -> bool:
    """`value in container`"""
    kind = type(container)
    if kind is str:
        rt.take(len(container))
    elif kind in (list, tuple):
        rt.step(len(container))
        rt.take(len(container) * size(value))
        if isinstance(value, CONTAINERS):
            measure(rt, value, None)
    elif kind is dict:
        hashable(rt, value)
    elif kind is Stream:
        container = container.taken()
        rt.step(len(container))
        if isinstance(value, CONTAINERS):
            measure(rt, value, None)
    elif kind not in (dict, range, Safe, Undefined, View):
        raise Failure(
            f"argument of type {kind_name(container)!r} is not iterable",
            f"the value is {short_repr(container)}",
        )
    try:
        return value in container
    except TypeError as error:
        if type(value) is Undefined:
            raise value.failure() from None
        raise Failure(message_of(error, value, container)) from None


# ---- calling ----


def method(
    rt: Runtime, value: Any, trail: Trail, name: str, /, *args: Pair, **kwargs: Pair
) -> Pair:
    """`value.name(...)`, without making a value of the method in between."""
    table = METHODS.get(type(value))
    if table is not None and name in table:
        result = table[name](rt, value, trail, *args, **kwargs)
        if type(value) is Safe and type(result[0]) is str:
            return Safe(result[0]), result[1]
        return result
    found, found_trail = attribute(rt, value, trail, name)
    return call(rt, found, found_trail, *args, **kwargs)


def call(rt: Runtime, callee: Any, trail: Trail, /, *args: Pair, **kwargs: Pair) -> Pair:
    """`callee(...)`"""
    if isinstance(callee, Function):
        return callee.run(rt, *args, **kwargs)
    if isinstance(callee, Macro):
        return captured(rt, callee.body(*matched(callee, args, kwargs)))
    if isinstance(callee, Undefined):
        raise callee.failure()
    if isinstance(callee, Loop) and callee.again is not None:
        return callee.again(*args)
    raise Failure(
        f"{kind_name(callee)!r} object is not callable", f"the value is {short_repr(callee)}"
    )


def matched(macro: Macro, args: tuple[Pair, ...], kwargs: dict[str, Pair]) -> list[Pair]:
    """Arguments as jinja2 matches them."""
    names = macro.arguments
    given = list(args[: len(names)])
    found_caller = macro.explicit_caller and len(given) == len(names)
    for name in names[len(given) :]:
        found_caller = found_caller or name == "caller"
        given.append(kwargs.pop(name, ABSENT))
    if macro.caller and not found_caller:
        given.append(kwargs.pop("caller", (Undefined("No caller defined"), None)))
    if macro.catch_kwargs:
        entries = {key: pair[0] for key, pair in kwargs.items()}
        given.append((entries, (ITEMS, {key: pair[1] for key, pair in kwargs.items()}, {})))
    elif kwargs:
        raise Failure(f"macro {macro.name!r} takes no keyword argument {next(iter(kwargs))!r}")
    if macro.catch_varargs:
        rest = args[len(names) :]
        given.append((tuple(pair[0] for pair in rest), (ITEMS, [pair[1] for pair in rest])))
    elif len(args) > len(names):
        raise Failure(f"macro {macro.name!r} takes not more than {len(names)} argument(s)")
    return given


def captured(rt: Runtime, out: list[Any]) -> Pair:
    """What a block or macro wrote, as one text."""
    texts = out[::2]
    rt.take(sum(map(len, texts)))
    return "".join(texts), (JOINED, out)


def spread(rt: Runtime, value: Any, trail: Trail) -> list[Pair]:
    """`*value` in a call."""
    if isinstance(value, (str, dict, View, Stream, Undefined)):
        value, trail = sequence(rt, value, trail)
    if not isinstance(value, (list, tuple, range)):
        raise Failure(f"argument after * must be an iterable, not {kind_name(value)}")
    rt.take(16 * len(value))
    rt.step(8 * len(value))
    return [(item, (trail, number)) for number, item in enumerate(value)]


def spread_keywords(rt: Runtime, value: Any, trail: Trail) -> dict[str, Pair]:
    """`**value` in a call."""
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise Failure(f"argument after ** must be a mapping, not {kind_name(value)}")
    return {key: (item, (trail, key)) for key, item in value.items()}


def only_text(value: Any, trail: Trail) -> Pair:
    """What a filter block writes: jinja2 does not print it, so it must be text already."""
    if not isinstance(value, str):
        raise Failure(f"the filter of a block must give text, not {kind_name(value)}")
    return str(value), trail


# ---- assigning ----


def unpacked(rt: Runtime, value: Any, trail: Trail, count: int) -> list[Any]:
    """The values and trails of `a, b = value`, flat."""
    if isinstance(value, (str, dict)):
        value = list(value)
    if not isinstance(value, (list, tuple)):
        raise Failure(f"cannot unpack non-iterable {kind_name(value)} object")
    if len(value) != count:
        few = "not enough" if len(value) < count else "too many"
        raise Failure(f"{few} values to unpack (expected {count}, got {len(value)})")
    flat: list[Any] = []
    for number, item in enumerate(value):
        flat += (item, (trail, number))
    return flat


def assigned(namespace: Any, name: str, value: Any, trail: Trail) -> None:
    """`{% set namespace.name = value %}`"""
    if type(namespace) is not Namespace:
        raise Failure(
            "cannot assign attribute on non-namespace object",
            f"the value is {short_repr(namespace)}",
        )
    namespace.set(name, value, trail)
