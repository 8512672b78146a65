"""Templates that do one operation of the engine as often as its budget allows, on values of hostile sizes.

Operations are enumerated from the engine's own tables, so that a new builtin is tried by itself. A row sets its
values up in the template (budgets grow with the input), then loops. Its result is thrown away, which costs time, or
kept in a growing value, which costs memory.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

from turnwise.engine.runtime.filters import FILTERS
from turnwise.engine.runtime.functions import FUNCTIONS
from turnwise.engine.runtime.jinja_tests import TESTS
from turnwise.engine.runtime.methods import METHODS

DOUBLED = (
    "{{% set n = namespace(a=[{0}]) %}}{{% for i in range(40) %}}{{% set n.a = [n.a, n.a] %}}"
    "{{% endfor %}}{{% set {1} = n.a %}}"
)
VALUES = {
    "text": "'a' * 1000000",
    "emoji": "'😀' * 300000",
    "lines": "'\\n' * 300000",
    "returns": "'\\r' * 300000",
    "short": "'a' * 2000",
    "word": "'ab'",
    "digits": "'9' * 300",
    "tags": "'<' * 100000",
    "list": "[1] * 100000",
    "texts": "['a' * 1000000] * 1000",
    "words": "['Ab'] * 50000",
    "tuple": "(1, 2) * 50000",
    "range": "range(99999)",
    "dict": "dict.fromkeys(range(20000))",
    "view": "dict.fromkeys(range(20000)).items()",
    "pairs": "[('a', 'b' * 100000)] * 100",
    "huge": "2 ** 1000",
    "colliding": "range(0, 900 * 2305843009213693951, 2305843009213693951)|list",
    "number": "7",
    "namespace": "namespace(a='a' * 100000)",
    "safe": "('a' * 300000)|safe",
    "undefined": "nothing",
    "doubled": "",
}
OWNERS = {str: "text emoji lines word", list: "list texts doubled", dict: "dict", tuple: "tuple"}
OPERATORS = [
    "+",
    "-",
    "*",
    "/",
    "//",
    "%",
    "**",
    "~",
    "==",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "in",
    "and",
]
FORMATS = ["%s", "%r", "%a", "%d", "%x", "%o", "%e", "%c", "%5s", "%-9.3s", "%09d"]
BRACES = ["{}", "{!r}", "{!a}", "{!s}", "{:>9}", "{:b}", "{:,}", "{:x}", "{:e}", "{:.3}"]
SEED = 12


class CostRow(NamedTuple):
    """One operation on two values: `a` and `b` in the expression."""

    operation: str
    expression: str
    first: str
    second: str

    @property
    def name(self) -> str:
        return f"{self.operation} ({self.first}, {self.second})"

    def template(self, keep: bool) -> str:
        setup = "".join(
            DOUBLED.format(1, name)
            if value == "doubled"
            else f"{{% set {name} = {VALUES[value]} %}}"
            for name, value in (("a", self.first), ("b", self.second))
        )
        body = "{% set x = " + self.expression + " %}"
        if keep:
            body = "{% set k.l = [k.l, " + self.expression + "] %}"
        loops = "{% for i in range(2000) %}{% for j in range(20) %}"
        ends = "{% endfor %}{% endfor %}"
        return "{% set k = namespace(l=[]) %}" + setup + loops + body + ends


def expressions() -> Iterator[tuple[str, str]]:
    """Yield all operations by name, as expressions of `a` and `b`."""
    for name in FILTERS:
        yield f"|{name}", f"a|{name}"
        yield f"|{name}()", f"a|{name}(b)"
    for name in ("map", "select", "reject"):
        yield f"|{name} name", f"a|{name}(b)|list"
    for name in ("map", "sort", "unique", "groupby", "min", "max", "join", "sum"):
        yield f"|{name} attribute", f"a|{name}(attribute=b)"
    for name in TESTS:
        yield f"is {name}", f"a is {name}"
        yield f"is {name}()", f"a is {name}(b)"
    for kind, table in METHODS.items():
        for name in table:
            yield f"{kind.__name__}.{name}", f"a.{name}()"
            yield f"{kind.__name__}.{name}()", f"a.{name}(b)"
    for name in FUNCTIONS:
        yield f"{name}()", f"{name}(a)"
    for operator in OPERATORS:
        yield f"a {operator} b", f"a {operator} b"
    for form in FORMATS:
        yield f"'{form}' %", f"'{form}' % a"
    for form in BRACES:
        yield f"'{form}'.format", f"'{form}'.format(a)"
    yield from {"-a": "-a", "a[b]": "a[b]", "a[:]": "a[1:]", "a[::-1]": "a[::-1]"}.items()
    yield from {"f(*a)": "dict(*a)", "f(**a)": "namespace(**a)", "[a, b]": "[a, b]"}.items()
    yield from {"{a: b}": "{a: b}", "a.b": "a.b", "a(b)": "a(b)"}.items()


def all_rows() -> list[CostRow]:
    """Return every operation on every pair of values; operations on one value have it as both."""
    rows = []
    for operation, expression in expressions():
        has_second = "b" in expression.replace(operation.strip("|()"), "")
        for first in VALUES:
            for second in VALUES if has_second else ["number"]:
                rows.append(CostRow(operation, expression, first, second))
    return rows


def sample(count: int) -> list[CostRow]:
    """Return so many rows for each operation, chosen by a fixed seed."""
    chooser = random.Random(SEED)
    by_operation: dict[str, list[CostRow]] = {}
    for row in all_rows():
        by_operation.setdefault(row.operation, []).append(row)
    return [
        row for rows in by_operation.values() for row in chooser.sample(rows, min(count, len(rows)))
    ]
