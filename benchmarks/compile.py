"""How long a template takes to become something that renders: `python benchmarks/compile.py`.

Both sides get the same text, made new for each round by a comment at its end, so that no cache of either can answer.
Two figures, since a compiler may leave work for later: compiling alone, and compiling plus the first rendering of
workload (a). Each is a median of ratios from turns taken in one run: how many times faster than transformers (more is
better).

Not counted: imports, and whatever either side sets up once per process (a round before the first warms it).
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import itertools
import json
import sys
from collections.abc import Callable
from time import perf_counter_ns

import measure
import peers
import workloads

Side = Callable[[workloads.Subject], object]
CHAT = workloads.short()


def transformers_compile(subject: workloads.Subject) -> object:
    from transformers.utils import chat_template_utils

    return chat_template_utils._compile_jinja_template(subject.text)


def turnwise_compile(subject: workloads.Subject) -> object:
    from turnwise import compile as compile_template

    return compile_template(subject.text, name=subject.name)


# What is measured -> (transformers, turnwise)
MEASURES: dict[str, tuple[Side, Side]] = {
    "compile": (transformers_compile, turnwise_compile),
    "compile and first render": (
        lambda subject: peers.transformers(subject, CHAT)(),
        lambda subject: peers.turnwise(subject, CHAT)(),
    ),
}


def spent(side: Side, subject: workloads.Subject) -> int:
    gc.collect()
    gc.disable()
    start = perf_counter_ns()
    side(subject)
    taken = perf_counter_ns() - start
    gc.enable()
    return taken


def ratio(
    sides: tuple[Side, Side], subject: workloads.Subject, rounds: int, fresh: itertools.count[int]
) -> float:
    samples: tuple[list[int], list[int]] = ([], [])
    for turn in range(rounds + 1):
        new = dataclasses.replace(subject, text=f"{subject.text}{{# {next(fresh)} #}}")
        for which in (0, 1) if turn % 2 else (1, 0):
            taken = spent(sides[which], new)
            if turn:
                samples[which].append(taken)
    return measure.ratio(samples[0], samples[1])


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Ratios of compile time: turnwise against transformers."
    )
    parser.add_argument("--templates", nargs="+", metavar="NAME", help=workloads.CHOICE)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, noisier figures")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--check", action="store_true", help="fail when turnwise compiles slower, on the mean"
    )
    asked = parser.parse_args()
    fresh = itertools.count()
    gc.collect()
    gc.freeze()
    found = {
        subject.name: {
            name: ratio(sides, subject, 7 if asked.quick else 15, fresh)
            for name, sides in MEASURES.items()
        }
        for subject in workloads.subjects(asked.templates)
    }
    means: dict[str, float | None] = {
        name: measure.geometric_mean(row[name] for row in found.values()) for name in MEASURES
    }
    if asked.json:
        report = {
            "versions": measure.versions(),
            "times_faster_than_transformers": found,
            "geometric_means": means,
        }
        print(json.dumps(report, indent=2))
    else:
        lines = [[name, *map(measure.shown, row.values())] for name, row in found.items()]
        lines.append(["geometric mean", *map(measure.shown, means.values())])
        print(
            "Times faster than transformers; more is better.\n\n"
            + measure.table(["template", *MEASURES], lines)
        )
    slow = [name for name, mean in means.items() if mean is None or mean < 1]
    return 1 if asked.check and slow else 0


if __name__ == "__main__":
    sys.exit(main())
