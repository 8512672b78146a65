"""What the first use of a tokenizer costs: `python benchmarks/tokenizer_load.py`.

Two ways to get a tokenizer, each against `tokenizers.Tokenizer.from_file` on the same `tokenizer.json`, with the first
text encoded by both:

    file      `tokenizer(folder)`: what every command of turnwise does
    object    `tokenizer(PreTrainedTokenizerFast)`, the object being in memory; loading it is not counted

Sides take turns, and nothing is cached between rounds. The figures are medians of ratios, of wall time and of the
processor's. `--check` fails if one of them is above GOAL.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter, process_time

import measure
import workloads

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

GOAL = 1.5
ROUNDS = 7
LARGEST = ("gemma2", "qwen3", "internlm2", "llama3", "deepseek_v3")
TEXT = "The first text that is encoded, with 中文 and 3.14."

Times = tuple[float, float]  # wall, processor


def load_with_tokenizers(folder: Path) -> list[int]:
    import tokenizers

    loaded = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids: list[int] = loaded.encode(TEXT, add_special_tokens=False).ids
    return ids


def load_file(folder: Path) -> list[int]:
    from turnwise.tokens import tokenizers

    tokenizers._cache.clear()
    return tokenizers.tokenizer(folder).encode(TEXT)


def load_object(given: object) -> list[int]:
    from turnwise.tokens import tokenizers

    tokenizers._cache.clear()
    return tokenizers.tokenizer(given).encode(TEXT)


def spent(work: Callable[[], object]) -> Times:
    gc.collect()
    wall, processor = perf_counter(), process_time()
    work()
    return perf_counter() - wall, process_time() - processor


def compare(
    folder: Path, rounds: int, sides: dict[str, Callable[[], list[int]]]
) -> dict[str, Times]:
    """Return how many times as long as `tokenizers` each side takes: wall, processor."""
    reference = partial(load_with_tokenizers, folder)
    expected = reference()
    for name, side in sides.items():
        assert side() == expected, f"{name} gives other ids"
    samples: dict[str, list[Times]] = {name: [] for name in ("tokenizers", *sides)}
    for _ in range(rounds):
        samples["tokenizers"].append(spent(reference))
        for name, side in sides.items():
            samples[name].append(spent(side))
    walls, processors = zip(*samples["tokenizers"], strict=True)
    found = {}
    for name in sides:
        wall, processor = zip(*samples[name], strict=True)
        found[name] = measure.ratio(wall, walls), measure.ratio(processor, processors)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="The first use of a tokenizer, as a ratio.")
    parser.add_argument("--tokenizers", nargs="+", default=LARGEST, metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, noisier figures")
    parser.add_argument("--check", action="store_true", help="exit with 1 when the goal is missed")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    asked = parser.parse_args()
    from transformers import PreTrainedTokenizerFast

    rows, faults = [], []
    for name in asked.tokenizers:
        folder = workloads.tokenizer_folder(name)
        given = PreTrainedTokenizerFast.from_pretrained(folder)
        sides = {"file": partial(load_file, folder), "object": partial(load_object, given)}
        for side, (wall, processor) in compare(folder, 3 if asked.quick else ROUNDS, sides).items():
            rows.append([name, side, measure.shown(wall), measure.shown(processor)])
            if max(wall, processor) > GOAL:
                faults.append(f"{name}, {side}: {wall:.2f} and {processor:.2f}, more than {GOAL}")
    if asked.json:
        print(json.dumps({"versions": measure.versions(), "rows": rows, "faults": faults}))
    else:
        print(measure.table(["", "source", "wall : tokenizers", "processor : tokenizers"], rows))
    for fault in faults:
        print(f"MISSED: {fault}", file=sys.stderr)
    return 1 if faults and asked.check else 0


if __name__ == "__main__":
    sys.exit(main())
