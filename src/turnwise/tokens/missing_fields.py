"""Find the fields of an assistant message that its turn does not contain.

A template may drop a part of a reply: the reasoning of earlier turns, the text beside a tool call, everything before
`</think>`. A model that is trained on the rest learns to leave that part out.

A field counts as written if its text occurs in the turn as it is, white space around it aside, which one search tells
for nearly every turn. Otherwise the field may be escaped or split, so its words are looked for one by one; tags are not
words, since templates write their own.

A call may have thousands of arguments. They are mostly written in their order, so each is looked for behind the one
before; the words of the turn are found once; and the number of searches through all of the turn is bounded. After so
many, a text counts as written only if it is near its place or each of its words is a word of the turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from turnwise.messages import REASONING_KEYS

CONTENT, REASONING, CALLS = "content", "reasoning", "calls"
MAX_SEARCHES = 200  # through the whole turn: for texts out of order, and words inside of others, as in `\\nHello`
NEAR = 1_000  # characters behind the last text that was found
_REASONING = frozenset(REASONING_KEYS)
_TAG = re.compile(r"</?[^<>\s]{1,60}>|\[/?[A-Z_]{1,30}\]")
_ESCAPE = re.compile(r"(?<!\\)\\++(?:[bfnrt]|u[0-9a-f]{4})")
_WORD = re.compile(r"[a-z0-9]+")  # others may be written as escapes


def find_missing_fields(message: Mapping[str, Any], text: str) -> tuple[str, ...]:
    """Return which of "content", "reasoning" and "calls" have text that the text of the turn lacks."""
    missing = []
    turn = TurnText(text)
    content = message.get("content")
    # The usual content is found by one search; every turn passes here.
    is_found = type(content) is str and content in text
    if content and not is_found and not all(map(turn.contains, _text_parts(content))):
        missing.append(CONTENT)
    if not _REASONING.isdisjoint(message):
        reasoning = [message[name] for name in REASONING_KEYS if message.get(name)]
        if reasoning and not any(map(turn.contains, reasoning)):
            missing.append(REASONING)
    calls = message.get("tool_calls") or ()
    are_listed = isinstance(calls, (list, tuple))  # the template may take anything
    if not are_listed or not all(_contains_call(turn, call) for call in calls):
        missing.append(CALLS)
    return tuple(missing)


def has_other_text(message: Mapping[str, Any], missing: Sequence[str]) -> bool:
    """Return whether a message has a field with text that is not missing, or no text at all."""
    content = any(part.strip() for part in _text_parts(message.get("content")))
    fields = {
        CONTENT: content,
        REASONING: any(message.get(name) for name in REASONING_KEYS),
        CALLS: bool(message.get("tool_calls")),
    }
    present = [name for name, has_text in fields.items() if has_text]
    return not present or any(name not in missing for name in present)


class TurnText:
    """The text of a turn, in which many others are looked for."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._place = 0  # where the last text was found
        self._searches = MAX_SEARCHES

    def contains(self, part: Any) -> bool:
        """Return whether the turn contains a text, at least word by word."""
        if not isinstance(part, str) or self.find(part.strip()):
            return True
        wanted = set(_WORD.findall(_TAG.sub(" ", part.lower())))
        others = wanted.difference(self._words)
        if others:
            others = others.difference(self._unescaped_words)
        for word in sorted(others):
            if not self._searches:
                return False
            self._searches -= 1
            if word not in self._lowered:
                return False
        return True

    def find(self, part: str) -> bool:
        """Return whether a text is in the turn as it is; after too many searches only what is near is found."""
        place = self.text.find(part, self._place, self._place + len(part) + NEAR)
        if place < 0 and self._searches:
            self._searches -= 1
            place = self.text.find(part)
        if place >= 0:
            self._place = place
        return place >= 0

    @cached_property
    def _lowered(self) -> str:
        return self.text.lower()

    @cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(_WORD.findall(self._lowered))

    @cached_property
    def _unescaped_words(self) -> frozenset[str]:
        """The words of the turn without what looks like an escaped character before them."""
        return frozenset(_WORD.findall(_ESCAPE.sub(" ", self._lowered)))


def _text_parts(content: Any) -> Iterator[str]:
    """Yield the texts of a content, which is a string or a list of parts."""
    parts = content if isinstance(content, (list, tuple)) else [content]
    for part in parts:
        text = part.get("text") if isinstance(part, Mapping) else part
        if isinstance(text, str):
            yield text


def _contains_call(turn: TurnText, call: Any) -> bool:
    """Return whether a text has the name or the id of a call, and its arguments.

    Some templates write only the id, which may hold the name.
    """
    if not isinstance(call, Mapping):
        return True
    function = call.get("function", call)
    if not isinstance(function, Mapping):
        return True
    names = [name for name in (function.get("name"), call.get("id")) if isinstance(name, str)]
    if any(names) and not any(name and turn.find(name) for name in names):
        return False
    return all(map(turn.contains, _texts_in(function.get("arguments"))))


def _texts_in(value: Any) -> Iterator[str]:
    """Yield the texts inside of a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts_in(item)
