"""Semantic equality of assistant messages: the same text, reasoning and tool calls, however they are spelled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnwise.messages import message_reasoning, message_text, message_tool_calls

__all__ = ["messages_equal"]


def messages_equal(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Return True if two messages have the same text, reasoning and tool calls.

    White space at the edges of texts is ignored, since markers may contain it; so are the ids of calls.

    Raises:
        MessageError: a field of a message has the wrong type.

    Example:
        >>> messages_equal({"content": "Aye.\\n"}, {"content": [{"type": "text", "text": "Aye."}]})
        True
    """
    return _compared_parts(first) == _compared_parts(second)


def _compared_parts(message: Mapping[str, Any]) -> tuple[Any, ...]:
    calls = [(call.name, call.arguments, call.is_code) for call in message_tool_calls(message)]
    return message_text(message).strip(), message_reasoning(message).strip(), calls
