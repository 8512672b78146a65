"""All entries: those that come with the package, those of the user's folders, those registered by a program.

The folders are named by the environment variable `TURNWISE_PATH`, as `PATH` names its own. A name belongs to one entry;
to take the place of another, an entry must say `override` (in its file, or to `register`). Names are compared without
regard to case. Loading reads the TOML files and nothing else: no source, no compiling. It happens once, again when
the variable has changed, and never for who registers only. A file of a user that is no entry is passed over with a
warning; whoever asks for what it should have been gets the error.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any
from warnings import warn

from turnwise.dialects.translation import copy_source
from turnwise.errors import SourceError, TurnwiseWarning, short_repr
from turnwise.registry.entry import (
    COLLECTIONS,
    ENTRIES,
    JINJA,
    SEPARATOR,
    Entry,
    check,
    held,
    made,
    read_collection,
    read_entry,
)

VARIABLE = "TURNWISE_PATH"
MAX_FILE = 4 * 2**20


@dataclass(slots=True)
class Shelf:
    """Entries by name, and every name in lower case."""

    entries: dict[str, Entry] = field(default_factory=dict)
    named: dict[str, Entry] = field(default_factory=dict)
    short: dict[str, list[Entry]] = field(
        default_factory=dict
    )  # imported entries by the name without their dialect
    broken: dict[str, SourceError] = field(
        default_factory=dict
    )  # what is wrong with entries of users, by their names

    def put(self, entry: Entry, where: str) -> None:
        """Add an entry, or put it in the place of those whose names it takes."""
        taken = {
            name: self.named[name.lower()] for name in entry.names if name.lower() in self.named
        }
        if taken and not entry.override:
            name, other = next(iter(taken.items()))
            also = (
                "" if other.name.lower() == name.lower() else f" (another name of {other.name!r})"
            )
            hint = "To put another in its place, say override = true."
            raise SourceError(f"{where}: there is an entry {name!r} already{also}", hint=hint)
        for name, other in taken.items():
            if other.name.lower() == name.lower():  # else only a second name of it is taken
                self.remove(other)
        self.entries[entry.name] = entry
        self.named |= {name.lower(): entry for name in entry.names}
        rest = entry.name.partition(SEPARATOR)[2]
        if rest:
            self.short.setdefault(rest.lower(), []).append(entry)

    def remove(self, entry: Entry) -> None:
        self.entries.pop(entry.name, None)
        self.named = {name: other for name, other in self.named.items() if other is not entry}
        self.short = {
            name: [other for other in group if other is not entry]
            for name, group in self.short.items()
        }

    def reject(self, error: SourceError, *names: Any) -> None:
        """An entry that cannot be had, under every name that somebody may ask for."""
        self.broken |= {name.lower(): error for name in names if isinstance(name, str)}
        warn(f"passed over: {error}", TurnwiseWarning, stacklevel=2)

    def find(self, name: str) -> Entry | None:
        """The entry of a name; an error where a user meant one that cannot be read."""
        if found := self.broken.get(name.lower()):
            raise SourceError(found.message, hint=found.hint)
        return self.named.get(name.lower())

    def short_of(self, name: str) -> Entry | None:
        """The imported entry of a name without its dialect, where that is clear."""
        group = self.short.get(name.lower(), [])
        if len(group) > 1:
            hint = f"Say {' or '.join(repr(entry.name) for entry in group)}."
            raise SourceError(f"{short_repr(name)} is the name of several entries", hint=hint)
        return group[0] if group else None

    def copy(self) -> Shelf:
        short = {name: list(group) for name, group in self.short.items()}
        return Shelf(dict(self.entries), dict(self.named), short, dict(self.broken))


_registered: list[Entry] = []
_current: tuple[str, int, Shelf] | None = None


def current() -> Shelf:
    """Everything there is now."""
    global _current
    folders = os.environ.get(VARIABLE, "")
    if _current is None or _current[:2] != (folders, len(_registered)):
        found = _built_in().copy()
        for folder in filter(None, folders.split(os.pathsep)):
            fill(found, Path(folder))
        for entry in _registered:
            try:
                found.put(entry, "register")
            except SourceError as error:  # a folder that was named later has its name
                found.reject(error, entry.name)
        _current = (folders, len(_registered), found)
    return _current[2]


def entries(dialect: str | None = None, family: str | None = None) -> Mapping[str, Entry]:
    """All entries by name, or those of a dialect, or of a family."""
    found = current().entries
    if dialect is None and family is None:
        return MappingProxyType(found)
    return MappingProxyType(
        {
            name: entry
            for name, entry in found.items()
            if dialect in (None, entry.dialect) and family in (None, entry.family)
        }
    )


def register(
    name: str, source: Any, *, dialect: str = JINJA, override: bool = False, **facts: Any
) -> Entry:
    """Add an entry for as long as the program runs; `facts` are the other keys of an entry's file."""
    data = {"name": name, "dialect": dialect, "override": override}
    for key, value in facts.items():
        data[key] = list(value) if isinstance(value, tuple) else value
    entry = read_entry({**data, "source": "-"}, "register", {"-": Path("-")})
    if not source or (dialect == JINJA and not isinstance(source, str)):
        raise SourceError(
            f"register: {short_repr(source)} is not a source of the dialect {dialect}"
        )
    entry = made(
        {
            **{key: getattr(entry, key) for key in entry.__slots__},
            "source_of": partial(held, copy_source(source)),
        }
    )
    current().copy().put(entry, "register")  # refuses a name that is taken, before anything changes
    _registered.append(entry)
    return entry


