"""Time in tests, so that a busy machine does not fail them.

Only the processor's time counts, the best of several rounds, and a bound leaves room: a test fails because an algorithm
is wrong, not because another test ran beside it. Figures are the task of `benchmarks/`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

ROUNDS = 5
FACTOR = 4  # how much larger the second input is
ROOM = 2  # linear work takes about FACTOR times as long, quadratic work FACTOR ** 2 times


def processor_seconds(work: Callable[[], object]) -> float:
    """Return the processor time that the work takes."""
    start = time.process_time()
    work()
    return time.process_time() - start


def assert_quick(work: Callable[[], object], seconds: float, rounds: int = ROUNDS) -> None:
    """Assert that the work takes less than so many seconds in one of the rounds."""
    spent: list[float] = []
    for _ in range(rounds):
        spent.append(processor_seconds(work))
        if spent[-1] < seconds:
            return
    raise AssertionError(f"{min(spent):.3f} s of processor time, more than {seconds} s")


def assert_linear(work: Callable[[int], object], size: int, rounds: int = ROUNDS) -> None:
    """Assert that work on `FACTOR` times as much takes about `FACTOR` times as long, in one of the rounds."""
    work(size)  # what is made once is made here
    bound = FACTOR * ROOM
    ratios: list[float] = []
    for _ in range(rounds):
        small = min(processor_seconds(lambda: work(size)) for _ in range(2))
        ratios.append(processor_seconds(lambda: work(FACTOR * size)) / small)
        if ratios[-1] < bound:
            return
    raise AssertionError(
        f"{FACTOR} times as much takes {min(ratios):.1f} times as long, more than {bound}"
    )
