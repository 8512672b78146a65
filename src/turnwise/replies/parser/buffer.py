"""The input of the parser: a buffer that coroutines read from, and wait on where they need more.

Parsers are written as if the whole reply were there. Where it is not, they `yield`, and are resumed
with more text in the buffer. Everything that is consumed gets a kind, so that the spans of a
message cover the whole reply.

Most chunks of a stream decide nothing: text of the content without the first character of any marker,
characters within a JSON string. A coroutine that waits there yields a `FastPath`, which emits such a
chunk without resuming the coroutine; it returns None for any other chunk. Deleting both fast paths
would make streams of prose and of long string arguments take 1.6 to 2.6 times as long
(`benchmarks/parse.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import TypeVar

from turnwise.replies.events import CUT, REASONING, TEXT, Event
from turnwise.replies.parser.markers import MarkerMatch, MarkerMatcher, expect
from turnwise.replies.parser.message_builder import MessageBuilder

_SPACE_LOOKAHEAD = 64  # whitespace that is looked past

Result = TypeVar("Result")
FastPath = Callable[[str], list[Event] | None]  # emits a chunk that decides nothing
Wait = FastPath | None  # what a coroutine yields where it waits; None: any chunk resumes it
Reading = Generator[Wait, None, Result]  # a coroutine that returns what it read,
Steps = Reading[None]  # nothing,
Answer = Reading[bool]  # or whether there was something


class ParseBuffer:
    """The part of the reply that is not parsed yet, from `position` on."""

    def __init__(self, builder: MessageBuilder) -> None:
        self._builder = builder
        self.text = ""
        self.position = 0
        self.ended = False  # no more chunks will come

    @property
    def is_exhausted(self) -> bool:
        """Whether the reply has ended and all of it is consumed."""
        return self.ended and self.position >= len(self.text)

    def append(self, chunk: str) -> None:
        self.text = self.text[self.position :] + chunk
        self.position = 0

    # -- consume at once

    def consume(self, size: int, kind: str) -> str:
        """Take the next characters, which are of this kind."""
        if not size:
            return ""
        end = self.position + size
        text = self.text[self.position : end]
        self._builder.add_span(text, kind)
        self.position = end
        return text

    def consume_rest(self, kind: str) -> str:
        return self.consume(len(self.text) - self.position, kind)

    def consume_match(self, match: MarkerMatch, kind: str = "marker") -> str:
        """Take the marker that comes next; the buffer may have moved since it was matched."""
        return self.consume(match.end - match.start, kind)

    # -- look ahead

    def peek(self) -> Reading[str]:
        """Return the next character, "" at the end, without taking it."""
        while self.position >= len(self.text):
            if self.ended:
                return ""
            yield None
        return self.text[self.position]

    def look_past_space(self, size: int = 1) -> Reading[tuple[str, int]]:
        """Return the next characters after whitespace, and how much whitespace there is, without taking them."""
        window_size = _SPACE_LOOKAHEAD + size
        while True:
            window = self.text[self.position : self.position + window_size]
            body = window.lstrip()
            if len(body) >= size or self.ended or len(window) == window_size:
                return body[:size], len(window) - len(body)
            yield None

    def find_next(self, markers: Iterable[str]) -> Reading[tuple[str, int]]:
        """Return which marker comes next, the longest if several do, and how much whitespace is before it.

        The marker is "" if none of them comes next. Nothing is taken.
        """
        expected = expect(tuple(markers))
        window_size = _SPACE_LOOKAHEAD + expected.longest
        while True:
            window = self.text[self.position : self.position + window_size]
            body = window.lstrip()
            may_grow = not self.ended and len(window) < window_size
            if not (may_grow and body in expected.prefixes):
                match = expected.pattern.match(body)
                return match.group() if match else "", len(window) - len(body)
            yield None

    # -- take what comes next

    def take_exact(self, text: str) -> Answer:
        """Take exactly this marker if it comes next."""
        while True:
            following = self.text[self.position : self.position + len(text)]
            if following == text:
                self.consume(len(text), "marker")
                return True
            if not text.startswith(following) or self.ended:
                return False
            yield None

    def take_any(self, markers: Iterable[str]) -> Answer:
        """Take the longest of these markers that comes next, and the whitespace before it only then."""
        marker, space = yield from self.find_next(markers)
        if not marker:
            return False
        self.consume(space, "space")
        self.consume(len(marker), "marker")
        return True

    def take_space(self, space: str) -> Steps:
        """Take as much as there is of the whitespace that a marker ends with."""
        for char in space:
            while self.position >= len(self.text) and not self.ended:
                yield None
            if not self.text.startswith(char, self.position):
                return
            self.consume(1, "space")

    def skip_space(self, kind: str = "space") -> Reading[str]:
        """Take all whitespace, and return the character after it; "" at the end."""
        while True:
            while self.position >= len(self.text):
                if self.ended:
                    return ""
                yield None
            char = self.text[self.position]
            if not char.isspace():
                return char
            # A bounded window: a slice of a long buffer for every space would cost its length.
            window = self.text[self.position : self.position + _SPACE_LOOKAHEAD]
            self.consume(len(window) - len(window.lstrip()), kind)

    def read_until(
        self,
        matcher: MarkerMatcher,
        sink: Callable[[str], object],
        kind: str,
        limit: int | None = None,
    ) -> Reading[MarkerMatch | None]:
        """Hand all text up to the first marker to `sink`, and return the marker, which is not taken.

        Args:
            matcher: The markers.
            sink: Gets the text as it comes.
            kind: The kind of its span.
            limit: The most characters to read.

        Returns:
            None at the end of the reply, or if the text is longer than `limit`.
        """
        start = self._builder.position
        fast_path = None if limit is not None else self._make_fast_path(matcher, sink, kind)
        while True:
            left = None if limit is None else limit - (self._builder.position - start)
            match, emit_upto = None, self.position
            if self.position < len(self.text):
                match, emit_upto = matcher.find(self.text, self.position, self.ended, left)
                if match is None and self.ended:
                    emit_upto = self._end_of_text(matcher, kind)
            size = emit_upto - self.position
            if left is not None and size > left:
                sink(self.consume(left, kind))
                return None
            if size:
                sink(self.consume(size, kind))
            has_rest = self.position < len(self.text)  # the beginning of a marker
            if match is not None or self.ended:
                if match is None and has_rest and kind in (TEXT, REASONING):
                    self._builder.record_marker(CUT, self.consume_rest("marker"))
                return match
            yield None if has_rest else fast_path

    def _end_of_text(self, matcher: MarkerMatcher, kind: str) -> int:
        """Return where the text of a reply ends that may break off within a marker.

        The beginning of a marker is no part of a value. It is no part of content or reasoning if it holds a control
        token, which no model writes as text.
        """
        partial = matcher.partial_match_start(self.text, self.position)
        is_region = kind in (TEXT, REASONING)
        if is_region and not self._builder.starts_with_control_token(self.text[partial:]):
            return len(self.text)
        return partial

    def _make_fast_path(
        self, matcher: MarkerMatcher, sink: Callable[[str], object], kind: str
    ) -> FastPath:
        builder, wakes = self._builder, matcher.first_characters

        def stream(text: str) -> list[Event] | None:
            if not wakes.isdisjoint(text):
                return None
            builder.add_span(text, kind)
            sink(text)
            return builder.events.take()

        return stream