def unregister(name: str) -> None:
    """Take back what `register` added; what it had replaced comes back."""
    kept = [entry for entry in _registered if entry.name.lower() != name.lower()]
    if len(kept) == len(_registered):
        raise SourceError(f"{short_repr(name)} was not registered")
    global _current
    _registered[:], _current = kept, None


@cache
def _built_in() -> Shelf:
    found = Shelf()
    _fill(found, ENTRIES.iterdir())
    return found


def fill(found: Shelf, folder: Path) -> None:
    """The entries of a user's folder."""
    try:
        content = list(folder.iterdir())
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        hint = f"The variable {VARIABLE} names it."
        raise SourceError(
            f"the folder {short_repr(str(folder), 200)} cannot be read: {reason}", hint=hint
        ) from error
    _fill(found, content, str(folder) + os.sep)


def _fill(found: Shelf, content: Iterable[Path], prefix: str = "") -> None:
    beside = {file.name: file for file in content}
    # single entries, then collections; by name, not by file name, where "a-b" would stand before "a"
    for name in sorted(beside, key=lambda name: (name.endswith(".json"), name.rpartition(".")[0])):
        if not name.endswith((".toml", ".json")):
            continue
        where, stem = prefix + name, name.rpartition(".")[0]
        data: Mapping[str, Any] = {}
        try:
            data = _parsed(beside[name], where)
            several = _read(data, where, name, beside)
        except SourceError as error:
            if not prefix:
                raise
            found.reject(error, stem, data.get("name"))
            continue
        for entry in several:
            try:
                found.put(replace(entry, file=where) if prefix else entry, where)
            except SourceError as error:
                if not prefix:
                    raise
                found.reject(error, entry.name)


def _read(
    data: Mapping[str, Any], where: str, name: str, beside: Mapping[str, Path]
) -> list[Entry]:
    """The entries of a file; a JSON file that is no collection is somebody else's."""
    if data.keys() & set(COLLECTIONS):
        return read_collection(data, where, name.rpartition(".")[0])
    return [read_entry(data, where, beside)] if name.endswith(".toml") else []


def _parsed(file: Path, where: str) -> Mapping[str, Any]:
    import tomllib  # a tenth of what `import turnwise` may take, and only needed here

    try:
        text = file.read_text(encoding="utf-8")
        data: Any = tomllib.loads(text) if where.endswith(".toml") else json.loads(text)
    except OSError as error:
        raise SourceError(
            f"{where} cannot be read: {(error.strerror or str(error)).lower()}"
        ) from error
    except (ValueError, RecursionError) as error:  # not UTF-8, not TOML, not JSON
        raise SourceError(f"{where} cannot be parsed: {error}") from error
    check(data, dict, where)
    return dict(data)
