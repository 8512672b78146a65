"""Placeholders: what a template writes for the images, videos and audio of a conversation.

The template's text knows for which content part it was written (`Origin.part`), so a placeholder is found by its
origin, never by its spelling: what a user spells like one counts for nothing.

A template may write more for a part than its placeholder: a number (`Picture 1: `), a line end, or the marker that
closes the text before it. So the placeholder reaches from the first to the last marker (`<...>` or `[...]`), without a
closer whose opener is not there; where there is no marker, it is all that was written, white space apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from turnwise.messages.paths import Path, format_path

MARKER = re.compile(r"<[^<>\n]*>|\[[^\[\]\n]*\]")
AROUND = {"(": ")", "{": "}", "$": "$", "*": "*"}  # may be around a marker, and belong to it
WORD = re.compile(r"[a-z]+")
CLOSERS = {"end": ("start", "begin"), "eos": ("bos",), "close": ("open",)}
OPENERS = {opener: closer for closer, openers in CLOSERS.items() for opener in openers}
FIELD = "\0"  # stands for a character of an input value
Span = tuple[int, int]
"""Where something begins and ends."""


class MediaPart(NamedTuple):
    """An image, a video, an audio or a file in a message, and its placeholder in the prompt.

    Attributes:
        kind: "image", "video", "audio" or "file".
        message: the index of its message.
        path: the content part, such as "messages[0].content[1]".
        span: the characters of the placeholder, None if the template wrote none.
        tokens: the tokens of the placeholder, in `Encoded.media`.
        pad: those of them that stand for the media itself, which `Encoded.expand` repeats.

    Example:
        >>> photo = {"role": "user", "content": [{"type": "image", "image": "cat.png"}]}
        >>> part = turnwise.load("qwen2.5-vl").render([photo]).media[0]
        >>> part.kind, part.path
        ('image', 'messages[0].content[0]')
    """

    kind: str
    message: int
    path: str
    span: Span | None
    tokens: Span | None = None
    pad: Span | None = None

    @property
    def written(self) -> bool:
        """Whether the template wrote a placeholder for this part."""
        return self.span is not None


def find_media(
    kinds: Mapping[Path, str], pieces: Iterable[tuple[str, Any]]
) -> tuple[MediaPart, ...]:
    """Return the media parts of a conversation in the order of their placeholders; at the end those without one.

    Args:
        kinds: the media parts with their kinds.
        pieces: its rendering: texts and their origins.
    """
    spans: dict[Path, Span] = {}
    for part, start, text in _written_for_parts(pieces):
        placeholder = find_placeholder(text) if part in kinds and part not in spans else None
        if placeholder is not None:
            spans[part] = (start + placeholder[0], start + placeholder[1])
    media = [
        MediaPart(kind, int(part[1]), format_path(part), spans.get(part))
        for part, kind in kinds.items()
    ]
    return tuple(sorted(media, key=lambda part: part.span or (float("inf"), 0)))


def _written_for_parts(pieces: Iterable[tuple[str, Any]]) -> list[tuple[Path, int, str]]:
    """Return the runs of text that were written for one part: the part, the first character, the text.

    A number that the template counts is part of the run around it.
    """
    runs: list[tuple[Path, int, str]] = []
    start = 0
    current, number = None, ""
    for text, origin in pieces:
        own = FIELD * len(text) if origin.kind == "field" else text
        if origin.part is not None and origin.part == current:
            part, first, before = runs.pop()
            runs.append((part, first, before + number + own))
            number = ""
        elif origin.part is not None:
            runs.append((origin.part, start, own))
            current, number = origin.part, ""
        elif text.isdigit() and origin.kind != "field" and not number:
            number = text
        else:
            current = None
        start += len(text)
    return runs


def find_placeholder(text: str) -> Span | None:
    """Return the span of the placeholder in what was written for a part, None if there is none."""
    markers = [match for match in MARKER.finditer(text) if any(map(_is_visible, match[0]))]
    names = [match[0] for match in markers]
    while names and is_closer(names[0]) and not find_partner(names[0], names):
        del names[0], markers[0]
    while len(names) > 1 and is_opener(names[-1]) and not find_partner(names[-1], names):
        del names[-1], markers[-1]
    if markers:
        start, end = markers[0].start(), markers[-1].end()
        while start > 0 and end < len(text) and AROUND.get(text[start - 1]) == text[end]:
            start, end = start - 1, end + 1
        return start, end
    if MARKER.search(text) or not any(map(_is_visible, text)):
        return None
    return len(text) - len(text.lstrip()), len(text.rstrip())


def _is_visible(character: str) -> bool:
    """Return whether the template wrote more with this character than a separator."""
    return character.isalnum() or character > "\x7f"


def is_opener(marker: str) -> bool:
    """Return whether a marker opens something, by its name: `<|vision_start|>`."""
    return not OPENERS.keys().isdisjoint(WORD.findall(marker.lower()))


def is_closer(marker: str) -> bool:
    """Return whether a marker closes something, by its name: `<|vision_end|>`, `</img>`."""
    return "/" in marker or not CLOSERS.keys().isdisjoint(WORD.findall(marker.lower()))


def find_partner(marker: str, others: Iterable[str]) -> str | None:
    """Return the marker among others that has the same name but for `start` and `end`, or a slash."""
    name = _pair_name(marker)
    return next((one for one in others if one != marker and _pair_name(one) == name), None)


def _pair_name(marker: str) -> str:
    """Return the name of a marker without what tells an opener from its closer."""
    name = marker.lower().replace("/", "")
    return WORD.sub(lambda word: "|" if word[0] in CLOSERS or word[0] in OPENERS else word[0], name)
