"""Segments of a probe become markers of a grammar."""

from __future__ import annotations

from turnwise.analysis.segment import Segment, leading_space
from turnwise.replies.grammar import Marker, Region


def to_marker(segment: Segment) -> Marker:
    """Return the text as a marker; its origin is that of its first character that is not white space."""
    if not segment.text:
        return Marker()
    first = leading_space(segment.text) if segment.core else 0
    return Marker(segment.text, str(segment.origin_at(first)))


def to_region(opener: Segment, closer: Segment) -> Region:
    """Return two segments as the markers of a region."""
    return Region(to_marker(opener), to_marker(closer))
