"""What a dialect is, and what reading a source of one gives: a `Translation`.

A source is a string or a mapping that some software takes as its chat template. A `Dialect` is a
row of the table in `dialects/__init__.py`; its module is imported when it is first needed. Here are
also the helpers that every dialect needs before it looks at its own keys: copying a source, parsing
its JSON.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, NamedTuple

from turnwise.errors import SourceError, short_repr
from turnwise.messages import JsonMapping
from turnwise.schema import TABLE, check

MAX_DEPTH = 100  # levels of a source; real ones have four
MAX_LEADING_SPACE = 1000  # characters before the first brace of a JSON text


@dataclass(frozen=True, slots=True)
class Translation:
    """A source translated to Jinja, with the facts that Jinja cannot express."""

    jinja: str
    stops: tuple[str, ...] = ()  # texts that end generation
    stop_ids: tuple[int, ...] = ()  # the same as token ids, where the source gives ids
    # Defaults of the template's own variables.
    options: JsonMapping = field(default_factory=dict)
    # How replies look that the template does not show: the table `replies` of a registry entry.
    replies: JsonMapping = field(default_factory=dict)
    # Whether these are all stops: those of the original software, which derives none from what it writes.
    only_stops: bool = False
    # The entry for the same models that writes what this one leaves out, names included; empty if none does.
    fuller: str = ""
    # Everything else in the source, under the dialect's own names.
    facts: JsonMapping = field(default_factory=dict)


class Dialect(NamedTuple):
    """One dialect: its name, and what its writer can express."""

    name: str
    writer: str = ""  # the module with `write(turns)`, if the dialect can be written
    details: tuple[str, ...] = ()  # further arguments of the writer
    # What it refers to by name: special tokens, the date. Everything else it holds as text.
    names: tuple[str, ...] = ()
    inserts_bos: bool = False  # its software puts bos_token before the conversation by itself
    # What its sources could express, but its writer does not: names of obstacles.
    unwritten: tuple[str, ...] = ()
    stops: bool = True  # it has a place for texts that end generation
    prompts_only: bool = False  # it always leaves a final assistant message open
    late_systems: bool = False  # its software takes a system text in any round

    @property
    def module(self) -> ModuleType:
        """The module that reads the dialect."""
        return importlib.import_module(f"turnwise.dialects.{self.name}")

    def knows(self, source: Any) -> bool:
        """Return True if a source looks like one of this dialect."""
        return bool(self.module.knows(source))

    def read(self, source: Any, exact: bool = False, **details: Any) -> Translation:
        """Translate a source; `exact` reproduces the defects of the original software."""
        translation: Translation = self.module.read(source, exact=exact, **details)
        return translation

    @property
    def keys(self) -> Collection[str]:
        """The keys of a mapping of this dialect; empty if its sources are text."""
        return getattr(self.module, "KEYS", ())

    @property
    def write(self) -> Callable[..., Any] | None:
        """The function that writes `Turns` as a source, or as a list of sources to try.

        It never fails: what the dialect cannot express is left out, and `conversion` finds the
        difference by rendering both.
        """
        if not self.writer:
            return None
        module = importlib.import_module(f"turnwise.dialects.{self.writer}")
        write: Callable[..., Any] = module.write
        return write


def copy_source(source: Any, depth: int = MAX_DEPTH) -> Any:
    """Copy the mappings and lists of a source; other objects are kept as they are."""
    if not isinstance(source, Mapping | list | tuple | set):
        return source
    if not depth:
        raise SourceError("this source is nested too deeply, or contains itself")
    if isinstance(source, Mapping):
        return {key: copy_source(value, depth - 1) for key, value in source.items()}
    if isinstance(source, set):
        return set(source)
    items = [copy_source(item, depth - 1) for item in source]
    return items if isinstance(source, list) else tuple(items)


def parse_json_object(text: str, what: str) -> JsonMapping:
    """Parse the text of a JSON object; errors say that `what` was expected."""
    try:
        value = json.loads(text)
    except RecursionError:
        problem = f"this text is nested too deeply: {short_repr(text)}"
        raise SourceError(f"{what} is a JSON object; {problem}") from None
    except ValueError as error:
        # A huge number is JSON, but not for Python: that is a ValueError and no JSONDecodeError.
        is_json = not isinstance(error, json.JSONDecodeError)
        reason = "JSON that cannot be read" if is_json else "not JSON"
        problem = f"this text is {reason}: {error}, in {short_repr(text)}"
        raise SourceError(f"{what} is a JSON object; {problem}") from None
    if not isinstance(value, dict):
        raise SourceError(f"{what} is a JSON object, not {short_repr(value)}")
    return value


def to_mapping(source: Any, what: str) -> JsonMapping:
    """Return the mapping that a source is, or that its JSON text spells."""
    if isinstance(source, str):
        return parse_json_object(source, what)
    mapping: JsonMapping = check(source, TABLE, what)
    return mapping


def object_in(source: Any) -> Any:
    """Return the object if `source` is the JSON text of one, else `source` itself."""
    if not isinstance(source, str):
        return source
    start = source[:MAX_LEADING_SPACE].lstrip()[:2]
    if not start.startswith("{") or start in ("{{", "{%", "{#"):
        return source
    try:
        value = json.loads(source)
    except (ValueError, RecursionError):
        return source
    return value if isinstance(value, dict) else source
