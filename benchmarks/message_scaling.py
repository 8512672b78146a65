"""How time grows with hostile messages: `python benchmarks/message_scaling.py`.

Every shape of `tests/support/hostile_messages.py` (look-alikes of control tokens in arguments and schemas, repeated
markers, white space, thousands of small calls) is made n, 2n and 4n characters long and read by every verb, with eight
templates and three tokenizers. Processor time, the best of several rounds, with text that is new in every round. The
run fails where twice as much takes more than LIMIT times as long; what takes less than MIN_MS at 4n is not looked at.
Beside, it lists what is slow for its length.

`examples` returns a sample for each turn where a template rewrites history: its time is compared with what it returns,
on shorter conversations. A template may itself look at all messages for each message (`scaling.WALKING`).
"""

from __future__ import annotations

import argparse
import gc
import sys
import warnings
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import workloads

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))

import hostile_messages as hostile
import turnwise

LIMIT = 2.3
MIN_MS = 5.0
SIZES = (15_000, 30_000, 60_000)
TOKENIZERS = ("qwen3", "internlm2", "llama3")
SLOW = {"parse": 2.0, "stream": 2.0}  # seconds per MB
SLOW_ENCODE = 0.2
MANY_SAMPLES = 8  # times shorter, where each turn may be a sample


def measure(verb: str, case: hostile.Case, rounds: int) -> tuple[float, int]:
    """Return the least milliseconds, and how much is read or returned."""
    spent, size = [], 0
    for _ in range(rounds):
        gc.collect()
        start = process_time()
        returned = hostile.VERBS[verb](case)
        spent.append(1000 * (process_time() - start))
        size = hostile.count_characters(case, verb, returned)
    return min(spent), size


def report(asked: Any, make: Any, name: str, shape: str, verb: str) -> bool:
    """Print one cell if it is bad or slow; return whether it grows too fast."""
    hostile.VERBS[verb](make(shape, 500))  # what is learned once is learned here
    shorter = MANY_SAMPLES if verb == "examples" and shape in hostile.MANY_MESSAGES else 1
    cases = [make(shape, size // shorter) for size in asked.sizes]
    rows = [measure(verb, case, asked.rounds) for case in cases]
    growth = [
        (after / before) * (2 * small / large)
        for (before, small), (after, large) in zip(rows, rows[1:], strict=False)
    ]
    last, size = rows[-1]
    rate = 1000 * last / size  # seconds per MB
    grows = max(growth) > LIMIT and last > MIN_MS
    is_slow = rate > SLOW.get(verb, SLOW_ENCODE) and last > MIN_MS
    if grows or is_slow or asked.all:
        times = " ".join(f"{ms:8.1f}" for ms, _ in rows)
        ratios = " ".join(f"x{ratio:.2f}" for ratio in growth)
        flags = "GROWS" * grows + " slow" * is_slow
        print(
            f"{name:26} {shape:26} {verb:14} {times} ms {ratios} {rate:6.2f} s/MB {flags}",
            flush=True,
        )
    return grows


def main() -> int:
    parser = argparse.ArgumentParser(description="Growth of time with hostile messages.")
    parser.add_argument("--templates", nargs="+", metavar="NAME", help=workloads.CHOICE)
    parser.add_argument("--tokenizers", nargs="+", default=TOKENIZERS)
    parser.add_argument("--shapes", nargs="+", default=list(hostile.SHAPES))
    parser.add_argument("--verbs", nargs="+", default=list(hostile.VERBS))
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--all", action="store_true", help="print every cell")
    asked = parser.parse_args()

    from turnwise.tokens.tokenizers import tokenizer

    warnings.simplefilter("ignore")
    over = 0
    for subject in workloads.subjects(asked.templates):
        template = turnwise.compile(subject.text, options=subject.options)
        for folder in asked.tokenizers:
            own = tokenizer(workloads.tokenizer_folder(folder), backend="fastokens")

            make = partial(hostile.make_case, template, own)
            for shape in asked.shapes:
                try:
                    make(shape, 500)
                except turnwise.TurnwiseError as error:
                    print(
                        f"{subject.name} does not take {shape}: {error}".split("\n")[0],
                        file=sys.stderr,
                    )
                    continue
                for verb in asked.verbs:
                    over += report(asked, make, f"{subject.name} {folder}", shape, verb)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
