"""Lanes: text that decides nothing is taken at once, without waking the parser.

A reply may come character by character, and most characters decide nothing: one more letter of a text, one more digit
of a number, one more letter of a marker that is not complete. A coroutine that waits (`buffer.py`) yields a lane for
such text; None if any text must wake it.

    UntilLane    holds text until one of some characters comes
    WhileLane    holds text that consists of some characters
    PrefixLane   holds text as long as it begins a marker
    ReadLane     hands text on up to a marker, and holds the beginning of one
    ValueLane    parses a value, as long as its end cannot come
    RepeatLane   hands on what repeats a character that is held: `{` is the start of no call if `{` follows it

Text that is held is parsed with the next text that wakes the parser, as if both had come in one chunk. So a lane
changes nothing but the time at which a text is parsed; one that holds is for places where nothing is emitted yet.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Protocol

from turnwise.replies.events import TEXT, Event
from turnwise.replies.parser.matcher import MarkerMatcher
from turnwise.replies.parser.message_builder import MessageBuilder
from turnwise.replies.parser.values import IN_STRING, ValueParser

_MAX_HELD = 256  # characters in the buffer, beyond which the parser is woken


class HeldText(Protocol):
    """What lanes need of a `ParseBuffer`."""

    text: str
    position: int

    def append(self, chunk: str) -> None: ...


class ValueWriter(Protocol):
    """What lanes need of the place to which a value is written."""

    def add(self, text: str, json_text: str) -> None: ...

    def stream(self, text: str) -> list[Event]: ...


class Lane(Protocol):
    """Takes text that decides nothing."""

    def take(self, text: str) -> list[Event] | None:
        """Take the text and return its events; None, and nothing is taken, if it must wake the parser."""
        ...


class UntilLane:
    """Holds text that has none of the characters in `wake`."""

    __slots__ = ("_buffer", "_wake")

    def __init__(self, buffer: HeldText, wake: Set[str]) -> None:
        self._buffer = buffer
        self._wake = wake

    def take(self, text: str) -> list[Event] | None:
        buffer = self._buffer
        if not self._wake.isdisjoint(text) or len(buffer.text) > _MAX_HELD:
            return None
        buffer.text += text
        return []


class WhileLane:
    """Holds text that consists of the characters in `quiet`."""

    __slots__ = ("_buffer", "_quiet")

    def __init__(self, buffer: HeldText, quiet: frozenset[str]) -> None:
        self._buffer = buffer
        self._quiet = quiet

    def take(self, text: str) -> list[Event] | None:
        buffer = self._buffer
        if not self._quiet.issuperset(text) or len(buffer.text) > _MAX_HELD:
            return None
        buffer.text += text
        return []


class PrefixLane:
    """Holds text that, behind what is held already, begins one of some markers."""

    __slots__ = ("_buffer", "_held", "_prefixes")

    def __init__(self, buffer: HeldText, prefixes: frozenset[str], held: str) -> None:
        self._buffer = buffer
        self._prefixes = prefixes
        self._held = held

    def take(self, text: str) -> list[Event] | None:
        held = self._held + text
        if held not in self._prefixes:
            return None
        self._held = held
        self._buffer.text += text
        return []


class ReadLane:
    """Hands text in which no marker can begin to `sink`, and holds text that begins a marker."""

    __slots__ = (
        "_buffer", "_builder", "_held", "_is_content", "_kind", "_prefixes", "_sink", "_wake",
    )  # fmt: skip

    def __init__(
        self,
        buffer: HeldText,
        builder: MessageBuilder,
        matcher: MarkerMatcher,
        sink: Callable[[str], object],
        kind: str,
    ) -> None:
        self._buffer = buffer
        self._builder = builder
        self._wake = matcher.first_characters
        self._prefixes = matcher.prefixes
        self._sink = sink
        self._kind = kind
        self._held = ""
        self._is_content = kind == TEXT and sink == builder.add_content

    def hold(self, text: str) -> None:
        """Go on behind the beginning of a marker, which is all that is in the buffer."""
        self._held = text

    def take(self, text: str) -> list[Event] | None:
        if self._held or not self._wake.isdisjoint(text):
            held = self._held + text
            if held not in self._prefixes:
                return None
            self._buffer.append(text)
            self._held = held
            return []
        if self._is_content:
            return self._builder.stream_content(text)
        self._builder.add_span(text, self._kind)
        self._sink(text)
        return self._builder.events.take()


class ValueLane:
    """Parses text of a value that cannot end within it.

    What is read, and what it is in JSON, are handed to `writer`, if there is one.
    """

    __slots__ = ("_buffer", "_builder", "_parser", "_span", "_writer")

    def __init__(
        self,
        parser: ValueParser,
        buffer: HeldText,
        builder: MessageBuilder,
        span: str,
        writer: ValueWriter | None = None,
    ) -> None:
        self._parser = parser
        self._buffer = buffer
        self._builder = builder
        self._span = span
        self._writer = writer

    def take(self, text: str) -> list[Event] | None:
        parser, buffer, writer = self._parser, self._buffer, self._writer
        has_rest = buffer.position < len(buffer.text)
        if parser.state == IN_STRING and not has_rest and writer and parser.is_plain_text(text):
            return writer.stream(text)
        if parser.holds_back(text) and len(buffer.text) < _MAX_HELD:
            buffer.text += text
            return []
        unread = buffer.text[buffer.position :] + text if has_rest else text
        if parser.error is not None or parser.may_end(unread):
            return None
        return self._parse(unread)

    def _parse(self, unread: str) -> list[Event]:
        """Parse all that is not parsed yet, and keep what needs more text."""
        parser, buffer, writer = self._parser, self._buffer, self._writer
        end = parser.feed(unread, 0)
        taken = unread[:end]
        buffer.text, buffer.position = unread[end:], 0
        json_text = parser.take() if writer and parser.out else ""
        if writer and taken and taken == json_text:
            return writer.stream(taken)
        if taken:
            self._builder.add_span(taken, self._span)
        if writer:
            writer.add(taken, json_text)
        return self._builder.events.take()


class RepeatLane:
    """Takes text as content that only repeats the character which is held: each one decides that the last is text."""

    __slots__ = ("_buffer", "_builder")

    def __init__(self, buffer: HeldText, builder: MessageBuilder) -> None:
        self._buffer = buffer
        self._builder = builder

    def take(self, text: str) -> list[Event] | None:
        held = self._buffer.text[self._buffer.position :]
        if len(held) != 1 or text.strip(held):
            return None
        return self._builder.stream_content(text)
