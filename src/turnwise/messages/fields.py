"""Read the text, the reasoning and the tool calls of a message, in any of their usual forms.

    content     text, None, or a list of parts; the texts of the parts are joined
    reasoning   text under one of `REASONING_KEYS`, the first that is not None
    tool calls  `tool_calls` with or without the `function` level, or one old-style `function_call`;
                arguments as a mapping or as JSON text; code for an interpreter as `code` and `lang`

What has another type is a `MessageError` with its path, never a Python error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from turnwise.errors import MessageError, short_repr
from turnwise.messages.types import JsonMapping

REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")
"""The keys of reasoning.

Where a message has several, the first counts: the order of transformers.
"""
CODE_INTERPRETER = "code_interpreter"
"""The type of a call whose argument is code for an interpreter, and the name of its function."""


class CallFields(NamedTuple):
    """The fields of one tool call."""

    name: str
    arguments: Any
    """A mapping; what was given, if it is neither a mapping nor the JSON text of an object."""
    id: str | None
    is_code: bool = False
    """True for code that a code interpreter runs, False for a call of a tool."""


def message_text(message: JsonMapping) -> str:
    """Return the content as one text; images and other parts without text are left out.

    Raises:
        MessageError: if the content is not text, None or a list of parts.
    """
    content = message.get("content")
    if not isinstance(content, (list, tuple)):
        return _optional_text(content, "content")
    texts = []
    for index, part in enumerate(content):
        path = f"content[{index}]"
        if isinstance(part, Mapping):
            texts.append(_optional_text(part.get("text"), f"{path}.text"))
        elif isinstance(part, str):
            texts.append(part)
        else:
            raise MessageError(f"a part must be a mapping, not {short_repr(part)}", path=path)
    return "".join(texts)


def message_reasoning(message: JsonMapping) -> str:
    """Return the reasoning, "" if there is none.

    Raises:
        MessageError: if the reasoning is not text.
    """
    for key in REASONING_KEYS:
        if message.get(key) is not None:
            return _optional_text(message[key], key)
    return ""


def message_tool_calls(message: JsonMapping, *, strict: bool = True) -> list[CallFields]:
    """Return the tool calls in their order.

    Args:
        message: the message; `function_call` is read only where there are no `tool_calls`.
        strict: raise an error for a malformed call; if false, leave it out.

    Raises:
        MessageError: if the calls are not a list, or a call has no name.
    """
    calls, key = message.get("tool_calls"), "tool_calls"
    if calls is None and message.get("function_call") is not None:
        calls, key = [message["function_call"]], "function_call"
    if calls is None:
        return []
    if not isinstance(calls, (list, tuple)):
        if not strict:
            return []
        raise MessageError(f"tool calls must be a list, not {short_repr(calls)}", path=key)
    found = []
    for index, call in enumerate(calls):
        path = f"{key}[{index}]" if key == "tool_calls" else key
        try:
            found.append(read_call(call, path))
        except MessageError:
            if strict:
                raise
    return found


def read_call(call: Any, path: str) -> CallFields:
    """Return the fields of one tool call.

    Raises:
        MessageError: the call is no mapping, or has no name.
    """
    function: Any = call.get("function", call) if isinstance(call, Mapping) else None
    is_code = isinstance(call, Mapping) and call.get("type") == CODE_INTERPRETER
    if is_code and function is call:
        code = {key: call[key] for key in ("code", "lang") if call.get(key) is not None}
        function = {"name": CODE_INTERPRETER, "arguments": code}
    if not isinstance(function, Mapping):
        raise MessageError(f"a tool call must be a mapping, not {short_repr(call)}", path=path)
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise MessageError(f"a tool call needs a name, not {short_repr(name)}", path=path)
    identity = call.get("id")
    if identity is not None:
        _optional_text(identity, f"{path}.id")
    return CallFields(name, parse_arguments(function.get("arguments")), identity, is_code)


def parse_arguments(arguments: Any) -> Any:
    """Return arguments as a mapping; as they are, if they are not JSON text of an object."""
    if not arguments:
        return {}
    if isinstance(arguments, str):
        with suppress(ValueError, RecursionError):
            parsed = json.loads(arguments)
            if isinstance(parsed, dict):
                return parsed
    return arguments


def _optional_text(value: Any, path: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise MessageError(f"this must be text, not {short_repr(value)}", path=path)
    return value
