"""Time several ways of doing one thing so that their ratios mean something on a busy machine.

Contestants are timed in turns within one run, in an order that rotates each round; each gets as many calls per sample
as fill the sample's length. Two of them are compared round by round, and the figure is the median of those ratios: a
slow second then hits both sides of a ratio, where two medians taken apart may come from different seconds. Only ratios
are worth printing: the same code is twice as slow on another day.

The garbage collector is off while the clock runs and runs between rounds, so whoever leaves reference cycles behind
does not pay for them here.
"""

from __future__ import annotations

import gc
import math
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from statistics import median
from time import perf_counter_ns

Call = Callable[[], object]


@dataclass(frozen=True)
class Effort:
    """How long to look: rounds, and the length of one sample."""

    rounds: int = 9
    sample_ns: int = 20_000_000


FULL = Effort()
QUICK = Effort(rounds=7, sample_ns=4_000_000)


def timed(batch: Sequence[Call], loops: int) -> int:
    start = perf_counter_ns()
    for _ in range(loops):
        for call in batch:
            call()
    return perf_counter_ns() - start


def calibrate(batch: Sequence[Call], sample_ns: int) -> int:
    """How many passes over `batch` fill a sample. The first pass also warms caches."""
    timed(batch, 1)
    loops = 1
    while (spent := timed(batch, loops)) < sample_ns / 8:
        loops *= 2
    return max(1, round(loops * sample_ns / spent))


def interleave(contestants: Mapping[str, Sequence[Call]], effort: Effort) -> dict[str, list[float]]:
    """Nanoseconds per call in each round, by contestant."""
    loops = {name: calibrate(batch, effort.sample_ns) for name, batch in contestants.items()}
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    names = list(contestants)
    gc.collect()
    gc.freeze()  # what was there before is not looked at again, so collecting between rounds is cheap
    gc.disable()
    try:
        for turn in range(effort.rounds):
            first = turn % len(names)
            for name in names[first:] + names[:first]:
                batch = contestants[name]
                samples[name].append(timed(batch, loops[name]) / (loops[name] * len(batch)))
            gc.collect()
    finally:
        gc.enable()
        gc.unfreeze()
    return samples


def ratio(over: Sequence[float], under: Sequence[float]) -> float:
    return median(a / b for a, b in zip(over, under, strict=True))


def geometric_mean(ratios: Iterable[float]) -> float | None:
    logs = [math.log(ratio) for ratio in ratios]
    return math.exp(sum(logs) / len(logs)) if logs else None


def shown(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns as wide as they need; the first is text, the others are figures."""
    lines = [list(heads), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    pads = [str.ljust] + [str.rjust] * (len(heads) - 1)
    padded = [
        [pad(cell, width) for pad, cell, width in zip(pads, line, widths, strict=True)]
        for line in lines
    ]
    return "\n".join("  ".join(line).rstrip() for line in padded)


def versions() -> dict[str, str]:
    """What was compared: Python and the peers that are installed."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for package in ("turnwise", "transformers", "jinja2", "minijinja"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
