"""Templates by name or by place: `load("qwen2.5")`, `load("models/mine")`, `load("tokenizer_config.json")`.

An entry is data: a TOML file in `entries/` with its Jinja text beside it, written for this project and compared with
the published template. A bare string that is the name of an entry means the entry, whatever the current folder holds
(write `./qwen2.5` for a folder of that name); everything else is a path. Nothing is ever fetched.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from turnwise.errors import SourceError, shown
from turnwise.registry.files import Found, near, read_path, unreadable
from turnwise.template import Template

__all__ = ["Entry", "Found", "compiled", "entries", "load", "read"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One model family, as data."""

    name: str
    aliases: tuple[str, ...]
    dialect: str
    source: str
    stops: tuple[str, ...]
    options: Mapping[str, Any]
    notes: str
    verified: str


def load(where: str | os.PathLike[str], *, pick: str | None = None) -> Template:
    """The template of an entry, a file or a model folder; `pick` chooses one of several by its name."""
    return compiled(read(where, pick=pick))


def read(where: str | os.PathLike[str], *, pick: str | None = None) -> Found:
    """What `load` compiles, not compiled."""
    try:
        place = os.fspath(where)
    except TypeError:
        raise SourceError(f"load takes a name or a path, not {type(where).__name__}") from None
    if isinstance(where, str) and (entry := _named().get(where.lower())):
        if pick not in (None, "default"):
            raise SourceError(f"{entry.name} has no template called {pick!r}", hint="It has: default.")
        return Found(entry.source, entry.name, dict(entry.options))
    path = Path(os.fsdecode(place))
    try:
        if place and path.exists():
            return read_path(path, pick)
    except OSError as error:
        raise unreadable(path, error) from error
    raise _missing(os.fsdecode(place), path)


def compiled(found: Found) -> Template:
    return Template.of(found.text, name=found.name, options=found.options, named=found.named)


@cache
def entries() -> Mapping[str, Entry]:
    """All entries by name."""
    # a fifth of what `import turnwise` may take, and not needed by who only compiles
    import tomllib
    from importlib.resources import files as resources

    folder = resources(__name__) / "entries"
    found = {}
    for file in sorted(folder.iterdir(), key=lambda f: f.name):
        if file.name.endswith(".toml"):
            data = tomllib.loads(file.read_text(encoding="utf-8"))
            data["source"] = (folder / data["source"]).read_text(encoding="utf-8")
            data["aliases"], data["stops"] = tuple(data["aliases"]), tuple(data["stops"])
            entry = Entry(**data)
            found[entry.name] = entry
    return MappingProxyType(found)


@cache
def _named() -> Mapping[str, Entry]:
    return {name.lower(): entry for entry in entries().values() for name in (entry.name, *entry.aliases)}


def _missing(place: str, path: Path) -> SourceError:
    if "{{" in place or "{%" in place or "\n" in place:
        return SourceError("this is the text of a template, not a place", hint="Use turnwise.compile(text).")
    if "://" in place:
        return SourceError(f"{shown(place, 200)} is an address; only local files are read", hint="Download it first.")
    close = get_close_matches(place.lower(), _named(), n=1, cutoff=0.75)
    close += [str(path.with_name(name)) for name in get_close_matches(path.name, near(path), n=3, cutoff=0.6)]
    hint = f"Built-in names: {', '.join(entries())}."
    if close:
        hint = f"Did you mean {' or '.join(map(repr, close))}? {hint}"
    elif not path.parent.exists():
        hint = f"There is no folder {shown(str(path.parent), 200)}. Nothing is looked up on a network. {hint}"
    return SourceError(f"there is no {shown(place, 200)}", hint=hint)
