"""Ids and labels of many conversations at once: `python benchmarks/encode_batch.py`.

    turnwise       template.encode_batch: flat arrays of ids and labels
    encode         template.encode of each row, ids and labels
    transformers   apply_chat_template with return_assistant_tokens_mask, row by row: it has no faster way
    flat           fastokens.encode_batch_flat of the finished texts: no rendering, no labels, two buffers
    batch          fastokens.encode_batch of the finished texts, and a list of ids for each

Workload (b) of `encode.py`, with its template, tokenizer and unseen text. All contestants take the same rows, in turns,
in an order that rotates, and the median of the ratios turn by turn counts. CPU time of the process is measured, on as
many cores as it may use; set the affinity to one core for figures that mean something.

`--check` exits with 1 when a goal is missed: 20 times transformers, and at most 1.7 times the raw batch call.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Callable
from time import process_time_ns
from typing import Any

import encode
import measure
import workloads

ROWS, TURNS, QUICK = 100, 12, 5
OVER_TRANSFORMERS, OVER_RAW = 20.0, 1.7
SLOW_ROWS = 10  # of those that transformers encodes; its time is scaled

Contestant = Callable[[list[Any], list[str]], Any]


def contestants() -> dict[str, Contestant]:
    import fastokens

    import turnwise
    from turnwise.tokens.tokenizers import tokenizer

    text, folder = encode.template_text(), workloads.tokenizer_folder(encode.TOKENIZER)
    alone = encode.contestants(text, folder)
    raw = fastokens.Tokenizer.from_file(str(folder / "tokenizer.json"))
    own, template = tokenizer(folder, backend="fastokens"), turnwise.compile(text)
    return {
        "turnwise": lambda rows, texts: template.encode_batch([row.messages for row in rows], own),
        "encode": lambda rows, texts: [alone["turnwise"](row, "") for row in rows],
        "transformers": lambda rows, texts: [
            alone["transformers"](row, "") for row in rows[:SLOW_ROWS]
        ],
        "flat": lambda rows, texts: raw.encode_batch_flat(texts),
        "batch": lambda rows, texts: [found.ids for found in raw.encode_batch(texts)],
    }


def agree(found: dict[str, Any], rows: list[Any]) -> None:
    """Compare every row with `encode`, whose ids `encode.py` compares with those of transformers."""
    for index, (ids, labels) in enumerate(found["encode"]):
        row = found["turnwise"][index]
        if row.input_ids.tolist() != ids or row.labels.tolist() != labels:
            raise SystemExit(f"row {index} of the batch differs from encode")
    for ours, theirs in zip(found["encode"], found["transformers"], strict=False):
        if ours[0] != theirs[0]:
            raise SystemExit("the ids differ from those of transformers")


def measure_times(run: dict[str, Contestant], turns: int) -> dict[str, list[float]]:
    """Return the nanoseconds for each row by contestant, turn by turn."""
    import turnwise

    render, pages = turnwise.compile(encode.template_text()).render, encode.Pages()
    times: dict[str, list[float]] = {name: [] for name in run}
    names = list(run)
    for turn in range(turns + 1):
        rows = list(encode.conversations("b", ROWS, pages))
        texts = [str(render(row.messages)) for row in rows]
        found = {}
        gc.collect()
        gc.disable()
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            start = process_time_ns()
            found[name] = run[name](rows, texts)
            count = SLOW_ROWS if name == "transformers" else ROWS
            times[name].append((process_time_ns() - start) / count)
        gc.enable()
        if turn == 0:  # to warm up, and to compare
            agree(found, rows)
            times = {name: [] for name in run}
    return times


def main() -> int:
    parser = argparse.ArgumentParser(description="Batches: how many times as fast as the others.")
    parser.add_argument("--quick", action="store_true", help="fewer conversations")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a goal is missed")
    asked = parser.parse_args()
    times = measure_times(contestants(), QUICK if asked.quick else TURNS)
    ratios = {name: measure.ratio(spent, times["turnwise"]) for name, spent in times.items()}
    missed = []
    if ratios["transformers"] < OVER_TRANSFORMERS:
        missed.append(f"{ratios['transformers']:.1f} times transformers, of {OVER_TRANSFORMERS:g}")
    if 1 / ratios["flat"] > OVER_RAW:
        missed.append(f"{1 / ratios['flat']:.2f} times the raw batch call, of {OVER_RAW:g}")
    if asked.json:
        print(json.dumps({"versions": measure.versions(), "turnwise = 1": ratios}, indent=2))
    else:
        row = ["(b)", *map(measure.shown, ratios.values())]
        print("Time of each, turnwise = 1.\n\n" + measure.table(["workload", *ratios], [row]))
    for line in missed:
        print(f"MISSED {line}", file=sys.stderr)
    return 1 if missed and asked.check else 0


if __name__ == "__main__":
    sys.exit(main())
