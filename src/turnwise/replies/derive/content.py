"""Where content begins and ends in a turn.

    <think>R</think>  <answer>  CONTENT  </answer>  <|im_end|>\\n
    reasoning close   open               close      end of the turn

Between reasoning and content are the end of the one and the beginning of the other, and only a turn that has one
without the other tells them apart (`split_reasoning_close`). After content are its closing marker and the end of the
turn; a turn with a call tells those apart, since it ends as well and has no content (`find_content_layout`).
"""

from __future__ import annotations

from typing import NamedTuple

from turnwise.analysis.prober import CONTENT, NAMES
from turnwise.analysis.segment import (
    EMPTY,
    Segment,
    after,
    common_prefix,
    common_suffix,
    leading_space,
)
from turnwise.replies.derive.calls import has_call
from turnwise.replies.derive.probe_results import ProbeResults


class ContentLayout(NamedTuple):
    """The text around content."""

    open: Segment = EMPTY
    close: Segment = EMPTY
    turn_end: Segment = EMPTY


def split_reasoning_close(
    opener: Segment, closer: Segment, before_content: Segment, before_call: Segment
) -> tuple[Segment, Segment]:
    """Split the text between reasoning and content into the end of the one and the beginning of the other.

    Args:
        opener: the marker that opens reasoning.
        closer: the text between reasoning and content.
        before_content: the text before content without reasoning: the beginning of content alone, or after the markers
            of empty reasoning, or after the end of reasoning alone.
        before_call: the text before a call: it has the end of empty reasoning too, but not the beginning of content.
    """
    cut = len(closer) - len(before_content)
    ends_with_opener = before_content.text and closer.text.endswith(before_content.text)
    if ends_with_opener and closer.slice(0, cut).core:
        return closer.slice(0, cut), closer.slice(cut)
    if not opener.core or not before_content.core.startswith(opener.core):
        return closer, EMPTY
    empty_reasoning = EMPTY
    if before_call.text.startswith(opener.text):
        empty_reasoning = before_call.slice(len(opener))
    cut = common_prefix(closer, empty_reasoning)
    if closer.slice(0, cut).core and closer.slice(cut).core:
        return closer.slice(0, cut), closer.slice(cut)
    count = max(len(opener.tags), 1)  # a marker is closed by as many tags as it was opened with
    if len(closer.tags) > count:
        cut = closer.tags[count][0]
        return closer.slice(0, cut), closer.slice(cut)
    return closer, EMPTY


def find_content_layout(
    results: ProbeResults, opener: Segment, stops: tuple[str, ...]
) -> ContentLayout:
    """Find the closing marker of content and the end of the turn; `stops` are those of replies without calls."""
    if results.content_turn is None:
        return ContentLayout(opener)
    tail = results.after_content
    end = _find_turn_end(results, tail, stops)
    if end == 0 and opener.core:
        # Content that is opened is closed, by as many tags.
        count = max(len(opener.tags), 1)
        if len(tail.tags) > count:
            end = tail.tags[count - 1][1]
    space = tail.text[end : end + leading_space(tail.text[end:])]
    if space and _closes_content(results, space):
        end += len(space)
    return ContentLayout(opener, tail.slice(0, end), tail.slice(end))


def _find_turn_end(results: ProbeResults, tail: Segment, stops: tuple[str, ...]) -> int:
    """Return where the end of the turn begins in the text after content."""
    if results.one_call is None:
        return min((tail.text.find(stop) for stop in stops if stop in tail.text), default=0)
    shared = common_suffix(tail, results.one_call.after)
    if shared:
        return len(tail) - shared
    # What is written before a call too, and does not end a message, belongs to content.
    turn = results.content_and_call()
    rest = after(turn, CONTENT) if turn is not None else EMPTY
    size = common_prefix(tail, rest)
    header = results.header.core
    begins_message = bool(header) and rest.text[size:].lstrip().startswith(header)
    closes = has_call(rest.text) and bool(tail.slice(0, size).core) and not begins_message
    return size if closes else 0


def _closes_content(results: ProbeResults, space: str) -> bool:
    """Whether white space before the end of a turn belongs to content: then it is written before a call too."""
    if results.one_call is None:
        return True
    if not results.after_content.core:
        return False
    turn = results.content_and_call()
    if turn is None:
        return True
    rest = after(turn, CONTENT).text
    if NAMES[0] not in rest:  # the call precedes content
        return True
    if not rest.startswith(space) or rest[len(space) : len(space) + 1].isspace():
        return False
    return not rest.startswith(results.before_call.text or space)
