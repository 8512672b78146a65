"""What isolation costs: rendering in a worker process, against rendering directly, and starting a worker."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import turnwise

CALLS = 300
CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is a chat template? " * 4},
    {"role": "assistant", "content": "A program that writes prompts. " * 4},
    {"role": "user", "content": "Go on."},
]


def microseconds(work: Callable[[], object]) -> float:
    """The median time of a call, in wall time: a worker's time is not this process's."""
    times = []
    for _ in range(CALLS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def main() -> int:
    with turnwise.isolated(workers=1) as pool:
        start = time.perf_counter()
        pool.load("qwen3")
        print(f"the first call, with the start of a worker: {time.perf_counter() - start:.2f} s\n")
        print(f"{'':12} {'direct':>10} {'isolated':>10}  microseconds per rendering")
        for name in ("chatml", "qwen3"):
            here, there = turnwise.load(name), pool.load(name)
            direct = microseconds(lambda t=here: t.render(CHAT).pieces)
            isolated = microseconds(lambda t=there: t.render(CHAT).pieces)
            print(f"{name:12} {direct:10.0f} {isolated:10.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
