"""Read rows of JSON Lines one at a time, so that a file may be larger than the memory.

A file that is one JSON document (a list of rows, or one row over many lines) is read too, up to `MAX_DOCUMENT` bytes. A
line that is not JSON is a row with a problem: whoever reads decides what becomes of it.
"""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from turnwise.cli.inputs import STDIN, unreadable_file
from turnwise.local_files import open_file
from turnwise.shapes import are_rows

MAX_LINE = 64 * 2**20  # bytes
ROWS_HINT = "It should be JSON Lines: one row a line."
MAX_DOCUMENT = 64 * 2**20  # bytes of a file that is not JSON Lines
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class JsonLine(NamedTuple):
    """A row: the number of its line, its value or what is wrong with it, how many bytes were read so far, its text."""

    number: int
    value: Any = None
    problem: str | None = None
    bytes_read: int = 0
    raw: bytes | None = None


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
    with ExitStack() as stack:
        yield from _read_stream(_open(place, stack))


def _open(place: str, stack: ExitStack) -> BinaryIO:
    if place == STDIN:
        return sys.stdin.buffer
    try:
        return stack.enter_context(open_file(Path(place)))
    except (OSError, ValueError) as error:
        raise unreadable_file(place, error, ROWS_HINT) from error


def _read_stream(stream: BinaryIO) -> Iterator[JsonLine]:
    first = stream.readline(MAX_LINE + 1).removeprefix(BYTE_ORDER_MARK)
    waiting = deque([first])
    if first.strip() and not _is_json(first):
        rest = stream.read(MAX_DOCUMENT)
        rows = _parse_document(first + rest)
        if rows is not None:
            yield from (JsonLine(number, row) for number, row in enumerate(rows, 1))
            return
        waiting += rest.splitlines(keepends=True)
        if not waiting[-1].endswith(b"\n"):
            waiting[-1] += stream.readline(MAX_LINE)
    number, size = 0, 0
    while True:
        line = waiting.popleft() if waiting else stream.readline(MAX_LINE + 1)
        if not line:
            return
        number += 1
        size += len(line)
        if len(line) > MAX_LINE:
            while line and not line.endswith(b"\n"):
                line = stream.readline(MAX_LINE)
                size += len(line)
            yield JsonLine(number, None, f"the line is longer than {MAX_LINE:,} bytes", size)
        elif line.strip():
            row = _parse_line(line, number, size)._replace(raw=line.rstrip(b"\r\n"))
            if number == 1 and are_rows(row.value):  # a list of rows without a line break
                yield from (JsonLine(n, value, None, size) for n, value in enumerate(row.value, 1))
            else:
                yield row


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _parse_document(data: bytes) -> list[Any] | None:
    """Return the rows of one JSON document; None if the data is something else."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if are_rows(value) else [value]


def _parse_line(line: bytes, number: int, size: int) -> JsonLine:
    try:
        return JsonLine(number, json.loads(line.decode("utf-8")), None, size)
    except UnicodeDecodeError as error:
        return JsonLine(number, None, f"not UTF-8 at byte {error.start}", size)
    except json.JSONDecodeError as error:
        return JsonLine(
            number, None, f"not JSON: {error.msg.removesuffix(' at')} at column {error.colno}", size
        )
    except (ValueError, RecursionError):
        return JsonLine(number, None, "not JSON that can be read: nested too deeply", size)
