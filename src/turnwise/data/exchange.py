"""Bring samples of all chunks together, to shuffle them or to find duplicates, with the memory of one shard.

First stage: each chunk writes its samples to one Arrow file, with a column `place`: a hash of seed, file, row and
sample. In a shuffled run the file is sorted by it. The hash is the place in the shuffled order, from 0 to 2**64, so the
order depends on the seed and on names and numbers of the rows only.

Second stage: an output shard is a range of places. It takes its slice of each chunk's file, found by bisection in
memory-mapped files, so nothing else is read. The number of slices is chunks times shards; for more than about 10 GB of
input a larger `chunk_bytes` keeps it small.

Duplicates are found between the stages: of samples with equal digests the first in the order of chunks stays. Digests
are compared in passes over ranges of them, each with at most `MAX_DIGESTS` in memory.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from turnwise.data.schemas import ENCODED_SCHEMA
from turnwise.data.shards import write_file

PLACES = 1 << 64
PLACE_SCHEMA = ENCODED_SCHEMA.append(pa.field("place", pa.uint64(), nullable=False))
MAX_DIGESTS = 1_000_000  # about 100 MB


class Duplicates(NamedTuple):
    """What deduplication drops: samples, and rows of which no sample is left."""

    samples: int
    rows: int


def write_encoded(samples: pa.Table, path: Path, seed: int | None) -> tuple[int, str]:
    """Write the samples of one chunk, sorted by their places if there is a seed; return size and SHA-256."""
    places = pa.array(_compute_places(samples, seed or 0), pa.uint64())
    table = samples.append_column(PLACE_SCHEMA.field("place"), places)
    if seed is not None:
        table = table.sort_by("place")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, PLACE_SCHEMA) as writer:
        for batch in table.combine_chunks().to_batches():  # one, so that it can be bisected
            writer.write_batch(batch)
    data = sink.getvalue()
    return data.size, write_file(path, data)


def _compute_places(samples: pa.Table, seed: int) -> list[int]:
    names = (samples[name].to_pylist() for name in ("file", "row", "sample"))
    keys = (f"{seed}\0{file}\0{row}\0{sample}" for file, row, sample in zip(*names, strict=True))
    return [
        int.from_bytes(blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
        for key in keys
    ]


def collect_partition(paths: Sequence[Path], drops: Path, number: int, partitions: int) -> pa.Table:
    """Return the samples of one range of the shuffled order, in that order."""
    start, stop = (PLACES * edge // partitions for edge in (number, number + 1))
    parts = [PLACE_SCHEMA.empty_table()]
    for path in paths:
        with _map_table(path) as table:
            parts.append(_copy_range(table, *_find_places(table, start, stop), drops / path.name))
    table = pa.concat_tables(parts)
    table = table.sort_by("place")
    return table.drop_columns(["place"])


def read_survivors(path: Path, drops: Path) -> pa.Table:
    """Return the samples of one chunk that deduplication left."""
    with _map_table(path) as table:
        return _copy_range(table, 0, len(table), drops / path.name).drop_columns(["place"])


def find_duplicates(paths: Sequence[Path], drops: Path) -> Duplicates:
    """Write, for each chunk, which of its samples are duplicates of earlier ones.

    Args:
        paths: the encoded files of all chunks, in their order.
        drops: a new folder for the result.
    """
    sizes = [_count_rows(path) for path in paths]
    passes = max(1, -(-sum(sizes) // MAX_DIGESTS))
    dropped = rows = 0
    for number in range(passes):
        seen: set[bytes] = set()
        for path in paths:
            found = array("q", _repeats(path, seen, number, passes))
            dropped += len(found)
            if found:
                with open(drops / path.name, "ab") as file:
                    file.write(found.tobytes())
    for path in paths:
        rows += _count_emptied_rows(path, _read_drops(drops / path.name))
    return Duplicates(dropped, rows)


def _repeats(path: Path, seen: set[bytes], number: int, passes: int) -> Iterator[int]:
    """Yield the positions of digests of this pass that were seen before."""
    with _map_table(path) as table:
        digests = table["digest"].to_pylist()
    for position, digest in enumerate(digests):
        if passes > 1 and int.from_bytes(digest[:4], "big") % passes != number:
            continue
        if digest in seen:
            yield position
        else:
            seen.add(digest)


def _count_emptied_rows(path: Path, drops: Sequence[int]) -> int:
    """Return how many rows of a chunk have lost all of their samples."""
    if not drops:
        return 0
    with _map_table(path) as table:
        rows = table["row"].to_pylist()
    dropped = set(drops)
    left = {row for position, row in enumerate(rows) if position not in dropped}
    return len(set(rows) - left)


def _count_rows(path: Path) -> int:
    with _map_table(path) as table:
        return len(table)


@contextmanager
def _map_table(path: Path) -> Iterator[pa.Table]:
    with pa.memory_map(str(path)) as mapped:
        yield pa.ipc.open_file(mapped).read_all()


def _read_drops(path: Path) -> array[int]:
    drops = array("q")
    if path.exists():
        drops.frombytes(path.read_bytes())
    return drops


def _find_places(table: pa.Table, start: int, stop: int) -> tuple[int, int]:
    """Return the positions of the first place from `start` on, and from `stop` on."""
    if not len(table):
        return 0, 0
    places = memoryview(table["place"].chunk(0).buffers()[1]).cast("Q")[: len(table)]
    return bisect_left(places, start), bisect_left(places, stop)


def _copy_range(table: pa.Table, first: int, last: int, drops: Path) -> pa.Table:
    """Return the rows of a range but those that a file lists; a copy: a slice would keep the whole file mapped."""
    dropped = set(_read_drops(drops))
    kept = [position for position in range(first, last) if position not in dropped]
    return table.take(pa.array(kept, pa.int64()))
