"""Read a chunk as batches of rows, each row as JSON text.

Text is not parsed here: a line is passed on as it is, with its line ending and a byte order mark removed, so that a
broken row is rejected by the kernel with its own bytes. Rows of tables are written as JSON, without the nulls that the
table added. Empty lines are no rows.

A row of more than `MAX_ROW_BYTES` is not read into memory: its first bytes stand for it, with its size beside them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from turnwise.data.chunks import (
    BLOCK_BYTES,
    TABLES,
    InputChunk,
    damaged_table,
    make_scanner,
    open_batches,
)
from turnwise.data.files import BYTE_ORDER_MARK, open_input, read_block
from turnwise.data.null_padding import table_row_to_json
from turnwise.data.row_bounds import ElementScanner
from turnwise.data.schemas import make_input_batch
from turnwise.errors import DataError

BATCH_ROWS = 512
BATCH_BYTES = 2 << 20
MAX_ROW_BYTES = 64 << 20
KEPT_BYTES = 1 << 16  # of a row that is too long
TABLE_BATCH_ROWS = 256


_Row = tuple[int, int, bytes, int, int | None]  # the columns of `INPUT_SCHEMA` without the file


def read_chunk(
    chunk: InputChunk, columns: Mapping[str, str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a chunk as batches of `INPUT_SCHEMA`.

    Args:
        chunk: the chunk.
        columns: the names that columns have in the data, as in a recipe: where null padding is undone.

    Raises:
        DataError: the file cannot be read any more, or is damaged.
    """
    is_table = chunk.format in TABLES
    waiting: list[_Row] = []
    size = 0
    for row in _read_table(chunk, columns) if is_table else _read_text(chunk):
        waiting.append(row)
        size += len(row[2])
        if len(waiting) >= BATCH_ROWS or size >= BATCH_BYTES:
            yield _make_batch(chunk, waiting)
            waiting, size = [], 0
    if waiting:
        yield _make_batch(chunk, waiting)


def _make_batch(chunk: InputChunk, rows: list[_Row]) -> pa.RecordBatch:
    return make_input_batch([[chunk.file] * len(rows), *zip(*rows, strict=True)])


# -- text ------------------------------------------------------------------------------------------------------------


class _PartialRow:
    """The bytes of a row whose end was not read yet; of one that is too long, its begin and its size."""

    def __init__(self) -> None:
        self.kept: list[bytes] = []
        self.size = 0

    def add(self, data: bytes) -> None:
        self.size += len(data)
        if self.size <= MAX_ROW_BYTES:
            self.kept.append(data)
        elif self.size - len(data) <= MAX_ROW_BYTES:  # it has just become too long
            self.kept = [b"".join((*self.kept, data))[:KEPT_BYTES]]

    def take(self, chunk: InputChunk, number: int, offset: int) -> Iterator[_Row]:
        """Yield the row, unless it is empty, and begin the next one."""
        data, size = b"".join(self.kept), self.size
        self.kept, self.size = [], 0
        offset += chunk.offset
        if size > MAX_ROW_BYTES:
            yield number, offset, data, 0, size
            return
        if offset == 0:
            data = data.removeprefix(BYTE_ORDER_MARK)
        raw = data.rstrip(b"\r\n") if chunk.format == "jsonl" else data.strip(b" \t\r\n")
        if raw.strip():
            yield number, offset, raw, 0, None


def _read_text(chunk: InputChunk) -> Iterator[_Row]:
    """Yield the rows of JSON Lines, the elements of a JSON list, or the one row that is a whole document."""
    is_document = chunk.format == "document"
    scanner = make_scanner(chunk.format)
    is_list = isinstance(scanner, ElementScanner)
    number, row_start, block_start = chunk.first_row, chunk.start, chunk.start
    partial = _PartialRow()
    with open_input(chunk.path, chunk.folder) as stream:
        for block in _read_range(stream, chunk):
            begin = 0
            for end in () if is_document else scanner.feed(block):
                partial.add(block[begin : end - is_list])  # without the comma
                yield from partial.take(chunk, number, row_start)
                number += 1
                begin, row_start = end, block_start + end
            partial.add(block[begin:])
            block_start += len(block)
    yield from partial.take(chunk, number, row_start)


def _read_range(stream: IO[bytes], chunk: InputChunk) -> Iterator[bytes]:
    stream.seek(chunk.start)
    rest = chunk.stop - chunk.start
    while rest > 0:
        block = read_block(stream, min(rest, BLOCK_BYTES), chunk.path)
        if not block:
            raise DataError(
                f"{chunk.file} was cut short while it was read",
                hint="Let no other program write to the inputs, and run it again.",
            )
        rest -= len(block)
        yield block


# -- tables ----------------------------------------------------------------------------------------------------------


def _read_table(chunk: InputChunk, columns: Mapping[str, str] | None) -> Iterator[_Row]:
    number = chunk.first_row
    try:
        for batch in _iterate_rows(chunk):
            for row in batch.to_pylist():
                raw, removed = table_row_to_json(row, columns)
                yield number, -1, raw, removed, None
                number += 1
    except (OSError, pa.ArrowException) as error:
        raise damaged_table(chunk.path, chunk.format, error) from error


def _iterate_rows(chunk: InputChunk) -> Iterator[pa.RecordBatch]:
    """Yield small batches of the rows of a chunk; what is before them is skipped as cheaply as possible."""
    if chunk.format == "arrow":
        with pa.memory_map(chunk.path) as mapped:
            yield from _slice_batches(open_batches(mapped), 0, chunk)
        return
    with open_input(chunk.path, chunk.folder) as stream:
        file = pq.ParquetFile(stream)
        groups: list[int] = []
        first = row = 0
        for index in range(file.metadata.num_row_groups):
            end = row + file.metadata.row_group(index).num_rows
            if end > chunk.start and row < chunk.stop:
                first = first if groups else row
                groups.append(index)
            row = end
        batches = file.iter_batches(batch_size=TABLE_BATCH_ROWS, row_groups=groups)
        yield from _slice_batches(batches, first, chunk)


def _slice_batches(
    batches: Iterator[pa.RecordBatch], row: int, chunk: InputChunk
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the chunk out of batches of which the first begins with the given row."""
    for batch in batches:
        start = max(0, chunk.start - row)
        stop = min(len(batch), chunk.stop - row)
        for at in range(start, stop, TABLE_BATCH_ROWS):
            yield batch.slice(at, min(TABLE_BATCH_ROWS, stop - at))
        row += len(batch)
        if row >= chunk.stop:
            return
