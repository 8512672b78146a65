"""What a recipe would make of a data set, from its first rows: nothing is written.

The first rows of up to `MAX_FILES` files are encoded as a run would do it. How many rows and tokens there are in all is
estimated from the size of the files; of Parquet files the number of rows is known.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from turnwise.data.chunks import TABLES, InputChunk, survey_file, unpack_file
from turnwise.data.files import InputFile, find_files, open_input
from turnwise.data.job import TOO_LARGE
from turnwise.data.kernel import Kernel
from turnwise.data.readers import RowTooLong, read_chunk
from turnwise.data.recipe import PREFERENCE, Recipe
from turnwise.data.schemas import REJECTED, SAMPLE
from turnwise.data.tally import count_columns
from turnwise.errors import MessageError
from turnwise.shapes import conversation
from turnwise.tokens.loss import IGNORED

MAX_FILES = 20
SAMPLE_ROWS = 1000  # of all files together
CHUNK_BYTES = 1 << 20
COMPRESSION_RATIO = 4  # of text to what gzip or zstd make of it, about
FIRST_REASONS = 5
AUTO, PREFERENCE_COLUMN = "auto", "chosen"


@dataclass(slots=True)
class DryRun:
    """What the first rows of a data set become.

    Attributes:
        files: how many files there are, by format.
        bytes: the size of all files.
        shapes: how many rows were read, by the shape of `turnwise.shapes`; those without one are not here.
        rows_read: how many rows were read.
        rows_estimated: how many rows there are in all, about; the same if all were read.
        lengths: the number of tokens of each sample, sorted.
        trained: how many of these tokens are trained.
        filtered: rows that the recipe leaves out.
        rejected: rows that would be rejected, by kind of reason.
        reasons: the first reasons, with file and row.
        notes: what was decided about the files.
        unread: in how many rows a column was not read, by its name.
        carried: in how many rows a column would be carried, by its name.
    """

    files: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    shapes: Counter[str] = field(default_factory=Counter)
    rows_read: int = 0
    rows_estimated: int = 0
    lengths: list[int] = field(default_factory=list)
    trained: int = 0
    filtered: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    reasons: list[str] = field(default_factory=list)
    notes: tuple[str, ...] = ()
    unread: Counter[str] = field(default_factory=Counter)
    carried: Counter[str] = field(default_factory=Counter)

    @property
    def tokens_estimated(self) -> int:
        """How many tokens there are in all samples, about."""
        return round(sum(self.lengths) * self.rows_estimated / max(1, self.rows_read))

    def add_result(self, encoded: pa.RecordBatch) -> None:
        """Count the records of a batch."""
        unread, carried = count_columns(encoded)
        self.unread += unread
        self.carried += carried
        samples = encoded.filter(pc.equal(encoded["status"], SAMPLE))
        self.lengths += pc.list_value_length(samples["input_ids"]).to_pylist()
        self.trained += pc.sum(pc.not_equal(samples["labels"].flatten(), IGNORED)).as_py() or 0
        others = encoded.filter(pc.not_equal(encoded["status"], SAMPLE))
        for record in others.select(["status", "kind", "reason", "file", "row"]).to_pylist():
            if record["status"] == REJECTED:
                self.reject(record["file"], record["row"], record["kind"], record["reason"])
            else:
                self.filtered += 1

    def reject(self, file: str, row: int, kind: str, reason: str) -> None:
        """Count a row that would be rejected."""
        self.rejected[kind] += 1
        if len(self.reasons) < FIRST_REASONS:
            self.reasons.append(f"{file}:{row}: {reason}")


def try_recipe(recipe: Recipe) -> DryRun:
    """Encode the first rows of a data set, and estimate what all of them would give.

    Raises:
        TurnwiseError: the recipe or an input cannot be used.
    """
    kernel = Kernel(recipe).load()
    found = find_files(recipe.inputs)
    result = DryRun(notes=found.notes)
    step = -(-len(found.files) // MAX_FILES)
    read_files = found.files[::step]
    share = max(1, SAMPLE_ROWS // len(read_files))
    size_of_read = 0
    with tempfile.TemporaryDirectory() as work:
        for number, file in enumerate(read_files):
            before, size = result.rows_read, 0
            for batch in _read_rows(file, number, share, Path(work), recipe.columns):
                if isinstance(batch, RowTooLong):
                    result.reject(batch.file, batch.row, TOO_LARGE, batch.reason)
                    result.rows_read += 1
                    size += batch.size
                    continue
                result.add_result(kernel(batch))
                result.shapes.update(_list_shapes(batch, recipe))
                result.rows_read += len(batch)
                size += pc.sum(pc.binary_length(batch["raw"])).as_py() + len(batch)
            read = result.rows_read - before
            result.rows_estimated += _estimate_rows(file, read, size, is_all=read < share)
            size_of_read += file.size
    for file in found.files:
        result.files[file.format + (f", {file.compression}" if file.compression else "")] += 1
        result.bytes += file.size
    # Files that were not looked at are like those that were.
    result.rows_estimated = round(result.rows_estimated * result.bytes / max(1, size_of_read))
    result.lengths.sort()
    return result


def _read_rows(
    file: InputFile, number: int, count: int, work: Path, columns: Mapping[str, str]
) -> Iterator[pa.RecordBatch | RowTooLong]:
    """Yield the first rows of a file, at most `count`."""
    for chunk in _first_chunks(file, number, work):
        for batch in read_chunk(chunk, columns):
            if isinstance(batch, pa.RecordBatch):
                batch = batch.slice(0, count)
            count -= len(batch) if isinstance(batch, pa.RecordBatch) else 1
            yield batch
            if count <= 0:
                return


def _first_chunks(file: InputFile, number: int, work: Path) -> Iterator[InputChunk]:
    """Yield chunks from the start of a file; large files are not read to their end for that."""
    if file.compression:
        yield from unpack_file(file, number, CHUNK_BYTES, work)
    elif file.format in (*TABLES, "jsonl"):
        stop = SAMPLE_ROWS if file.format in TABLES else file.size
        place: dict[str, Any] = {"file": file.path, "path": file.path, "folder": file.folder}
        yield InputChunk(number=(number, 0), format=file.format, start=0, stop=stop, **place)
    else:
        yield from survey_file(file, number, CHUNK_BYTES).chunks or ()


def _list_shapes(batch: pa.RecordBatch, recipe: Recipe) -> Iterator[str]:
    """Yield the shape of each row that has one."""
    for raw in batch["raw"].to_pylist():
        try:
            row = json.loads(raw)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            row |= {name: row.get(column) for name, column in recipe.columns.items()}
            if PREFERENCE_COLUMN in row:
                yield PREFERENCE
                continue
        try:
            yield conversation(row, None if recipe.shape == AUTO else recipe.shape).shape
        except MessageError:
            continue


def _estimate_rows(file: InputFile, read: int, size: int, is_all: bool) -> int:
    """Return how many rows a file has, about."""
    if file.format == "parquet" and not file.compression:
        with open_input(file.path, file.folder) as stream:
            return int(pq.read_metadata(stream).num_rows)
    if is_all or not read:
        return read
    text = file.size * (COMPRESSION_RATIO if file.compression else 1)
    return max(read, round(text * read / size))
