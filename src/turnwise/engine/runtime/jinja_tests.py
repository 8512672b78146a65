"""Jinja's tests: `value is defined`.

A test is a function `(rt, value, *arguments) -> bool`; it needs no trails.

`INLINE` holds the tests that are one Python expression; the compiler writes those into the
generated code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turnwise.engine.runtime.costs import TEST_COSTS, attach_costs
from turnwise.engine.runtime.formatting import to_text
from turnwise.engine.runtime.limits import Runtime
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


def make_inline_test(name: str) -> Test:
    code = compile(INLINE[name].format("value"), f"<{name}>", "eval")
    names = {"Undefined": Undefined, "Safe": Safe}

    def run(rt: Runtime, value: Any) -> bool:
        return bool(eval(code, names, {"value": value}))

    return run


def is_unequal(rt: Runtime, value: Any, other: Any) -> bool:
    return not is_equal(rt, value, other)


def make_comparison_test(name: str) -> Test:
    def run(rt: Runtime, value: Any, other: Any) -> bool:
        return bool(compare(rt, name, value, other))

    return run


def require_number(value: Any) -> Any:
    if type(value) is Undefined:
        raise value.failure()
    if not isinstance(value, (int, float)):
        raise Failure(f"this test needs a number, not {type(value).__name__}")
    return value


def is_divisible(rt: Runtime, value: Any, by: Any) -> bool:
    if require_number(by) == 0:
        raise Failure("division by zero")
    return bool(require_number(value) % by == 0)


def make_text_test(name: str) -> Test:
    def run(rt: Runtime, value: Any) -> bool:
        written, _ = to_text(rt, value, None)
        return bool(getattr(written, name)())

    return run


UNCHARGED_TESTS: dict[str, Test] = {
    **{name: make_inline_test(name) for name in INLINE},
    "callable": lambda rt, value: isinstance(value, (Macro, Function, Undefined)),
    "divisibleby": is_divisible,
    "eq": is_equal,
    "==": is_equal,
    "equalto": is_equal,
    "ne": is_unequal,
    "!=": is_unequal,
    "lt": make_comparison_test("lt"),
    "<": make_comparison_test("lt"),
    "lessthan": make_comparison_test("lt"),
    "le": make_comparison_test("lteq"),
    "<=": make_comparison_test("lteq"),
    "gt": make_comparison_test("gt"),
    ">": make_comparison_test("gt"),
    "greaterthan": make_comparison_test("gt"),
    "ge": make_comparison_test("gteq"),
    ">=": make_comparison_test("gteq"),
    "even": lambda rt, value: bool(require_number(value) % 2 == 0),
    "odd": lambda rt, value: bool(require_number(value) % 2 == 1),
    "in": contains,
    "integer": lambda rt, value: type(value) is int,
    "float": lambda rt, value: type(value) is float,
    "number": lambda rt, value: isinstance(value, (int, float)),
    "iterable": lambda rt, value: isinstance(value, ITERABLE),
    "sequence": lambda rt, value: isinstance(value, SEQUENCE) or type(value) is Undefined,
    "sameas": lambda rt, value, other: value is other,
    "lower": make_text_test("islower"),
    "upper": make_text_test("isupper"),
    "escaped": lambda rt, value: isinstance(value, Safe),
}
TESTS = attach_costs(TEST_COSTS, UNCHARGED_TESTS)
