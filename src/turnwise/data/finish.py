"""The samples of one shard become the table that trainers load.

    finish(records of ENCODED_SCHEMA, recipe) -> table of shard_schema(recipe)

It is a pure function of the samples and their order. The rows stay in that order; with `group_by_length` they go from
the longest to the shortest, so that a batch has little padding, and the first shows whether the memory suffices.

Packing is best-fit decreasing, and no sample is ever cut: samples are taken from the longest to the shortest, and each
goes into the row in which the least space remains. That never needs more than 11/9 of the fewest possible rows, plus a
constant (Johnson 1973).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import accumulate

import pyarrow as pa
import pyarrow.compute as pc

from turnwise.data.recipe import Recipe
from turnwise.data.schemas import (
    ENCODED_SCHEMA,
    IDS,
    MASK,
    SAMPLE,
    shard_schema,
)
from turnwise.errors import MessageError
from turnwise.messages import JsonObject
from turnwise.tokens.loss import IGNORED

USED_COLUMNS = ["file", "row", "input_ids", "labels", "rejected_ids", "prompt_length"]
USED_COLUMNS += ["label", "carried"]


def finish(encoded: Iterable[pa.RecordBatch] | pa.Table, recipe: Recipe) -> pa.Table:
    """Return the table of a shard.

    Args:
        encoded: the encoded records of the shard, of one split; those that are no samples are left out.
        recipe: the recipe.
    """
    if not isinstance(encoded, pa.Table):
        encoded = pa.Table.from_batches(encoded, schema=ENCODED_SCHEMA)
    samples = encoded.select(USED_COLUMNS)
    is_sample = pc.equal(encoded["status"], SAMPLE)
    if not pc.all(is_sample).as_py():
        samples = samples.filter(is_sample)
    lengths = _count_tokens(samples, recipe)
    counts = None
    if recipe.packing != "none":
        assert recipe.max_length is not None, "a recipe with packing has it"
        bins = pack(lengths.to_pylist(), recipe.max_length)
        counts = list(map(len, bins))
        samples = samples.take(pa.array([index for one in bins for index in one], pa.int64()))
    columns = MAKERS[recipe.preferences](samples)
    columns |= {"source_file": samples["file"], "source_row": samples["row"], "length": lengths}
    columns["carried"] = samples["carried"]
    if counts is not None:
        columns = _merge_bins({name: join_chunks(one) for name, one in columns.items()}, counts)
    schema = shard_schema(recipe)
    table = pa.table([columns[name] for name in schema.names], schema=schema)
    if recipe.group_by_length:
        # Ties stay in their order: `sort_indices` is stable.
        table = table.take(pc.sort_indices(table, sort_keys=[("length", "descending")]))
    return table


def pack(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Return the rows, each as the indices of its samples.

    The result depends on the lengths alone. Rows are in the order of their first samples, and the samples of a row in
    the order that they were given, so that a shuffled data set remains shuffled.

    Args:
        lengths: the number of tokens of each sample.
        capacity: the most tokens of a row.

    Raises:
        MessageError: a sample has more tokens than a row.

    Example:
        >>> pack([6, 5, 4, 3], 10)
        [[0, 2], [1, 3]]
    """
    # Rows are found by their free space: a sorted list has the spaces that occur, a table the rows of each. So a sample
    # costs one binary search, and the whole O(n log n).
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])  # stable
    if order and lengths[order[0]] > capacity:
        problem = (
            f"sample {order[0]} has {lengths[order[0]]} tokens, and a packed row at most {capacity}"
        )
        raise MessageError(problem, hint="leave out or split long conversations first: overlong")
    rows: list[list[int]] = []
    rows_with: dict[int, list[int]] = {}  # rows by their free space
    spaces: list[int] = []  # those spaces, sorted
    for index in order:
        length = lengths[index]
        place = bisect_left(spaces, length)
        if place == len(spaces):
            row, space = len(rows), capacity
            rows.append([])
        else:
            space = spaces[place]
            row = rows_with[space].pop()
            if not rows_with[space]:
                del rows_with[space], spaces[place]
        rows[row].append(index)
        left = space - length
        if left not in rows_with:
            rows_with[left] = []
            insort(spaces, left)
        rows_with[left].append(row)
    for row_samples in rows:
        row_samples.sort()
    return sorted(rows)


def _count_tokens(samples: pa.Table, recipe: Recipe) -> pa.ChunkedArray:
    """Return the length of each sample; of a pair, that of its longer conversation."""
    lengths = pc.list_value_length(samples["input_ids"])
    if recipe.preferences != "pairs":
        return lengths
    return pc.max_element_wise(lengths, pc.list_value_length(samples["rejected_ids"]))


def join_chunks(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return a column as one array."""
    if isinstance(column, pa.Array):
        return column
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _make_samples(samples: pa.Table) -> JsonObject:
    """Return ids, labels and masks, chunk by chunk: the ids of a large shard are not copied into one piece."""
    masks: dict[str, list[pa.Array]] = {"attention_mask": [], "assistant_masks": []}
    for labels in samples["labels"].chunks:
        values = labels.flatten()
        offsets = _starts_of(labels)
        ones = pa.repeat(pa.scalar(1, pa.int8()), len(values))
        trained = pc.not_equal(values, IGNORED).cast(pa.int8())
        masks["attention_mask"].append(pa.ListArray.from_arrays(offsets, ones))
        masks["assistant_masks"].append(pa.ListArray.from_arrays(offsets, trained))
    columns = {"input_ids": samples["input_ids"], "labels": samples["labels"]}
    return columns | {name: pa.chunked_array(one, MASK) for name, one in masks.items()}


def _starts_of(lists: pa.Array) -> pa.Array:
    """Return the offsets of lists in their flat values; in a slice of an array they do not begin with 0."""
    return pc.subtract(lists.offsets, lists.offsets[0])


def _make_unpaired(samples: pa.Table) -> JsonObject:
    """Return prompt and completion ids, and the label."""
    return {**_cut_prompts(samples, completion_ids="input_ids"), "label": samples["label"]}


def _cut_prompts(samples: pa.Table, **names: str) -> JsonObject:
    """Return the ids of prompts, and for each name the rest of the ids in a column."""
    lengths = samples["prompt_length"].to_pylist()
    prompts = zip(samples["input_ids"].to_pylist(), lengths, strict=True)
    columns = {"prompt_ids": [ids[:length] for ids, length in prompts]}
    for name, column in names.items():
        wholes = zip(samples[column].to_pylist(), lengths, strict=True)
        columns[name] = [ids[length:] for ids, length in wholes]
    return {name: pa.array(values, IDS) for name, values in columns.items()}


MAKERS: dict[str, Callable[[pa.Table], JsonObject]] = {
    "chosen": _make_samples,
    "pairs": partial(_cut_prompts, chosen_ids="input_ids", rejected_ids="rejected_ids"),
    "unpaired": _make_unpaired,
}
"""What makes the columns of a shard, by what becomes of preferences."""


def _merge_bins(columns: dict[str, pa.Array], counts: list[int]) -> dict[str, pa.Array]:
    """Return the columns of packed rows.

    Args:
        columns: the columns of samples, in the order of the rows.
        counts: the number of samples in each row.
    """
    bounds = pa.array(accumulate(counts, initial=0), pa.int32())
    ids = columns["input_ids"]
    starts = _starts_of(ids)
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
