"""An entry: one template of the registry, as data.

An entry is a TOML file with its source beside it. A *collection* is one file, TOML or JSON, for many entries of one
dialect, imported from elsewhere:

    dialect = "fastchat"

    [entries.zero_shot]        # the source, as its own software has it
    roles = ["Human", "Assistant"]

Its entries are called `fastchat:zero_shot`; a dialect that is not said is the name of the file. A source is read when
it is asked for, not before; an entry knows only where it lies. What a file may not do is checked here, with the
accepted keys in the error. Not checked here: whether the source is a template, which only compiling it tells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from turnwise.dialects.translation import copy_source
from turnwise.errors import SourceError, did_you_mean, short_repr

# a path, not `importlib.resources`, whose import alone would take a fifth of the time that all entries take
ENTRIES = Path(__file__).with_name("entries")
JINJA = "jinja"
SEPARATOR = ":"
COLLECTIONS = ("entries", "templates", "own")  # keys under which a file holds many sources


@dataclass(frozen=True, slots=True)
class Entry:
    """One template by name, and what belongs to it."""

    name: str
    dialect: str = JINJA
    family: str = ""
    aliases: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)  # what `options` gives
    models: tuple[str, ...] = ()  # ids and patterns of the chat models that it is for
    base: tuple[str, ...] = ()  # the same of base models of the family, which get `default` instead
    untrained: bool = False  # its markers are special tokens, and a base model has not learnt them
    notes: str = ""
    verified: tuple[
        str, ...
    ] = ()  # published templates that it equals on the conversations of the corpus
    replies: Mapping[str, Any] = field(
        default_factory=dict
    )  # what the template does not tell of replies
    override: bool = False  # it may take the place of an entry of the same name
    file: str = ""  # where a user wrote it
    source_of: Callable[[], Any] = field(default=str, repr=False, compare=False)

    @property
    def source(self) -> Any:
        """The template as its dialect writes it: text, or the mapping that a program would have."""
        return copy_source(self.source_of())

    @property
    def options(self) -> Mapping[str, Any]:
        """Defaults of the template's own variables. Like the source a copy: an entry is everybody's."""
        return MappingProxyType(copy_source(self.defaults))

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)


FIELDS = frozenset(item.name for item in fields(Entry))
KINDS: dict[str, type] = {
    **dict.fromkeys(("name", "dialect", "family", "notes"), str),
    **dict.fromkeys(("aliases", "stops", "models", "base", "verified"), list),
    **dict.fromkeys(("untrained", "override"), bool),
    **dict.fromkeys(("options", "replies"), dict),
    "source": str,
}
"""Keys of an entry's file, and what each one holds."""

WORDS = {str: "text", list: "a list of texts", bool: "true or false", dict: "a table"}


def read_entry(data: Mapping[str, Any], where: str, beside: Mapping[str, Path]) -> Entry:
    """The entry of a TOML file that was parsed; its source is one of the files `beside` it."""
    for key, value in data.items():
        if key not in KINDS:
            raise SourceError(
                f"{where}: unknown key {short_repr(key)}",
                hint=did_you_mean(key, KINDS, "An entry has"),
            )
        check(value, KINDS[key], f"{where}: {key}")
    for key in ("name", "source"):
        if not data.get(key):
            raise SourceError(
                f"{where}: the key {key!r} is missing", hint=f"An entry has: {', '.join(KINDS)}."
            )
    if data["source"] not in beside:
        hint = "`source` names a file in the same folder."
        raise SourceError(
            f"{where}: there is no {short_repr(data['source'], 200)} beside it", hint=hint
        )
    return made({**data, "source_of": partial(text_of, beside[data["source"]], where)})


def read_collection(data: Mapping[str, Any], where: str, stem: str) -> list[Entry]:
    """The entries of a file that holds many of one dialect: by name, or a list of sources that have a `name`."""
    dialect = data.get("dialect", stem)
    check(dialect, str, f"{where}: dialect")
    found = []
    for key in filter(data.__contains__, COLLECTIONS):
        sources = data[key]
        if isinstance(sources, list):
            sources = {
                named(source, f"{where}: {key}[{at}]"): source for at, source in enumerate(sources)
            }
        check(sources, dict, f"{where}: {key}")
        for name, source in sources.items():
            found.append(
                Entry(
                    f"{dialect}{SEPARATOR}{name}",
                    dialect,
                    family=dialect,
                    source_of=partial(held, source),
                )
            )
    return found


def named(source: Any, where: str) -> str:
    name = source.get("name") if isinstance(source, dict) else None
    if not isinstance(name, str) or not name:
        raise SourceError(f"{where} has no `name`: {short_repr(source)}")
    return name


def made(data: Mapping[str, Any]) -> Entry:
    """An entry of plain data: lists become tuples."""
    values: dict[str, Any] = {
        key: tuple(v) if isinstance(v, list) else v for key, v in data.items() if key in FIELDS
    }
    return Entry(
        **values, **({"defaults": copy_source(data["options"])} if "options" in data else {})
    )


def check(value: Any, kind: type, where: str) -> None:
    if not isinstance(value, kind) or (
        isinstance(value, list) and not all(isinstance(item, str) for item in value)
    ):
        raise SourceError(f"{where} is {short_repr(value)}", hint=f"It must be {WORDS[kind]}.")


def text_of(file: Path, where: str) -> str:
    """The text of a source."""
    what = f"{where}: the source {short_repr(file.name, 200)}"
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise SourceError(
            f"{what} cannot be read: {(error.strerror or str(error)).lower()}"
        ) from error
    except UnicodeDecodeError as error:
        raise SourceError(f"{what} is not UTF-8") from error


def held(source: Any) -> Any:
    """A source that is at hand."""
    return source
