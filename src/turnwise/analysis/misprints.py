"""Input values that are written as Python prints them: the one test for Python's `repr` in a prompt.

A template that prints a value which is not a text writes Python's notation of it: `[{'type': 'text', 'text': 'Hi'}]`,
`None`, `True`. Provenance shows that whatever the text: the brackets and quotes of a printed container are *computed*
from it, and `None` is the text of a field that has no text. JSON is near kin: content parts written as JSON, and JSON
text that is encoded once more, so that its own quotes are escaped.

    python    "user\\n[{'type': 'text', 'text': 'Hi'}]"       None       True
    json      'user\\n[{"type": "text", "text": "Hi"}]'
    quotes    '"arguments": "{\\\\"city\\\\": \\\\"Oslo\\\\"}"'

Not covered: a number is written in the same way in Python and in JSON, and so is a list of numbers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from turnwise.engine.provenance.rendering import Origin, Rendering
from turnwise.messages import JsonMapping, Path

Notation = Literal["python", "json", "quotes"]
CONTENT_DEPTH = 3  # steps of the path of a content: messages, index, "content"
PYTHON_WORDS = {"None": None, "True": True, "False": False}


class Misprint(NamedTuple):
    """A value that is not written as it should be read.

    Attributes:
        path: where the value is in the input.
        start: the index of its first character in the text.
        notation: how it is written.
    """

    path: Path
    start: int
    notation: Notation


def find_misprints(
    rendering: Rendering, messages: Sequence[Any], tools: Any = None
) -> Iterator[Misprint]:
    """Yield the input values that a template wrote in Python's notation, or in JSON where a text was meant.

    Args:
        rendering: the rendering, which numbers these messages from 0.
        messages: the messages that were rendered.
        tools: the tools that were rendered.
    """
    given = {"messages": messages, "tools": tools}
    start = 0
    for text, origin in rendering.pieces:
        found = _judge_piece(text, origin, given)
        if found is not None:
            path, notation = found
            yield Misprint(path, start, notation)
        start += len(text)


def _judge_piece(text: str, origin: Origin, given: JsonMapping) -> tuple[Path, Notation] | None:
    path = origin.path
    if path is None:
        for source in origin.sources if origin.kind == "computed" else ():
            if _is_notation(text, source, find_value(given, source)):
                return source, "python"
        return None
    is_in_part = path[2:3] == ("content",) and len(path) > CONTENT_DEPTH
    if origin.key:
        is_type = is_in_part and len(path) == CONTENT_DEPTH + 2 and path[-1] == "type"
        return (path[:CONTENT_DEPTH], "json") if is_type else None
    if text in PYTHON_WORDS and find_value(given, path) is PYTHON_WORDS[text]:
        return None if is_in_part else (path, "python")  # no client sends null in a part
    is_quoted = path[-1] == "arguments" and _is_encoded_again(text, find_value(given, path))
    return (path, "quotes") if is_quoted else None


def _is_encoded_again(text: str, value: Any) -> bool:
    """Whether JSON text is written with its quotes escaped."""
    is_escaped = '\\"' in text and isinstance(value, str)
    return is_escaped and text in json.dumps(value, ensure_ascii=False)


def _is_notation(text: str, path: Path, value: Any) -> bool:
    """Whether a text that was computed from a container is the punctuation of Python's notation."""
    if not value or not isinstance(value, (Mapping, list, tuple)):
        return False
    if any(character.isalnum() for character in text):
        return False
    is_content = len(path) >= CONTENT_DEPTH and path[2] == "content"
    return "'" in text or (is_content and text[:1] in "[{")


def find_value(given: Any, path: Path) -> Any:
    """Return the input value at a path; False, which no misprint is, if there is none."""
    value = given
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return False
    return value
