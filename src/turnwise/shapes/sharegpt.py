"""ShareGPT's `conversations[{from, value}]`, as LLaMA-Factory and others extended it to systems, tools and calls.

Other keys of a turn (`weight`, `loss`, ...) stay fields of the message, and are written again. What OpenAI's shape says
in fields of its own and this one cannot (ids of calls, names, reasoning) is refused when writing, although we would
read it back: nobody else would.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnwise.errors import MessageError, did_you_mean, short_repr
from turnwise.messages import REASONING_KEYS, Path
from turnwise.messages import format_path as spelt
from turnwise.shapes.row import (
    Conversation,
    Row,
    as_json,
    beside,
    is_list,
    made,
    maybe,
    parsed,
    plain_text,
    role_name,
    said,
    system_first,
    text_of,
    turns_of,
    words,
)

CALL = "a call"
ROLES = {
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(("gpt", "assistant", "chatgpt", "bot", "model"), "assistant"),
    **dict.fromkeys(("observation", "tool", "tool_response", "function_response"), "tool"),
    **dict.fromkeys(("function_call", "tool_call"), CALL),
    **{name: name for name in ("system", "developer", "function", "environment")},
}
# The name that other software knows: the first of each, and no names that only we would read back.
NAMES = {"user": "human", "assistant": "gpt", "tool": "observation", "system": "system"}

# OpenAI gives these a meaning that ShareGPT's readers would not find beside `value`.
NO_TURN_FIELDS = {"role", "content", "tool_calls", "tool_call_id", "name", *REASONING_KEYS}


def read(row: Any) -> Conversation:
    column, turns = turns_of(row, "sharegpt", "ShareGPT data")
    messages = [_read_turn(turn, (column, index)) for index, turn in enumerate(turns)]
    system = maybe(row, "system")
    if system and messages[0]["role"] == "system" and messages[0]["content"] != system:
        raise MessageError("the first turn is a system text too, and another one", path="system")
    if system and messages[0]["role"] != "system":
        messages.insert(0, said("system", system))
    return made("sharegpt", row, (column, "system"), messages)


def _read_turn(turn: Any, path: Path) -> Row:
    if not isinstance(turn, Mapping):
        problem = f"a turn is a mapping, not {type(turn).__name__}: {short_repr(turn)}"
        raise MessageError(
            problem, path=spelt(path), hint='for example {"from": "human", "value": "Hello!"}'
        )
    name = text_of(turn, "from", path)
    role = ROLES.get(name.lower())
    if role is None:
        hint = did_you_mean(name.lower(), ROLES, "Accepted")
        raise MessageError(
            f"nobody is called {short_repr(name)}", path=spelt((*path, "from")), hint=hint
        )
    if clash := sorted(
        turn.keys() & ({"role", "content"} | ({"tool_calls"} if role is CALL else set()))
    ):
        raise MessageError(f"it has {clash[0]!r} beside 'from' and 'value'", path=spelt(path))
    others = {key: value for key, value in turn.items() if key not in ("from", "value")}
    if role is CALL:
        return {**said("assistant", None), "tool_calls": _calls(turn, path), **others}
    return {**said(role, text_of(turn, "value", path)), **others}


def _calls(turn: Mapping[str, Any], path: Path) -> list[Row]:
    """One call or a list of them, in JSON: LLaMA-Factory's `function_call`."""
    path, accepted = (*path, "value"), '{"name": ..., "arguments": ...}, or a list of those'
    value = turn.get("value")
    value = (
        value if is_list(value) or isinstance(value, Mapping) else text_of(turn, "value", path[:-1])
    )
    value = parsed(value, spelt(path), accepted) if isinstance(value, str) else value
    calls = []
    for call in value if is_list(value) and value else [value]:
        if not isinstance(call, Mapping):
            raise MessageError(
                f"is no call: {short_repr(call)}", path=spelt(path), hint=f"Accepted: {accepted}."
            )
        for key in ("name", "arguments"):
            if key not in call:
                raise MessageError(
                    f"a call has no {key!r}",
                    path=spelt(path),
                    hint=did_you_mean(key, call, "It has"),
                )
        if unknown := [str(key) for key in call if key not in ("name", "arguments", "id")]:
            hint = did_you_mean(unknown[0], ("name", "arguments", "id"), "Accepted")
            raise MessageError(f"a call has {unknown[0]!r}", path=spelt(path), hint=hint)
        function = {"name": words(call["name"], (*path, "name")), "arguments": call["arguments"]}
        calls.append(
            {
                **({"id": call["id"]} if "id" in call else {}),
                "type": "function",
                "function": function,
            }
        )
    return calls


def write(conversation: Conversation) -> Row:
    system, messages = system_first(conversation.messages)
    turns = [
        _write_turn(message, index) for index, message in enumerate(messages, 1 if system else 0)
    ]
    row = {**beside(conversation), "conversations": turns}
    if system:
        row["system"] = system
    if conversation.tools is not None:
        row["tools"] = as_json(conversation.tools, "tools")
    return row


def _write_turn(message: Row, index: int) -> Row:
    others = {key: value for key, value in message.items() if key not in NO_TURN_FIELDS}
    if calls := _functions(message):
        value = as_json(calls[0] if len(calls) == 1 else calls, "messages", index, "tool_calls")
        return {**others, "from": "function_call", "value": value}
    name = role_name(message, index, "sharegpt", NAMES)
    return {**others, "from": name, "value": plain_text(message, index, "sharegpt")}


def _functions(message: Row) -> list[Row]:
    """The calls of a message that does nothing but call."""
    calls = message.get("tool_calls")
    if message.get("role") != "assistant" or message.get("content") or not is_list(calls):
        return []
    functions = [
        call.get("function") if isinstance(call, Mapping) else None for call in calls or ()
    ]
    plain = [function if isinstance(function, Mapping) else {} for function in functions]
    return [
        {key: function[key] for key in ("name", "arguments") if key in function}
        for function in plain
    ]
