"""XTuner's `Packer`: encoded rows joined, and cut into chunks of one length.

Rows are joined without padding and cut every `chunk_size` ids, so a chunk may begin and end inside a row. What does not
fill a chunk waits for the next batch. A batch that, with what waits, fills no chunk is given out as one short chunk,
or dropped with `drop_last`; so only the last rows of a whole dataset should come in such a batch.

For attention within rows (`use_varlen_attn`) each chunk also tells where rows begin in it (`cumulative_len`, from 0 to
the chunk's length), and counts positions anew for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from turnwise.compat.batches import check_length
from turnwise.compat.xtuner_rows import InvalidRow, require_list
from turnwise.errors import short_repr

COLUMNS = ("input_ids", "labels")


class Packer:
    """Join rows to chunks, batch by batch, for `datasets.map(Packer(...), batched=True)`.

    Example:
        >>> packer = Packer(chunk_size=3)
        >>> packer({"input_ids": [[1, 2], [3, 4]], "labels": [[1, 2], [3, 4]]})["input_ids"]
        [[1, 2, 3]]
        >>> packer.residual["input_ids"]
        [4]
    """

    def __init__(
        self, chunk_size: int = 2048, use_varlen_attn: bool = False, drop_last: bool = False
    ) -> None:
        self.chunk_size = check_length(chunk_size, "chunk_size")
        if self.chunk_size == 0:
            raise InvalidRow("a chunk has at least one id", path="chunk_size")
        self.use_varlen_attn = use_varlen_attn
        self.drop_last = drop_last
        self.residual: dict[str, list[int]] = {name: [] for name in COLUMNS}
        self.residual_cumulative_len = [0]

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[Any]]:
        """Return the chunks that are full, and keep the rest for the next batch.

        Args:
            batch: Lists of rows under `input_ids` and `labels`.

        Raises:
            MessageError: If a column is missing, or a row has more ids than labels or fewer.
        """
        rows = {name: require_list(batch, name) for name in COLUMNS}
        _check_lengths(rows["input_ids"], rows["labels"])
        joined = {name: [*self.residual[name], *chain(*rows[name])] for name in COLUMNS}
        for row in rows["input_ids"]:
            self.residual_cumulative_len.append(self.residual_cumulative_len[-1] + len(row))
        size = self.chunk_size
        number = len(joined["input_ids"]) // size
        if number == 0:
            return self._give_out_rest(joined)
        result: dict[str, list[Any]] = {
            name: [ids[start : start + size] for start in range(0, number * size, size)]
            for name, ids in joined.items()
        }
        self.residual = {name: ids[number * size :] for name, ids in joined.items()}
        return self._with_rows(result, self.get_cumulative_len(number))

    def _give_out_rest(self, joined: Mapping[str, list[int]]) -> dict[str, list[Any]]:
        """Return all that there is as one short chunk, or no chunk with `drop_last`."""
        bounds = [self.residual_cumulative_len]
        self.residual = {name: [] for name in COLUMNS}
        self.residual_cumulative_len = [0]
        if self.drop_last:
            return self._with_rows({name: [] for name in joined}, [])
        return self._with_rows({name: [ids] for name, ids in joined.items()}, bounds)

    def _with_rows(
        self, result: dict[str, list[Any]], bounds: list[list[int]]
    ) -> dict[str, list[Any]]:
        if self.use_varlen_attn:
            result["cumulative_len"] = bounds
            result["position_ids"] = self.get_position_ids(bounds)
        return result

    def get_cumulative_len(self, chunk_num: int) -> list[list[int]]:
        """Return for each chunk where rows begin in it, 0 and its length included; keep those behind the last."""
        size = self.chunk_size
        bounds = self.residual_cumulative_len
        result = []
        done = 0
        for start in range(0, chunk_num * size, size):
            chunk = []
            while bounds[done] < start + size:
                chunk.append(bounds[done] - start)
                done += 1
            if not chunk or chunk[0] != 0:
                chunk.insert(0, 0)
            chunk.append(size)
            done += bounds[done] == start + size  # the row that ends here has been told of
            result.append(chunk)
        rest = [bound - chunk_num * size for bound in bounds[done:]]
        self.residual_cumulative_len = rest if rest[:1] == [0] else [0, *rest]
        return result

    def get_position_ids(self, cumulative_len: Iterable[Sequence[int]]) -> list[list[int]]:
        """Return for each chunk the positions of its ids, counted anew for each row."""
        return [
            [
                position
                for start, end in zip(bounds, bounds[1:], strict=False)
                for position in range(end - start)
            ]
            for bounds in cumulative_len
        ]


def _check_lengths(ids: Sequence[Any], labels: Sequence[Any]) -> None:
    """Refuse rows whose labels do not belong to their ids: they would shift all that follow."""
    for row in chain(ids, labels):
        if not isinstance(row, list | tuple):
            raise InvalidRow(f"a row is a list of ids, not {short_repr(row)}", path="input_ids")
    if [len(row) for row in ids] != [len(row) for row in labels]:
        raise InvalidRow("each row has as many labels as ids", path="labels")
