"""Every operation, on values of hostile sizes, ends by itself within its budget's time and memory."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import turnwise
from containment import Bounds, Measurement, Step, find_problems, measure_in_child
from cost_rows import VALUES, CostRow, sample, set_up
from turnwise.engine.runtime.filters import FILTERS
from turnwise.engine.runtime.jinja_tests import TESTS
from turnwise.engine.runtime.methods import METHODS

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
