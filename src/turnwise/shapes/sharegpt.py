"""ShareGPT's `conversations[{from, value}]`, with LLaMA-Factory's extensions for system texts, tools and calls.

Other keys of a turn (`weight`, `loss`, ...) stay fields of the message, and are written again. Fields of OpenAI's shape
that ShareGPT does not have (ids of calls, names, reasoning) are refused when writing: we could read them back, but no
other software could.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnwise.errors import MessageError, did_you_mean, short_repr
from turnwise.messages import REASONING_KEYS, JsonMapping, Path, format_path
from turnwise.shapes.row import (
    ParsedRow,
    Row,
    as_json,
    build_row,
    check_text,
    describe,
    extra_columns,
    find_turns,
    is_list,
    make_message,
    optional_text,
    parse_json,
    require_text,
    require_text_content,
    split_system,
    translate_role,
)

CALL_TURN = "tool call"
ROLES = {
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(("gpt", "assistant", "chatgpt", "bot", "model"), "assistant"),
    **dict.fromkeys(("observation", "tool", "tool_response", "function_response"), "tool"),
    **dict.fromkeys(("function_call", "tool_call"), CALL_TURN),
    **{name: name for name in ("system", "developer", "function", "environment")},
}
WRITTEN_ROLES = {"user": "human", "assistant": "gpt", "tool": "observation", "system": "system"}
"""The names that other software knows."""

OPENAI_FIELDS = {"role", "content", "tool_calls", "tool_call_id", "name", *REASONING_KEYS}
"""Fields with a meaning that readers of ShareGPT data would not find beside `value`."""

CALL_KEYS = ("name", "arguments", "id")
ACCEPTED_CALLS = '{"name": ..., "arguments": ...}, or a list of those'


def read(row: Any) -> ParsedRow:
    """Read a row of `conversations`, with `system` and `tools` beside it."""
    column, turns = find_turns(row, "sharegpt", "ShareGPT data")
    messages = [_read_turn(turn, (column, index)) for index, turn in enumerate(turns)]
    if system := optional_text(row, "system"):
        if messages[0]["role"] != "system":
            messages.insert(0, make_message("system", system))
        elif messages[0]["content"] != system:
            raise MessageError(
                "the first turn is a system text too, and another one", path="system"
            )
    return build_row("sharegpt", row, (column, "system"), messages)


def _read_turn(turn: Any, path: Path) -> Row:
    where = format_path(path)
    if not isinstance(turn, Mapping):
        raise MessageError(
            f"a turn is a mapping, not {describe(turn)}",
            path=where,
            hint='for example {"from": "human", "value": "Hello!"}',
        )
    name = require_text(turn, "from", path)
    role = ROLES.get(name.lower())
    if role is None:
        raise MessageError(
            f"unknown role {short_repr(name)}",
            path=f"{where}.from",
            hint=did_you_mean(name.lower(), ROLES, "Accepted"),
        )
    if role is CALL_TURN:
        message = make_message("assistant", None)
        message["tool_calls"] = _read_calls(turn, path)
    else:
        message = make_message(role, require_text(turn, "value", path))
    for key, value in turn.items():
        if key in ("from", "value"):
            continue
        if key in message:
            raise MessageError(f"it has {key!r} beside 'from' and 'value'", path=where)
        message[key] = value
    return message


def _read_calls(turn: JsonMapping, path: Path) -> list[Row]:
    """Return the calls of LLaMA-Factory's `function_call`: one call or a list, as JSON text or as data."""
    value = turn.get("value")
    path = (*path, "value")
    if not is_list(value) and not isinstance(value, Mapping):
        text = require_text(turn, "value", path[:-1])
        value = parse_json(text, format_path(path), ACCEPTED_CALLS)
    calls = value if is_list(value) and value else [value]
    return [_read_call(call, path) for call in calls]


def _read_call(call: Any, path: Path) -> Row:
    where = format_path(path)
    if not isinstance(call, Mapping):
        raise MessageError(
            f"is not a tool call: {short_repr(call)}",
            path=where,
            hint=f"Accepted: {ACCEPTED_CALLS}.",
        )
    for key in ("name", "arguments"):
        if key not in call:
            raise MessageError(
                f"a call has no {key!r}", path=where, hint=did_you_mean(key, call, "It has")
            )
    for key in call:
        if key not in CALL_KEYS:
            raise MessageError(
                f"unknown key {str(key)!r} in a call",
                path=where,
                hint=did_you_mean(str(key), CALL_KEYS, "Accepted"),
            )
    name = check_text(call["name"], (*path, "name"))
    found: Row = {"id": call["id"]} if "id" in call else {}
    found |= {"type": "function", "function": {"name": name, "arguments": call["arguments"]}}
    return found


def write(row: ParsedRow) -> Row:
    """Write a row of `conversations`; a system text and the tools are columns."""
    system, messages = split_system(row.messages)
    first = len(row.messages) - len(messages)
    turns = [_write_turn(message, index) for index, message in enumerate(messages, first)]
    columns = {**extra_columns(row), "conversations": turns}
    if system:
        columns["system"] = system
    if row.tools is not None:
        columns["tools"] = as_json(row.tools, "tools")
    return columns


def _write_turn(message: Row, index: int) -> Row:
    turn = {key: value for key, value in message.items() if key not in OPENAI_FIELDS}
    if calls := _written_calls(message):
        value: Any = calls[0] if len(calls) == 1 else calls
        turn["from"] = "function_call"
        turn["value"] = as_json(value, "messages", index, "tool_calls")
    else:
        turn["from"] = translate_role(message, index, "sharegpt", WRITTEN_ROLES)
        turn["value"] = require_text_content(message, index, "sharegpt")
    return turn


def _written_calls(message: Row) -> list[Row]:
    """Return the names and arguments of a message that has tool calls and no content."""
    calls = message.get("tool_calls")
    if message.get("role") != "assistant" or message.get("content") or not is_list(calls):
        return []
    found = []
    for call in calls or ():
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            function = {}
        found.append({key: function[key] for key in ("name", "arguments") if key in function})
    return found
