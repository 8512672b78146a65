"""The short way: most chunks of a long reply need not wake the reading.

While the reading waits within a text or a value, it leaves a shortcut behind: what it would say of the next chunk. The
answer depends on little: within a text, on the beginning of a marker that is held back; within a value, on the brackets
that are open and on what is due next. That is a `Place`, and a place remembers its answers, so that a chunk which came
there before costs one look into a table. What went the short way is handed over when the reading wakes.

A number or a word is said when it is over. Its letters are not part of the place, or there would be as many places as
numbers: the steps that were taken keep them. What ends one number ends every other: the place remembers that too
(`ends`), with a zero for the number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, Protocol

from turnwise.replies.events import ARGUMENTS, Event, Kind
from turnwise.replies.parser.values import NUMBER, TOKEN, WORD, Form, Reader

HELD = 8  # characters that a value may hold back at a place
ENDS = 256  # what may stand between two numbers; so many are remembered at a place
SEPARATED = re.compile(r"([\w.+\-]*)([^\w.+\-]+)([\w.+\-]*)")

Write = Callable[[str], object]


class Step(NamedTuple):
    """What a chunk means at a place."""

    events: list[Event]
    place: Place  # behind it
    chunk: str
    said: str = ""  # of a value
    word: str = ""  # what of the chunk belongs to a word that is not over
    begins: bool = False  # that word begins within the chunk
    sure: bool = True  # the same chunk means the same whenever it comes there


class Place(dict[str, Step]):
    """A place within a reply, as far as it matters; the steps from there, by chunk."""

    __slots__ = ("ends", "form", "held")

    def __init__(self, held: str = "", form: Form | None = None) -> None:
        super().__init__()
        self.held = held
        self.form = form
        self.ends: dict[str | tuple[str, str], Step | None] = {}


class Places(dict[Hashable, Place]):
    """The places of one reply."""

    __slots__ = ()

    LIMIT = 1024

    def at(self, key: Hashable, held: str, form: Form | None = None) -> Place:
        place = self.get((key, held, form))
        if place is None:
            if len(self) >= self.LIMIT:
                self.clear()
            place = self[key, held, form] = Place(held, form)
        return place


class Shortcut(Protocol):
    """What the reading leaves behind."""

    span: str  # of what goes the short way

    def start(self, places: Places, held: str) -> Place: ...

    def step(self, places: Places, place: Place, chunk: str, kept: Sequence[Step]) -> Step | None:
        """What is said of a chunk; None if it must wake the reading."""
        ...

    def passed(self, text: str, place: Place, kept: Sequence[Step]) -> None:
        """All that went the short way since the last time, and where that led."""
        ...


class Text:
    """Within a text: a chunk goes the short way if no marker is complete."""

    __slots__ = ("index", "key", "kind", "safe", "sink", "span", "written")

    def __init__(
        self,
        safe: Callable[[str], int],
        key: Hashable,
        span: str,
        sink: Write,
        written: Callable[[str], str],
        kind: Kind | None = None,
        index: int | None = None,
    ) -> None:
        self.safe = safe  # how much of a text is certainly no marker; -1 if a marker is complete
        self.span, self.sink = span, sink
        self.written = written  # as it is said
        self.kind, self.index = kind, index  # None: nothing is said yet
        self.key = (key, kind, index)  # where the same chunk means the same

    def start(self, places: Places, held: str) -> Place:
        return places.at(self.key, held)

    def step(self, places: Places, place: Place, chunk: str, kept: Sequence[Step]) -> Step | None:
        whole = place.held + chunk
        safe = self.safe(whole)
        if safe < 0:
            return None
        events: list[Event] = []
        if safe and self.kind is not None:
            events.append(Event(self.kind, self.written(whole[:safe]), self.index))
        return Step(events, places.at(self.key, whole[safe:]), chunk)

    def passed(self, text: str, place: Place, kept: Sequence[Step]) -> None:
        self.sink(self.written(text))


class Value:
    """Within a value of the arguments: a chunk goes the short way unless the value ends or cannot be read."""

    __slots__ = ("index", "key", "plain", "reader", "sink", "span", "word", "written")

    def __init__(
        self, reader: Reader, index: int, sink: Write, written: Callable[[str], str]
    ) -> None:
        self.reader, self.index, self.span = reader, index, ARGUMENTS
        self.sink, self.written = sink, written
        self.key = (reader.rules, index)
        self.word = "".join(reader.word)
        self.plain = not reader.syntax.texts  # words are made of the letters that SEPARATED knows

    def start(self, places: Places, held: str) -> Place:
        return places.at(self.key, held, self.reader.form())

    def step(self, places: Places, place: Place, chunk: str, kept: Sequence[Step]) -> Step | None:
        form = place.form
        if form is None:
            return None
        if form.state != WORD:
            return self.taken(places, place, form, "", chunk)
        letters = self.reader.syntax.key if form.is_key else self.reader.syntax.word
        if letters.fullmatch(chunk):
            return Step([], place, chunk, word=chunk)
        word = self.open_word(kept)
        step = (
            self.separated(places, place, word, chunk) if self.plain and form.key is None else None
        )
        return step or self.taken(places, place, form, word, chunk)

    def separated(self, places: Places, place: Place, word: str, chunk: str) -> Step | None:
        """The step that ends a number, and may begin the next one; None if that is not all there is to it."""
        ending, more = place.ends.get(chunk), ""
        if ending is None:
            match = SEPARATED.fullmatch(chunk)
            if match is None:
                return None
            letters, signs, more = match.groups()
            ending, word = self.ending(places, place, signs, bool(more)), word + letters
        if ending is None or not is_number(word):
            return None
        said = word + ending.said[1:]
        return Step(
            [Event(ARGUMENTS, said, self.index)], ending.place, chunk, said, more, True, False
        )

    def ending(self, places: Places, place: Place, signs: str, more: bool) -> Step | None:
        """What signs mean behind a number, and before another one if there is more."""
        key = (signs, "0") if more else signs
        if key not in place.ends and len(place.ends) < ENDS:
            assert place.form is not None
            step = self.taken(places, place, place.form, "0", "".join(key))
            in_word = (
                step is not None and step.place.form is not None and step.place.form.state == WORD
            )
            place.ends[key] = step if in_word == more else None
        return place.ends.get(key)

    def taken(
        self, places: Places, place: Place, form: Form, before: str, chunk: str
    ) -> Step | None:
        """The step, read by the reader itself."""
        reader = self.reader
        reader.adopt(form, before)
        whole = place.held + chunk
        went = reader.read(whole, 0)
        after = reader.form()
        if reader.done or reader.failed is not None or after is None or len(whole) - went > HELD:
            reader.adopt(form, before)
            return None
        said, word = self.written(reader.take()), "".join(reader.word)
        in_word = form.state == WORD
        goes_on = in_word and not said and after.state == WORD
        events = [Event(ARGUMENTS, said, self.index)] if said else []
        following = places.at(self.key, whole[went:], after)
        return Step(
            events,
            following,
            chunk,
            said,
            chunk if goes_on else word,
            not goes_on,
            sure=goes_on or not in_word,
        )

    def open_word(self, kept: Sequence[Step]) -> str:
        """The letters of a word that is not over."""
        letters: list[str] = []
        for step in reversed(kept):
            letters.append(step.word)
            if step.begins:
                break
        else:
            letters.append(self.word)
        return "".join(reversed(letters))

    def passed(self, text: str, place: Place, kept: Sequence[Step]) -> None:
        assert place.form is not None
        self.sink("".join([step.said for step in kept]))
        self.word = self.open_word(kept) if place.form.state == WORD else ""
        self.reader.adopt(place.form, self.word)


def is_number(word: str) -> bool:
    """Whether a word is said as it stands."""
    plain = word.isdecimal() and word.isascii() and word[0] != "0"
    return len(word) <= TOKEN and (plain or NUMBER.fullmatch(word) is not None)
