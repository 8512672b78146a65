"""Watching a stream for markers.

A watch is a set of literal texts, each with a name. Looking at a buffer it answers: the first marker that is complete,
and from where on the buffer must be held back since it may still become a marker. The white space that belongs to a
marker in front is part of it, as much of it as is there: `\\n</think>` is watched as `\\n</think>` and as `</think>`.

The texts are literals, so the one regular expression that looks for them never goes back; what may still become a
marker is asked of the set of all their beginnings, at most as often as the longest marker has characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple


class Found(NamedTuple):
    """A complete marker in a buffer."""

    tag: str
    start: int
    end: int


class Watch:
    """Literal texts, watched for together."""

    __slots__ = ("beginnings", "first", "longest", "pattern", "shortest", "tags")

    def __init__(self, texts: Iterable[tuple[str, str]]) -> None:
        self.tags: dict[str, str] = {}
        for text, tag in texts:
            for form in forms(text):
                self.tags.setdefault(form, tag)
        literals = sorted(self.tags, key=len, reverse=True)
        self.pattern = re.compile("|".join(map(re.escape, literals)) if literals else r"(?!)")
        self.beginnings = frozenset(
            form[:size] for form in literals for size in range(1, len(form))
        )
        self.first = frozenset(form[0] for form in literals)
        self.longest = len(literals[0]) if literals else 0
        self.shortest = len(literals[-1]) if literals else 0

    def hold(self, text: str, start: int) -> int:
        """Where the longest ending of `text` starts that may still become a marker; its length if there is none."""
        size, first, beginnings = len(text), self.first, self.beginnings
        if size - start >= self.longest:
            start = size - self.longest + 1
        for at in range(start, size):
            if text[at] in first and text[at:] in beginnings:
                return at
        return size

    def find(
        self, text: str, start: int, ended: bool, limit: int | None = None
    ) -> tuple[Found | None, int]:
        """The first complete marker, if it can be decided; and up to where `text` is certainly no marker.

        With a limit, only markers that start at most so many characters ahead are looked for.
        """
        if len(text) - start < self.shortest and not ended:
            return None, self.hold(text, start)
        end = len(text) if limit is None else start + limit + self.longest
        match = self.pattern.search(text, start, end)
        if match is None:
            return None, len(text) if ended else self.hold(text, start)
        if not ended:
            held = self.hold(text, start)
            if held <= match.start():  # an earlier or a longer marker may still be coming
                return None, held
        return Found(self.tags[match.group()], match.start(), match.end()), match.start()


def forms(text: str) -> Iterator[str]:
    """A marker with all, some and none of the white space in front of it; white space alone is itself."""
    core = text.strip()
    lead = text[: len(text) - len(text.lstrip())]
    for size in range(len(lead) + 1 if core else 0):
        yield lead[size:] + core
    if text and not core:
        yield text


@lru_cache(maxsize=512)
def watching(texts: tuple[tuple[str, str], ...]) -> Watch:
    """A watch, made once for the same texts."""
    return Watch(texts)
