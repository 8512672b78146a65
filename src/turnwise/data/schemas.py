"""The Arrow schemas between the steps of preparation, and that of the shards.

    INPUT_SCHEMA      one row of an input file, as JSON text
    ENCODED_SCHEMA    one sample, or one row that gives none, with the reason
    shard_schema()    what a trainer loads

`status` of an encoded record is "sample", "rejected" (the row is bad: `raw` holds its bytes) or "filtered" (the row is
good, and the recipe leaves it out). A row gives either samples, numbered from 0, or one record of the other kinds. So
the number of rows that a batch of encoded records came from is that of its records with `sample` 0.

`kind` is a short, stable name of a reason, to count by (`reasons.KINDS`); `reason` is a sentence about this row. A
sample has them too if the recipe keeps samples with a flaw.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from turnwise.data.recipe import Recipe

SAMPLE, REJECTED, FILTERED = "sample", "rejected", "filtered"

DIGEST_SIZE = 16
IDS = pa.list_(pa.int32())
MASK = pa.list_(pa.int8())

PARQUET_OPTIONS = {"use_dictionary": ["source_file"], "compression": "lz4"}
"""How shards are best written as Parquet: ids and masks take half of the time that a dictionary of them would take."""

INPUT_SCHEMA = pa.schema(
    [
        pa.field("file", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),  # from 1: the line in JSONL, else the number
        pa.field("offset", pa.int64(), nullable=False),  # in bytes; -1 where there is none
        pa.field("raw", pa.binary(), nullable=False),  # the JSON text
        pa.field("nulls_removed", pa.int32(), nullable=False),  # by `null_padding`; 0 in JSON files
        pa.field(
            "size", pa.int64()
        ),  # of a row that is too long to be read: `raw` is its beginning
    ]
)

ENCODED_SCHEMA = pa.schema(
    [
        pa.field("status", pa.string(), nullable=False),
        pa.field("file", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("sample", pa.int32(), nullable=False),  # its number within the row
        pa.field("split", pa.string(), nullable=False),
        pa.field("kind", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("raw", pa.binary()),  # of rejected rows only
        pa.field("input_ids", IDS, nullable=False),  # empty for rows without a sample
        pa.field("labels", IDS, nullable=False),
        pa.field("rejected_ids", IDS),  # of preferences that are kept as pairs
        pa.field(
            "prompt_length", pa.int32()
        ),  # the ids that come before the replies of a preference
        pa.field("label", pa.bool_()),  # of unpaired preferences
        pa.field("carried", pa.string()),  # columns that were not read, as JSON
        pa.field("unread", pa.list_(pa.string())),  # names of columns: at the first record of a row
        pa.field("digest", pa.binary(DIGEST_SIZE)),  # of ids and labels, if rows are deduplicated
        pa.field("tokens_lost", pa.int32(), nullable=False),  # of the row: at its first record
        pa.field("nulls_removed", pa.int32(), nullable=False),  # padding of tables: at the first
        pa.field("rewritten", pa.int32(), nullable=False),  # replies, see `Encoded.rewritten`
    ]
)


def make_input_batch(columns: Iterable[Sequence[Any]]) -> pa.RecordBatch:
    """Return rows as a batch of `INPUT_SCHEMA`, from its columns."""
    arrays = [pa.array(one, field.type) for one, field in zip(columns, INPUT_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=INPUT_SCHEMA)


def shard_schema(recipe: Recipe) -> pa.Schema:
    """Return the schema of the shards of a recipe.

    `labels` are -100 where nothing is trained, and `assistant_masks` 0: trainers read one or the other.
    `source_file` and `source_row` say where a sample comes from; of a packed row they are lists, one item for each
    sample in it, as are `seq_lengths`, and `position_ids` begin at 0 with each sample. `length` is the number of ids.
    Preferences have the columns of TRL's collators. `carried` has columns of the row that were not read, as JSON.
    """
    is_packed = recipe.packing != "none"
    source_file, source_row, carried = pa.string(), pa.int64(), pa.string()
    if recipe.preferences == "pairs":
        columns = dict.fromkeys(("prompt_ids", "chosen_ids", "rejected_ids"), IDS)
    elif recipe.preferences == "unpaired":
        columns = {"prompt_ids": IDS, "completion_ids": IDS, "label": pa.bool_()}
    else:
        columns = {"input_ids": IDS, "labels": IDS}
        columns |= {"attention_mask": MASK, "assistant_masks": MASK}
    if is_packed:
        columns |= {"position_ids": IDS, "seq_lengths": IDS}
        source_file, source_row = pa.list_(source_file), pa.list_(source_row)
        carried = pa.list_(carried)
    columns |= {"length": pa.int32(), "source_file": source_file, "source_row": source_row}
    fields = [pa.field(name, kind, nullable=False) for name, kind in columns.items()]
    return pa.schema([*fields, pa.field("carried", carried)])
