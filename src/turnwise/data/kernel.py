"""The kernel: a batch of rows becomes a batch of encoded samples.

    Kernel(recipe)(batch: RecordBatch of INPUT_SCHEMA) -> RecordBatch of ENCODED_SCHEMA

It is a pure function: the same rows give the same records, whatever batches they come in, in whatever process. A bad
row never raises; it becomes a record with the reason. Only a broken recipe raises (`Kernel.load`), before the first
row. A kernel is pickled as its recipe alone, and loads template and tokenizer when it is first used.
"""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import Any

import pyarrow as pa

from turnwise.data.recipe import Recipe
from turnwise.data.records import Record, RowProblem, describe_error, read_record
from turnwise.data.schemas import ENCODED_SCHEMA, FILTERED, REJECTED, SAMPLE, TRAIN, VALIDATION
from turnwise.registry import load
from turnwise.template import Template
from turnwise.tokens import tokenizers
from turnwise.tokens.loss import IGNORED


class Kernel:
    """Encodes batches of rows as a recipe says.

    Args:
        recipe: the recipe.
    """

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe

    def __reduce__(self) -> tuple[Any, ...]:
        return Kernel, (self.recipe,)

    @cached_property
    def template(self) -> Template:
        """The template of the recipe."""
        given = self.recipe.template
        return given if isinstance(given, Template) else load(given)

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer of the recipe."""
        return tokenizers.tokenizer(self.recipe.tokenizer)

    def load(self) -> Kernel:
        """Load template and tokenizer now, and return the kernel.

        Raises:
            TurnwiseError: one of them cannot be loaded, or they do not fit together.
        """
        self.template.encode_batch([], self.tokenizer, self.recipe.train_on, **self._arguments)
        return self

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Encode a batch of rows."""
        records: list[Record] = []
        problems: dict[int, RowProblem] = {}
        for index, raw in enumerate(batch.column("raw").to_pylist()):
            try:
                records.append(read_record(raw, self.recipe))
            except RowProblem as problem:
                problems[index] = problem
                records.append(Record([], {}))
        rows = [{"messages": one.messages, **one.arguments} for one in records]
        encoded = self.template.encode_batch(
            rows, self.tokenizer, self.recipe.train_on, errors="collect", **self._arguments
        )
        for index, error in encoded.errors.items():
            problems.setdefault(index, RowProblem("bad-message", describe_error(error)))
        columns: dict[str, list[Any]] = {name: [] for name in ENCODED_SCHEMA.names}
        limit = self.recipe.max_length
        for index in range(len(batch)):
            ids, labels = encoded[index]
            status, kind, reason, lost = SAMPLE, None, None, 0
            if index in problems:
                status, kind, reason = REJECTED, problems[index].kind, problems[index].reason
            elif set(labels) <= {IGNORED}:
                status, kind, reason = REJECTED, "nothing-trained", "no token is trained"
            elif limit is not None and len(ids) > limit:
                status, kind, lost = FILTERED, "too-long", len(ids)
                reason = f"has {len(ids)} tokens, more than max_length={limit}"
            is_sample = status == SAMPLE
            key = ids.tobytes() + labels.tobytes()
            digest = hashlib.blake2b(key, digest_size=16).digest()
            share = int.from_bytes(digest[:8], "big") / (1 << 64)
            columns["status"].append(status)
            columns["kind"].append(kind)
            columns["reason"].append(reason)
            columns["sample"].append(0)
            columns["split"].append(VALIDATION if share < self.recipe.validation else TRAIN)
            columns["raw"].append(batch["raw"][index].as_py() if status == REJECTED else None)
            columns["input_ids"].append(ids.tolist() if is_sample else [])
            columns["labels"].append(labels.tolist() if is_sample else [])
            columns["digest"].append(digest if self.recipe.deduplicate and is_sample else None)
            columns["tokens_lost"].append(lost)
        arrays = [
            batch.column(name)
            if name in ("file", "row", "offset", "nulls_removed")
            else pa.array(columns[name], ENCODED_SCHEMA.field(name).type)
            for name in ENCODED_SCHEMA.names
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=ENCODED_SCHEMA)

    @property
    def _arguments(self) -> dict[str, Any]:
        arguments: dict[str, Any] = {**self.recipe.options, "now": self.recipe.now}
        return {**arguments, "strict": self.recipe.on_flaw == "reject"}
