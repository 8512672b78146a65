"""The store of all entries: built-in ones, those in the user's folders, those registered by a program.

The environment variable `TURNWISE_PATH` lists the user's folders, separated as in `PATH`. Names are compared without
regard to case, and a name belongs to one entry; only an entry with `override` (in its file, or as an argument of
`register`) may replace another. Loading reads the TOML and JSON files; it neither reads nor compiles sources. The
built-in entries are read once; the rest is read again when the variable or the registered entries change. A file of a
user that is not a valid entry is skipped with a warning; asking for its name raises the error.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any
from warnings import warn

from turnwise.dialects.translation import copy_source
from turnwise.errors import SourceError, TurnwiseWarning, short_repr
from turnwise.local_files import error_reason, read_file
from turnwise.messages import JsonMapping, JsonObject
from turnwise.registry.entry import (
    COLLECTION_KEYS,
    ENTRIES,
    JINJA,
    SEPARATOR,
    Entry,
    read_collection,
    read_entry,
)
from turnwise.schema import TABLE, check

PATH_VARIABLE = "TURNWISE_PATH"
MAX_TOML = 2**20  # entries have some 500 bytes
MAX_JSON = 16 * 2**20  # all of FastChat's have 70 kB
MAX_KEY_PARTS = 32  # of `a.b.c = 1`: tomllib takes a time that is quadratic in them, or worse
TOML_STRING = r'"(?:[^"\\\n]|\\.)*+"?|\'[^\'\n]*+\'?'
LONG_KEY = rf"(?<![\w-])(?:[\w-]+[ \t]*\.[ \t]*){{{MAX_KEY_PARTS}}}"
LMDEPLOY = "lmdeploy"
# Its dialect reads this file, too: a source may name one of these templates and change some of its fields.
LMDEPLOY_FILE = ENTRIES.parents[1] / "dialects" / "lmdeploy.json"


@dataclass(slots=True)
class EntryStore:
    """Entries with indexes by lower-case name and alias, and by name without the dialect."""

    entries: dict[str, Entry] = field(default_factory=dict)
    by_name: dict[str, Entry] = field(default_factory=dict)
    by_short_name: dict[str, list[Entry]] = field(default_factory=dict)
    errors: dict[str, SourceError] = field(default_factory=dict)  # of users' files, by lower name

    def add(self, entry: Entry, where: str) -> None:
        """Add an entry; with `override` it replaces the entries whose names it has."""
        for name in entry.names:
            other = self.by_name.get(name.lower())
            if other is None:
                continue
            is_alias = other.name.lower() != name.lower()
            if not entry.override:
                also = f" (another name of {other.name!r})" if is_alias else ""
                hint = "To put another in its place, say override = true."
                raise SourceError(f"{where}: there is an entry {name!r} already{also}", hint=hint)
            if not is_alias:  # of an alias, only the alias moves to the new entry
                self._remove(other)
        self.entries[entry.name] = entry
        self.by_name |= {name.lower(): entry for name in entry.names}
        _, _, short_name = entry.name.partition(SEPARATOR)
        if short_name:
            self.by_short_name.setdefault(short_name.lower(), []).append(entry)

    def _remove(self, entry: Entry) -> None:
        self.entries.pop(entry.name, None)
        self.by_name = {name: other for name, other in self.by_name.items() if other is not entry}
        for group in self.by_short_name.values():
            if entry in group:
                group.remove(entry)

    def reject(self, error: SourceError, *names: Any) -> None:
        """Skip an entry with a warning, and keep its error for a lookup of one of its names."""
        self.errors |= {name.lower(): error for name in names if isinstance(name, str)}
        warn(f"skipped entry: {error}", TurnwiseWarning, stacklevel=2)

    def find(self, name: str) -> Entry | None:
        """Return the entry of a name or alias; raise the error of a rejected entry."""
        if error := self.errors.get(name.lower()):
            raise SourceError(error.message, hint=error.hint)
        return self.by_name.get(name.lower())

    def find_short(self, name: str) -> Entry | None:
        """Return the imported entry of a name without its dialect; raise SourceError if several have it."""
        group = self.by_short_name.get(name.lower())
        if not group:
            return None
        # LMDeploy's names came last: what the others are called stays unambiguous.
        group = [entry for entry in group if entry.dialect != LMDEPLOY] or group
        if len(group) > 1:
            hint = f"Say {' or '.join(repr(entry.name) for entry in group)}."
            raise SourceError(f"{short_repr(name)} is the name of several entries", hint=hint)
        return group[0]

    def copy(self) -> EntryStore:
        """Return a store that can be changed without changing this one."""
        short = {name: list(group) for name, group in self.by_short_name.items()}
        return EntryStore(dict(self.entries), dict(self.by_name), short, dict(self.errors))


_registered: list[Entry] = []
_current: tuple[str, int, EntryStore] | None = None  # the two cache keys, and the store


def current_store() -> EntryStore:
    """Return the store of all entries, rebuilt if the path variable or the registered entries changed."""
    global _current
    folders = os.environ.get(PATH_VARIABLE, "")
    if _current is None or _current[:2] != (folders, len(_registered)):
        store = built_in_store().copy()
        for folder in filter(None, folders.split(os.pathsep)):
            _add_user_folder(store, Path(folder))
        for entry in _registered:
            try:
                store.add(entry, "register")
            except SourceError as error:  # a folder that was added later has its name
                store.reject(error, entry.name)
        _current = (folders, len(_registered), store)
    return _current[2]


def entries(dialect: str | None = None, family: str | None = None) -> Mapping[str, Entry]:
    """Return all entries by name; one that cannot be loaded is not listed (`load` tells why).

    Args:
        dialect: Only entries whose source is of this dialect.
        family: Only entries of this family of models.

    Returns:
        A read-only mapping from names to entries.

    Example:
        >>> import turnwise
        >>> "qwen2.5" in turnwise.entries()
        True
        >>> sorted(turnwise.entries(dialect="jinja", family="baichuan"))
        ['baichuan', 'baichuan2']
    """
    found = {name: entry for name, entry in current_store().entries.items() if not entry.unusable}
    if dialect is not None:
        found = {name: entry for name, entry in found.items() if entry.dialect == dialect}
    if family is not None:
        found = {name: entry for name, entry in found.items() if entry.family == family}
    return MappingProxyType(found)


def register(
    name: str, source: Any, *, dialect: str = JINJA, override: bool = False, **facts: Any
) -> Entry:
    """Add an entry for as long as the program runs.

    Args:
        name: The name that `load` will take.
        source: The template as its dialect writes it.
        dialect: The dialect of the source.
        override: Replace an entry of this name.
        **facts: Further keys of an entry's file, such as `models=["me/*"]` or `stops=["</s>"]`.

    Returns:
        The new entry.

    Raises:
        SourceError: If the name is taken, or a key or a value is not accepted.

    Example:
        >>> import turnwise
        >>> from turnwise.registry import unregister
        >>> turnwise.register("shout", "{{ messages[0].content | upper }}").name
        'shout'
        >>> str(turnwise.load("shout").render([{"role": "user", "content": "hi"}]))
        'HI'
        >>> unregister("shout")
    """
    data: JsonObject = {"name": name, "dialect": dialect, "override": override, "source": "-"}
    for key, value in facts.items():
        data[key] = list(value) if isinstance(value, tuple) else value
    entry = read_entry(data, "register", {"-": Path("-")})
    if not source or (dialect == JINJA and not isinstance(source, str)):
        raise SourceError(
            f"register: {short_repr(source)} is not a source of the dialect {dialect}"
        )
    entry = replace(entry, load_source=partial(copy_source, copy_source(source)))
    current_store().copy().add(entry, "register")  # a name that is taken is refused here
    _registered.append(entry)
    return entry


def unregister(name: str) -> None:
    """Remove an entry that `register` added; an entry that it replaced is available again.

    Raises:
        SourceError: If no entry of this name was registered.
    """
    global _current
    others = [entry for entry in _registered if entry.name.lower() != name.lower()]
    if len(others) == len(_registered):
        raise SourceError(f"{short_repr(name)} was not registered")
    _registered[:] = others
    _current = None


def find_entry(name: str) -> Entry | None:
    """Return the entry of a name or alias.

    The name of a built-in entry's file is found without reading the other files, and no file is read for a path, which
    no built-in entry is called; unless there are entries of the user, which may have any name.

    Raises:
        SourceError: the entry of that name was rejected.
    """
    has_own = os.environ.get(PATH_VARIABLE) or _registered
    if "/" in name and not has_own:
        return None
    found = None if has_own else _read_built_in(name)
    return found or current_store().find(name)


@cache
def _read_built_in(name: str) -> Entry | None:
    """Return the entry of a file that ships with the package, None if there is none of that name."""
    files = {path.name: path for path in ENTRIES.iterdir()}
    where = f"{name}.toml"
    return read_entry(_parse_file(files[where], where), where, files) if where in files else None


@cache
def built_in_store() -> EntryStore:
    """Return the store of the entries that ship with the package."""
    store = EntryStore()
    _add_files(store, [*ENTRIES.iterdir(), LMDEPLOY_FILE])
    return store


def _add_user_folder(store: EntryStore, folder: Path) -> None:
    try:
        files = list(folder.iterdir())
    except OSError as error:
        problem = f"the folder {short_repr(str(folder), 200)} cannot be read: {error_reason(error)}"
        raise SourceError(problem, hint=f"The variable {PATH_VARIABLE} names it.") from error
    _add_files(store, files, str(folder) + os.sep)


def _add_files(store: EntryStore, paths: Iterable[Path], prefix: str = "") -> None:
    """Add the entries of a folder; errors are raised for built-in files, and rejected with a `prefix`, for users'."""
    files = {path.name: path for path in paths}
    # Single entries before collections; sorted by stem, since "a-b.toml" would come before "a.toml".
    for name in sorted(files, key=lambda name: (name.endswith(".json"), files[name].stem)):
        if not name.endswith((".toml", ".json")):
            continue
        where = prefix + name
        stem = files[name].stem
        data: JsonMapping = {}
        try:
            data = _parse_file(files[name], where)
            found = _read_entries(data, where, stem, files)
        except SourceError as error:
            if not prefix:
                raise
            store.reject(error, stem, data.get("name"))
            continue
        for entry in found:
            try:
                store.add(replace(entry, file=where) if prefix else entry, where)
            except SourceError as error:
                if not prefix:
                    raise
                store.reject(error, entry.name)


