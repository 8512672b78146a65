"""The samples of one shard become the table that trainers load.

    finish(records of ENCODED_SCHEMA, recipe) -> table of shard_schema(recipe)

It is a pure function of the samples and their order. The rows stay in that order; with `group_by_length` they go from
the longest to the shortest, so that a batch has little padding, and the first shows whether the memory suffices.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from turnwise.data.packing import pack
from turnwise.data.recipe import Recipe
from turnwise.data.schemas import (
    ENCODED_SCHEMA,
    IDS,
    MASK,
    SAMPLE,
    TRAINED_MASKS,
    shard_schema,
)
from turnwise.tokens.loss import IGNORED


def finish(encoded: Iterable[pa.RecordBatch] | pa.Table, recipe: Recipe) -> pa.Table:
    """Return the table of a shard.

    Args:
        encoded: the encoded records of the shard, of one split; those that are no samples are left out.
        recipe: the recipe.
    """
    if not isinstance(encoded, pa.Table):
        encoded = pa.Table.from_batches(encoded, schema=ENCODED_SCHEMA)
    samples = encoded.filter(pc.equal(encoded["status"], SAMPLE))
    lengths = _count_tokens(samples, recipe)
    bins = None
    if recipe.packing != "none":
        assert recipe.max_length is not None, "a recipe with packing has it"
        bins = pack(lengths.to_pylist(), recipe.max_length)
        samples = samples.take(pa.array([index for one in bins for index in one], pa.int64()))
    columns = _make_pairs(samples) if recipe.preferences == "pairs" else _make_samples(samples)
    columns |= {"source_file": _join(samples["file"]), "source_row": _join(samples["row"])}
    columns["length"] = lengths
    if bins is not None:
        columns = _merge_bins(columns, list(map(len, bins)))
    schema = shard_schema(recipe)
    table = pa.table([columns[name] for name in schema.names], schema=schema)
    if recipe.group_by_length:
        # Ties stay in their order: `sort_indices` is stable.
        table = table.take(pc.sort_indices(table, sort_keys=[("length", "descending")]))
    return table


def _count_tokens(samples: pa.Table, recipe: Recipe) -> pa.Array:
    """Return the length of each sample; of a pair, that of its longer conversation."""
    lengths = pc.list_value_length(_join(samples["input_ids"]))
    if recipe.preferences != "pairs":
        return lengths
    return pc.max_element_wise(lengths, pc.list_value_length(_join(samples["rejected_ids"])))


def _join(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    joined = column.combine_chunks()
    if isinstance(joined, pa.ChunkedArray):  # some versions of pyarrow, for columns without a chunk
        joined = pa.concat_arrays(joined.chunks) if joined.num_chunks else pa.array([], column.type)
    return joined


def _make_samples(samples: pa.Table) -> dict[str, pa.Array]:
    """Return ids, labels and masks."""
    ids, labels = _join(samples["input_ids"]), _join(samples["labels"])
    values, trained = ids.flatten(), pc.not_equal(labels.flatten(), IGNORED)
    ones = pa.repeat(pa.scalar(1, pa.int8()), len(values))
    mask = _make_lists(labels, trained.cast(pa.int8()), MASK)
    columns = {"input_ids": ids, "labels": labels, "attention_mask": _make_lists(ids, ones, MASK)}
    return columns | dict.fromkeys(TRAINED_MASKS, mask)


def _make_pairs(samples: pa.Table) -> dict[str, pa.Array]:
    """Return prompt, chosen and rejected ids."""
    columns: dict[str, list[Any]] = {"prompt_ids": [], "chosen_ids": [], "rejected_ids": []}
    names = ("input_ids", "rejected_ids", "prompt_length")
    for chosen, rejected, length in zip(
        *(samples[name].to_pylist() for name in names), strict=True
    ):
        columns["prompt_ids"].append(chosen[:length])
        columns["chosen_ids"].append(chosen[length:])
        columns["rejected_ids"].append(rejected[length:])
    return {name: pa.array(values, IDS) for name, values in columns.items()}


def _make_lists(like: pa.Array, values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return lists of other values, as long as those of `like`."""
    offsets = pc.subtract(like.offsets, like.offsets[0])  # of a slice they do not begin with 0
    return pa.ListArray.from_arrays(offsets, values, type=kind)


def _merge_bins(columns: dict[str, pa.Array], counts: list[int]) -> dict[str, pa.Array]:
    """Return the columns of packed rows.

    Args:
        columns: the columns of samples, in the order of the rows.
        counts: the number of samples in each row.
    """
    bounds = pa.array(accumulate(counts, initial=0), pa.int32())
    ids = columns["input_ids"]
    starts = pc.subtract(ids.offsets, ids.offsets[0])
    merged = {}
    for name, column in columns.items():
        if name == "length":
            continue
        if isinstance(column, pa.ListArray):
            merged[name] = pa.ListArray.from_arrays(starts.take(bounds), column.flatten())
        else:
            merged[name] = pa.ListArray.from_arrays(bounds, column)
    merged["seq_lengths"] = pa.ListArray.from_arrays(bounds, pc.list_value_length(ids))
    merged["position_ids"] = pa.ListArray.from_arrays(
        starts.take(bounds), _count_positions(ids, starts)
    )
    merged["length"] = pc.list_value_length(merged["input_ids"])
    return merged


def _count_positions(ids: pa.Array, starts: pa.Array) -> pa.Array:
    """Return the position of each id in its sample, from 0."""
    total = len(ids.flatten())
    numbers = pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int32()), total)), 1)
    samples = pc.list_parent_indices(ids)
    return pc.subtract(numbers, starts.take(samples)).cast(pa.int32())
