"""Messages as they are: in a column, as a list, or parted in prompt and completion.

A message is OpenAI's already, so all of its fields stay, known or not. It needs a role, and something said: content,
calls or reasoning. Roles are any text, since templates have their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnwise.errors import MessageError, did_you_mean, short_repr
from turnwise.messages import REASONING_KEYS, InputReader
from turnwise.messages import format_path as spelt
from turnwise.shapes.row import (
    Conversation,
    Row,
    beside,
    is_list,
    made,
    mapping_of,
    said,
    text_of,
    turns_of,
)

COMPLETIONS = ("completion", "response")


def knows_list(row: Any) -> bool:
    return is_list(row) and not (row and is_list(row[0]))


def knows_prompt(row: Any) -> bool:
    return isinstance(row, Mapping) and row.get("prompt") is not None


def _message(value: Any, *path: str | int) -> Row:
    message = InputReader().to_plain(value, *path)
    if not isinstance(message, dict):
        hint = 'for example {"role": "user", "content": "Hello!"}'
        problem = f"a message is a mapping, not {type(value).__name__}: {short_repr(value)}"
        raise MessageError(problem, path=spelt(path), hint=hint)
    text_of(message, "role", path)
    content = message.get("content")
    if not message.keys() & {"content", "tool_calls", "function_call", *REASONING_KEYS}:
        raise MessageError(
            "there is no 'content'",
            path=spelt(path),
            hint=did_you_mean("content", message, "It has"),
        )
    if isinstance(content, int | float):
        problem = f"is text, a list of parts, or null; not {type(content).__name__}: {short_repr(content)}"
        raise MessageError(problem, path=spelt((*path, "content")))
    return message


def read_openai(row: Any) -> Conversation:
    column, turns = turns_of(row, "openai", "a conversation")
    return made(
        "openai",
        row,
        (column,),
        [_message(turn, column, index) for index, turn in enumerate(turns)],
    )


def write_openai(conversation: Conversation) -> Row:
    return {**beside(conversation), "messages": conversation.messages}


def read_list(row: Any) -> Conversation:
    if not is_list(row):
        raise MessageError(
            f"a conversation is a list of messages, not {type(row).__name__}: {short_repr(row)}"
        )
    return Conversation(
        [_message(value, "messages", index) for index, value in enumerate(row)], shape="list"
    )


def write_list(conversation: Conversation) -> list[Row]:
    return list(conversation.messages)


def read_prompt(row: Any) -> Conversation:
    """TRL's columns. Only the completion is learnt, so assistant messages of the prompt get weight 0."""
    row = mapping_of(row, "prompt")
    if row.get("prompt") is None:
        raise MessageError("there is no 'prompt'", hint=did_you_mean("prompt", row, "It has"))
    ending = next((name for name in COMPLETIONS if row.get(name) is not None), None)
    messages = _spoken(row["prompt"], "prompt", "user")
    if ending is not None:
        messages = [_unlearnt(item) if item["role"] == "assistant" else item for item in messages]
        messages += _spoken(row[ending], ending, "assistant")
    return made("prompt", row, ("prompt", ending or "prompt"), messages)


def _unlearnt(message: Row) -> Row:
    return message if message.get("weight") is not None else {**message, "weight": 0}


def _spoken(value: Any, column: str, role: str) -> list[Row]:
    if isinstance(value, str):
        return [said(role, value)]
    if not is_list(value):
        problem = f"is text or a list of messages, not {type(value).__name__}: {short_repr(value)}"
        raise MessageError(problem, path=column)
    return [_message(item, column, index) for index, item in enumerate(value)]


def write_prompt(conversation: Conversation) -> Row:
    """The completion starts where something is learnt. Always lists: TRL does not template a prompt that is text."""
    messages = conversation.messages
    learnt = (item.get("role") == "assistant" and item.get("weight") != 0 for item in messages)
    start = next((index for index, yes in enumerate(learnt) if yes), len(messages))
    row = {**beside(conversation), "prompt": messages[:start]}
    return row if start == len(messages) else {**row, "completion": messages[start:]}
