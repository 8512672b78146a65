"""Write files so that a crash leaves either the whole file or none of it.

A file is written under a temporary name, synced to disk, and renamed; then its folder is synced, or the new name might
be lost with the power. What has the final name is whole. Temporary names end in `.tmp`, and a run that finds some
removes them: they belong to a run that was killed.

The bytes of a shard depend on its table and on the version of pyarrow, nothing else: all options of the writers that
matter are fixed here, and there is no time or host name in a shard.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from turnwise.data.schemas import PARQUET_OPTIONS
from turnwise.errors import DataError, short_repr
from turnwise.local_files import error_reason

TEMPORARY = ".tmp"
ROW_GROUP_ROWS = 1024  # of Parquet: random access for shuffling readers without many seeks
BATCH_ROWS_OF_SHARD = 1024
SUFFIXES = {"parquet": ".parquet", "arrow": ".arrow"}
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard, as the manifest lists it.

    Attributes:
        path: its name in the folder where it is.
        split: "train" or "validation".
        rows: the rows of its table.
        tokens: the tokens in them.
        size: its bytes.
        sha256: the hash of its bytes.
    """

    path: str
    split: str
    rows: int
    tokens: int
    size: int
    sha256: str


def write_file(path: Path, data: bytes | pa.Buffer | Iterable[bytes]) -> str:
    """Write a file whole or not at all, and return its SHA-256.

    The folder is not synced: `sync_folder` does that once for several files.

    Raises:
        DataError: it cannot be written; nothing is left of it then.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{TEMPORARY}")
    hasher = hashlib.sha256()
    parts = [data] if isinstance(data, (bytes, pa.Buffer)) else data
    try:
        with open(temporary, "wb") as file:
            for part in parts:
                hasher.update(part)
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        _remove_quietly(temporary)
        raise cannot_write(path, error) from error
    return hasher.hexdigest()


def cannot_write(path: Path, error: OSError) -> DataError:
    """Return the error for a file that cannot be written, with what to do."""
    shown = short_repr(str(path), 200)
    if error.errno in NO_SPACE:
        return DataError(
            f"there is no space left to write {shown}",
            hint="What is done is kept. Make room there, and run it again: it resumes.",
        )
    return DataError(f"{shown} cannot be written: {error_reason(error)}")


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a loss of power."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return  # Windows opens no folders; its file systems keep a journal of names
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems cannot
            raise cannot_write(folder, error) from error
    finally:
        os.close(handle)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it.

    Raises:
        DataError: that cannot be done.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error) from error


def remove_temporaries(folder: Path) -> int:
    """Remove what killed runs left half-written in a folder, and return how many files that were."""
    found = [entry for entry in folder.iterdir() if entry.name.endswith(TEMPORARY)]
    for entry in found:
        _remove_quietly(entry)
    return len(found)


def _remove_quietly(path: Path) -> None:
    with contextlib.suppress(OSError):  # it is only untidy
        path.unlink(missing_ok=True)


def encode_table(table: pa.Table, format: str) -> pa.Buffer:
    """Return the bytes of a table as Parquet or as an Arrow file."""
    sink = pa.BufferOutputStream()
    if format == "parquet":
        pq.write_table(
            table,
            sink,
            row_group_size=ROW_GROUP_ROWS,
            version="2.6",
            data_page_version="1.0",
            write_statistics=False,
            store_schema=True,
            **PARQUET_OPTIONS,
        )
    else:
        options = pa.ipc.IpcWriteOptions(compression=None, use_threads=False)
        with pa.ipc.new_file(sink, table.schema, options=options) as writer:
            writer.write_table(table.combine_chunks(), max_chunksize=BATCH_ROWS_OF_SHARD)
    return sink.getvalue()


def write_shard(table: pa.Table, tokens: int, path: Path, split: str, format: str) -> Shard:
    """Write the table of one shard, and return what the manifest says about it."""
    data = encode_table(table, format)
    digest = write_file(path, data)
    return Shard(path.name, split, len(table), tokens, data.size, digest)


def is_whole(path: Path, size: int, sha256: str) -> bool:
    """Tell whether a file has this size and this hash."""
    try:
        if path.stat().st_size != size:
            return False
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except OSError:
        return False
