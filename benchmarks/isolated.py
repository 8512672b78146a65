"""What isolation costs: rendering in a worker process, against rendering directly, and starting a worker.

Processor time of both processes, from the counters of Linux.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import turnwise

CALLS = 2000
CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is a chat template? " * 4},
    {"role": "assistant", "content": "A program that writes prompts. " * 4},
    {"role": "user", "content": "Go on."},
]


def seconds(pids: Iterable[int]) -> float:
    """The processor time of some processes."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def microseconds(work: Callable[[], object], pids: list[int]) -> float:
    """The time of a call, in this process and in those of the workers."""
    work()
    start = seconds([os.getpid(), *pids])
    for _ in range(CALLS):
        work()
    return (seconds([os.getpid(), *pids]) - start) / CALLS * 1e6


def main() -> int:
    with turnwise.isolated(workers=1) as pool:
        pool.load("qwen3")
        pids = pool.pids
        print(f"the start of a worker: {seconds(pids[:1]):.2f} s of processor time\n")
        print(f"{'':12} {'direct':>10} {'isolated':>10}  microseconds per rendering")
        for name in ("chatml", "qwen3"):
            here, there = turnwise.load(name), pool.load(name)
            direct = microseconds(lambda t=here: t.render(CHAT).pieces, [])
            isolated = microseconds(lambda t=there: t.render(CHAT).pieces, pids)
            print(f"{name:12} {direct:10.0f} {isolated:10.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
