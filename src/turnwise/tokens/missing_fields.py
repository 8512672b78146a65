"""Find the fields of an assistant message that its turn does not contain.

A template may drop a part of a reply: the reasoning of earlier turns, the text beside a tool call, everything before
`</think>`. A model that is trained on the rest learns to leave that part out.

A field counts as written if its text occurs in the turn as it is, white space around it aside, which one search tells
for nearly every turn. Otherwise the field may be escaped or split, so its words are looked for one by one; tags are not
words, since templates write their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from turnwise.messages import REASONING_KEYS

CONTENT, REASONING, CALLS = "content", "reasoning", "calls"
MAX_COMPARED_WORDS = 100  # that occur only inside of other words, as in `\\nHello`
_REASONING = frozenset(REASONING_KEYS)
_TAG = re.compile(r"</?[^<>\s]{1,60}>|\[/?[A-Z_]{1,30}\]")
_WORD = re.compile(r"[a-z0-9]+")  # others may be written as escapes


def find_missing_fields(message: Mapping[str, Any], text: str) -> tuple[str, ...]:
    """Return which of "content", "reasoning" and "calls" have text that the text of the turn lacks."""
    missing = []
    content = message.get("content")
    # The usual content is found by one search; every turn passes here.
    is_found = type(content) is str and content in text
    if content and not is_found and not all(contains(text, one) for one in _text_parts(content)):
        missing.append(CONTENT)
    if not _REASONING.isdisjoint(message):
        reasoning = [message[name] for name in REASONING_KEYS if message.get(name)]
        if reasoning and not any(contains(text, part) for part in reasoning):
            missing.append(REASONING)
    if not all(_contains_call(text, call) for call in message.get("tool_calls") or ()):
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


def contains(text: str, part: Any) -> bool:
    """Return whether a text contains another one, at least word by word."""
    if not isinstance(part, str) or part.strip() in text:
        return True
    wanted = set(_WORD.findall(_TAG.sub(" ", part.lower())))
    text = text.lower()
    others = wanted.difference(_WORD.findall(text))
    return all(word in text for word in sorted(others)[:MAX_COMPARED_WORDS])


def _text_parts(content: Any) -> Iterator[str]:
    """Yield the texts of a content, which is a string or a list of parts."""
    parts = content if isinstance(content, (list, tuple)) else [content]
    for part in parts:
        text = part.get("text") if isinstance(part, Mapping) else part
        if isinstance(text, str):
            yield text


def _contains_call(text: str, call: Any) -> bool:
    """Return whether a text has the name or the id of a call, and its arguments.

    Some templates write only the id, which may hold the name.
    """
    if not isinstance(call, Mapping):
        return True
    function = call.get("function", call)
    if not isinstance(function, Mapping):
        return True
    names = [name for name in (function.get("name"), call.get("id")) if isinstance(name, str)]
    if any(names) and not any(name and name in text for name in names):
        return False
    return all(contains(text, value) for value in _texts_in(function.get("arguments")))


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
