"""How rendering and encoding time grow with a conversation: `python benchmarks/scaling.py`.

Workloads (b) and (c) are made n, 2n and 4n times as long (system message and tools stay as they are) and rendered in
turns within one run. Twice the messages may take at most LIMIT times as long, for each template and both doublings;
the run fails otherwise. transformers is shown beside as a control: on a noisy machine its ratios stray too.

A template may itself look at all messages for each message. Those are in WALKING; no engine can make them linear
without knowing what they look for, so the limit there is that of a quadratic walk. A faster engine comes closer to
it, since less else is left: compare such rows with care. For templates named by hand that are not in WALKING, look at
the control.

Ids and labels are looked at beside, on one template and tokenizer: a message of up to 1 MB, and up to 4,096 messages.
Twice as much may take ENCODED times as long.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial

import measure
import peers
import workloads

LIMIT = 2.2
# Template -> workloads on which it walks the messages anew for some messages
WALKING = {
    "gemma-4": "bc",  # walks back to the first message from each message that is not a result, and ahead from each call
    "gpt-oss": "c",  # walks ahead from each call to the last message
}
SIZES = {"b": (8, 16, 32), "c": (2, 4, 8)}
ENCODED = 2.5
ENCODED_SIZES = {"characters": (250_000, 500_000, 1_000_000), "messages": (1024, 2048, 4096)}
SAMPLE_NS = {False: 20_000_000, True: 8_000_000}


def growth(
    peer: str, subject: workloads.Subject, kind: str, effort: measure.Effort
) -> tuple[float, float]:
    """Time at 2n over time at n, and at 4n over 2n."""
    calls = {str(n): [peers.PEERS[peer](subject, workloads.scaled(kind, n))] for n in SIZES[kind]}
    one, two, four = measure.interleave(calls, effort).values()
    return measure.ratio(two, one), measure.ratio(four, two)


def encoding(effort: measure.Effort) -> dict[str, tuple[float, float]]:
    """The same for ids and labels, with text that is new in every call."""
    from encode import Pages

    import turnwise
    from turnwise.tokens.tokenizers import tokenizer

    (subject,) = workloads.subjects(["qwen3"])
    template = turnwise.compile(subject.text, options=subject.options)
    folder = workloads.tokenizer_folder("qwen3")
    own, pages = tokenizer(folder, backend="fastokens"), Pages()

    def call(what: str, size: int) -> object:
        dice = workloads.Dice(size)
        lengths = [size] if what == "characters" else [60] * size
        chat = [
            {"role": ("user", "assistant")[index % 2], "content": pages.prose(dice, length)}
            for index, length in enumerate(lengths)
        ]
        return template.encode(chat, own).labels

    found = {}
    for what, sizes in ENCODED_SIZES.items():
        calls = {str(size): [partial(call, what, size)] for size in sizes}
        one, two, four = measure.interleave(calls, effort).values()
        found[what] = measure.ratio(two, one), measure.ratio(four, two)
    return found


def limit(name: str, kind: str) -> float:
    return 2 * LIMIT if kind in WALKING.get(name, "") else LIMIT


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Ratio of rendering times when the number of messages doubles."
    )
    parser.add_argument("--templates", nargs="+", metavar="NAME", help=workloads.CHOICE)
    parser.add_argument(
        "--peers", nargs="+", choices=list(peers.PEERS), default=["turnwise+pieces", "transformers"]
    )
    parser.add_argument("--quick", action="store_true", help="shorter samples, noisier figures")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    asked = parser.parse_args()
    effort = measure.Effort(rounds=7, sample_ns=SAMPLE_NS[asked.quick])
    found = {
        (subject.name, kind): {peer: growth(peer, subject, kind, effort) for peer in asked.peers}
        for subject in workloads.subjects(asked.templates)
        for kind in SIZES
        if kind in subject.workloads
    }
    ids = encoding(measure.Effort(rounds=5, sample_ns=SAMPLE_NS[asked.quick]))
    over = [at for at, row in found.items() if max(row[asked.peers[0]]) > limit(*at)]
    if asked.json:
        growths = {
            f"{name} ({kind})": {**row, "limit": limit(name, kind)}
            for (name, kind), row in found.items()
        }
        print(json.dumps({"versions": measure.versions(), "growth": growths, "ids": ids}, indent=2))
    else:
        heads = [
            "template",
            *(f"{peer} {step}" for peer in asked.peers for step in ("2n/n", "4n/2n")),
            "limit",
        ]
        lines = []
        for (name, kind), row in found.items():
            ratios = [measure.shown(ratio) for pair in row.values() for ratio in pair]
            lines.append([f"{name} ({kind})", *ratios, f"{limit(name, kind):g}"])
        print("Time when messages double.\n\n" + measure.table(heads, lines))
        rows = [
            [f"ids, {what}", *map(measure.shown, pair), f"{ENCODED:g}"]
            for what, pair in ids.items()
        ]
        print("\n" + measure.table(["turnwise", "2n/n", "4n/2n", "limit"], rows))
    for name, kind in over:
        print(f"OVER: {name} ({kind}): {asked.peers[0]}", file=sys.stderr)
    grown = [what for what, pair in ids.items() if max(pair) > ENCODED]
    for what in grown:
        print(f"OVER: ids, {what}", file=sys.stderr)
    return 1 if over or grown else 0


if __name__ == "__main__":
    sys.exit(main())
