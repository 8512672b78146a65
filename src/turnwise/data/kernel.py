"""The kernel: a batch of rows becomes a batch of encoded samples.

    Kernel(recipe)(batch: RecordBatch of INPUT_SCHEMA) -> RecordBatch of ENCODED_SCHEMA

It is a pure function: the same rows give the same records, whatever batches they come in, in whatever process. A bad
row never raises; it becomes a record with the reason. A kernel is pickled as its recipe alone, and loads template and
tokenizer when it is first used. The ids go from the encoder into Arrow without becoming Python lists. The records of a
batch are in the order of its rows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from turnwise.data import readers
from turnwise.data.encoded_records import RecordBuilder
from turnwise.data.recipe import TRAIN, VALIDATION
from turnwise.data.record_encoder import RecordEncoder
from turnwise.data.records import Record, UnusableRow
from turnwise.shapes.row import drop_nulls

HASH_BYTES = 8


class Kernel(RecordEncoder):
    """Encodes batches of rows as a recipe says.

    Args:
        recipe: the recipe.

    Example:
        >>> from turnwise.data.recipe import Recipe
        >>> from turnwise.data.schemas import INPUT_SCHEMA
        >>> kernel = Kernel(Recipe(inputs="data.jsonl", template="chatml", tokenizer="turnwise"))
        >>> raw = b'{"prompt": "Hi", "completion": "Hello!"}'
        >>> row = {"file": "data.jsonl", "row": 1, "offset": 0, "raw": raw, "nulls_removed": 0}
        >>> kernel(pa.RecordBatch.from_pylist([row], schema=INPUT_SCHEMA))["status"].to_pylist()
        ['sample']
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return Kernel, (self.recipe,)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Encode a batch of rows."""
        rows = batch.select(["raw", "size"]).to_pylist()
        texts = [row["raw"] if row["size"] is None else _describe_long_row(**row) for row in rows]
        records, results, encoded, common = self.encode_rows(texts)
        builder = RecordBuilder(encoded, self.recipe.deduplicate)
        places = {index: place for place, index in enumerate(common)}
        for index, record in enumerate(records):
            if index in results or record is None:
                builder.add_result(index, results[index], record)
            else:
                builder.add_common(index, places[index], record)
        return builder.build(batch, _choose_splits(records, self.recipe.validation))

    def list_shapes(self, batch: pa.RecordBatch) -> list[str]:
        """Return the shapes of those rows that can be read."""
        records = [self._checker.check(raw)[0] for raw in batch.column("raw").to_pylist()]
        return [record.shape for record in records if record is not None]


def _choose_splits(records: Sequence[Record | None], share: float) -> list[str]:
    """Choose the split of each row by a hash of its messages: the same in every file, template and order."""
    border = int(share * (1 << 8 * HASH_BYTES))
    splits = []
    for record in records:
        is_chosen = share and record is not None and _hash_messages(record.messages) < border
        splits.append(VALIDATION if is_chosen else TRAIN)
    return splits


def _describe_long_row(raw: bytes, size: int) -> UnusableRow:
    kept = f"its first {len(raw):,} bytes are kept"
    reason = f"has {size:,} bytes, more than {readers.MAX_ROW_BYTES:,}; {kept}"
    return UnusableRow("row-too-large", reason)


def _hash_messages(messages: list[Any]) -> int:
    """Return a hash of roles, contents and other fields, whatever their order in the file."""
    hasher = hashlib.blake2b(digest_size=HASH_BYTES)
    texts = []
    for message in messages:
        content = message.get("content")
        texts += [message["role"], content if type(content) is str else ""]
        if len(message) > 2 or type(content) is not str:
            others = drop_nulls(message)
            texts.append(json.dumps(others, sort_keys=True, default=str))
    hasher.update("\0".join(texts).encode("utf-8", "surrogatepass"))
    return int.from_bytes(hasher.digest(), "big")
