"""Is a conversation one that somebody could send? What the messages of chat interfaces have in common, no more.

A counterexample is read by people, so shrinking it must not leave `tool_calls: [{}]` or a result that nobody asked for
(`counterexample.py`). Types of values are not looked at: templates get what their callers have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from turnwise.analysis.conversations import Probe

CALLS = "tool_calls"
CONTENT = "content"


def is_well_formed(probe: Probe) -> bool:
    """Return whether every message, part, call, tool and document has what such a thing is made of."""
    if not all(map(_is_message, probe.messages)) or not _answers_calls(probe.messages):
        return False
    if probe.tools is not None and not (probe.tools and all(map(_is_tool, probe.tools))):
        return False
    return probe.documents is None or all(map(bool, probe.documents or [None]))


def _is_message(message: Mapping[str, Any]) -> bool:
    if CALLS in message and not (message[CALLS] and all(map(_is_tool_call, message[CALLS]))):
        return False
    content = message.get(CONTENT)
    if isinstance(content, list):
        return bool(content) and all(map(_is_part, content))
    return "role" in message and (content is not None or CALLS in message)


def _is_part(part: Any) -> bool:
    return not isinstance(part, Mapping) or ("type" in part and len(part) > 1)


def _is_tool_call(call: Any) -> bool:
    if not isinstance(call, Mapping):
        return False
    function = call.get("function", call)
    return isinstance(function, Mapping) and bool(function.get("name")) and "arguments" in function


def _is_tool(tool: Any) -> bool:
    if not isinstance(tool, Mapping):
        return False
    function = tool.get("function", tool)
    if not isinstance(function, Mapping) or not function.get("name"):
        return False
    return function is tool or "type" in tool


def _answers_calls(messages: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether every result follows a message with calls, or another result."""
    may_answer = False
    for message in messages:
        is_result = message.get("role") == "tool"
        if is_result and not may_answer:
            return False
        may_answer = is_result or bool(message.get(CALLS))
    return True
