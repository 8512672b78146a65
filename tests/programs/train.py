"""A training script as its users write it: rows become batches of ids and labels, and what is lost is counted."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import turnwise
from turnwise import AssistantMessage, ChatMessage, Encoded, Examples, Origin, Template

IGNORED = -100
Batch = dict[str, list[list[int]]]
ROWS: list[list[ChatMessage]] = [
    [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4."}],
    [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "And 3+3?"}]},
        {"role": "assistant", "content": "6.", "reasoning_content": "Twice 3.", "weight": 0.5},
        {"role": "user", "content": "Sure?"},
        {"role": "assistant", "content": "Yes."},
    ],
]


def add_hint(messages: Sequence[ChatMessage], hint: str) -> list[ChatMessage]:
    last: AssistantMessage = {"role": "assistant", "content": hint}
    return [*messages, {"role": "user", "content": "A hint?"}, last]


def encode_rows(template: Template, tokenizer: str, longest: int) -> Iterator[Encoded]:
    for row in ROWS:
        found: Examples = template.examples(
            row, tokenizer, "assistant", max_length=longest, overflow="truncate"
        )
        yield from found


def collate(samples: Sequence[Encoded], pad: int) -> Batch:
    width = max(len(sample) for sample in samples)

    def fill(values: list[int], filler: int) -> list[int]:
        return values + [filler] * (width - len(values))

    return {
        "input_ids": [fill(sample.input_ids, pad) for sample in samples],
        "labels": [fill(sample.labels, IGNORED) for sample in samples],
    }


def count_owners(samples: Sequence[Encoded]) -> Counter[str]:
    fields = (owner.field for sample in samples for owner in sample.owners)
    return Counter(field or "template" for field in fields)


def main() -> int:
    template = turnwise.load("chatml")
    samples = list(encode_rows(template, "turnwise", longest=64))
    batch = collate(samples, pad=0)
    is_content: Callable[[Origin], bool] = lambda origin: origin.kind == "field"  # noqa: E731
    chosen = template.encode(add_hint(ROWS[0], "Count."), "turnwise", is_content)
    rows = template.encode_batch(ROWS, "turnwise", "last", errors="collect")
    trained = sum(label != IGNORED for labels in batch["labels"] for label in labels)
    print(len(samples), "samples", trained, "trained", len(rows.input_ids), "ids")
    print(sum(chosen.mask), "chosen", count_owners(samples).most_common(1)[0][0])
    print([str(change) for sample in samples for change in sample.rendering.changes])
    return 0


if __name__ == "__main__":
    sys.exit(main())
