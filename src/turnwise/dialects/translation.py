"""What reading a source gives, and what a dialect is."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from turnwise.errors import SourceError, short_repr

DEEPEST = 100  # levels of a source; those of real ones have four


@dataclass(frozen=True, slots=True)
class Translation:
    """A source, translated: Jinja and the facts that Jinja cannot say."""

    jinja: str
    stops: tuple[str, ...] = ()  # texts that end generation
    stop_ids: tuple[int, ...] = ()  # the same as token ids, where the source gives ids
    options: Mapping[str, Any] = field(
        default_factory=dict
    )  # defaults of the template's own variables
    facts: Mapping[str, Any] = field(
        default_factory=dict
    )  # what else the source said, under the dialect's own names
    # How replies look that the template does not show: the table `replies` of a registry entry.
    replies: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Dialect:
    """A row of the table. The module of that name is loaded when somebody first asks for it."""

    name: str
    writes: str = ""  # the module that says turns in it, if they can be said
    details: tuple[str, ...] = ()  # what a caller may tell its writer
    texts: tuple[str, ...] = ()  # the special tokens that it holds as text
    names: tuple[str, ...] = ()  # those that it names, wherever they stand
    stops: bool = True  # it has a place for texts that end generation
    prompts_only: bool = False  # it is for a reply that is still to come: a last one is left open

    @property
    def module(self) -> ModuleType:
        return importlib.import_module(f"turnwise.dialects.{self.name}")

    def knows(self, source: Any) -> bool:
        """Whether a source looks like one of this dialect."""
        return bool(self.module.knows(source))

    def read(self, source: Any, exact: bool = False, **details: Any) -> Translation:
        """The source as Jinja and facts."""
        translation: Translation = self.module.read(source, exact=exact, **details)
        return translation

    @property
    def keys(self) -> Collection[str]:
        """What a mapping of this dialect may hold; nothing where it has no mappings."""
        return getattr(self.module, "KEYS", ())

    @property
    def write(self) -> Callable[..., Any] | None:
        """The function that says turns in this dialect, if it can: gives a source, or a list of sources to try.

        It does not fail: what the dialect has no place for is left out, and whoever compares the two will see that.
        """
        return (
            importlib.import_module(f"turnwise.dialects.{self.writes}").write
            if self.writes
            else None
        )


def copy_source(source: Any, depth: int = DEEPEST) -> Any:
    """A source that shares nothing with the one that was given; objects of others' classes stay what they are."""
    if isinstance(source, str) or not isinstance(source, Mapping | list | tuple | set):
        return source
    if not depth:
        raise SourceError("this source is nested too deeply, or holds itself")
    if isinstance(source, Mapping):
        return {key: copy_source(value, depth - 1) for key, value in source.items()}
    if isinstance(source, set):
        return set(source)
    items = [copy_source(item, depth - 1) for item in source]
    return items if isinstance(source, list) else tuple(items)


def parse_json_object(text: str, what: str) -> Mapping[str, Any]:
    """The object that a JSON text spells; `what` it should be is said in the error."""
    try:
        found = json.loads(text)
    except RecursionError:
        raise SourceError(
            f"{what} is a JSON object; this text is nested too deeply: {short_repr(text)}"
        ) from None
    except ValueError as error:
        reason = (
            "not JSON" if isinstance(error, json.JSONDecodeError) else "no JSON that can be read"
        )
        raise SourceError(
            f"{what} is a JSON object; this text is {reason}: {error}, in {short_repr(text)}"
        ) from None
    if not isinstance(found, dict):
        raise SourceError(f"{what} is a JSON object, not {short_repr(found)}")
    return found


def object_in(source: Any) -> Any:
    """The object where the source is the JSON text of one, else the source itself."""
    start = source[:1000].lstrip()[:2] if isinstance(source, str) else ""
    if not start.startswith("{") or start in ("{{", "{%", "{#"):
        return source
    try:
        found = json.loads(source)
    except (ValueError, RecursionError):
        return source
    return found if isinstance(found, dict) else source
