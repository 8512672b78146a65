"""Helpers for the texts of markers: where to split them, which are distinctive, which whitespace is
theirs.

The regular expressions here run over markers, which are short, and never over a reply.
"""

from __future__ import annotations

import re
from typing import Any

from turnwise.replies.grammar_parts import Marker

# Where one tag ends and the next begins: `<tool_call>\n|<function=`, `[A]|[B]`, `<|sep|>|name`, ```` ```|<end> ````.
_TAG_BOUNDARY = re.compile(
    r"(?<=>)(?=\s*<)|(?<=\])(?=\s*\[[A-Z/])|(?<=>)(?=[\w.:]+$)|(?<=```)(?=\s*<)"
)
# The word after a tag that says what it opens, at the end of a marker or before another tag: `<|channel>thought`.
LABEL = re.compile(r"(?<=[>\]])\w+(?=$|[<\[])")
PUNCTUATION = "{}[]()\",:' \n\t"  # what a distinctive marker is not made of
_MIN_TAG_LENGTH = 3


def split_tags(text: str) -> list[str]:
    """Split a marker into its tags, with the whitespace before each tag."""
    return [tag for tag in _TAG_BOUNDARY.split(text) if tag.strip()]


def is_tag_like(text: str) -> bool:
    """Return whether a marker is so distinctive that it can be matched anywhere in a text."""
    core = text.strip()
    if len(core.strip(PUNCTUATION)) < _MIN_TAG_LENGTH:
        return False
    return any(sign in core for sign in "<>|[]")


def trailing_space(text: str) -> str:
    """Return the whitespace at the end of a marker; all of a marker that is only whitespace."""
    return text[len(text.rstrip()) :] if text.strip() else text


def whitespace_only(marker: Marker) -> str:
    """Return the text of a marker that is only whitespace, and "" for any other marker."""
    return "" if marker.core else marker.text


def remove_start(text: str, starts: tuple[str, ...]) -> str:
    """Remove the start of a message from a marker: starts are matched on their own."""
    core = text.strip()
    for start in map(str.strip, starts):
        if start and core.startswith(start):
            return core[len(start) :] + trailing_space(text)
    return text


def cut_last_word(text: str) -> str:
    """Return `text` without the word, or the part of one, at its end."""
    while text[-1:].isalnum() or text[-1:] == "_":
        text = text[:-1]
    return text


def collect_texts(part: Any) -> list[str]:
    """Return all texts in a grammar, or in a part of one, in the order of its fields."""
    if isinstance(part, str):
        return [part]
    if isinstance(part, tuple):
        members = part
    else:
        names = getattr(part, "__dataclass_fields__", ())
        members = tuple(getattr(part, name) for name in names)
    return [text for member in members for text in collect_texts(member)]
