"""Streaming events of a reply, and the final message.

    reply    <think>\\nA\\n</think>\\n\\nOne.<tool_call>...
    events   reasoning "A", text "One.", start (name), arguments "{...}", end, stop
    message  {"reasoning_content": "A", "content": "One.", "tool_calls": [...]}

An event is final: no later event takes anything of it back. So the texts of all events of one kind, joined, are what
the message contains under that name, whatever the chunks of the reply were.

A call that cannot be parsed is neither lost nor an exception: it becomes an `Attempt` with a status (`STATUSES`), its
offsets and its text. Arguments that are JSON but not an object (`[1]`, `5`, `"hi"`) are `malformed`; `null` counts as
`{}`. A call is also malformed if there is text between two arguments, or if a member (name, arguments, id) comes twice:
the arguments parsed so far are kept, and the text becomes a `raw` span. The spans of a message cover the whole reply,
without gaps and without overlaps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, cast

from turnwise.messages import (
    AssistantMessage,
    Delta,
    DeltaCall,
    InputReader,
    InvalidValue,
    JsonMapping,
    Reply,
    find_lone_surrogate,
    message_reasoning,
    message_text,
    message_tool_calls,
)
from turnwise.notebook import show_html

__all__ = ["messages_equal"]


REASONING: Final = "reasoning"
TEXT: Final = "text"
START: Final = "start"  # of a call, when its name is known
ARGUMENTS: Final = "arguments"
END: Final = "end"  # of a call
STOP: Final = "stop"
Kind = Literal["reasoning", "text", "start", "arguments", "end", "stop"]
FinishReason = Literal["stop", "tool_calls", "length"]

ARGUMENTS_DEPTH = 4  # containers around the arguments of a call: message, calls, call, function

STATUSES: Mapping[str, str] = {
    "complete": "a complete call",
    "unclosed": "the arguments of the call are complete, but its closing marker, or that of an argument, is missing",
    "unterminated": "the reply ended inside the call",
    "malformed": (
        "a part of the call cannot be parsed, or its arguments are not an object: the message has what was parsed, and"
        " the rest as it was written"
    ),
    "unreadable": "no name was found: the text is part of the content",
    "unknown": "a complete call to a tool that was not declared",
    "undeclared": "a call to a tool that was not declared, which was refused: the text is part of the content",
    "unopened": (
        "a closing marker of something that is not open; that of reasoning is part of the content if content is before"
        " it, unless the reply was parsed whole and starts with what it closes"
    ),
    "repeated": "an opening marker of what is open already",
    "unlabelled": "an opening marker of reasoning, or a header, without the word that says what it opens",
    "unnamed": "a special token of the tokenizer beside a call, which no marker of the grammar has: it is no text",
    "cut": "the beginning of a marker, from its control token on, with which the reply breaks off: it is no text",
}
REPEATED, CUT, UNNAMED = "repeated", "cut", "unnamed"
# Of markers out of place, which are no calls.
MARKER_STATUSES = ("unopened", REPEATED, "unlabelled", CUT, UNNAMED)

# The kinds of spans. `space`: white space at the edge of a marker; `raw`: text inside a call that is no part of it;
# `rest`: all text after a stop.
SPANS = ("text", "reasoning", "name", "id", "arguments", "marker", "space", "raw", "rest")


class Event(NamedTuple):
    """One step of a reply.

    Attributes:
        kind: "reasoning", "text", "start" of a call, "arguments" of a call, "end" of a call, or "stop".
        text: the new text, for reasoning, text and arguments; the marker, for stop.
        call: the number of the call, counted from 0, for start, arguments and end.
        name: the name of the called tool, for start.
        id: the id of the call, for start; if it comes after the arguments, for end, or for the last arguments of a
            call that the reply breaks off.

    Example:
        >>> import turnwise
        >>> turnwise.load("chatml").parser().feed("Aye, ")
        [Event(kind='text', text='Aye, ', call=None, name=None, id=None)]
    """

    kind: Kind
    text: str = ""
    call: int | None = None
    name: str | None = None
    id: str | None = None

    def delta(self) -> Delta:
        """Return the `delta` of a chunk in OpenAI's stream; empty if the event has no place there.

        Example:
            >>> Event("text", "Aye.").delta()
            {'content': 'Aye.'}
        """
        if self.kind == REASONING:
            return {"reasoning_content": self.text}
        if self.kind == TEXT:
            return {"content": self.text}
        if self.kind == START:
            function = {"name": self.name, "arguments": ""}
            return self._call_delta({"index": self.call, "type": "function", "function": function})
        # An id that comes after the arguments needs a function beside it: clients look there.
        if self.kind == ARGUMENTS or self.id is not None:
            return self._call_delta({"index": self.call, "function": {"arguments": self.text}})
        return {}

    def _call_delta(self, call: DeltaCall) -> Delta:
        if self.id is not None:
            call["id"] = self.id
        return {"tool_calls": [call]}


@dataclass(frozen=True, slots=True)
class Span:
    """Characters `start` to `end` of the reply."""

    kind: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """Characters `start` to `end` of the reply, which begin like a call, or are a marker out of place."""

    status: str  # one of STATUSES
    start: int
    end: int
    raw: str  # the text
    name: str | None = None
    index: int | None = None  # of the call in `tool_calls`, if it is there


class Message(Reply):
    """A parsed reply: an assistant message in OpenAI's shape, with what else is known about the reply.

    Attributes:
        attempts: every text that begins like a call, and every marker that is out of place, with its status.
        spans: the kind of every character of the reply.
        stop: the marker that ended the reply; None if it was cut off, or if the caller removed the marker.
        finish_reason: as in OpenAI's responses: "tool_calls", "stop", or "length" if the reply has no stop and breaks
            off within a call or within its reasoning.
        events: the events since the last `feed`; from `Template.parse`, all events.

    Example:
        >>> import turnwise
        >>> message = turnwise.load("chatml").parse("Aye.<|im_end|>")
        >>> message["content"], message.stop
        ('Aye.', '<|im_end|>')
    """

    attempts: tuple[Attempt, ...] = ()
    spans: tuple[Span, ...] = ()
    stop: str | None = None
    finish_reason: FinishReason = "stop"
    events: tuple[Event, ...] = ()

    def as_turn(self, *, as_text: bool = False) -> AssistantMessage:
        """Return the message as plain data that a template can render.

        Content that is None becomes "". Arguments stay text if they are not a JSON object, or if no template could
        render them (`1e999`, a lone surrogate). Tool calls of another shape are passed on unchanged.

        Args:
            as_text: arguments as JSON text; by default as a mapping.

        Example:
            >>> Message(role="assistant", content=None).as_turn()
            {'role': 'assistant', 'content': ''}
        """
        turn: Any = dict(self, content=self.get("content") or "")
        calls = turn.get("tool_calls")
        if calls and isinstance(calls, list | tuple):
            turn["tool_calls"] = [_convert_arguments(call, as_text) for call in calls]
        return cast(AssistantMessage, turn)

    def _repr_html_(self) -> str:
        return show_html("message", self)

    def copy(self) -> Message:
        """Return a message with the same keys and attributes."""
        twin = type(self)(self)
        twin.__dict__.update(self.__dict__)
        return twin


def _convert_arguments(call: Any, as_text: bool) -> Any:
    """Return a call with its arguments as a mapping or as JSON text; unchanged if that is not possible."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return call
    given: Any = function.get("arguments")
    if isinstance(given, str) is as_text:
        return call
    try:
        arguments = given if as_text else json.loads(given)
        if not isinstance(arguments, dict):
            return call
        InputReader().copy_value(arguments, ARGUMENTS_DEPTH)
        if find_lone_surrogate(arguments, ()) is not None:
            return call
        converted = json.dumps(arguments, ensure_ascii=False) if as_text else arguments
    except (TypeError, ValueError, RecursionError, InvalidValue):
        return call  # no template could render them
    return {**call, "function": {**function, "arguments": converted}}


# ---- equality ----
#
# Semantic equality of assistant messages: the same text, reasoning and tool calls, however they are spelled.


def messages_equal(first: JsonMapping, second: JsonMapping) -> bool:
    """Return True if two messages have the same text, reasoning and tool calls.

    White space at the edges of texts is ignored, since markers may contain it; so are the ids of calls.

    Raises:
        MessageError: a field of a message has the wrong type.

    Example:
        >>> messages_equal({"content": "Aye.\\n"}, {"content": [{"type": "text", "text": "Aye."}]})
        True
    """
    return _compared_parts(first) == _compared_parts(second)


def _compared_parts(message: JsonMapping) -> tuple[Any, ...]:
    calls = [(call.name, call.arguments, call.is_code) for call in message_tool_calls(message)]
    return message_text(message).strip(), message_reasoning(message).strip(), calls
