"""Find markers in a stream of text.

A `MarkerMatcher` looks for a set of literal markers, each with a tag. For a buffer it answers two
questions:

* which complete marker comes first?
* which suffix of the buffer must be held back, because it is a prefix of some marker?

Whitespace before a marker belongs to it, as much of it as is there: `\\n</think>` is matched as
`\\n</think>` and as `</think>`. The markers are literals, so the regular expression never
backtracks. The suffix is found in the set of all proper prefixes of the markers, with at most as
many lookups as the longest marker has characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum, auto
from functools import lru_cache
from typing import NamedTuple

_CACHE_SIZE = 512


class MarkerKind(IntEnum):
    """What a marker does where it is matched."""

    # Between and around the regions of a reply.
    REASONING_OPEN = auto()
    REASONING_CLOSE = auto()
    CONTENT_OPEN = auto()
    CONTENT_CLOSE = auto()
    MESSAGE_START = auto()  # another message of the same reply: `<|start|>assistant`
    CHANNEL_HEADER = auto()  # the beginning of a channel header: `<|channel|>`
    CHANNEL_HEADER_END = auto()
    STOP = auto()
    # Around calls.
    SECTION_OPEN = auto()
    CALL_OPEN = auto()  # `MarkerTag.index`: which of the call's openers it is
    BARE_CALL = auto()  # the brace of a JSON call that has no opener
    CALL_CLOSE = auto()  # a closer of a call or section that is seen where no call is open
    CALL_END = auto()  # whatever ends the call that is open
    # Within a call.
    PART = auto()  # a part of the call; `MarkerTag.index` is the part after it
    SLOT = auto()  # the beginning of the slot `MarkerTag.index`
    KEY_OPEN = auto()
    VALUE_OPEN = auto()
    VALUE_CLOSE = auto()
    SAME_ELEMENT = auto()  # an element with the same name as the value that is open
    NEXT_KEY = auto()  # within a value: the next argument, if the closer of the value is missing
    CLOSING_MARKER = auto()  # or the end of the call; `MarkerTag.index`: which of `closing_markers`


@dataclass(frozen=True, slots=True)
class MarkerTag:
    """The meaning of a marker: its kind, and for markers of calls which call format and which part of it."""

    kind: MarkerKind
    format: int = 0
    index: int = 0


class MarkerMatch(NamedTuple):
    """A complete marker in a buffer."""

    tag: MarkerTag
    start: int
    end: int


TaggedText = tuple[str, MarkerTag]


class MarkerMatcher:
    """Literal markers that are matched together. Of equal markers the first one's tag counts."""

    __slots__ = ("_longest", "_pattern", "_shortest", "first_characters", "prefixes", "tags")

    def __init__(self, markers: Iterable[TaggedText]) -> None:
        self.tags: dict[str, MarkerTag] = {}
        for text, tag in markers:
            for form in _with_leading_space(text):
                self.tags.setdefault(form, tag)
        # The longest alternative comes first: a regular expression takes the first that matches.
        literals = sorted(self.tags, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, literals)) or r"(?!)")
        self.prefixes = frozenset(
            literal[:size] for literal in literals for size in range(1, len(literal))
        )
        self.first_characters = frozenset(literal[0] for literal in literals)
        self._longest = len(literals[0]) if literals else 0
        self._shortest = len(literals[-1]) if literals else 0

    def partial_match_start(self, text: str, start: int, end: int | None = None) -> int:
        """Return where the longest suffix of `text` starts that is a prefix of some marker, or its length.

        With `end`, suffixes that start behind it do not count.
        """
        size = len(text)
        start = max(start, size - self._longest + 1)
        for position in range(start, size if end is None else end):
            if text[position] in self.first_characters and text[position:] in self.prefixes:
                return position
        return size

    def find(
        self, text: str, start: int, ended: bool, limit: int | None = None
    ) -> tuple[MarkerMatch | None, int]:
        """Return the first complete marker, if it can be decided, and up to where the text can be emitted.

        Args:
            text: The buffer.
            start: Where to start in it.
            ended: No more text follows.
            limit: Only markers that start within so many characters are matched.
        """
        if len(text) - start < self._shortest and not ended:
            return None, self.partial_match_start(text, start)
        end = len(text) if limit is None else start + limit + self._longest
        match = self._pattern.search(text, start, end)
        if match is None:
            return None, len(text) if ended else self.partial_match_start(text, start)
        if not ended:
            # An earlier or a longer marker may still be completed by the next chunk.
            partial = self.partial_match_start(text, start, match.start() + 1)
            if partial <= match.start():
                return None, partial
        tag = self.tags[match.group()]
        return MarkerMatch(tag, match.start(), match.end()), match.start()


class ExpectedMarkers:
    """Literal markers of which one may come next, without the whitespace at their edges."""

    __slots__ = ("_pattern", "longest", "prefixes")

    def __init__(self, markers: Iterable[str]) -> None:
        cores = sorted((marker.strip() for marker in markers), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, cores)))
        self.prefixes = frozenset(core[:size] for core in cores for size in range(len(core)))
        self.longest = len(cores[0])

    def match(self, text: str) -> str:
        """Return the longest marker that a text starts with, or ""."""
        match = self._pattern.match(text)
        return match.group() if match else ""


def _with_leading_space(text: str) -> Iterator[str]:
    """Yield a marker with all, some and none of the whitespace before it; whitespace alone as it is."""
    core = text.strip()
    if not core:
        if text:
            yield text
        return
    lead = text[: len(text) - len(text.lstrip())]
    for size in range(len(lead) + 1):
        yield lead[size:] + core


@lru_cache(maxsize=_CACHE_SIZE)
def matcher_for(markers: tuple[TaggedText, ...]) -> MarkerMatcher:
    """Return the matcher of these markers, built once."""
    return MarkerMatcher(markers)


@lru_cache(maxsize=_CACHE_SIZE)
def expect(markers: tuple[str, ...]) -> ExpectedMarkers:
    """Return these markers as those that may come next, compiled once."""
    return ExpectedMarkers(markers)
