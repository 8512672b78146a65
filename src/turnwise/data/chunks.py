"""Cut the files of a data set into chunks: the units of work, of restart and of output.

Where a file is cut depends on its content and on `chunk_bytes` alone, never on the number of workers, so the shards are
the same for all of them. Chunks of one file have about the same size, so that no worker is left with a large last one.

    survey_file    reads a file once: its SHA-256, and its chunks if it can be read from the middle
    unpack_file    the chunks of a file that cannot: compressed text

Unpacked chunks are written to the work folder one after the other, as they are asked for, and removed when they are
done; so a run needs disk space for a few chunks, not for the whole unpacked file.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from turnwise.data.files import InputFile, open_decompressed, open_input, read_block, unreadable
from turnwise.data.row_bounds import ElementScanner, LineScanner, RowScanner
from turnwise.data.shards import cannot_write
from turnwise.errors import DataError, short_repr

BLOCK_BYTES = 1 << 20
MIN_CHUNKS = 16  # of a data set that is not tiny: two workers then end at about the same time
MIN_SPLIT_BYTES = 1 << 20
# A part of a row group of Parquet is read by decoding what is before it, so the parts of a large one are larger.
MAX_PARTS_OF_GROUP = 64
TABLES = ("parquet", "arrow")


@dataclass(frozen=True, slots=True)
class InputChunk:
    """A part of one input file.

    Attributes:
        file: the input file, as rows name it.
        number: the number of the file and that of the chunk in it; chunks in this order are in the order of the rows.
        path: where to read: the file itself, or an unpacked part of it; absolute, for workers elsewhere.
        format: that of the file at `path`: "jsonl", "json", "document", "parquet" or "arrow".
        start, stop: the part: bytes of text, rows of a table, from 0.
        first_row: the number of the first row: a line of JSON Lines, else a row; from 1.
        offset: what to add to a byte of `path` for its offset in the text of the file.
        size: bytes of input, for progress.
        folder: the folder that `path` must not leave by a link.
        is_unpacked: whether `path` is a temporary file.
    """

    file: str
    number: tuple[int, int]
    path: str
    format: str
    start: int
    stop: int
    first_row: int = 1
    offset: int = 0
    size: int = 0
    folder: str | None = None
    is_unpacked: bool = False

    @property
    def name(self) -> str:
        """The name of the chunk in file names."""
        return f"{self.number[0]:05d}-{self.number[1]:06d}"

    def describe(self) -> str:
        """Return which rows of which file these are, for a sentence."""
        return f"{self.file}, from row {self.first_row}"


@dataclass(frozen=True, slots=True)
class Survey:
    """What one pass over a file finds: its hash, and its chunks; None if it must be unpacked."""

    file: InputFile
    number: int
    sha256: str
    chunks: tuple[InputChunk, ...] | None


def choose_chunk_bytes(files: tuple[InputFile, ...], most: int) -> int:
    """Return the size of chunks: `most`, or less for a small data set, so that work can be shared."""
    total = sum(file.size for file in files)
    return min(most, max(MIN_SPLIT_BYTES, total // MIN_CHUNKS))


def survey_file(file: InputFile, number: int, chunk_bytes: int) -> Survey:
    """Read a file once, for its hash and its chunks.

    Raises:
        DataError: it cannot be read, or is damaged.
    """
    if file.compression or file.format in TABLES or file.format == "document":
        digest = hash_file(file)
        if file.compression:
            return Survey(file, number, digest, None)
        if file.format == "document":
            return Survey(
                file, number, digest, (_make_chunk(file, number, 0, _Part(0, file.size, 0)),)
            )
        return Survey(file, number, digest, _cut_table(file, number, chunk_bytes))
    hasher = hashlib.sha256()
    with open_input(file.path, file.folder) as stream:
        parts = _cut_text(stream, file, _bound_evenly(file, chunk_bytes), hasher.update)
        chunks = tuple(_make_chunk(file, number, *part) for part in enumerate(parts))
    return Survey(file, number, hasher.hexdigest(), chunks)


def hash_file(file: InputFile) -> str:
    """Return the SHA-256 of a file."""
    hasher = hashlib.sha256()
    with open_input(file.path, file.folder) as stream:
        while block := read_block(stream, BLOCK_BYTES, file.path):
            hasher.update(block)
    return hasher.hexdigest()


# -- text ------------------------------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """A part of a file: its bytes, or the rows of a table, and how many rows are before it."""

    start: int
    stop: int
    rows_before: int


def make_scanner(format: str) -> RowScanner:
    """Return the scanner that finds the rows of a text."""
    return ElementScanner() if format == "json" else LineScanner()


def _bound_evenly(file: InputFile, chunk_bytes: int) -> Callable[[int], int]:
    """Return the function from the number of a part to the offset after which it ends."""
    size = max(1, file.size - file.rows_start)  # bounds must grow, of an empty file too
    parts = min(size, max(1, round(size / chunk_bytes)))
    return lambda part: file.rows_start + size * (part + 1) // parts


def _cut_text(
    stream: IO[bytes],
    file: InputFile,
    bound: Callable[[int], int],
    on_block: Callable[[bytes], object],
) -> Iterator[_Part]:
    """Yield parts of whole rows; `on_block` is called with each block before its parts are yielded."""
    cutter = _TextCutter(file, bound)
    while block := read_block(stream, BLOCK_BYTES, file.path):
        on_block(block)
        yield from cutter.feed(block)
    yield from cutter.close()


class _TextCutter:
    """Cuts a text, given block by block, into parts of whole rows.

    Args:
        file: the file; its text before `rows_start` belongs to no part.
        bound: the function from the number of a part to the offset after which it ends.
    """

    def __init__(self, file: InputFile, bound: Callable[[int], int]) -> None:
        self._file = file
        self._scanner = make_scanner(file.format)
        self._bounds = map(bound, count())
        self._bound = next(self._bounds)
        self._start = file.rows_start  # of the part
        self._offset = 0  # of the block
        self._rows = 0
        self._rows_before = 0  # the part
        self._is_done = False  # no text after this belongs to a part

    def feed(self, block: bytes) -> Iterator[_Part]:
        """Yield the parts that end in this block."""
        skipped = max(0, self._file.rows_start - self._offset)
        text, start = block[skipped:], self._offset + skipped
        self._offset += len(block)
        if self._is_done:
            return
        if self._scanner.is_closed:
            self._check_rest(text, start)
        elif self._offset < self._bound and isinstance(self._scanner, LineScanner):
            self._rows += text.count(b"\n")
        else:
            yield from self._scan(text, start)

    def close(self) -> Iterator[_Part]:
        """Yield the last part.

        Raises:
            DataError: the text is a list that ends between two rows without being closed.
        """
        if self._scanner.is_open_list:
            raise DataError(
                f"{short_repr(self._file.path, 200)} ends within its list, after byte {self._offset}",
                hint="Rows may be missing: is the file cut? If it is whole, close the list with ].",
            )
        if not self._scanner.is_closed:
            yield from self._take_until(self._offset)

    def _scan(self, text: bytes, start: int) -> Iterator[_Part]:
        for end in self._scanner.feed(text):
            if self._scanner.is_closed:
                yield from self._take_until(start + end - 1)  # without the closing bracket
                self._check_rest(text[end:], start + end)
                return
            self._rows += 1
            if start + end >= self._bound:
                yield from self._take_until(start + end)

    def _take_until(self, stop: int) -> Iterator[_Part]:
        if stop > self._start:
            yield _Part(self._start, stop, self._rows_before)
        self._start, self._rows_before = stop, self._rows
        while self._bound <= stop:
            self._bound = next(self._bounds)

    def _check_rest(self, text: bytes, offset: int) -> None:
        """Refuse text after the list of rows, unless the list is part of an object."""
        rest = text.lstrip()
        self._is_done = rest.startswith((b",", b"}"))
        if rest and not self._is_done:
            at = offset + len(text) - len(rest)
            raise DataError(
                f"{short_repr(self._file.path, 200)} has more text behind its list, at byte {at}",
                hint="If every line is a row, the name of the file should end in .jsonl.",
            )


def _make_chunk(
    file: InputFile, number: int, part: int, cut: _Part, size: int | None = None
) -> InputChunk:
    """Return a part of a file; `size` is its bytes, if it is a part of a table, which is cut by rows."""
    return InputChunk(
        file=file.path,
        number=(number, part),
        path=os.path.abspath(file.path),
        format=file.format,
        start=cut.start,
        stop=cut.stop,
        first_row=cut.rows_before + 1,
        offset=0 if size is None else -1,
        size=cut.stop - cut.start if size is None else size,
        folder=file.folder and os.path.abspath(file.folder),
    )


def unpack_file(
    file: InputFile, number: int, chunk_bytes: int, folder: Path
) -> Iterator[InputChunk]:
    """Write the parts of a file that cannot be read from the middle, and yield each as a chunk.

    Raises:
        DataError: the file cannot be read, or is damaged.
    """
    stream, below = open_decompressed(file)
    blocks: list[bytes] = []  # what was read and is in no part yet
    start = 0  # the offset of its first byte
    done = 0  # bytes of the compressed file
    with below, stream:
        parts = _cut_text(
            stream, file, lambda part: file.rows_start + chunk_bytes * (part + 1), blocks.append
        )
        for part, cut in enumerate(parts):
            data = b"".join(blocks)
            blocks[:] = [data[cut.stop - start :]]
            path = folder / f"{number:05d}-{part:06d}"
            try:
                path.write_bytes(data[: cut.stop - start])  # not synced: made again after a crash
            except OSError as error:
                raise cannot_write(path, error) from error
            position = min(below.tell(), file.size)
            yield replace(
                _make_chunk(file, number, part, cut),
                path=str(path),
                start=cut.start - start,
                stop=cut.stop - start,
                offset=start,
                size=position - done,
                folder=None,
                is_unpacked=True,
            )
            start, done = cut.stop, position


# -- tables ----------------------------------------------------------------------------------------------------------


class TablePart(NamedTuple):
    """Rows of a table that are stored together, their bytes, and in how many parts they may be cut."""

    rows: int
    size: int
    most: int


def _cut_table(file: InputFile, number: int, chunk_bytes: int) -> tuple[InputChunk, ...]:
    parts = list_table_parts(file)
    return tuple(
        _make_chunk(file, number, part, _Part(start, stop, start), size)
        for part, (start, stop, size) in enumerate(_group_rows(parts, chunk_bytes))
    )


def list_table_parts(file: InputFile) -> list[TablePart]:
    """Return the row groups of Parquet, or the record batches of Arrow."""
    try:
        if file.format == "parquet":
            with open_input(file.path, file.folder) as stream:
                metadata = pq.ParquetFile(stream).metadata
                groups = map(metadata.row_group, range(metadata.num_row_groups))
                return [
                    TablePart(group.num_rows, group.total_byte_size, MAX_PARTS_OF_GROUP)
                    for group in groups
                ]
        with pa.memory_map(file.path) as mapped:
            return [TablePart(len(one), one.nbytes, len(one)) for one in open_batches(mapped)]
    except (OSError, pa.ArrowException) as error:
        raise damaged_table(file.path, file.format, error) from error


def open_batches(source: Any) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of an Arrow file or stream."""
    start = source.read(6)
    source.seek(0)
    if start == b"ARROW1":
        reader = pa.ipc.open_file(source)
        for index in range(reader.num_record_batches):
            yield reader.get_batch(index)
    else:
        yield from pa.ipc.open_stream(source)


