"""The samples of one shard become the table that trainers load: pure, and without a look at other shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from turnwise.data.recipe import Recipe
from turnwise.data.schemas import ENCODED_SCHEMA, SAMPLE, shard_schema
from turnwise.tokens.loss import IGNORED


def finish(encoded: Iterable[pa.RecordBatch] | pa.Table, recipe: Recipe) -> pa.Table:
    """Return the table of a shard.

    Args:
        encoded: the encoded records of the shard, of one split; those that are no samples are left out.
        recipe: the recipe.
    """
    if not isinstance(encoded, pa.Table):
        encoded = pa.Table.from_batches(encoded, schema=ENCODED_SCHEMA)
    samples = encoded.filter(pc.equal(encoded["status"], SAMPLE)).combine_chunks()
    ids, labels = samples["input_ids"], samples["labels"]
    lengths = pc.list_value_length(ids)
    columns = {
        "input_ids": ids,
        "labels": labels,
        "attention_mask": _map_values(ids, lambda values: pc.equal(values, values)),
        "completion_mask": _map_values(labels, lambda values: pc.not_equal(values, IGNORED)),
        "length": lengths,
        "source_file": samples["file"],
        "source_row": samples["row"],
    }
    schema = shard_schema(recipe)
    return pa.table([columns[name] for name in schema.names], schema=schema)


def _map_values(lists: pa.ChunkedArray, compute: Callable[[Any], Any]) -> pa.ChunkedArray:
    """Return lists of the same lengths, with values computed from all values at once."""
    chunks = [
        pa.ListArray.from_arrays(
            pc.subtract(chunk.offsets, chunk.offsets[0]),
            compute(chunk.flatten()).cast(pa.int8()),
        )
        for chunk in lists.chunks
    ]
    return pa.chunked_array(chunks, type=pa.list_(pa.int8()))
