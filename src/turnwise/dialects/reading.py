"""What reading a source gives, and what a dialect is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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
    """A row of the table: how to tell a source of this dialect, how to read one, how to write one."""

    name: str
    knows: Callable[[Any], bool]
    read: Callable[..., Reading]
    write: Callable[..., Any] | None = None
