"""An entry: one template of the registry, as data.

An entry is a TOML file with its template's source in a file beside it. A *collection* is one file, TOML or JSON, that
holds many entries of one dialect, imported from other software:

    dialect = "fastchat"

    [entries.zero_shot]        # the source, as FastChat has it
    roles = ["Human", "Assistant"]

Entries of a collection are called `fastchat:zero_shot`; if no dialect is given, it is the stem of the file's name.
Sources are loaded lazily: an entry only holds the function that loads its source. This module checks the keys and the
types of a file and lists the accepted keys in its errors. It does not check whether the source is a template: only
compiling it can tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from turnwise.dialects.translation import copy_source
from turnwise.errors import SourceError, short_repr
from turnwise.local_files import error_reason, read_file
from turnwise.messages import JsonMapping, JsonObject
from turnwise.schema import BOOLEAN, NON_EMPTY_STRING, STRING, STRINGS, TABLE, check, check_table

# A path, not `importlib.resources`: importing that takes a fifth of the time that all entries take.
ENTRIES = Path(__file__).with_name("entries")
JINJA = "jinja"
SEPARATOR = ":"
MAX_SOURCE = 4 * 2**20  # bytes; the largest template known has some 20 kB
COLLECTION_KEYS = ("entries", "templates", "own")
"""Keys under which a file holds many sources."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One named template of the registry and its metadata.

    Attributes:
        name: The name that `turnwise.load` takes.
        dialect: The dialect of the source, such as "jinja" or "xtuner".
        family: The family of models, such as "qwen".
        aliases: Other names of the entry.
        stops: Texts that end a reply, where the template does not show them.
        models: Ids and patterns of the chat models that use the template.
        base: Ids and patterns of base models of the family; they get the entry `default` instead.
        untrained: True if the markers are special tokens that base models have not learnt.
        notes: One sentence for people.
        verified: Published templates whose output it equals on the corpus.
        oracle: The maker's encoder that it is held to, as `turnwise.oracles` names it; empty if there is none.
        replies: Declarations about replies that the template does not show.
        fuller: The entry for the same models that writes what this one leaves out; empty if none does.
        unusable: Why the template cannot be loaded; empty if it can.
        file: The user's file that holds the entry; empty for built-in ones.

    Example:
        >>> import turnwise
        >>> turnwise.entries()["qwen2.5"].family
        'qwen'
    """

    name: str
    dialect: str = JINJA
    family: str = ""
    aliases: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    defaults: JsonMapping = field(default_factory=dict)
    models: tuple[str, ...] = ()
    base: tuple[str, ...] = ()
    untrained: bool = False
    notes: str = ""
    verified: tuple[str, ...] = ()
    oracle: str = ""
    replies: JsonMapping = field(default_factory=dict)
    fuller: str = ""
    unusable: str = ""
    override: bool = False  # True if it may replace an entry of the same name
    file: str = ""
    load_source: Callable[[], Any] = field(default=str, repr=False, compare=False)

    @property
    def source(self) -> Any:
        """A copy of the template's source: text, or the mapping that other software has."""
        return self.load_source()

    @property
    def options(self) -> JsonMapping:
        """A copy of the default values of the template's own variables."""
        return MappingProxyType(copy_source(self.defaults))

    @property
    def is_verified(self) -> bool:
        """True if it equals a published template or the maker's encoder."""
        return bool(self.verified or self.oracle)

    @property
    def names(self) -> tuple[str, ...]:
        """The name and the aliases."""
        return (self.name, *self.aliases)


ENTRY_RULES = {
    **dict.fromkeys(("name", "source"), NON_EMPTY_STRING),
    **dict.fromkeys(("dialect", "family", "notes", "fuller", "oracle"), STRING),
    **dict.fromkeys(("aliases", "stops", "models", "base", "verified"), STRINGS),
    **dict.fromkeys(("untrained", "override"), BOOLEAN),
    **dict.fromkeys(("options", "replies"), TABLE),
}
"""The keys of an entry's file, and what each holds."""


def read_entry(data: JsonMapping, where: str, files: Mapping[str, Path]) -> Entry:
    """Return the entry of a parsed TOML file; its source is one of the `files` of the same folder."""
    try:
        check_table(data, ENTRY_RULES, required=("name", "source"))
    except SourceError as error:
        raise error.within(where) from None
    source = data["source"]
    if source not in files:
        hint = "`source` names a file in the same folder."
        raise SourceError(f"{where}: there is no {short_repr(source, 200)} beside it", hint=hint)
    values: JsonObject = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in data.items()
        if key not in ("source", "options")
    }
    defaults = copy_source(data.get("options", {}))
    load_source = partial(_read_source, files[source], where)
    return Entry(**values, defaults=defaults, load_source=load_source)


def read_collection(data: JsonMapping, where: str, stem: str) -> Iterator[Entry]:
    """Yield the entries of a collection; its sources are a table by name, or a list in which each has a `name`."""
    dialect = data.get("dialect", stem)
    check(dialect, STRING, f"{where}: dialect")
    unusable = data.get("unusable", {})  # reasons by name
    check(unusable, TABLE, f"{where}: unusable")
    fuller = data.get("fuller", {})  # names of entries by name
    check(fuller, TABLE, f"{where}: fuller")
    for key in COLLECTION_KEYS:
        if key not in data:
            continue
        sources = data[key]
        if isinstance(sources, list):
            sources = _sources_by_name(sources, f"{where}: {key}")
        check(sources, TABLE, f"{where}: {key}")
        for name, source in sources.items():
            yield Entry(
                f"{dialect}{SEPARATOR}{name}",
                dialect,
                family=dialect,
                fuller=fuller.get(name, ""),
                unusable=unusable.get(name, ""),
                load_source=partial(copy_source, source),
            )


def _sources_by_name(sources: list[Any], where: str) -> JsonObject:
    by_name = {}
    for index, source in enumerate(sources):
        name = source.get("name") if isinstance(source, dict) else None
        if not isinstance(name, str) or not name:
            raise SourceError(f"{where}[{index}] has no `name`: {short_repr(source)}")
        by_name[name] = source
    return by_name


def _read_source(file: Path, where: str) -> str:
    what = f"{where}: the source {short_repr(file.name, 200)}"
    try:
        text = read_file(file, MAX_SOURCE, file.parent).decode("utf-8")
    except OSError as error:
        raise SourceError(f"{what} cannot be read: {error_reason(error)}") from error
    except UnicodeDecodeError as error:
        raise SourceError(f"{what} is not UTF-8") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")
