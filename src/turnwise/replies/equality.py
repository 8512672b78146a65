"""Whether a message that was read is the one that was meant: the same words, thoughts and calls, however spelled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from turnwise.messages import message_reasoning


def messages_equal(read: Mapping[str, Any], meant: Mapping[str, Any]) -> bool:
    """White space at the ends of texts aside, which markers may take along."""
    return parts(read) == parts(meant)


def parts(message: Mapping[str, Any]) -> tuple[str, str, list[tuple[Any, Any]]]:
    thought = message_reasoning(message)
    calls = message.get("tool_calls") or []
    return text(message.get("content")).strip(), text(thought).strip(), [call(one) for one in calls]


def text(content: Any) -> str:
    """A text, or the texts of its parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return content or ""


def call(one: Mapping[str, Any]) -> tuple[Any, Any]:
    function = one.get("function", one)
    arguments = function.get("arguments") or {}
    if isinstance(arguments, str):
        with suppress(ValueError):
            arguments = json.loads(arguments)
    return function.get("name"), arguments
