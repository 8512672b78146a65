"""Read rows of JSON Lines one at a time, so that a file may be larger than the memory.

A file that is one JSON document (a list of rows, or one row over many lines) is read too, up to `MAX_DOCUMENT` bytes.
Lines are not parsed here.
"""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from turnwise.cli.inputs import STDIN, unreadable_file
from turnwise.data.records import UnusableRow
from turnwise.local_files import open_file
from turnwise.shapes import are_rows

MAX_LINE = 64 * 2**20  # bytes
ROWS_HINT = "It should be JSON Lines: one row a line."
MAX_DOCUMENT = 64 * 2**20  # bytes of a file that is not JSON Lines
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class JsonLine(NamedTuple):
    """A row: the number of its line, its text or what stands for it, and how many bytes were read so far."""

    number: int
    row: bytes | Any | UnusableRow
    bytes_read: int = 0


def size_of(place: str) -> int | None:
    """Return the size of a file in bytes; None for stdin, and for a file that cannot be read."""
    try:
        return None if place == STDIN else Path(place).stat().st_size
    except (OSError, ValueError):
        return None  # opening it gives the error


def read_json_lines(place: str) -> Iterator[JsonLine]:
    """Yield the rows of a file, or of stdin (`-`).

    Raises:
        SourceError: the file cannot be opened.
    """
    if place == STDIN:
        yield from _read_stream(sys.stdin.buffer)
        return
    try:
        stream = open_file(Path(place))
    except (OSError, ValueError) as error:
        raise unreadable_file(place, error, ROWS_HINT) from error
    with stream:
        yield from _read_stream(stream)


def _read_stream(stream: BinaryIO) -> Iterator[JsonLine]:
    first = stream.readline(MAX_LINE + 1).removeprefix(BYTE_ORDER_MARK)
    waiting = deque([first])
    document = _parse(first)
    if first.strip() and document is None:
        rest = stream.read(MAX_DOCUMENT)
        whole = _parse(first + rest)
        if whole is not None:
            rows = whole if are_rows(whole) else [whole]
            yield from (JsonLine(number, row) for number, row in enumerate(rows, 1))
            return
        waiting += rest.splitlines(keepends=True)
    if not waiting[-1].endswith(b"\n"):
        waiting[-1] += stream.readline(MAX_LINE)
    number, size = 0, 0
    while line := waiting.popleft() if waiting else stream.readline(MAX_LINE + 1):
        number += 1
        size += len(line)
        if len(line) > MAX_LINE:
            while line and not line.endswith(b"\n"):
                line = stream.readline(MAX_LINE)
                size += len(line)
            problem = f"the line is longer than {MAX_LINE:,} bytes"
            yield JsonLine(number, UnusableRow("row-too-large", problem), size)
        elif number == 1 and are_rows(document):  # a list of rows without a line break
            yield from (JsonLine(one, row, size) for one, row in enumerate(document, 1))
        elif line.strip():
            yield JsonLine(number, line.rstrip(b"\r\n"), size)


def _parse(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
