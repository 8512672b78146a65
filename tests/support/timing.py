"""Time in tests, so that a busy machine does not fail them.

Only the processor's time counts, without collections of garbage, which grow with all that the tests before left in
memory; the best of several rounds counts, and a bound leaves room: a test fails because an algorithm is wrong, not
because another test ran beside it. Seconds are those of the machine on which the bounds were set: work that is always
the same is measured beside, and a slower machine has more. Figures are the task of `benchmarks/`.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

ROUNDS = 8
KNOWN_SECONDS = 0.02  # that `do_known_work` took where bounds were set
FACTOR = 4  # how much larger the second input is
ROOM = 2  # linear work takes about FACTOR times as long, quadratic work FACTOR ** 2 times


def processor_seconds(work: Callable[[], object]) -> float:
    """Return the processor time that the work takes."""
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        start = time.process_time()
        work()
        return time.process_time() - start
    finally:
        if is_collecting:
            gc.enable()


def do_known_work() -> None:
    """Count words, as an interpreter does most things: calls, texts and dicts."""
    found: dict[str, int] = {}
    for number in range(40_000):
        word = f"{number % 777}-word".upper().replace("-", "_")
        found[word] = found.get(word, 0) + len(word)


def find_slowness() -> float:
    """Return how many times as long as where bounds were set known work takes here, at least 1."""
    return max(processor_seconds(do_known_work) / KNOWN_SECONDS, 1)


def assert_quick(work: Callable[[], object], seconds: float, rounds: int = ROUNDS) -> None:
    """Assert that the work takes less than so many seconds in one of the rounds."""
    spent: list[float] = []
    for _ in range(rounds):
        spent.append(processor_seconds(work) / find_slowness())
        if spent[-1] < seconds:
            return
    raise AssertionError(f"{min(spent):.3f} s of processor time, more than {seconds} s")


def assert_linear(work: Callable[[int], object], size: int, rounds: int = ROUNDS) -> None:
    """Assert that work on `FACTOR` times as much takes about `FACTOR` times as long, the best rounds of both."""
    work(size)  # what is made once is made here
    bound = FACTOR * ROOM
    small, large = [], []
    for _ in range(rounds):
        small += [processor_seconds(lambda: work(size)) for _ in range(2)]
        large.append(processor_seconds(lambda: work(FACTOR * size)))
        ratio = min(large) / min(small)
        if ratio < bound:
            return
    raise AssertionError(
        f"{FACTOR} times as much takes {ratio:.1f} times as long, more than {bound}"
    )
