"""Segment: a part of a rendered turn, with the places where it may be cut.

Markers are found by comparing the text between fields in several renderings. Two texts may agree by accident for a
few characters more than they should: `</think>` and `</tool_call>` share `</t`. So a text is cut only at a
*boundary*:

* the edge of a tag, `<...>` or `[...]`, whole or with one end at the edge of the segment;
* outside of tags, where one node of the template ends and the next begins;
* outside of tags, where white space begins or ends.

A boundary counts when both texts have it. A tag that is followed by a letter in both texts (`<|channel|>analysis`,
`<|channel|>final`) belongs to the word after it, so there is no boundary between them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from os.path import commonprefix

from turnwise.engine.provenance.rendering import Origin, Piece

# Matched against texts of templates, never against replies. No part can match in two ways.
WHOLE_TAG = re.compile(r"<[^<>\n]*>|\[[/|A-Za-z_][^\[\]\n\"{}<>]*\]")
_TAG_OR_HALF = re.compile(WHOLE_TAG.pattern + r"|(?<!<)<[^<>\n]*$|^[^<>\n]*>(?!>)")
_SPACES = re.compile(r"\s+")

Span = tuple[int, int]


@dataclass(frozen=True)
class Segment:
    """A text, and the indices at which another origin begins.

    Example: `Segment("<think>Zreasonq", (0, 7), (template_origin, field_origin))`
    """

    text: str = ""
    starts: tuple[int, ...] = ()
    origins: tuple[Origin, ...] = ()

    @classmethod
    def from_pieces(cls, pieces: Iterable[Piece]) -> Segment:
        """Join pieces of a rendering."""
        end, starts, origins, texts = 0, [], [], []
        for text, origin in pieces:
            starts.append(end)
            origins.append(origin)
            texts.append(text)
            end += len(text)
        return cls("".join(texts), tuple(starts), tuple(origins))

    def __len__(self) -> int:
        return len(self.text)

    def slice(self, start: int, end: int | None = None) -> Segment:
        """Return the segment of these characters, with their origins."""
        end = len(self.text) if end is None else end
        if start >= end:
            return EMPTY
        first = bisect_right(self.starts, start) - 1
        last = bisect_right(self.starts, end - 1)
        starts = tuple(max(index - start, 0) for index in self.starts[first:last])
        return Segment(self.text[start:end], starts, self.origins[first:last])

    @property
    def origin_spans(self) -> Iterator[tuple[int, int, Origin]]:
        """Start, end and origin of each piece."""
        return zip(self.starts, (*self.starts[1:], len(self)), self.origins, strict=False)

    def origin_at(self, index: int) -> Origin:
        """Return the origin of one character."""
        return self.origins[bisect_right(self.starts, index) - 1]

    @property
    def core(self) -> str:
        """The text without the white space around it."""
        return self.text.strip()

    @cached_property
    def tags(self) -> list[Span]:
        """The spans of whole tags."""
        return [match.span() for match in WHOLE_TAG.finditer(self.text)]

    @cached_property
    def boundaries(self) -> frozenset[int]:
        """The indices at which the text may be cut."""
        tags = [match.span() for match in _TAG_OR_HALF.finditer(self.text)]
        inside_tags = {index for start, end in tags for index in range(start + 1, end)}
        edges = {0, len(self.text), *self.starts}
        for match in _SPACES.finditer(self.text):
            edges.update(match.span())
        return frozenset((edges - inside_tags).union(*tags))


EMPTY = Segment()


def common_prefix(one: Segment, other: Segment) -> int:
    """Return the length of the prefix that two segments share, up to a boundary of both."""
    return _find_cut(one.text, other.text, one.boundaries & other.boundaries, ">]")


def common_suffix(one: Segment, other: Segment) -> int:
    """Return the length of the suffix that two segments share, from a boundary of both."""
    sizes, others = ({len(each) - cut for cut in each.boundaries} for each in (one, other))
    return _find_cut(one.text[::-1], other.text[::-1], sizes & others, "<[")


def _find_cut(one: str, other: str, cuts: AbstractSet[int], ends: str) -> int:
    """Return the last cut in what two texts begin with, but for those between a tag and a letter in both.

    Args:
        one, other: the texts.
        cuts: where they may be cut.
        ends: the last characters of tags.
    """
    size = len(commonprefix([one, other]))
    shorter = min(len(one), len(other))
    found = [
        cut
        for cut in cuts
        if cut <= size
        and not (0 < cut < shorter and one[cut - 1] in ends and (one[cut] + other[cut]).isalpha())
    ]
    return max(found, default=0)


def split_between(
    middle: Segment, before: Segment, after: Segment
) -> tuple[Segment, Segment, Segment]:
    """Split the text between two items into the end of the first, a separator, and the start of the second.

    `before` is the text before the first item and `after` the text after the last. So the end is what `middle` and
    `after` both begin with, and the start is what `middle` and `before` both end with. Where the two overlap, the
    template nodes decide; where those do not, the text belongs to the start, as a text does that precedes every tag.
    """
    end = common_prefix(middle, after)
    start = len(middle) - common_suffix(middle, before)
    if start < end:
        cuts = [cut for cut in middle.boundaries if start <= cut <= end]
        end = start = max(cuts, key=lambda cut: (_agreement(middle, before, after, cut), -cut))
    return middle.slice(0, end), middle.slice(end, start), middle.slice(start)


def _agreement(middle: Segment, before: Segment, after: Segment, cut: int) -> int:
    """Count the characters that come from the same node as their counterpart, if `middle` is cut here."""
    shift = len(before) - len(middle)
    agreeing = 0
    for index in range(len(middle)):
        if index < cut:
            counterpart = after.origin_at(index)
        elif index + shift >= 0:
            counterpart = before.origin_at(index + shift)
        else:
            continue
        agreeing += middle.origin_at(index).node == counterpart.node
    return agreeing


def last_tag_start(segment: Segment) -> int:
    """Return where the last whole tag begins; without one, the last text of a node of its own; else the end."""
    if segment.tags:
        return segment.tags[-1][0]
    for start in reversed(segment.starts):
        if start > 0 and segment.text[start:].strip():
            return start
    return len(segment)


def before(segment: Segment, word: str) -> Segment:
    """Return the part before the first occurrence of a word; nothing if there is none."""
    return segment.slice(0, max(segment.text.find(word), 0))


def after(segment: Segment, word: str) -> Segment:
    """Return the part after the first occurrence of a word."""
    return segment.slice(segment.text.find(word) + len(word))


def leading_space(text: str) -> int:
    """Return how many characters of white space a text begins with."""
    return len(text) - len(text.lstrip())