def _read_entries(
    data: JsonMapping, where: str, stem: str, files: Mapping[str, Path]
) -> list[Entry]:
    if data.keys() & set(COLLECTION_KEYS):
        return list(read_collection(data, where, stem))
    if where.endswith(".toml"):
        return [read_entry(data, where, files)]
    return []  # a JSON file without entries belongs to other software


def _parse_file(file: Path, where: str) -> JsonMapping:
    is_toml = where.endswith(".toml")
    try:
        text = read_file(file, MAX_TOML if is_toml else MAX_JSON, file.parent).decode("utf-8")
        data: JsonMapping = _parse_toml(text) if is_toml else json.loads(text)
    except OSError as error:
        raise SourceError(f"{where} cannot be read: {error_reason(error)}") from error
    except (ValueError, RecursionError) as error:  # not UTF-8, not TOML, not JSON
        raise SourceError(f"{where} cannot be parsed: {error}") from error
    check(data, TABLE, where)
    return data


def _parse_toml(text: str) -> JsonObject:
    import tomllib  # imported late: a tenth of what `import turnwise` may take

    if re.search(LONG_KEY, re.sub(TOML_STRING, "x", text)):
        raise ValueError(f"it has a key of more than {MAX_KEY_PARTS} parts")
    return tomllib.loads(text)
