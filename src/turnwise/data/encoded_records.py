"""Build batches of encoded records: ids go into Arrow in one piece, as the batch encoder made them.

Most records are rows of one `EncodedBatch`, in its order. Their ids become a column without a copy. Samples that were
made one by one are put after them; then the column is one `take` of both.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from turnwise.data.reasons import FILTER_KINDS
from turnwise.data.records import Record
from turnwise.data.samples import EncodedSample, RowResult
from turnwise.data.schemas import DIGEST_SIZE, ENCODED_SCHEMA, FILTERED, REJECTED, SAMPLE
from turnwise.messages import JsonObject
from turnwise.tokens.encoded_batch import ID_TYPE, OFFSET_TYPE, EncodedBatch

SOURCE_COLUMNS = ("file", "row", "offset")
DEFAULTS = {"status": SAMPLE, "sample": 0, "tokens_lost": 0, "rewritten": 0}


class RecordBuilder:
    """Collects records, in order, and builds a batch of `ENCODED_SCHEMA`.

    Args:
        encoded: the rows that were encoded all together.
        deduplicate: whether records have a digest.
    """

    def __init__(self, encoded: EncodedBatch, deduplicate: bool) -> None:
        self._encoded = encoded
        self._deduplicate = deduplicate
        self._rows: list[int] = []  # of each record, its row in the input batch
        self._places: list[int] = []  # and that of its ids among all lists of ids
        self._records: list[JsonObject] = []  # and the columns that are not the default
        # The first list that is added is empty, for records without a sample.
        self._added: list[EncodedSample] = [EncodedSample(array(ID_TYPE), array(ID_TYPE))]

    def _add(self, row: int, place: int, columns: JsonObject) -> None:
        self._rows.append(row)
        self._places.append(place)
        self._records.append(columns)

    def add_common(self, row: int, place: int, record: Record) -> None:
        """Add a row whose sample is in the encoded batch, at `place`."""
        columns: JsonObject = {"carried": record.carried, "unread": record.unread or None}
        if self._deduplicate:
            columns["digest"] = _find_digest(*self._encoded[place])
        self._add(row, place, columns)

    def add_result(self, row: int, result: RowResult, record: Record | None) -> None:
        """Add the samples of a row that was encoded by itself, or its problem."""
        problem = result.problem
        columns: JsonObject = {}
        if problem is not None:
            columns = {"kind": problem.kind, "reason": problem.reason}
        # Both are counted once for each row.
        source: Any = record or problem
        counts = {"tokens_lost": result.tokens_lost, "unread": source.unread or None}
        if not result.samples:
            status = FILTERED if columns["kind"] in FILTER_KINDS else REJECTED
            self._add(row, len(self._encoded), {**columns, **counts, "status": status})
        for number, sample in enumerate(result.samples):
            columns = {**columns, **sample._asdict(), "sample": number}
            columns["carried"] = record and record.carried
            if self._deduplicate:
                columns["digest"] = _find_digest(*sample[:3], sample.label)
            place = len(self._encoded) + len(self._added)
            self._added.append(sample)
            self._add(row, place, {**columns, **counts} if number == 0 else columns)

    def build(self, batch: pa.RecordBatch, splits: Sequence[str]) -> pa.RecordBatch:
        """Build the batch of records.

        Args:
            batch: the rows, of `INPUT_SCHEMA`.
            splits: the split of each row.
        """
        records = self._records
        columns = {
            name: batch.column(name).take(_to_indices(self._rows)) for name in SOURCE_COLUMNS
        }
        columns |= {name: self._build_lists(name) for name in ("input_ids", "labels")}
        pairs = list(zip(self._rows, records, strict=True))
        rejected = [row if one.get("status") == REJECTED else None for row, one in pairs]
        columns["raw"] = batch.column("raw").take(_to_indices(rejected))
        counts = batch.column("nulls_removed").to_pylist()
        removed = [0 if one.get("sample") else counts[row] for row, one in pairs]
        columns |= {"nulls_removed": removed, "split": [splits[row] for row in self._rows]}
        arrays = []
        for field in ENCODED_SCHEMA:
            values = columns.get(field.name)
            if values is None:
                name, default = field.name, DEFAULTS.get(field.name)
                values = [one.get(name, default) for one in records]
            arrays.append(values if isinstance(values, pa.Array) else pa.array(values, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=ENCODED_SCHEMA)

    def _build_lists(self, name: str) -> pa.Array:
        encoded = self._encoded
        lists = make_lists(getattr(encoded, name), encoded.offsets)
        if self._places == list(range(len(encoded))):
            return lists
        values, offsets = array(ID_TYPE), array(OFFSET_TYPE, [0])
        for sample in self._added:
            values += getattr(sample, name)
            offsets.append(len(values))
        lists = pa.concat_arrays([lists, make_lists(values, offsets)])
        return lists.take(_to_indices(self._places))


def _to_indices(numbers: Sequence[int | None]) -> pa.Array:
    return pa.array(numbers, pa.int64())


def _find_digest(*ids: Any) -> bytes:
    """Return a hash of ids and labels; of a pair, of both conversations; of an unpaired reply, with its label."""
    hasher = hashlib.blake2b(digest_size=DIGEST_SIZE)
    for values in ids:
        if values is not None:
            hasher.update(bytes([values]) if isinstance(values, bool) else values)
    return hasher.digest()


def make_lists(values: array[int], offsets: array[int]) -> pa.Array:
    """Return lists of ids as an Arrow array; the ids are not copied.

    Args:
        values: all ids.
        offsets: where each list begins, and where the last one ends.
    """
    starts = as_arrow(offsets, pa.int64()).cast(pa.int32())
    return pa.ListArray.from_arrays(starts, as_arrow(values, pa.int32()))


def as_arrow(values: array[int], kind: pa.DataType) -> pa.Array:
    """Return integers as an Arrow array that shares their memory."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])
