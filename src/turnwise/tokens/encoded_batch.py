"""EncodedBatch: the ids and labels of many conversations in flat arrays, as Arrow, numpy and torch take them."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, SupportsIndex

from turnwise.errors import MessageError, TurnwiseError, short_repr
from turnwise.tokens.loss import IGNORED

ID_TYPE = "i"  # 32 bits, as fastokens gives ids
OFFSET_TYPE = "q"  # 64 bits


class BatchRow(NamedTuple):
    """The ids and the labels of one row; views of the arrays of its batch, not copies."""

    input_ids: memoryview
    labels: memoryview


class EncodedBatch:
    """Many conversations as token ids, one after another.

    Row `i` has the ids `input_ids[offsets[i] : offsets[i + 1]]`, and its labels are in the same place. The arrays are
    buffers: `numpy.frombuffer(batch.input_ids, "int32")` and `pyarrow.py_buffer(batch.input_ids)` copy nothing. The
    batch has a length, and its rows can be indexed and iterated.

    Example:
        >>> template = turnwise.load("chatml")
        >>> rows = [[{"role": "user", "content": "Hi"}, {"role": "assistant", "content": text}] for text in ("a", "b")]
        >>> batch = template.encode_batch(rows, "turnwise")
        >>> list(batch[1].input_ids) == template.encode(rows[1], "turnwise").input_ids
        True

    Attributes:
        input_ids: the ids of all rows, an `array` of 32-bit integers.
        labels: the ids that are trained, and -100 for all others.
        offsets: where each row begins, and the end of the last: 64-bit integers, one more than there are rows.
        errors: the rows that could not be encoded, by their number; they have no ids.
        warnings: what was warned of, by the number of the row; rows without warnings are not in it.
    """

    def __init__(
        self,
        input_ids: array[int],
        labels: array[int],
        offsets: array[int],
        errors: Mapping[int, TurnwiseError],
        row_weights: Mapping[int, Sequence[float]],
        warnings: Mapping[int, tuple[str, ...]],
    ) -> None:
        self.input_ids = input_ids
        self.labels = labels
        self.offsets = offsets
        self.errors = errors
        self.warnings = warnings
        self._row_weights = row_weights  # of rows with messages of another weight than 1

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        failed = f", {len(self.errors)} failed" if self.errors else ""
        told = f", {len(self.warnings)} with warnings" if self.warnings else ""
        return f"<EncodedBatch: {len(self)} rows, {len(self.input_ids)} tokens{failed}{told}>"

    def __getitem__(self, index: int) -> BatchRow:
        given: Any = index
        if not isinstance(given, SupportsIndex):
            raise MessageError(
                f"a row has a number, not {short_repr(given)}",
                path="index",
                hint="a part of the rows: [batch[i] for i in range(10)]",
            )
        row = range(len(self))[index]
        start, end = self.offsets[row : row + 2]
        return BatchRow(memoryview(self.input_ids)[start:end], memoryview(self.labels)[start:end])

    def __iter__(self) -> Iterator[BatchRow]:
        return (self[index] for index in range(len(self)))

    @property
    def weights(self) -> array[float]:
        """How much each token counts in training, as 32-bit floats; 0 for those that are not trained."""
        weights = array("f", [float(label != IGNORED) for label in self.labels])
        for row, values in self._row_weights.items():
            weights[self.offsets[row] : self.offsets[row + 1]] = array("f", values)
        return weights

    def lists(self) -> dict[str, list[list[int]]]:
        """Return `input_ids`, `attention_mask` and `labels` with one list for each row, as trainers take them."""
        ids = [row.input_ids.tolist() for row in self]
        return {
            "input_ids": ids,
            "attention_mask": [[1] * len(row) for row in ids],
            "labels": [row.labels.tolist() for row in self],
        }
