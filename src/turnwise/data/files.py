"""Find the files of a data set, and tell what is in each of them.

An input is a file, a folder, a glob or a folder of Hugging Face `datasets` (`save_to_disk`). The order is fixed: the
inputs as they were given, the files of a glob or folder by name. The format is read off the first bytes where they are
unmistakable (Parquet, Arrow, gzip, zstd), since an extension may be wrong; JSON and JSON Lines are told apart by the
extension and the first line. Hidden files and the notes that `datasets` keeps beside its data are no data.
"""

from __future__ import annotations

import glob
import gzip
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import pyarrow as pa

from turnwise.errors import DataError, did_you_mean, short_repr
from turnwise.local_files import error_reason, open_file, read_table
from turnwise.messages import JsonObject
from turnwise.shapes.row import TURN_COLUMNS

HEAD_BYTES = 1 << 20  # of a file, from which its format is told
MAX_NOTES_BYTES = 1 << 26  # of the small files that `datasets` writes
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
ARROW_STREAM = b"\xff\xff\xff\xff"  # with which each message of an Arrow stream begins

EXTENSIONS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
MAGIC = {b"PAR1": "parquet", b"ARROW1": "arrow", ARROW_STREAM: "arrow"}
COMPRESSION_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
FOREIGN_MAGIC = {
    b"PK\x03\x04": "a zip archive",
    b"BZh": "compressed by bzip2",
    b"\xfd7zXZ": "compressed by xz",
    b"\xff\xfe": "text in UTF-16",
    b"\xfe\xff": "text in UTF-16",
    b"\x89HDF": "HDF5",
    b"Obj\x01": "Avro",
    b"ORC": "ORC",
}
# Lists that are part of a conversation: an object that has one is a row, not a list of rows.
LISTS_IN_ROWS = frozenset(
    {*TURN_COLUMNS, "tools", "history", "prompt", "completion", "chosen", "rejected", "documents"}
    | {"src", "tgt", "label", "input_ids", "labels", "images", "input", "contents"}
)
DATASETS_NOTES = ("dataset_info.json", "dataset_infos.json", "state.json", "dataset_dict.json")
GLOB = re.compile(r"[*?\[]")
OPENED_LIST = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[")
# Messages or rounds rather than rows, right after the bracket of a list.
LIST_OF_TURNS = re.compile(rb'\s*+(?:\[|\{\s*"(?:role|content)"\s*:)')
# Before the list of an object that holds rows: keys with values that are neither lists nor objects. Every repetition is
# possessive, and no two neighbours match the same byte, so that no file makes it go back.
_TEXT = rb'"(?:[^"\\]++|\\.)*+"'
_MEMBER = rb'\s*+%b\s*+:\s*+(?:%b|[^\s\[\]{}",][^\[\]{}",]*+)\s*+,' % (_TEXT, _TEXT)
OBJECT_OF_LIST = re.compile(rb"\s*+\{(?:%b)*+\s*+(%b)\s*+:\s*+\[" % (_MEMBER, _TEXT), re.DOTALL)


@dataclass(frozen=True, slots=True)
class InputFile:
    """One file of a data set.

    Attributes:
        path: where it is, as rows name it.
        format: "jsonl", "json", "document" (one row that is a whole JSON file), "parquet" or "arrow".
        compression: "", "gzip" or "zstd".
        size: its bytes on disk.
        rows_start: for "json", the offset behind the bracket that opens the list of rows.
        folder: the folder or glob in which it was found, and which it must not leave by a link.
    """

    path: str
    format: str
    compression: str
    size: int
    rows_start: int = 0
    folder: str | None = None


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """The files of a data set, and what the user should know about how they were chosen."""

    files: tuple[InputFile, ...]
    notes: tuple[str, ...]


def find_files(inputs: Iterable[str | os.PathLike[str]]) -> FoundFiles:
    """Return the files that the inputs name, each with its format.

    Raises:
        DataError: an input names no file, or a file that cannot be read or is no data.
    """
    notes: list[str] = []
    files: list[InputFile] = []
    seen: set[str] = set()
    for place in inputs:
        for path, folder in _expand_input(os.fspath(place), notes):
            if path in seen:
                raise DataError(
                    f"{short_repr(path, 200)} is among the inputs twice",
                    hint="Its rows would be trained twice; name it once.",
                )
            seen.add(path)
            files.append(_inspect_file(path, folder, notes))
    if not files:
        raise DataError("there is no input", hint="Name a file, a folder or a glob.")
    return FoundFiles(tuple(files), tuple(notes))


def open_input(path: str, folder: str | None) -> IO[bytes]:
    """Open an input file for reading.

    Raises:
        DataError: it cannot be read.
    """
    try:
        return open_file(Path(path), None if folder is None else Path(folder))
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error


def open_decompressed(file: InputFile) -> tuple[IO[bytes], IO[bytes]]:
    """Open a text file; return the stream of its text, and the file below, whose position tells how far it is read."""
    below = open_input(file.path, file.folder)
    if file.compression == "gzip":
        return cast(IO[bytes], gzip.GzipFile(fileobj=below, mode="rb")), below
    if file.compression == "zstd":
        stream = pa.CompressedInputStream(pa.PythonFile(below, "r"), "zstd")
        return cast(IO[bytes], stream), below
    return below, below


def read_block(stream: IO[bytes], size: int, path: str) -> bytes:
    """Read up to `size` bytes; damaged or truncated compression is an error that names the file."""
    try:
        return stream.read(size)
    except (OSError, EOFError, zlib.error) as error:  # Arrow's errors are among them
        raise unreadable(path, error) from error


def unreadable(path: str, error: Exception) -> DataError:
    """Return the error for a file that cannot be read, with the reason."""
    problem = f"{short_repr(path, 200)} cannot be read: {error_reason(error)}"
    return DataError(problem, hint="Inputs are files, folders or patterns such as 'data/*.jsonl'.")


# -- inputs ----------------------------------------------------------------------------------------------------------


def _expand_input(place: str, notes: list[str]) -> Iterator[tuple[str, str | None]]:
    """Yield the files of one input, each with the folder that it must not leave."""
    path = Path(place)
    if path.is_dir():
        yield from ((found, place) for found in _expand_folder(path, notes))
    elif path.exists() or not GLOB.search(place):
        yield place, None
    else:
        matches = sorted(found for found in glob.glob(place, recursive=True))
        matches = [found for found in matches if os.path.isfile(found)]
        if not matches:
            hint = f"A relative pattern is read in {Path.cwd()}; ** matches folders at any depth."
            raise DataError(f"no file matches {short_repr(place, 200)}", hint=hint)
        yield from ((found, None) for found in matches)


def _expand_folder(folder: Path, notes: list[str]) -> list[str]:
    if (folder / "dataset_dict.json").is_file():
        return _expand_folder(_choose_split(folder, notes), notes)
    if (folder / "state.json").is_file():
        return _list_datasets_files(folder)
    found: list[str] = []
    others: list[str] = []
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "_")))
        for name in names:
            if name.startswith((".", "_")) or name in DATASETS_NOTES:
                continue
            is_data = _split_extensions(name)[0] is not None
            (found if is_data else others).append(os.path.join(parent, name))
    if not found:
        hint = "Data files end in " + ", ".join(EXTENSIONS) + "; JSON also in .gz and .zst."
        seen = f"; it has {', '.join(sorted(map(os.path.basename, others))[:5])}" if others else ""
        raise DataError(f"the folder {short_repr(str(folder), 200)} has no data{seen}", hint=hint)
    if others:
        notes.append(f"{folder}: {len(others)} files that are no data were left out")
    return sorted(found)


