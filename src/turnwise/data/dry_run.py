"""What a recipe would make of a data set, from its first rows: nothing is written.

The first rows of up to `MAX_FILES` files are encoded as a run would do it. How many rows and tokens there are in all is
estimated from the size of the files; of Parquet files the number of rows is known.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from turnwise.data.chunks import TABLES, InputChunk, survey_file, unpack_file
from turnwise.data.files import InputFile, find_files, open_input
from turnwise.data.kernel import Kernel
from turnwise.data.readers import read_chunk
from turnwise.data.recipe import Recipe
from turnwise.data.schemas import SAMPLE
from turnwise.data.tally import Tally, measure_samples
from turnwise.messages import JsonMapping, JsonObject

MAX_FILES = 20
SAMPLE_ROWS = 1000  # of all files together
CHUNK_BYTES = 1 << 20
COMPRESSION_RATIO = 4  # of text to what gzip or zstd make of it, about
FIRST_REASONS = 5


@dataclass(frozen=True, slots=True)
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
        reasons: the first reasons, each with the file and row that has it first.
        notes: what was decided about the files.
        unread: in how many rows a column was not read, by its name.
        carried: in how many rows a column would be carried, by its name.
    """

    files: Counter[str]
    bytes: int
    shapes: Counter[str]
    rows_read: int
    rows_estimated: int
    lengths: list[int]
    trained: int
    filtered: int
    rejected: Counter[str]
    reasons: list[str]
    notes: tuple[str, ...]
    unread: Counter[str]
    carried: Counter[str]

    @property
    def tokens_estimated(self) -> int:
        """How many tokens there are in all samples, about."""
        return round(sum(self.lengths) * self.rows_estimated / max(1, self.rows_read))


def try_recipe(recipe: Recipe) -> DryRun:
    """Encode the first rows of a data set, and estimate what all of them would give.

    Raises:
        TurnwiseError: the recipe or an input cannot be used.
    """
    kernel = Kernel(recipe).load()
    found = find_files(recipe.inputs)
    read_files = found.files[:: -(-len(found.files) // MAX_FILES)]
    share = max(1, SAMPLE_ROWS // len(read_files))
    tally = Tally()
    rejected: list[JsonObject] = []
    lengths: list[int] = []
    trained = rows_estimated = 0
    shapes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as work:
        for number, file in enumerate(read_files):
            before, size = tally.rows_in, 0
            for batch in _read_rows(file, number, share, Path(work), recipe.columns):
                encoded = kernel(batch)
                rejected += tally.count_batch(encoded)
                samples = encoded.filter(pc.equal(encoded["status"], SAMPLE))
                measured = measure_samples(pa.Table.from_batches([samples]))
                lengths += measured[0]
                trained += sum(measured[1])
                shapes.update(kernel.list_shapes(batch))
                sizes = pc.coalesce(batch["size"], pc.binary_length(batch["raw"]).cast(pa.int64()))
                size += pc.sum(sizes).as_py() + len(batch)
            read = tally.rows_in - before
            rows_estimated += _estimate_rows(file, read, size, is_all=read < share)
    all_bytes, read_bytes = (
        sum(file.size for file in files) for files in (found.files, read_files)
    )
    formats = [", ".join(filter(None, (file.format, file.compression))) for file in found.files]
    return DryRun(
        files=Counter(formats),
        bytes=all_bytes,
        shapes=shapes,
        rows_read=tally.rows_in,
        # Files that were not looked at are like those that were.
        rows_estimated=round(rows_estimated * all_bytes / max(1, read_bytes)),
        lengths=sorted(lengths),
        trained=trained,
        filtered=tally.filtered,
        rejected=Counter(record["kind"] for record in rejected),
        reasons=[*islice(_list_reasons(rejected), FIRST_REASONS)],
        notes=found.notes,
        unread=tally.unread,
        carried=tally.carried,
    )


def _list_reasons(rejected: Iterable[JsonMapping]) -> Iterator[str]:
    """Yield each reason once, with the first row that has it and the number of the others."""
    places: dict[str, list[str]] = {}
    for record in rejected:
        places.setdefault(record["reason"], []).append(f"{record['file']}:{record['row']}")
    for reason, (first, *others) in places.items():
        yield f"{first}{f' and {len(others):,} more' if others else ''}: {reason}"


def _read_rows(
    file: InputFile, number: int, count: int, work: Path, columns: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    for chunk in _first_chunks(file, number, work):
        for batch in read_chunk(chunk, columns):
            yield batch.slice(0, count)
            count -= len(batch)
            if count <= 0:
                return


def _first_chunks(file: InputFile, number: int, work: Path) -> Iterator[InputChunk]:
    """Yield chunks from the start of a file; large files are not read to their end for that."""
    if file.compression:
        yield from unpack_file(file, number, CHUNK_BYTES, work)
    elif file.format in (*TABLES, "jsonl"):
        stop = SAMPLE_ROWS if file.format in TABLES else file.size
        place: JsonObject = {"file": file.path, "path": file.path, "folder": file.folder}
        yield InputChunk(number=(number, 0), format=file.format, start=0, stop=stop, **place)
    else:
        yield from survey_file(file, number, CHUNK_BYTES).chunks or ()


def _estimate_rows(file: InputFile, read: int, size: int, is_all: bool) -> int:
    """Return how many rows a file has, about."""
    if file.format == "parquet" and not file.compression:
        with open_input(file.path, file.folder) as stream:
            return int(pq.read_metadata(stream).num_rows)
    if is_all or not read:
        return read
    text = file.size * (COMPRESSION_RATIO if file.compression else 1)
    return max(read, round(text * read / size))
