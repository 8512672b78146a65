"""Build batches of encoded records: ids go into Arrow in one piece, as the batch encoder made them.

Most records are rows of one `EncodedBatch`, in its order. Their ids become a column without a copy. Samples that were
made one by one are put after them; then the column is one `take` of both.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from turnwise.data.reasons import FILTER_KINDS
from turnwise.data.records import Record
from turnwise.data.samples import EncodedSample, RowResult
from turnwise.data.schemas import DIGEST_SIZE, ENCODED_SCHEMA, FILTERED, REJECTED, SAMPLE
from turnwise.tokens.encoded_batch import ID_TYPE, OFFSET_TYPE, EncodedBatch

SOURCE_COLUMNS = ("file", "row", "offset")
OUTCOME_COLUMNS = (
    *("status", "sample", "kind", "reason", "digest"),
    *("tokens_lost", "carried", "unread", "rewritten"),
)
OF_PREFERENCES = ("rejected_ids", "prompt_length", "label")


class _Entry(NamedTuple):
    """One record."""

    row: int  # its place in the input batch
    place: int  # of its ids among all lists of ids
    sample: int = 0
    status: str = SAMPLE
    kind: str | None = None
    reason: str | None = None
    tokens_lost: int = 0
    digest: bytes | None = None
    carried: str | None = None
    unread: tuple[str, ...] | None = None
    rewritten: int = 0


class RecordBuilder:
    """Collects records, in order, and builds a batch of `ENCODED_SCHEMA`.

    Args:
        encoded: the rows that were encoded all together.
        deduplicate: whether records have a digest.
    """

    def __init__(self, encoded: EncodedBatch, deduplicate: bool) -> None:
        self._encoded = encoded
        self._deduplicate = deduplicate
        self._entries: list[_Entry] = []
        # The first list that is added is empty, for records without a sample.
        self._added: list[EncodedSample] = [EncodedSample(array(ID_TYPE), array(ID_TYPE))]

    def add_common(self, row: int, place: int, record: Record) -> None:
        """Add a row whose sample is in the encoded batch, at `place`."""
        digest = self._find_digest(*self._encoded[place]) if self._deduplicate else None
        unread = record.unread or None
        self._entries.append(
            _Entry(row, place, digest=digest, carried=record.carried, unread=unread)
        )

    def add_result(self, row: int, result: RowResult, record: Record | None) -> None:
        """Add the samples of a row that was encoded by itself, or its problem."""
        problem, lost = result.problem, result.tokens_lost
        kind, reason = (problem.kind, problem.reason) if problem else (None, None)
        unread = record.unread if record is not None else problem.unread if problem else None
        if not result.samples:
            status = FILTERED if kind in FILTER_KINDS else REJECTED
            place = len(self._encoded)
            self._entries.append(
                _Entry(row, place, 0, status, kind, reason, lost, unread=unread or None)
            )
            return
        carried = record.carried if record is not None else None
        for number, sample in enumerate(result.samples):
            place = len(self._encoded) + len(self._added)
            self._added.append(sample)
            digest = self._find_digest(*sample[:3], sample.label) if self._deduplicate else None
            # Both are counted once for each row.
            lost_here, unread_here = (0, None) if number else (lost, unread or None)
            self._entries.append(
                _Entry(
                    row,
                    place,
                    number,
                    SAMPLE,
                    kind,
                    reason,
                    lost_here,
                    digest,
                    carried,
                    unread_here,
                    sample.rewritten,
                )
            )

    def _find_digest(self, *ids: Any) -> bytes:
        """Return a hash of ids and labels; of a pair, of both conversations; of an unpaired reply, with its label."""
        hasher = hashlib.blake2b(digest_size=DIGEST_SIZE)
        for values in ids:
            if values is not None:
                hasher.update(bytes([values]) if isinstance(values, bool) else values)
        return hasher.digest()

    def build(self, batch: pa.RecordBatch, splits: Sequence[str]) -> pa.RecordBatch:
        """Build the batch of records.

        Args:
            batch: the rows, of `INPUT_SCHEMA`.
            splits: the split of each row.
        """
        columns = {
            **self._build_sources(batch),
            **self._build_outcomes(splits),
            **self._build_preferences(),
            "input_ids": self._build_lists("input_ids"),
            "labels": self._build_lists("labels"),
        }
        arrays = []
        for field in ENCODED_SCHEMA:
            values = columns[field.name]
            arrays.append(values if isinstance(values, pa.Array) else pa.array(values, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=ENCODED_SCHEMA)

    def _build_sources(self, batch: pa.RecordBatch) -> dict[str, Any]:
        """Return the columns that come from the input."""
        rows = pa.array([entry.row for entry in self._entries], pa.int64())
        columns = {name: batch.column(name).take(rows) for name in SOURCE_COLUMNS}
        rejected = [entry.row if entry.status == REJECTED else None for entry in self._entries]
        columns["raw"] = batch.column("raw").take(pa.array(rejected, pa.int64()))
        counts = batch.column("nulls_removed").to_pylist()
        columns["nulls_removed"] = [
            0 if entry.sample else counts[entry.row] for entry in self._entries
        ]
        return columns

    def _build_outcomes(self, splits: Sequence[str]) -> dict[str, Any]:
        """Return the columns about what became of rows."""
        entries = self._entries
        columns = {name: [getattr(one, name) for one in entries] for name in OUTCOME_COLUMNS}
        return {**columns, "split": [splits[entry.row] for entry in entries]}

    def _build_lists(self, name: str) -> pa.Array:
        """Return the ids or the labels of all records."""
        encoded = self._encoded
        lists = make_lists(getattr(encoded, name), encoded.offsets)
        places = [entry.place for entry in self._entries]
        if places == list(range(len(encoded))):
            return lists
        values, offsets = array(ID_TYPE), array(OFFSET_TYPE, [0])
        for sample in self._added:
            values += getattr(sample, name)
            offsets.append(len(values))
        lists = pa.concat_arrays([lists, make_lists(values, offsets)])
        return lists.take(pa.array(places, pa.int64()))

    def _build_preferences(self) -> dict[str, pa.Array]:
        """Return the columns that only preferences have."""
        if all(sample.prompt_length is None for sample in self._added):
            count = len(self._entries)
            return {
                name: pa.nulls(count, ENCODED_SCHEMA.field(name).type) for name in OF_PREFERENCES
            }
        samples = [self._added[entry.place - len(self._encoded)] for entry in self._entries]
        return {name: [getattr(sample, name) for sample in samples] for name in OF_PREFERENCES}


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
