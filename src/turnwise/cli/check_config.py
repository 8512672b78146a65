"""Read which checks to leave out: `ignore` in `turnwise.toml`, or in the table `tool.turnwise` of `pyproject.toml`.

    [tool.turnwise]
    ignore = ["T106", "two-users"]

The files are looked for in the current folder and in those above it; the nearest that has something counts, and in one
folder `turnwise.toml` counts before `pyproject.toml`.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from turnwise.errors import SourceError, did_you_mean, short_repr
from turnwise.local_files import error_reason, is_present, read_file

OWN_FILE, PROJECT_FILE = "turnwise.toml", "pyproject.toml"
MAX_CONFIG = 2**20  # bytes
KEYS = ("ignore",)


def read_ignored(folder: Path | None = None) -> tuple[str, ...]:
    """Return the checks that the nearest configuration leaves out.

    Raises:
        SourceError: the file is not TOML, or says something that is not known.
    """
    start = (folder or Path()).resolve()
    for place in (start, *start.parents):
        for name in (OWN_FILE, PROJECT_FILE):
            table = _read_table(place / name)
            if table is not None:
                return _read_ignore(table, str(place / name))
    return ()


def _read_table(path: Path) -> dict[str, Any] | None:
    """Return the table of turnwise in a file; None if the file has none."""
    if not is_present(path):
        return None
    try:
        data = tomllib.loads(read_file(path, MAX_CONFIG).decode("utf-8-sig"))
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error_reason(error)}") from error
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{path} is not TOML: {error}") from error
    table = data if path.name == OWN_FILE else data.get("tool", {}).get("turnwise")
    if table is not None and not isinstance(table, dict):
        raise SourceError(f"{path}: tool.turnwise is {short_repr(table)}, not a table")
    return table


def _read_ignore(table: dict[str, Any], name: str) -> tuple[str, ...]:
    for key in table:
        if key not in KEYS:
            hint = did_you_mean(key, KEYS, "Known settings")
            raise SourceError(f"{name}: there is no setting {key!r}", hint=hint)
    ignored = table.get("ignore", [])
    if not isinstance(ignored, list) or not all(isinstance(code, str) for code in ignored):
        hint = 'It should be a list of codes: ignore = ["T106"].'
        raise SourceError(f"{name}: ignore is {short_repr(ignored)}", hint=hint)
    return tuple(ignored)