def _choose_split(folder: Path, notes: list[str]) -> Path:
    """Return the folder of the split of a `DatasetDict` that is prepared."""
    splits = _read_notes(folder / "dataset_dict.json").get("splits")
    if not isinstance(splits, list) or not all(isinstance(name, str) for name in splits):
        raise DataError(f"{folder / 'dataset_dict.json'} does not list its splits")
    if len(splits) > 1 and "train" not in splits:
        raise DataError(
            f"{short_repr(str(folder), 200)} has several splits: {', '.join(splits)}",
            hint=f"Name the one that you mean, such as {folder / splits[0]}.",
        )
    if not splits:
        raise DataError(f"{short_repr(str(folder), 200)} has no split")
    chosen = "train" if "train" in splits else splits[0]
    others = [name for name in splits if name != chosen]
    if others:
        notes.append(
            f"{folder}: the split {chosen!r} was read, not {', '.join(others)}; "
            f"name the folder of a split to read it: {folder / others[0]}"
        )
    return folder / chosen


def _list_datasets_files(folder: Path) -> list[str]:
    """Return the files of a `datasets` folder in the order of its rows."""
    state = _read_notes(folder / "state.json")
    if state.get("_indices_data_files") or state.get("_indices_files"):
        raise DataError(
            f"{short_repr(str(folder), 200)} chooses its rows by an index",
            hint="Save it after dataset.flatten_indices().",
        )
    listed = state.get("_data_files")
    names = [item.get("filename") for item in listed or () if isinstance(item, dict)]
    if not names or not all(isinstance(name, str) for name in names):
        raise DataError(f"{folder / 'state.json'} does not list its data files")
    return [str(folder / cast(str, name)) for name in names]


