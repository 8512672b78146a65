"""Open local files that a stranger may have prepared, such as a model folder from a hub.

What the system would do with such a file is not always to read it: a pipe blocks until somebody
writes, a device may never end, a link leads to any file of this machine, and the size is what the
stranger likes. So there are three rules, which hold for every file that turnwise reads:

* Only regular files are read. A pipe is read if the shell has opened it (`<(command)`, which is
  `/dev/fd/63`), for then somebody writes.
* At most `limit` bytes are read.
* A file that was found *in a folder* must still lie there when its links are followed, or in the
  model's folder of a Hugging Face cache, whose `snapshots/` link to its `blobs/`. A link that the
  user named himself may lead anywhere.

A broken rule is an `OSError` like any other that the system raises, with the reason as `strerror`.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

from turnwise.errors import short_repr

SHELL_PIPES = ("/dev/fd/", "/proc/self/fd/", "/dev/stdin")
CACHE_SNAPSHOTS = "snapshots"
CACHE_MODEL = ("models--", "datasets--", "spaces--")
KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class RefusedFile(OSError):
    """A file that is not read although the system would read it."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(errno.EPERM, reason, os.fspath(path))


def error_reason(error: Exception) -> str:
    """Return why a file cannot be read, to follow a colon."""
    reason = getattr(error, "strerror", None) or str(error)
    return reason[:1].lower() + reason[1:]


def is_present(path: Path) -> bool:
    """Return whether a folder has something of this name that is not a folder itself."""
    return path.exists() and not path.is_dir()


def open_file(path: Path, folder: Path | None = None) -> BinaryIO:
    """Open a regular file for reading.

    Args:
        path: the file.
        folder: the folder in which it was found, and which it must not leave; None for a file that
            the user named.

    Raises:
        OSError: it cannot be opened, or must not be read.
    """
    if folder is not None:
        _check_inside(path, folder)
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0)
    if not _is_shell_pipe(path):
        flags |= getattr(os, "O_NONBLOCK", 0)  # or opening a pipe waits for its writer
    file = os.fdopen(os.open(path, flags), "rb", buffering=2**18)
    try:
        _check_kind(path, os.fstat(file.fileno()).st_mode)
    except BaseException:  # whatever it is goes on, and the file is closed
        file.close()
        raise
    return file


def read_file(path: Path, limit: int, folder: Path | None = None) -> bytes:
    """Return the bytes of a file that has at most `limit` of them; the rest as for `open_file`."""
    with open_file(path, folder) as file:
        size = os.fstat(file.fileno()).st_size
        # A buffer is allocated for as much as is asked for; a pipe has no size.
        data = b"" if size > limit else file.read((size or limit) + 1)
    if size > limit or len(data) > limit:
        raise RefusedFile(path, f"it is larger than {limit:,} bytes")
    return data


def read_table(path: Path, limit: int, folder: Path | None = None) -> dict[str, Any]:
    """Return the object in a JSON file; the arguments are those of `read_file`.

    Raises:
        OSError: it cannot be read.
        ValueError: it holds no object.
    """
    try:
        value = json.loads(read_file(path, limit, folder))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")
    return value


def _is_shell_pipe(path: Path) -> bool:
    return os.fspath(path).startswith(SHELL_PIPES)


def _check_kind(path: Path, mode: int) -> None:
    if stat.S_ISREG(mode) or (stat.S_ISFIFO(mode) and _is_shell_pipe(path)):
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    kind = next((name for is_kind, name in KINDS if is_kind(mode)), "something else")
    raise RefusedFile(path, f"it is {kind}, not a regular file")


def _check_inside(path: Path, folder: Path) -> None:
    target = path.resolve()
    if target.is_relative_to(_find_root(folder.resolve())):
        return
    shown = short_repr(os.fspath(target), 200)
    raise RefusedFile(
        path, f"it is a link out of its folder, to {shown}; name that file if you mean it"
    )


def _find_root(folder: Path) -> Path:
    """Return what files of a folder must not leave: the model's folder of a Hugging Face cache, else itself."""
    for parent in folder.parents:
        if parent.name == CACHE_SNAPSHOTS and parent.parent.name.startswith(CACHE_MODEL):
            return parent.parent
    return folder
