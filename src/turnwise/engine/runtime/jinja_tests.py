"""Jinja's tests: `value is defined`.

A test is a function `(rt, value, *arguments) -> bool`; it needs no trails.

`INLINE` holds the tests that are one Python expression; the compiler writes those into the
generated code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turnwise.engine.runtime.costs import charge_call
from turnwise.engine.runtime.formatting import to_text
from turnwise.engine.runtime.limits import Runtime
from turnwise.engine.runtime.measures import bound_integer
from turnwise.engine.runtime.operations import compare, contains, is_equal
from turnwise.engine.runtime.values import (
    Failure,
    Function,
    Loop,
    Macro,
    Safe,
    Stream,
    Undefined,
    View,
    check_defined,
)

Test = Callable[..., bool]

INLINE = {
    "defined": "{0}.__class__ is not Undefined",
    "undefined": "{0}.__class__ is Undefined",
    "none": "{0} is None",
    "string": "({0}.__class__ is str or {0}.__class__ is Safe)",
    "mapping": "{0}.__class__ is dict",
    "boolean": "{0}.__class__ is bool",
    "true": "{0} is True",
    "false": "{0} is False",
}
ITERABLE = (str, list, tuple, dict, Undefined, Loop, Stream, View, range)
SEQUENCE = (str, list, tuple, dict, range)


def make_comparison_test(name: str) -> Test:
    return lambda rt, value, other: bool(compare(rt, name, value, other))


def require_number(value: Any) -> Any:
    check_defined(value)
    if not isinstance(value, (int, float)):
        raise Failure(f"this test needs a number, not {type(value).__name__}")
    return value


def is_divisible(rt: Runtime, value: Any, by: Any) -> bool:
    if bound_integer(require_number(by)) == 0:
        raise Failure("division by zero")
    return bool(bound_integer(require_number(value)) % by == 0)


def make_text_test(name: str) -> Test:
    def run(rt: Runtime, value: Any) -> bool:
        written, _ = to_text(rt, value, None)
        rt.charge_bytes(len(written))
        return bool(getattr(written, name)())

    return run


TYPE_TESTS: dict[str, Test] = {
    **{name: eval(f"lambda rt, value: {form.format('value')}") for name, form in INLINE.items()},
    "callable": lambda rt, value: isinstance(value, (Macro, Function, Undefined)),
    "integer": lambda rt, value: type(value) is int,
    "float": lambda rt, value: type(value) is float,
    "number": lambda rt, value: isinstance(value, (int, float)),
    "iterable": lambda rt, value: isinstance(value, ITERABLE),
    "sequence": lambda rt, value: isinstance(value, SEQUENCE) or type(value) is Undefined,
}
"""Tests that ask for the type of a value, and of a text for nothing else."""

TESTS: dict[str, Test] = {
    **TYPE_TESTS,
    "divisibleby": charge_call(is_divisible, 50),
    **dict.fromkeys(["eq", "==", "equalto"], is_equal),
    **dict.fromkeys(["ne", "!="], lambda rt, value, other: not is_equal(rt, value, other)),
    **dict.fromkeys(["lt", "<", "lessthan"], make_comparison_test("lt")),
    **dict.fromkeys(["le", "<="], make_comparison_test("lteq")),
    **dict.fromkeys(["gt", ">", "greaterthan"], make_comparison_test("gt")),
    **dict.fromkeys(["ge", ">="], make_comparison_test("gteq")),
    "even": lambda rt, value: require_number(value) % 2 == 0,
    "odd": lambda rt, value: require_number(value) % 2 == 1,
    "in": contains,
    "sameas": lambda rt, value, other: value is other,
    "lower": charge_call(make_text_test("islower"), 100),
    "upper": charge_call(make_text_test("isupper"), 100),
    "escaped": lambda rt, value: isinstance(value, Safe),
}
"""The tests by name: the function, and the bytes of one call where it costs more than its node (`costs.py`)."""
