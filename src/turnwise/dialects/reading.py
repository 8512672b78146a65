"""What reading a source gives, and what a dialect is."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any


@dataclass(frozen=True, slots=True)
class Reading:
    """A source, translated: Jinja and the facts that Jinja cannot say."""

    jinja: str
    stops: tuple[str, ...] = ()  # texts that end generation
    stop_ids: tuple[int, ...] = ()  # the same as token ids, where the source gives ids
    options: Mapping[str, Any] = field(default_factory=dict)  # defaults of the template's own variables
    facts: Mapping[str, Any] = field(default_factory=dict)  # what else the source said, under the dialect's own names


@dataclass(frozen=True, slots=True)
class Dialect:
    """A row of the table. The module of that name is loaded when somebody first asks for it."""

    name: str
    writes: str = ""  # the module that says turns in it, if they can be said

    @property
    def module(self) -> ModuleType:
        return importlib.import_module(f"turnwise.dialects.{self.name}")

    def knows(self, source: Any) -> bool:
        """Whether a source looks like one of this dialect."""
        return bool(self.module.knows(source))

    def read(self, source: Any, exact: bool = False, **details: Any) -> Reading:
        """The source as Jinja and facts."""
        reading: Reading = self.module.read(source, exact=exact, **details)
        return reading

    @property
    def write(self) -> Callable[..., Any] | None:
        """The function that says turns in this dialect, if it can: gives a source, or a list of sources to try.

        It does not fail: what the dialect has no place for is left out, and whoever compares the two will see that.
        """
        return importlib.import_module(f"turnwise.dialects.{self.writes}").write if self.writes else None
