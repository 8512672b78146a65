"""Find the control tokens that a template writes, in renderings of probe conversations.

A marker counts if the template itself wrote all of it; roles and special tokens count as its text. A tag without a
closing tag, and only amid sentences, is prose, as in the instructions `{"name": <function-name>, "arguments": ...}`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from itertools import accumulate, groupby
from typing import NamedTuple

from turnwise.analysis.prober import REASONING, Prober
from turnwise.analysis.stops import CONTROL_TOKEN, MARKER, ProbedConversation, StopFinder
from turnwise.engine.provenance.rendering import Origin, Rendering
from turnwise.messages import message_text

MAX_WORD_MARKER = 40  # characters of a line of words that opens a turn: `### Instruction:`
_LIST_INDEX = re.compile(r"\[\d+\]")
_SENTENCE_BEFORE = re.compile(r"(?:[^\s>\]][^\S\n]+|[:,(\"'])\Z")  # words, and no other marker
_SENTENCE_AFTER = re.compile(r"[^\S\n]*[^\s<\[]")


class WrittenMarker(NamedTuple):
    """A control token that the template writes."""

    text: str
    origin: Origin  # of its first character
    fields: tuple[str, ...] = ()  # the input that is part of it: "messages[*].role"

    def __str__(self) -> str:
        fields = ", ".join(self.fields)
        if not self.origin.line:
            return f"{self.text:<24} {fields}"
        place = f"{self.text:<24} {self.origin.line}:{self.origin.column}"
        return f"{place} with {fields} in it" if fields else place


class MarkerFinder:
    """Finds the markers of one template; special tokens without a text are placeholders.

    Args:
        prober: renders probe conversations.
        stop_finder: knows conversations that the template accepts, and the stops of replies.
    """

    def __init__(self, prober: Prober, stop_finder: StopFinder) -> None:
        self.prober = prober
        self.stop_finder = stop_finder

    @cached_property
    def markers(self) -> tuple[WrittenMarker, ...]:
        """The markers in the order in which they are first rendered."""
        prober = self.prober
        thinking = {**prober.reply(), "reasoning_content": REASONING}
        conversations = [*self.plain_renderings, prober.render([prober.user(), thinking])]
        conversations += [found.rendering for found in self.stop_finder.calls]
        found: dict[str, WrittenMarker] = {}
        delimiters: set[str] = set()
        for rendering in conversations:
            if rendering is None:
                continue
            delimiters |= find_delimiters(rendering)
            for marker in find_markers(rendering):
                found.setdefault(marker.text, marker)
        delimiters |= {text for text in found if _partner(text) in found}
        return tuple(
            marker
            for text, marker in found.items()
            if text in delimiters or CONTROL_TOKEN.fullmatch(text)
        )

    @cached_property
    def turn_markers(self) -> tuple[str, ...]:
        """The markers around messages that have only content; words too, where they are all that opens a turn."""
        texts: list[str] = []
        for conversation in self._plain_conversations:
            for index in range(len(conversation.messages)):
                start = MARKER.match(conversation.turn(index).lstrip())
                texts += [start.group()] if start else find_opening_words(conversation, index)
            written = [marker.text for marker in find_markers(conversation.rendering)]
            texts += [text for text in written if CONTROL_TOKEN.fullmatch(text)]
        return (*texts, *self.stop_finder.reply_stops)

    @cached_property
    def plain_renderings(self) -> tuple[Rendering, ...]:
        """Renderings of conversations without tools and reasoning, and of a prompt."""
        return tuple(conversation.rendering for conversation in self._plain_conversations)

    @cached_property
    def _plain_conversations(self) -> list[ProbedConversation]:
        prober = self.prober.with_settings(tools=False)
        prompt = prober.render([prober.user()], add_generation_prompt=True)
        found = [*self.stop_finder.rounds]
        if prompt is not None:
            found.append(ProbedConversation([*prober.preamble(), prober.user()], prompt))
        return found


def find_opening_words(conversation: ProbedConversation, index: int) -> list[str]:
    """Return the line of words before the content of a message, such as `USER:`, if no marker is there."""
    content = message_text(conversation.messages[index])
    if not content:
        return []
    before, found, _ = conversation.turn(index).partition(content)
    words = before.strip().rpartition("\n")[2].strip()
    if not found or len(words) > MAX_WORD_MARKER or MARKER.search(before):
        return []
    return [words] if any(letter.isalpha() for letter in words) else []


def find_markers(rendering: Rendering) -> Iterator[WrittenMarker]:
    """The markers that the template itself wrote; roles and special tokens count as its text."""
    pieces = rendering.pieces
    starts = list(accumulate((len(piece.text) for piece in pieces), initial=0))
    seen: set[tuple[str, int, int]] = set()  # a piece may repeat a marker thousands of times
    for match in MARKER.finditer(rendering.text):
        first = bisect_right(starts, match.start()) - 1
        last = bisect_right(starts, match.end() - 1)
        if (match.group(), first, last) in seen:
            continue
        seen.add((match.group(), first, last))
        origins = [piece.origin for piece in pieces[first:last]]
        if all(_is_template_text(origin) for origin in origins):
            fields = [_LIST_INDEX.sub("[*]", origin.field) for origin in origins if origin.field]
            yield WrittenMarker(match.group(), origins[0], tuple(dict.fromkeys(fields)))


def find_delimiters(rendering: Rendering) -> set[str]:
    """Return the markers that stand, at least once, not amid a sentence of the template."""
    found: set[str] = set()
    for is_own, pieces in groupby(rendering.pieces, lambda piece: _is_template_text(piece.origin)):
        text = "".join(piece.text for piece in pieces) if is_own else ""
        for match in MARKER.finditer(text):
            before = text[max(0, match.start() - MAX_WORD_MARKER) : match.start()]
            if not _SENTENCE_BEFORE.search(before) or not _SENTENCE_AFTER.match(text, match.end()):
                found.add(match.group())
    return found


def _partner(tag: str) -> str:
    """Return the closing tag of an opening one, and the other way round."""
    return tag.replace("/", "", 1) if "/" in tag else f"{tag[:1]}/{tag[1:]}"


def _is_template_text(origin: Origin) -> bool:
    path = origin.path
    return path is None or path[-1] == "role" or str(path[0]).endswith("_token")
