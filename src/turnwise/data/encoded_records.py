"""Build batches of encoded records: ids go into Arrow in one piece, as the batch encoder made them.

Most records are rows of one `EncodedBatch`, in its order. Their ids become a column without a copy. Samples that were
made one by one are put behind them; then the column is one `take` of both.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from turnwise.data.samples import RowResult, Sample
from turnwise.data.schemas import DIGEST_SIZE, ENCODED_SCHEMA, FILTERED, IDS, REJECTED, SAMPLE
from turnwise.tokens.encoded_batch import ID_TYPE, OFFSET_TYPE, EncodedBatch

FILTER_KINDS = ("blank", "too-long")  # kinds of problems for which a row is filtered, not rejected
SOURCE_COLUMNS = ("file", "row", "offset")


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
        self._added: list[Sample] = [Sample(array(ID_TYPE), array(ID_TYPE))]

    def add_common(self, row: int, place: int) -> None:
        """Add a row whose sample is in the encoded batch, at `place`."""
        digest = self._find_digest(*self._encoded[place]) if self._deduplicate else None
        self._entries.append(_Entry(row, place, digest=digest))

    def add_result(self, row: int, result: RowResult) -> None:
        """Add the samples of a row that was encoded by itself, or its problem."""
        problem, lost = result.problem, result.tokens_lost
        kind, reason = (problem.kind, problem.reason) if problem else (None, None)
        if not result.samples:
            status = FILTERED if kind in FILTER_KINDS else REJECTED
            self._entries.append(_Entry(row, len(self._encoded), 0, status, kind, reason, lost))
            return
        for number, sample in enumerate(result.samples):
            place = len(self._encoded) + len(self._added)
            self._added.append(sample)
            digest = self._find_digest(*sample[:3]) if self._deduplicate else None
            lost_here = 0 if number else lost  # once for each row
            self._entries.append(
                _Entry(row, place, number, SAMPLE, kind, reason, lost_here, digest)
            )

    def _find_digest(self, *ids: Any) -> bytes:
        """Return a hash of ids and labels; that of a pair has both of its conversations."""
        hasher = hashlib.blake2b(digest_size=DIGEST_SIZE)
        for values in ids:
            if values is not None:
                hasher.update(values)
        return hasher.digest()

    def build(self, batch: pa.RecordBatch, splits: Sequence[str]) -> pa.RecordBatch:
        """Build the batch of records.

        Args:
            batch: the rows, of `INPUT_SCHEMA`.
            splits: the split of each row.
        """
        entries = self._entries
        rows = [entry.row for entry in entries]
        nulls = batch.column("nulls_removed").to_pylist()
        is_first = [entry.sample == 0 for entry in entries]
        raws = pa.array(
            [
                row if entry.status == REJECTED else None
                for row, entry in zip(rows, entries, strict=True)
            ],
            pa.int64(),
        )
        columns: dict[str, Any] = {
            "status": [entry.status for entry in entries],
            "sample": [entry.sample for entry in entries],
            "split": [splits[row] for row in rows],
            "kind": [entry.kind for entry in entries],
            "reason": [entry.reason for entry in entries],
            "raw": batch.column("raw").take(raws),
            "input_ids": self._build_lists("input_ids"),
            "labels": self._build_lists("labels"),
            "digest": [entry.digest for entry in entries],
            "tokens_lost": [entry.tokens_lost for entry in entries],
            "nulls_removed": [
                nulls[row] if first else 0 for row, first in zip(rows, is_first, strict=True)
            ],
            **self._build_pairs(),
        }
        for name in SOURCE_COLUMNS:
            columns[name] = batch.column(name).take(pa.array(rows, pa.int64()))
        arrays = []
        for field in ENCODED_SCHEMA:
            values = columns[field.name]
            arrays.append(values if isinstance(values, pa.Array) else pa.array(values, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=ENCODED_SCHEMA)

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

    def _build_pairs(self) -> dict[str, pa.Array]:
        """Return the columns that only pairs have."""
        samples = self._added[1:]
        if not any(sample.rejected_ids for sample in samples):
            nulls = {
                name: pa.nulls(len(self._entries), ENCODED_SCHEMA.field(name).type)
                for name in ("rejected_ids", "prompt_length")
            }
            return nulls
        first = len(self._encoded) + 1
        rejected, lengths = [], []
        for entry in self._entries:
            sample = self._added[entry.place - first + 1] if entry.place >= first else None
            rejected.append(sample and sample.rejected_ids)
            lengths.append(sample and sample.prompt_length)
        return {
            "rejected_ids": pa.array(rejected, IDS),
            "prompt_length": pa.array(lengths, pa.int32()),
        }


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
