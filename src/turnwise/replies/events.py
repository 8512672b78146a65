"""What a parser says while a reply comes in, and the message that it gives in the end.

An event is final: no later event takes anything of it back. So the texts of all events of one kind, put together, are
what the message holds under that name, however the reply was cut.

A call that could not be read is not lost and not an error: it is an `Attempt` with a status (`STATUSES`), its place and
its text. Arguments that are JSON but no object (`[1]`, `5`, `"hi"`) are `malformed`; `null` counts as `{}`. So is a
call that holds text between two arguments, or a member (name, arguments, id) that is there twice: the arguments that
were read stay, and the text is a `raw` span. The spans of a message cover the reply from end to end, without gaps and
without overlaps.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from turnwise.messages import InputReader, InvalidValue, find_lone_surrogate

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
    "malformed": (
        "a part of the call cannot be read, or its arguments are no object: what was read stands in it, the rest as it"
        " was written"
    ),
    "unreadable": "no name could be read: the text is part of the content",
    "unknown": "a call, read to its end, of a tool that was not offered",
    "recipient": "a text for someone who is neither the user nor one of the tools",
}

# What a stretch of a reply is. `space`: white space at the edge of a marker; `raw`: text within a call that is no part
# of it; `rest`: all that stands behind a stop.
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
    call: dict[str, Any] = {
        "index": event.call,
        "id": event.id,
        "type": "function",
        "function": function,
    }
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
    stop: str | None = (
        None  # the marker that ended the reply; None if it was cut off or the marker was taken away
    )
    events: tuple[Event, ...] = ()  # what was still held back when the reply was closed

    def as_turn(self, *, as_text: bool = False) -> dict[str, Any]:
        """The message as part of a conversation, in plain data: "" for null, arguments as a mapping or as JSON text.

        Arguments that are no JSON object stay as they are, and so do those that hold what no template can be given:
        `1e999`, half of a surrogate pair. What somebody put in the place of calls is passed on, for `render` to check.
        A template that is given the message itself does this.
        """
        turn = {**self, "content": self.get("content") or ""}
        calls = self.get("tool_calls")
        if calls and isinstance(calls, list | tuple):
            turn["tool_calls"] = [turned(call, as_text) for call in calls]
        return turn

    def copy(self) -> Message:
        """A message with the same keys and the same findings."""
        twin = type(self)(self)
        twin.__dict__.update(self.__dict__)
        return twin


WITHIN = 4  # containers around the arguments of a call: message, calls, call, function


def turned(call: Any, as_text: bool) -> Any:
    """A call with its arguments as a mapping or as JSON text; as it is where they cannot be said so."""
    try:
        function = {**call["function"]}
        given = function["arguments"]
        if isinstance(given, str) is as_text:
            return call
        read = given if as_text else json.loads(given)
        if not isinstance(read, dict) or not renderable(read):
            return call
        function["arguments"] = json.dumps(read, ensure_ascii=False) if as_text else read
        return {**call, "function": function}
    except (LookupError, TypeError, ValueError, RecursionError):
        return call  # somebody else's


def renderable(arguments: dict[str, Any]) -> bool:
    """Whether a template may be given these arguments."""
    try:
        InputReader().copy_value(arguments, WITHIN)
    except InvalidValue:
        return False
    return find_lone_surrogate(arguments, ()) is None
