"""Rows for the kernel of data preparation, and what it makes of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from turnwise.data.kernel import Kernel
from turnwise.data.recipe import Recipe
from turnwise.data.schemas import INPUT_SCHEMA


def make_recipe(**values: Any) -> Recipe:
    return Recipe(
        **{"inputs": "data.jsonl", "template": "chatml", "tokenizer": "turnwise", **values}
    )


def make_batch(rows: Sequence[Any], first: int = 1) -> pa.RecordBatch:
    """Return an input batch; rows that are bytes are given as they are, others as JSON."""
    raws = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    lines = [
        {"file": "data.jsonl", "row": number, "offset": -1, "raw": raw, "nulls_removed": 0}
        for number, raw in enumerate(raws, first)
    ]
    return pa.RecordBatch.from_pylist(lines, schema=INPUT_SCHEMA)


def encode_rows(rows: Sequence[Any], **values: Any) -> list[dict[str, Any]]:
    """Return the records that rows become, by a new kernel."""
    records: list[dict[str, Any]] = Kernel(make_recipe(**values))(make_batch(rows)).to_pylist()
    return records


def encode_row(row: Any, **values: Any) -> dict[str, Any]:
    """Return the one record that a row becomes."""
    (record,) = encode_rows([row], **values)
    return record


def talk(*texts: str, system: str = "") -> list[dict[str, str]]:
    """Return a conversation in which user and assistant take turns."""
    messages = [{"role": "system", "content": system}] if system else []
    for index, text in enumerate(texts):
        messages.append({"role": "assistant" if index % 2 else "user", "content": text})
    return messages
