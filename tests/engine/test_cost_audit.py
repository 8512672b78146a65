"""Every operation, on values of hostile sizes, ends by itself within its budget's time and memory."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from typing import NamedTuple

import pytest

import turnwise
from containment import Bounds, Measurement, Step, find_problems, measure_in_child
from turnwise.engine.runtime.filters import FILTERS
from turnwise.engine.runtime.functions import FUNCTIONS
from turnwise.engine.runtime.jinja_tests import TESTS
from turnwise.engine.runtime.methods import METHODS

# Templates that do one operation of the engine as often as its budget allows, on values of hostile sizes.
#
# Operations are enumerated from the engine's own tables, so that a new builtin is tried by itself. A row sets its
# values up in the template (budgets grow with the input), then loops. Its result is thrown away, which costs time, or
# kept in a growing value, which costs memory.

MODULUS = 2**61 - 1  # integers that differ by it have the same hash
DOUBLED = (
    "{{% set n = namespace(a=[{0}]) %}}{{% for i in range(40) %}}{{% set n.a = [n.a, n.a] %}}"
    "{{% endfor %}}{{% set {1} = n.a %}}"
)
VALUES = {  # as they are made, and small ones of the same kind
    "megabyte": ("'a' * 1000000", "'a'"),
    "text": ("'a' * 250000", "'a'"),
    "emoji": ("'😀' * 50000", "'😀'"),
    "lines": ("'\\n' * 50000", "'\\n'"),
    "returns": ("'\\r' * 50000", "'\\r'"),
    "short": ("'a' * 2000", "'a'"),
    "word": ("'ab'", "'ab'"),
    "digits": ("'9' * 300", "'9'"),
    "tags": ("'<' * 100000", "'<'"),
    "list": ("[1] * 10000", "[1]"),
    "texts": ("['a' * 200000] * 1000", "['a']"),
    "words": ("['Ab'] * 5000", "['Ab']"),
    "tuple": ("(1, 2) * 5000", "(1, 2)"),
    "range": ("range(99999)", "range(9)"),
    "dict": ("dict.fromkeys(range(1000))", "dict.fromkeys(range(3))"),
    "view": ("dict.fromkeys(range(500)).items()", "dict.fromkeys(range(3)).items()"),
    "pairs": ("[('a', 'b' * 100000)] * 100", "[('a', 'b')]"),
    "huge": ("('9' * 300)|int", "2"),
    "colliding": (f"[{', '.join(str(i * MODULUS) for i in range(60))}]", "[0]"),
    "number": ("7", "7"),
    "namespace": ("namespace(a='a' * 100000)", "namespace(a='a')"),
    "safe": ("('a' * 100000)|safe", "'a'|safe"),
    "undefined": ("nothing", "nothing"),
    "doubled": ("", "[[1]]"),
}
OWNERS = {
    "str": "megabyte text emoji lines returns short word digits tags safe",
    "list": "list texts words pairs colliding doubled",
    "tuple": "tuple",
    "dict": "dict",
}
TRIES = 12  # pairs of values that are tried for each row
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
        """Return the whole template: values are made on line 1, and used on line 2."""
        body = "{% set x = " + self.expression + " %}"
        if keep:
            body = "{% set k.l = [k.l, " + self.expression + "] %}"
        loops = "{% for i in range(4000) %}{% for j in range(30) %}"
        ends = "{% endfor %}{% endfor %}"
        return f"{set_up(self.first, self.second)}\n{loops}{body}{ends}"

    def small_template(self) -> str:
        """Return a template that does the operation once, on small values."""
        values = f"{{% set a = {VALUES[self.first][1]} %}}{{% set b = {VALUES[self.second][1]} %}}"
        return values + "{% set x = " + self.expression + " %}"


def set_up(first: str, second: str) -> str:
    """Return the code that makes the two values."""
    return "{% set k = namespace(l=[]) %}" + "".join(
        DOUBLED.format(1, name)
        if value == "doubled"
        else f"{{% set {name} = {VALUES[value][0]} %}}"
        for name, value in (("a", first), ("b", second))
    )


def expressions() -> Iterator[tuple[str, str]]:
    """Yield all operations by name, as expressions of `a` and `b`."""
    for name in FILTERS:
        yield f"|{name}", f"a|{name}"
        yield f"|{name}()", f"a|{name}(b)"
        yield f"|{name}(,)", f"a|{name}(b, 'ab')"
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
            yield f"{kind.__name__}.{name}(,)", f"a.{name}(b, 'ab')"
    for name in FUNCTIONS:
        yield f"{name}()", f"{name}(a)"
    for operator in OPERATORS:
        yield f"a {operator} b", f"a {operator} b"
    for form in FORMATS:
        yield f"'{form}' %", f"'{form}' % a"
    for form in BRACES:
        yield f"'{form}'.format", f"'{form}'.format(a)"
    yield from {"-a": "-a", "a[b]": "a[b]", "a[:]": "a[1:]", "a[::-1]": "a[::-1]"}.items()
    for name in ("from_json", "fromjson"):
        yield f"|{name} text", f"('[' ~ '1,' * 5000 ~ '1]')|{name}"
    yield from {
        "list.index 1": "a.index(1)",
        "is divisibleby 7": "a is divisibleby(7)",
        "str.format_map {}": "'{x}'.format_map({'x': a})",
    }.items()
    yield from {"loop.changed": "loop.changed(a)", "loop.cycle": "loop.cycle(a, b)"}.items()
    yield from {"f(*a)": "dict(*a)", "f(**a)": "namespace(**a)", "[a, b]": "[a, b]"}.items()
    yield from {"{a: b}": "{a: b}", "a.b": "a.b", "a(b)": "a(b)"}.items()


@cache
def sample(count: int) -> list[CostRow]:
    """Return so many rows for each operation, chosen by a fixed seed among those whose types fit.

    An operation that takes none of them, as with a wrong number of arguments, has no row.
    """
    chooser = random.Random(SEED)
    covered: set[str] = set()  # builtins with a row; others are tried more often
    rows: list[CostRow] = []
    for operation, expression in expressions():
        chosen: list[CostRow] = []
        builtin, owner = operation.rstrip("(,)"), operation.split(".")[0]
        firsts = OWNERS[owner].split() if owner in OWNERS else VALUES
        pairs = list(product(firsts, VALUES))
        chooser.shuffle(pairs)
        for attempt, (first, second) in enumerate(pairs[: 3 * TRIES * count]):
            if len(chosen) == count or (attempt > TRIES * count and builtin in covered):
                break
            row = CostRow(operation, expression, first, second)
            if is_possible(row):
                chosen.append(row)
                covered.add(builtin)
        rows += chosen
    return rows


def is_possible(row: CostRow) -> bool:
    """Return whether an operation takes values of these kinds."""
    try:
        turnwise.compile(row.small_template()).render([])
    except turnwise.TurnwiseError:
        return False
    return True


# The tests

pytestmark = pytest.mark.once

AUDITED = Bounds(ms=300)
BATCH = 40  # rows of one child
CHAT = [{"role": "user", "content": "hello"}]


def find_offenders(rows: Sequence[CostRow]) -> tuple[dict[str, str], float]:
    """Return what was wrong with each row, and the share of rows that worked until a budget or the loop ended.

    A row that was wrong in a shared child is tried again in its own.
    """
    steps: dict[str, Step] = {}
    for row in rows:
        for keep in (False, True):
            name = f"{row.name}{' kept' if keep else ''}"
            text = row.template(keep)
            steps[name] = lambda _, text=text: turnwise.compile(text).render(CHAT)  # type: ignore[misc]
    bounds = dict.fromkeys(steps, AUDITED)
    suspects: list[str] = []
    effective = 0
    waiting = list(steps)
    while waiting:
        batch = {name: steps[name] for name in waiting[:BATCH]}
        found, slowness = measure_in_child(batch, bounds)
        suspects += [name for name, one in found.items() if AUDITED.problem(one, slowness)]
        effective += sum(map(is_effective, found.values()))
        waiting = [name for name in waiting if name not in found]
    offenders: dict[str, str] = {}
    for name in suspects:
        offenders |= find_problems({name: steps[name]}, bounds)
    return offenders, effective / len(steps)


def is_effective(found: Measurement) -> bool:
    """Whether a row came to its loop, and ended there by a budget or not at all: not by an error of types."""
    if found.outcome == "done":
        return True
    return "went over" in found.detail and "template:2:" in found.detail


@pytest.mark.law
def test_a_sample_of_all_operations() -> None:
    rows = sample(1)
    offenders, effective = find_offenders(rows[::5])
    assert not offenders
    assert effective > 0.8
    tried = " ".join(row.expression for row in rows)
    builtins = [*FILTERS, *(name for name in TESTS if name.isidentifier()), *METHODS[str]]
    assert not [name for name in builtins if name not in tried]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_many_rows_of_all_operations(part: int) -> None:
    offenders, effective = find_offenders(sample(10)[part::20])
    assert not offenders
    assert effective > 0.6


@pytest.mark.parametrize("value", VALUES)
def test_values_leave_room_for_the_operation(value: str) -> None:
    """What a row sets up costs at most a tenth of each budget; a megabyte costs a third of the bytes."""
    limits = turnwise.Limits(steps=60_000, bytes=1_100_000 if value == "megabyte" else 300_000)
    turnwise.compile(set_up(value, "number")).with_limits(limits).render([])


def test_an_offender_is_found() -> None:
    """The bounds can fail: work that no budget knows of is noticed."""
    steps: dict[str, Step] = {"slow": lambda _: sum(range(6_000_000))}
    assert find_problems(steps, {"slow": Bounds(ms=AUDITED.ms / 30)})
    assert AUDITED.problem(Measurement("done", ms=1, mb=65), 1.0)
