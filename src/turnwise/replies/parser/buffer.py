"""The parser's inside: a coroutine that reads from a buffer and waits where it needs more.

`Stream` is the buffer, the record of what each stretch of the reply was, and the events. Reading a grammar
(`reading.py`) is then written as if the whole reply were there; each `yield` waits for the next chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from io import StringIO
from zlib import crc32

from turnwise.replies.events import (
    ARGUMENTS,
    END,
    REASONING,
    START,
    STOP,
    TEXT,
    Attempt,
    Event,
    Kind,
)
from turnwise.replies.parser.detokenizer import PLAIN, Spelling
from turnwise.replies.parser.matcher import Found, Watch
from turnwise.replies.parser.values import escape

SPACES = 64  # white space that is looked past

Steps = Generator[None, None, None]


class Call:
    """A call as far as it is read."""

    __slots__ = ("arguments", "id", "index", "name")

    def __init__(self, index: int, name: str, id: str | None) -> None:
        self.index = index
        self.name = name
        self.id = id
        self.arguments = StringIO()


class Stream:
    """A reply as it comes in."""

    def __init__(self, spelling: Spelling = PLAIN, prompt: str = "") -> None:
        self.spelling = spelling
        self.prompt = prompt
        self.buffer = ""
        self.position = 0  # in the buffer
        self.at = 0  # in the reply
        self.ended = False
        self.events: list[Event] = []
        self.spans: list[tuple[str, int]] = []  # a kind, and where it starts
        self.content, self.thought = StringIO(), StringIO()
        self.calls: list[Call] = []
        self.attempts: list[tuple[str, int, int, str | None, int | None]] = []
        self.stop: str | None = None
        # while a call has no name yet:
        self.held: list[str] | None = None
        self.begin = (0, 0)  # of the last call: in the reply, in the spans
        # the start of a region: white space is kept back until something else follows
        self.fresh = True
        self.gap: list[str] = []
        # the event that is being put together
        self.said: list[str] = []
        self.said_of: tuple[Kind, int | None] = (TEXT, None)

    # -- reading

    def refill(self, text: str) -> None:
        """What is to be read next."""
        self.buffer, self.position = text, 0

    def consume(self, size: int, kind: str) -> str:
        """The next characters, which are of this kind."""
        text = self.buffer[self.position : self.position + size]
        if size:
            if not self.spans or self.spans[-1][0] != kind:
                self.spans.append((kind, self.at))
            self.position += size
            self.at += size
            if self.held is not None:
                self.held.append(text)
        return text

    def mark(self, found: Found) -> str:
        """Take a marker that was found."""
        return self.consume(found.end - self.position, "marker")

    def peek(self) -> Generator[None, None, str]:
        """The next character; empty at the end."""
        while self.position >= len(self.buffer):
            if self.ended:
                return ""
            yield
        return self.buffer[self.position]

    def spaces(self, kind: str = "space") -> Generator[None, None, str]:
        """Skip white space; the character behind it."""
        while True:
            char = yield from self.peek()
            if not char or not char.isspace():
                return char
            rest = self.buffer[self.position :] if len(self.buffer) - self.position < 64 else None
            size = len(rest) - len(rest.lstrip()) if rest is not None else 1
            self.consume(size, kind)

    def eat(self, text: str, kind: str = "marker") -> Generator[None, None, bool]:
        """Take exactly this text if it is next."""
        while True:
            ahead = self.buffer[self.position : self.position + len(text)]
            if ahead == text:
                self.consume(len(text), kind)
                return True
            if not text.startswith(ahead) or self.ended:
                return False
            yield

    def ahead(self, size: int = 1) -> Generator[None, None, tuple[str, int]]:
        """The next characters behind white space, which is not taken, and how much of it there is."""
        while True:
            window = self.buffer[self.position : self.position + SPACES + size]
            body = window.lstrip()
            if len(body) >= size or self.ended or len(window) == SPACES + size:
                return body[:size], len(window) - len(body)
            yield

    def coming(self, forms: Iterable[str]) -> Generator[None, None, tuple[str, int]]:
        """The longest of these texts that is next, empty if none is; and how much white space stands before it."""
        cores = sorted((form.strip() for form in forms), key=len, reverse=True)
        size = SPACES + len(cores[0])
        while True:
            ahead = self.buffer[self.position : self.position + size]
            body = ahead.lstrip()
            open = not self.ended and len(ahead) < size
            if not (open and any(core.startswith(body) and core != body for core in cores)):
                return next((core for core in cores if body.startswith(core)), ""), len(
                    ahead
                ) - len(body)
            yield

    def eat_spaced(self, forms: tuple[str, ...]) -> Generator[None, None, bool]:
        """Take the longest of these texts that is next, and the white space before it only then."""
        core, spaces = yield from self.coming(forms)
        if core:
            self.consume(spaces, "space")
            self.consume(len(core), "marker")
        return bool(core)

    def trail(self, text: str) -> Steps:
        """Take as much as there is of the white space that a marker ends with."""
        for char in text:
            if not (yield from self.eat(char, "space")):
                return

    def until(
        self,
        watch: Watch,
        into: Callable[[str], object],
        span: str,
        limit: int | None = None,
    ) -> Generator[None, None, Found | None]:
        """All text up to the first marker that is watched for, which is not taken.

        None at the end of the reply, or when the text is longer than `limit`.
        """
        start = self.at
        while True:
            left = limit if limit is None else limit - (self.at - start)
            found, safe = watch.find(self.buffer, self.position, self.ended, left)
            if found is None and self.ended and span not in (TEXT, REASONING):
                safe = watch.hold(
                    self.buffer, self.position
                )  # the beginning of a marker is no part of a value
            if limit is not None and self.at + safe - self.position - start > limit:
                into(self.consume(limit - (self.at - start), span))
                return None
            if safe > self.position:
                into(self.consume(safe - self.position, span))
            if found is not None or self.ended:
                return found
            yield

    # -- saying

    def say(self, kind: Kind, text: str, index: int | None = None) -> None:
        """Text of an event; what goes on where the last one ended is put together with it."""
        if self.said_of != (kind, index):
            self.flush()
            self.said_of = (kind, index)
        self.said.append(text)

    def flush(self) -> None:
        if self.said:
            kind, index = self.said_of
            self.events.append(Event(kind, "".join(self.said), index))
            self.said.clear()

    def tell(self, event: Event) -> None:
        self.flush()
        self.events.append(event)

    def take_events(self) -> list[Event]:
        if self.said:
            self.flush()
        events = self.events
        if events:
            self.events = []
            return events
        return []

    def text(self, text: str) -> None:
        self.flow(TEXT, self.content, text)

    def thinking(self, text: str) -> None:
        self.flow(REASONING, self.thought, text)

    def flow(self, kind: Kind, sink: StringIO, text: str) -> None:
        """Text of a region. White space that nothing follows is not part of it."""
        if self.fresh:
            if text.isspace():
                self.gap.append(text)
                self.rename("space", len(text))
                return
            if self.gap:
                self.gap.append(text)
                text = "".join(self.gap)
                self.rename(kind, len(text))
                self.gap.clear()
            self.fresh = False
        text = self.spelling.plain(text)
        sink.write(text)
        self.say(kind, text)

    def rename(self, kind: str, size: int) -> None:
        """The last characters are of this kind."""
        start = self.at - size
        while self.spans and self.spans[-1][1] >= start:
            self.spans.pop()
        if not self.spans or self.spans[-1][0] != kind:
            self.spans.append((kind, start))

    def boundary(self) -> None:
        """A region has ended."""
        self.fresh = True
        self.gap.clear()

    # -- calls

    def invented(self, index: int) -> str:
        """An id for a call that has none: nine letters and digits, as some templates demand.

        It is made of the prompt: calls of two turns differ, and one reply to one prompt is always read the same.
        """
        if not self.prompt:
            return f"call{index:05}"
        return f"{crc32(self.prompt.encode('utf-8', 'surrogatepass')) % 0x1000000:06x}{index:03}"

    def open_call(self) -> None:
        self.begin = (self.at, len(self.spans))
        self.held = []

    def start_call(self, name: str, id: str | None = None) -> Call:
        call = Call(len(self.calls), name, id)
        self.calls.append(call)
        self.held = None
        self.fresh = False
        self.tell(Event(START, "", call.index, name, id))
        return call

    def argue(self, call: Call, text: str) -> None:
        if text:
            text = self.spelling.quoted(text)
            call.arguments.write(text)
            self.say(ARGUMENTS, text, call.index)

    def argue_text(self, text: str) -> None:
        """Text within a string of the arguments."""
        self.argue(self.calls[-1], escape(text))

    def end_call(self, call: Call, status: str, late: str | None = None) -> None:
        if late is not None and call.id is None:
            call.id = late
        else:
            late = None
        self.attempts.append((status, self.begin[0], self.at, call.name, call.index))
        if status != "unterminated":
            self.tell(Event(END, "", call.index, None, late))
        self.boundary()

    def abandon(self, record: bool = True) -> None:
        """What was begun as a call is none: it is text."""
        text = "".join(self.held or ())
        self.held = None
        start, spans = self.begin
        del self.spans[spans:]
        if text:
            self.spans.append((TEXT, start))
            if record:
                self.attempts.append(("unreadable", start, self.at, None, None))
            self.text(text)

    def halt(self, text: str) -> None:
        if self.stop is None:
            self.stop = text
            self.tell(Event(STOP, text))


def attempt(row: tuple[str, int, int, str | None, int | None], raw: str) -> Attempt:
    status, start, end, name, index = row
    return Attempt(status, start, end, raw, name, index)