def damaged_table(path: str, format: str, error: Exception) -> DataError:
    """Return the error for a table that Arrow cannot read."""
    if isinstance(error, OSError) and error.errno is not None:
        return unreadable(path, error)
    reason = str(error).strip().partition("\n")[0].rstrip(".")
    return DataError(
        f"{short_repr(path, 200)} is not {format.capitalize()} that can be read: {reason}",
        hint="The file is damaged or incomplete; fetch or write it again.",
    )


def _group_rows(parts: list[TablePart], chunk_bytes: int) -> Iterator[tuple[int, int, int]]:
    """Yield (first row, row behind the last, bytes) of chunks of about `chunk_bytes`."""
    start, row, size = 0, 0, 0
    for part in parts:
        if part.size > chunk_bytes and part.rows > 1:
            if row > start:
                yield start, row, size
            pieces = min(part.rows, part.most, max(1, round(part.size / chunk_bytes)))
            edges = [row + part.rows * piece // pieces for piece in range(pieces + 1)]
            for first, last in zip(edges, edges[1:], strict=False):
                yield first, last, part.size // pieces
            row += part.rows
            start, size = row, 0
            continue
        row += part.rows
        size += part.size
        if size >= chunk_bytes:
            yield start, row, size
            start, size = row, 0
    if row > start:
        yield start, row, size
