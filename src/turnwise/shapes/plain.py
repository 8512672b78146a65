"""Messages in OpenAI's own shape: in a column, as a bare list, or split into prompt and completion.

All fields of a message stay, known or not. A message needs a role, and content, tool calls or reasoning. A role may be
any text, since templates have their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnwise.errors import MessageError, did_you_mean
from turnwise.messages import REASONING_KEYS, InputReader, format_path
from turnwise.shapes.row import (
    ParsedRow,
    Row,
    build_row,
    describe,
    extra_columns,
    find_turns,
    is_list,
    make_message,
    require_mapping,
    require_text,
)

COMPLETION_COLUMNS = ("completion", "response")


def is_message_list(row: Any) -> bool:
    """Return True for a list that is not a list of lists."""
    return is_list(row) and not (row and is_list(row[0]))


def is_prompt_row(row: Any) -> bool:
    """Return True for a mapping with a prompt."""
    return isinstance(row, Mapping) and row.get("prompt") is not None


def _read_message(value: Any, *path: str | int) -> Row:
    message = InputReader().to_plain(value, *path)
    where = format_path(path)
    if not isinstance(message, dict):
        raise MessageError(
            f"a message is a mapping, not {describe(value)}",
            path=where,
            hint='for example {"role": "user", "content": "Hello!"}',
        )
    require_text(message, "role", path)
    if not message.keys() & {"content", "tool_calls", "function_call", *REASONING_KEYS}:
        raise MessageError(
            "there is no 'content'", path=where, hint=did_you_mean("content", message, "It has")
        )
    content = message.get("content")
    if isinstance(content, int | float):
        raise MessageError(
            f"must be text, a list of parts, or null; not {describe(content)}",
            path=f"{where}.content",
        )
    return message


def _read_messages(values: Any, column: str) -> list[Row]:
    return [_read_message(value, column, index) for index, value in enumerate(values)]


def is_reply(row: Any) -> bool:
    """Return True for the answer of `POST /v1/chat/completions`."""
    choices = row.get("choices") if isinstance(row, Mapping) else None
    first = choices[0] if is_list(choices) and choices else None
    return isinstance(first, Mapping) and "message" in first


def read_openai(row: Any) -> ParsedRow:
    """Read `{"messages": [...], "tools": [...]}`, or the first choice of a reply."""
    if is_reply(row):
        message = _read_message(row["choices"][0]["message"], "choices", 0, "message")
        return build_row("openai", row, ("choices",), [message])
    column, turns = find_turns(row, "openai", "a conversation")
    return build_row("openai", row, (column,), _read_messages(turns, column))


def write_openai(row: ParsedRow) -> Row:
    """Write `{"messages": [...], "tools": [...]}`."""
    return {**extra_columns(row), "messages": row.messages}


def read_list(row: Any) -> ParsedRow:
    """Read a bare list of messages."""
    if not is_list(row):
        raise MessageError(f"a conversation is a list of messages, not {describe(row)}")
    return ParsedRow(_read_messages(row, "messages"), shape="list")


def write_list(row: ParsedRow) -> list[Row]:
    """Write a bare list of messages."""
    return list(row.messages)


def read_prompt(row: Any) -> ParsedRow:
    """Read TRL's prompt and completion; only the completion is trained, so replies in the prompt get weight 0."""
    row = require_mapping(row, "prompt")
    if row.get("prompt") is None:
        raise MessageError("there is no 'prompt'", hint=did_you_mean("prompt", row, "It has"))
    messages = _read_side(row["prompt"], "prompt", "user")
    columns = ["prompt"]
    completion = next((name for name in COMPLETION_COLUMNS if row.get(name) is not None), None)
    if completion is not None:
        columns.append(completion)
        messages = [_without_training(message) for message in messages]
        messages += _read_side(row[completion], completion, "assistant")
    return build_row("prompt", row, columns, messages)


def _without_training(message: Row) -> Row:
    """Return a message, with weight 0 if it is a reply whose weight is not given."""
    if message["role"] != "assistant" or message.get("weight") is not None:
        return message
    return {**message, "weight": 0}


def _read_side(value: Any, column: str, role: str) -> list[Row]:
    if isinstance(value, str):
        return [make_message(role, value)]
    if not is_list(value):
        raise MessageError(
            f"must be text or a list of messages, not {describe(value)}", path=column
        )
    return _read_messages(value, column)


def write_prompt(row: ParsedRow) -> Row:
    """Write prompt and completion; the completion starts with the first trained reply.

    Both are lists of messages, since TRL applies no template to a prompt that is text.
    """
    start = 0
    for message in row.messages:
        if message.get("role") == "assistant" and message.get("weight") != 0:
            break
        start += 1
    columns = {**extra_columns(row), "prompt": row.messages[:start]}
    if start < len(row.messages):
        columns["completion"] = row.messages[start:]
    return columns


def write_reply(message: Row, finish_reason: str = "stop", **fields: Any) -> Row:
    """Return a message as the answer of `POST /v1/chat/completions`.

    Args:
        message: the message.
        finish_reason: why it ended.
        fields: `id`, `model`, `usage` and others that the answer has.
    """
    choice = {"index": 0, "message": dict(message), "finish_reason": finish_reason}
    return {"object": "chat.completion", "choices": [choice], **fields}
