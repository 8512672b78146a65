"""Every operation, on values of hostile sizes, ends by itself within its budget's time and memory."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import turnwise
from containment import Bounds, Measurement, Step, find_problems, measure_in_child
from cost_rows import CostRow, sample

AUDITED = Bounds(ms=300)
BATCH = 40  # rows of one child
CHAT = [{"role": "user", "content": "hello"}]


def find_offenders(rows: Sequence[CostRow]) -> dict[str, str]:
    """Return what was wrong with each row; one that was wrong in a shared child is tried again in its own."""
    steps: dict[str, Step] = {}
    for row in rows:
        for keep in (False, True):
            name = f"{row.name}{' kept' if keep else ''}"
            text = row.template(keep)
            steps[name] = lambda _, text=text: turnwise.compile(text).render(CHAT)  # type: ignore[misc]
    bounds = dict.fromkeys(steps, AUDITED)
    suspects: list[str] = []
    waiting = list(steps)
    while waiting:
        batch = {name: steps[name] for name in waiting[:BATCH]}
        found, slowness = measure_in_child(batch, bounds)
        suspects += [name for name, one in found.items() if AUDITED.problem(one, slowness)]
        waiting = [name for name in waiting if name not in found]
    offenders: dict[str, str] = {}
    for name in suspects:
        offenders |= find_problems({name: steps[name]}, bounds)
    return offenders


def test_a_sample_of_all_operations() -> None:
    assert not find_offenders(sample(1))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_many_rows_of_all_operations(part: int) -> None:
    assert not find_offenders(sample(20)[part::20])


def test_an_offender_is_found() -> None:
    """The bounds can fail: work that no budget knows of is noticed."""
    steps: dict[str, Step] = {"slow": lambda _: sum(range(60_000_000))}
    assert find_problems(steps, {"slow": AUDITED})
    assert AUDITED.problem(Measurement("done", ms=1, mb=65), 1.0)
