"""What a parser says while a reply comes in, and the message that it gives in the end.

An event is final: no later event takes anything of it back. So the texts of all events of one kind, put together, are
what the message holds under that name, however the reply was cut.

A call that could not be read is not lost and not an error: it is an `Attempt` with a status (`STATUSES`), its place and
its text. Arguments that are JSON but no object (`[1]`, `5`, `"hi"`) are `malformed`; `null` counts as `{}`. The
spans of a message cover the reply from end to end, without gaps and without overlaps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

REASONING: Final = "reasoning"
TEXT: Final = "text"
START: Final = "start"  # of a call: its name is known
ARGUMENTS: Final = "arguments"
END: Final = "end"  # of a call
STOP: Final = "stop"
Kind = Literal["reasoning", "text", "start", "arguments", "end", "stop"]

STATUSES: Mapping[str, str] = {
    "complete": "a call, read to its end",
    "unclosed": "a call whose arguments are complete, but what should stand behind them is missing",
    "unterminated": "the reply ended within the call",
    "malformed": "the arguments cannot be read: they stand in the call as they were written",
    "unreadable": "no name could be read: the text is part of the content",
    "unknown": "a call, read to its end, of a tool that was not offered",
    "recipient": "a text for someone who is neither the user nor one of the tools",
}

# What a stretch of a reply is. `space`: white space at the edge of a marker; `rest`: all that stands behind a stop.
SPANS = ("text", "reasoning", "name", "id", "arguments", "marker", "space", "raw", "rest")


class Event(NamedTuple):
    """One step of a reply: `text` for reasoning, text and arguments; `call` (which one), `name` and `id` for calls."""

    kind: Kind
    text: str = ""
    call: int | None = None
    name: str | None = None
    id: str | None = None

    def delta(self) -> dict[str, Any]:
        """The `delta` of a chunk in OpenAI's stream; empty for what has no place there."""
        return DELTAS[self.kind](self)


def _start(event: Event) -> dict[str, Any]:
    function = {"name": event.name, "arguments": ""}
    call: dict[str, Any] = {"index": event.call, "id": event.id, "type": "function", "function": function}
    return {"tool_calls": [call]}


def _arguments(event: Event) -> dict[str, Any]:
    return {"tool_calls": [{"index": event.call, "function": {"arguments": event.text}}]}


def _end(event: Event) -> dict[str, Any]:
    return {"tool_calls": [{"index": event.call, "id": event.id}]} if event.id is not None else {}


DELTAS: Mapping[str, Callable[[Event], dict[str, Any]]] = {
    REASONING: lambda event: {"reasoning_content": event.text},
    TEXT: lambda event: {"content": event.text},
    START: _start,
    ARGUMENTS: _arguments,
    END: _end,  # only an id that was written behind the arguments is news
    STOP: lambda event: {},
}


@dataclass(frozen=True, slots=True)
class Span:
    """Characters `start` to `end` of the reply."""

    kind: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """A stretch of the reply that was begun as a call; `index` is its place in `tool_calls`, if it has one."""

    status: str
    start: int
    end: int
    raw: str
    name: str | None = None
    index: int | None = None


class Message(dict[str, Any]):
    """An assistant message in OpenAI's shape; besides: `attempts`, `spans`, `stop`, and the last `events`."""

    attempts: tuple[Attempt, ...] = ()
    spans: tuple[Span, ...] = ()
    stop: str | None = None  # the marker that ended the reply; None if it was cut off or the marker was taken away
    events: tuple[Event, ...] = ()  # what was still held back when the reply was closed
