"""Stretch: a part of a rendered turn that knows where it may be cut.

Markers are found by comparing what stands between fields in several renderings. Two texts may agree by accident for a
few characters more than they should: `</think>` and `</tool_call>` share `</t`. So a text is cut only at a *boundary*:

* the edge of a tag, `<...>` or `[...]`, whole or with one end at the edge of the stretch;
* the edge of a token that the tokenizer never cuts, if a tokenizer is known;
* outside of tags, where one node of the template ends and the next begins;
* outside of tags, where white space begins or ends.

A boundary counts when both texts have it. And a tag that goes on as a word in both (`<|channel|>analysis`,
`<|channel|>final`) belongs to the word.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from os.path import commonprefix

from turnwise.engine.provenance.rendering import Origin, Piece
from turnwise.replies.grammar import Marker

# Matched against texts of templates, never against replies. No part can match in two ways.
TAG = re.compile(r"<[^<>\n]*>|\[[/|A-Za-z_][^\[\]\n\"{}<>]*\]|(?<!<)<[^<>\n]*$|^[^<>\n]*>(?!>)")
WHOLE = re.compile(r"<[^<>\n]*>|\[[/|A-Za-z_][^\[\]\n\"{}<>]*\]")
SPACES = re.compile(r"\s+")


@dataclass(frozen=True)
class Stretch:
    """A text, and at which of its characters another origin begins."""

    text: str = ""
    starts: tuple[int, ...] = ()
    origins: tuple[Origin, ...] = ()
    tokens: tuple[str, ...] = ()  # texts that a tokenizer never cuts

    @classmethod
    def of(cls, pieces: Iterable[Piece], tokens: tuple[str, ...] = ()) -> Stretch:
        at, starts, origins, texts = 0, [], [], []
        for text, origin in pieces:
            starts.append(at)
            origins.append(origin)
            texts.append(text)
            at += len(text)
        return cls("".join(texts), tuple(starts), tuple(origins), tokens)

    def __len__(self) -> int:
        return len(self.text)

    def part(self, start: int, end: int | None = None) -> Stretch:
        end = len(self.text) if end is None else end
        if start >= end:
            return NONE
        first, last = bisect_right(self.starts, start) - 1, bisect_right(self.starts, end - 1)
        starts = tuple(max(at - start, 0) for at in self.starts[first:last])
        return Stretch(self.text[start:end], starts, self.origins[first:last], self.tokens)

    @property
    def pieces(self) -> Iterator[tuple[int, int, Origin]]:
        """From where to where each origin goes."""
        return zip(self.starts, (*self.starts[1:], len(self)), self.origins, strict=False)

    def origin(self, index: int) -> Origin:
        return self.origins[bisect_right(self.starts, index) - 1]

    @property
    def core(self) -> str:
        return self.text.strip()

    @cached_property
    def tags(self) -> list[tuple[int, int]]:
        """Where whole tags stand, and tokens of the tokenizer, which count as such."""
        return self.spans(WHOLE)

    def spans(self, pattern: re.Pattern[str]) -> list[tuple[int, int]]:
        tokens = [span for token in self.tokens for span in places(self.text, token)]
        covered = {at for start, end in tokens for at in range(start, end)}
        tags = [match.span() for match in pattern.finditer(self.text)]
        return sorted([*tokens, *(tag for tag in tags if covered.isdisjoint(range(*tag)))])

    @cached_property
    def boundaries(self) -> frozenset[int]:
        tags = self.spans(TAG)
        inside = {at for start, end in tags for at in range(start + 1, end)}
        spaces = (at for match in SPACES.finditer(self.text) for at in match.span())
        edges = {0, len(self.text), *self.starts, *spaces} - inside
        return frozenset(edges.union(*tags))

    def marker(self) -> Marker:
        """The text as a marker; its origin is that of its first character that is not white space."""
        if not self.text:
            return Marker()
        at = len(self.text) - len(self.text.lstrip()) if self.core else 0
        return Marker(self.text, str(self.origin(at)))


NONE = Stretch()


def places(text: str, word: str) -> Iterator[tuple[int, int]]:
    at = text.find(word)
    while at >= 0:
        yield at, at + len(word)
        at = text.find(word, at + len(word))


def shared_start(one: Stretch, other: Stretch) -> int:
    """How much of their beginning two stretches share, up to a boundary of both."""
    size = len(commonprefix([one.text, other.text]))
    places = (
        at
        for at in one.boundaries & other.boundaries
        if at <= size and not goes_on(one.text, other.text, at)
    )
    return max(places, default=0)


def goes_on(one: str, other: str, at: int) -> bool:
    """A tag ends here and in both texts a word follows it."""
    return (
        0 < at < min(len(one), len(other))
        and one[at - 1] in ">]"
        and one[at].isalpha()
        and other[at].isalpha()
    )


def shared_end(one: Stretch, other: Stretch) -> int:
    """How much of their end two stretches share."""
    size = len(commonprefix([one.text[::-1], other.text[::-1]]))
    mirrored = {len(other) - at for at in other.boundaries}
    places = (
        len(one) - at
        for at in one.boundaries
        if len(one) - at <= size
        and len(one) - at in mirrored
        and not comes_from(one.text, other.text, len(one) - at)
    )
    return max(places, default=0)


def comes_from(one: str, other: str, size: int) -> bool:
    """A tag begins here and in both texts a word stands before it."""
    if not 0 < size < min(len(one), len(other)):
        return False
    return one[-size] in "<[" and one[-size - 1].isalpha() and other[-size - 1].isalpha()


def between(middle: Stretch, before: Stretch, after: Stretch) -> tuple[Stretch, Stretch, Stretch]:
    """What stands between two items, as the end of the one, a separator, and the beginning of the other.

    `before` stands before the first item and `after` behind the last, so the end is what `middle` and `after` begin
    with, and the beginning is what `middle` and `before` end with. Where the two overlap, the nodes decide; where they
    do not, it belongs to the beginning, as a text does that is put before every tag.
    """
    end, start = shared_start(middle, after), len(middle) - shared_end(middle, before)
    if start < end:
        places = [at for at in middle.boundaries if start <= at <= end]
        end = start = max(places, key=lambda at: (agreement(middle, before, after, at), -at))
    return middle.part(0, end), middle.part(end, start), middle.part(start)


def agreement(middle: Stretch, before: Stretch, after: Stretch, at: int) -> int:
    """How many characters come from the same node as those that they are compared with, if `middle` is cut here."""
    shift = len(before) - len(middle)
    return sum(middle.origin(i).node == after.origin(i).node for i in range(at)) + sum(
        middle.origin(i).node == before.origin(i + shift).node
        for i in range(at, len(middle))
        if i + shift >= 0
    )


def last_tag(stretch: Stretch) -> int:
    """Where the last whole tag begins; if there is none, the last text that a node of its own wrote; else the end."""
    if stretch.tags:
        return stretch.tags[-1][0]
    return next(
        (at for at in reversed(stretch.starts) if at > 0 and stretch.text[at:].strip()),
        len(stretch),
    )


def upto(turn: Stretch, word: str) -> Stretch:
    """What stands before the word."""
    return turn.part(0, max(turn.text.find(word), 0))


def behind(turn: Stretch, word: str) -> Stretch:
    """What stands behind the word."""
    return turn.part(turn.text.find(word) + len(word))


def blank(text: str) -> int:
    """How much white space a text begins with."""
    return len(text) - len(text.lstrip())