def _read_notes(path: Path) -> JsonObject:
    try:
        return read_table(path, MAX_NOTES_BYTES)
    except (OSError, ValueError) as error:
        raise unreadable(str(path), error) from error


# -- formats ---------------------------------------------------------------------------------------------------------


def _split_extensions(name: str) -> tuple[str | None, str]:
    """Return format and compression as the name tells them."""
    stem, last = os.path.splitext(name.lower())
    compression = COMPRESSIONS.get(last, "")
    if compression:
        last = os.path.splitext(stem)[1]
    return EXTENSIONS.get(last), compression


def _inspect_file(path: str, folder: str | None, notes: list[str]) -> InputFile:
    told, _ = _split_extensions(path)
    with open_input(path, folder) as stream:
        size = os.fstat(stream.fileno()).st_size
        start = read_block(stream, HEAD_BYTES, path)
    if not start:
        notes.append(f"{path} is empty")
        return InputFile(path, "jsonl", "", 0, folder=folder)
    compression = _match_magic(start, COMPRESSION_MAGIC) or ""
    file = InputFile(path, told or "", compression, size, folder=folder)
    head = start
    if compression:
        stream, below = open_decompressed(file)
        with below, stream:
            head = read_block(stream, HEAD_BYTES, path)
        if not head:
            notes.append(f"{path} is empty")
    kind = _match_magic(head, MAGIC)
    if kind and compression:
        raise DataError(
            f"{short_repr(path, 200)} is {kind} inside of {compression}",
            hint="Unpack it first: these files are compressed inside already.",
        )
    if kind is None:
        kind, rows_start = _tell_json(path, told, head)
    else:
        rows_start = 0
    if told not in (None, kind) and {told, kind} != {"json", "document"}:
        notes.append(f"{path} is {kind} by its content, not {told}; it was read as that")
    return InputFile(path, kind, compression, size, rows_start, folder)


def _match_magic(head: bytes, table: dict[bytes, str]) -> str | None:
    return next((name for magic, name in table.items() if head.startswith(magic)), None)


def _tell_json(path: str, told: str | None, head: bytes) -> tuple[str, int]:
    """Return "jsonl", "json" or "document" for a text file, and where the rows begin."""
    foreign = _match_magic(head, FOREIGN_MAGIC)
    if foreign:
        raise DataError(
            f"{short_repr(path, 200)} is {foreign}",
            hint="Data is JSON or JSON Lines in UTF-8 (also in .gz and .zst), Parquet or Arrow.",
        )
    text = head.removeprefix(BYTE_ORDER_MARK).lstrip()
    if told in ("parquet", "arrow") and not text.startswith((b"{", b"[")):
        raise DataError(
            f"{short_repr(path, 200)} is not {told.capitalize()}: it begins with {head[:12]!r}",
            hint="The file is damaged, or its name is wrong.",
        )
    if told is None and not text.startswith((b"{", b"[")):
        raise DataError(
            f"{short_repr(path, 200)} is no data that can be read: it begins with {head[:12]!r}",
            hint=did_you_mean(os.path.splitext(path)[1], EXTENSIONS, "Files that are read"),
        )
    if _has_rows_in_lines(told, text):
        return "jsonl", 0
    return _find_rows(head)


def _has_rows_in_lines(told: str | None, text: bytes) -> bool:
    """Tell JSON Lines from one document by the first line."""
    line, line_break, rest = text.partition(b"\n")
    if not line_break:  # one line, or one that is longer than what was read
        return told == "jsonl"
    if told == "jsonl":
        # a document that was written over many lines and named wrongly
        return line.strip() not in (b"[", b"{")
    return bool(rest.strip()) and _is_json(line)


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _find_rows(head: bytes) -> tuple[str, int]:
    """Find the list of rows in a document: the document itself, or the first list in its object."""
    opening = OPENED_LIST.match(head)
    if opening:
        is_row = LIST_OF_TURNS.match(head, opening.end())
        return ("document", 0) if is_row else ("json", opening.end())
    start = len(BYTE_ORDER_MARK) if head.startswith(BYTE_ORDER_MARK) else 0
    member = OBJECT_OF_LIST.match(head, start)
    if member and member[1][1:-1].decode("utf-8", "replace") not in LISTS_IN_ROWS:
        return "json", member.end()
    return "document", 0
