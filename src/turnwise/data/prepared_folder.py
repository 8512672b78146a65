"""Read back what `turnwise prepare` wrote: the manifest, and rows of the shards.

A folder may come from anybody, so the manifest is bounded and checked before it is used, and only files of the folder
itself are opened: a shard that is named with a path, or that is a link out of the folder, is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet

from turnwise.data.chunks import open_batches
from turnwise.data.manifest import COMPLETE, MANIFEST, read_json
from turnwise.errors import SourceError, short_repr
from turnwise.local_files import error_reason, open_file
from turnwise.messages import JsonMapping, JsonObject

BATCH_ROWS = 64


class ShardRow(NamedTuple):
    """A row of a shard: the shard's name, its split, the number of the row in it, and its columns."""

    shard: str
    split: str
    number: int
    columns: JsonObject


class PreparedFolder:
    """A folder of shards with their manifest.

    Args:
        path: the folder.

    Raises:
        SourceError: there is no manifest.
        DataError: it is not one.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.manifest: JsonMapping = self._read_manifest()

    @property
    def splits(self) -> list[str]:
        """The names of the splits that have shards."""
        return sorted({shard["split"] for shard in self.manifest["shards"]})

    def read_rows(self, split: str | None = None, skip: int = 0, count: int = 1) -> list[ShardRow]:
        """Return rows in the order of the shards.

        Args:
            split: rows of this split only.
            skip: the first of these rows are passed over, shards without being opened.
            count: at most so many rows.

        Raises:
            SourceError: a shard cannot be read.
        """
        found: list[ShardRow] = []
        for shard in self.manifest["shards"]:
            if split is not None and shard["split"] != split:
                continue
            if skip >= shard["rows"]:
                skip -= shard["rows"]
                continue
            found += islice(self._read_shard(shard), skip, skip + count - len(found))
            skip = 0
            if len(found) >= count:
                break
        return found

    def _read_manifest(self) -> JsonMapping:
        path = self.path / MANIFEST
        if not self.path.is_dir():
            what = "is a file, not a folder" if self.path.exists() else "does not exist"
            hint = "name the folder that `turnwise prepare --output` wrote"
            raise SourceError(f"{short_repr(str(self.path), 200)} {what}", hint=hint)
        if not path.exists():
            reason = f"{short_repr(str(self.path), 200)} has no {MANIFEST}"
            hint = "it is written last: the same call of `turnwise prepare` ends a run that was stopped"
            raise SourceError(reason, hint=hint)
        checked: JsonMapping = read_json(path, COMPLETE, self.path)
        return checked

    def _read_shard(self, shard: JsonMapping) -> Iterator[ShardRow]:
        name = shard["path"]
        if Path(name).name != name:
            raise SourceError(f"the manifest names {short_repr(name)}, which is outside its folder")
        path = self.path / name
        try:
            with open_file(path, self.path) as file:
                rows = (row for batch in _read_batches(file, name) for row in batch.to_pylist())
                for number, columns in enumerate(rows):
                    yield ShardRow(name, shard["split"], number, columns)
        except (OSError, ValueError) as error:  # pyarrow's errors are of these kinds
            raise SourceError(f"{path} cannot be read: {error_reason(error)}") from None


def _read_batches(file: BinaryIO, name: str) -> Iterator[pa.RecordBatch]:
    if name.endswith(".parquet"):
        yield from pyarrow.parquet.ParquetFile(file).iter_batches(BATCH_ROWS)
        return
    yield from open_batches(file)
