"""Piece table: what a program wrote, text by text, before anybody asks where each character came from.

A program writes texts and trails in turn, and marks between them: a loop begins, it is at this message, a
`{% generation %}` block ends. Here the marks are taken out and become places: from this text on this message was being
written, or a generation block was open. Trails are not followed, so a table costs little; `split` follows one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, repeat
from typing import Any

from turnwise.engine.provenance.trails import (
    BEGIN,
    BOUND,
    DONE,
    END,
    ITEMS,
    JOINED,
    LOOP,
    NEXT,
    NOWHERE,
    PART,
    ROOT,
    Field,
    Fragment,
    FragmentCache,
    Path,
    resolve,
    split_by_origin,
)

MESSAGES = (ROOT, "messages")
WALKED = 20_000  # blocks within blocks that are walked for their marks; more are only cut into runs


class PieceTable:
    """The texts, their trails, and where each text starts; and at which of them another message begins."""

    __slots__ = (
        "_cache",
        "_followed",
        "message_starts",
        "generates",
        "messages",
        "starts",
        "switched",
        "texts",
        "trails",
    )

    def __init__(self, out: Sequence[Any], size: int) -> None:
        tracker = MessageTracker()
        self.texts, self.trails = tracker.walk(out)
        # From the text `message_starts[i]` on, the message `messages[i]` was being written;
        # from `switched[i]` on, a generation block was open if i is odd.
        self.message_starts, self.messages = tracker.message_starts, tracker.messages
        self.switched = tracker.switched
        self.starts = list(accumulate(map(len, self.texts), initial=0))
        if self.starts[-1] != size:
            self._clip(size)
        self._followed: dict[int, list[Fragment]] = {}
        self._cache = FragmentCache()

    def message_of(self, index: int) -> int | None:
        """The message that was being written at this text."""
        return self.messages[bisect_right(self.message_starts, index) - 1]

    def rows(self) -> Iterator[tuple[str, Any, int | None, bool]]:
        """Text by text: the text, its trail, its message, and whether a generation block was open."""
        spans = zip(
            self.message_starts,
            [*self.message_starts[1:], len(self.texts)],
            self.messages,
            strict=True,
        )
        owners = chain.from_iterable(repeat(message, end - start) for start, end, message in spans)
        edges = [*self.switched, len(self.texts)]
        opens = chain.from_iterable(
            repeat(bool(i % 2), end - edges[i]) for i, end in enumerate(edges[1:])
        )
        return zip(self.texts, self.trails, owners, opens, strict=True)

    def _clip(self, size: int) -> None:
        """A continued message ends before its rendering did."""
        count = bisect_right(self.starts, size - 1) if size else 0
        del self.texts[count:], self.trails[count:]
        if count:
            text, trail, kept = self.texts[-1], self.trails[-1], size - self.starts[count - 1]
            self.texts[-1] = text[:kept]
            self.trails[-1] = (
                trail if type(trail) is int or trail is None else (PART, text, trail, 0)
            )
        self.starts = [*self.starts[:count], size]
        last = max(bisect_left(self.message_starts, count), 1)
        del self.message_starts[last:], self.messages[last:]
        self.switched = [place for place in self.switched if place <= count]

    def index_at(self, character: int) -> int:
        """The index of the text that holds this character."""
        return bisect_right(self.starts, character) - 1

    def split(self, index: int) -> list[Fragment]:
        """The text at this index, cut where its origin changes."""
        found = self._followed.get(index)
        if found is None:
            text, trail = self.texts[index], self.trails[index]
            if type(trail) is int:
                found = [(text, trail)]
            else:
                found = (
                    [(text, NOWHERE)]
                    if trail is None
                    else split_by_origin(text, trail, self._cache)
                )
            self._followed[index] = found
        return found


class MessageTracker:
    """Keeps count of loops and generation blocks along what a program wrote."""

    def __init__(self) -> None:
        self.message_starts, self.switched = [0], [0]
        self.messages: list[int | None] = [None]
        self.loops: list[int | None] = []  # the message that each loop is at
        self.message: int | None = None
        self.generations = 0
        self.unplaced: int | None = None  # where a round begins whose message is not known yet
        self.walked = 0

    def walk(self, out: Sequence[Any]) -> tuple[list[str], list[Any]]:
        """The texts and their trails. What a block or macro wrote is walked too, for it has marks of its own."""
        texts: list[str] = []
        trails: list[Any] = []
        starts, messages = self.message_starts, self.messages
        waiting = [zip(out[::2], out[1::2], strict=True)]
        while waiting:
            for text, trail in waiting[-1]:
                if text:
                    if type(trail) is tuple and trail[0] is JOINED and self.walked < WALKED:
                        self.walked += 1
                        waiting.append(zip(trail[1][::2], trail[1][1::2], strict=True))
                        break
                    texts.append(text)
                    trails.append(trail)
                elif type(trail) is tuple:
                    if (
                        len(self.loops) == 1
                        and trail[0] == MESSAGES
                        and len(trail) == 2
                        and type(trail[1]) is int
                    ):
                        self.loops[0] = self.message = trail[
                            1
                        ]  # the next message of the one loop that there is
                        starts.append(len(texts))
                        messages.append(trail[1])
                    else:
                        self.mark(trail, len(texts))
            else:
                waiting.pop()
        return texts, trails

    def mark(self, trail: tuple[Any, ...], at: int) -> None:
        if trail is LOOP:
            self.loops.append(None)
        elif trail is DONE:
            self.loops.pop()
        elif trail is BEGIN or trail is END:
            self.generate(1 if trail is BEGIN else -1, at)
            return
        elif trail is NEXT:
            self.loops[-1], self.unplaced = None, at
        elif not self.loops:
            return
        elif trail[0] is BOUND:
            if self.message is None:
                self.loops[-1] = message_of_trail(trail[1])
                self.place(self.loops[-1])
        else:
            found = message_of_trail(trail)
            if found is not None:
                self.loops[-1] = found
        message = None
        for message in reversed(self.loops):
            if message is not None:
                break
        if message != self.message:
            self.message = message
            self.begin(message, at)

    def begin(self, message: int | None, at: int) -> None:
        """From here on this message is written."""
        if self.message_starts[-1] == at:
            self.messages[-1] = message
        else:
            self.message_starts.append(at)
            self.messages.append(message)

    def generate(self, step: int, at: int) -> None:
        before, self.generations = self.generations > 0, self.generations + step
        if before != (self.generations > 0):
            self.switched.append(at)

    def place(self, message: int | None) -> None:
        """The message of this round is known now: what was written before belongs to it too, as far as to none."""
        if message is not None and self.unplaced is not None:
            if self.messages[-1] is None and self.message_starts[-1] < self.unplaced:
                self.begin(message, self.unplaced)
            for index in range(len(self.message_starts) - 1, -1, -1):
                if self.message_starts[index] < self.unplaced:
                    break
                if self.messages[index] is None:
                    self.messages[index] = message
            self.unplaced = None


def message_of_trail(trail: Any) -> int | None:
    """The index, if the trail leads to a whole message, or to a dict that the template made of one."""
    if len(trail) == 2 and trail[0] == MESSAGES and type(trail[1]) is int:
        return trail[1]
    found = resolve(trail)
    if isinstance(found, Field):
        return message_index(found.path) if len(found.path) == 2 else None
    if (
        type(found) is tuple
        and found[0] is ITEMS
        and isinstance(found[1], dict)
        and "role" in found[1]
    ):
        for key in ("content", "role"):
            for _, leaf in split_by_origin(" ", found[1].get(key)):
                index = message_index(leaf.path) if isinstance(leaf, Field) else None
                if index is not None:
                    return index
    return None


def message_index(path: Path) -> int | None:
    """The message that a path leads into."""
    index = path[1] if len(path) > 1 and path[0] == "messages" else None
    return index if isinstance(index, int) else None
