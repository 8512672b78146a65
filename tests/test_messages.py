"""The reader of message fields: every usual form of text, reasoning and tool calls."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

import turnwise
from turnwise.messages import (
    REASONING_KEYS,
    CallFields,
    message_reasoning,
    message_text,
    message_tool_calls,
)
from turnwise.replies.write import write

OSLO = {"city": "Oslo"}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("Hi", "Hi"),
        (None, ""),
        ([], ""),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "ab"),
        ([{"type": "image"}, "c", {"type": "text", "text": None}], "c"),
    ],
)
def test_text(content: Any, expected: str) -> None:
    assert message_text({"role": "user", "content": content}) == expected


def test_a_message_without_content_has_no_text() -> None:
    assert message_text({"role": "assistant"}) == ""


@pytest.mark.parametrize(
    ("content", "path"),
    [(5, "content"), ([5], "content[0]"), ([{"text": 5}], "content[0].text")],
)
def test_text_of_another_type_is_an_error(content: Any, path: str) -> None:
    with pytest.raises(turnwise.MessageError) as caught:
        message_text({"content": content})
    assert caught.value.path == path


@pytest.mark.parametrize(
    "call",
    [
        {"id": "a", "type": "function", "function": {"name": "weather", "arguments": OSLO}},
        {"id": "a", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}},
        {"id": "a", "name": "weather", "arguments": OSLO},
    ],
)
def test_calls(call: Any) -> None:
    assert message_tool_calls({"tool_calls": [call]}) == [CallFields("weather", OSLO, "a")]


def test_an_old_function_call_is_read() -> None:
    message = {"tool_calls": None, "function_call": {"name": "weather", "arguments": ""}}
    assert message_tool_calls(message) == [CallFields("weather", {}, None)]
    assert message_tool_calls({"tool_calls": [], "function_call": message["function_call"]}) == []


@pytest.mark.parametrize("arguments", ["no JSON", "[1]", "[" * 100_000, [1]])
def test_arguments_that_are_no_object_are_kept(arguments: Any) -> None:
    message = {"tool_calls": [{"name": "weather", "arguments": arguments}]}
    assert message_tool_calls(message)[0].arguments == arguments


@pytest.mark.parametrize(
    ("calls", "path"),
    [
        (5, "tool_calls"),
        ([5], "tool_calls[0]"),
        ([{"name": "f"}, {"function": {}}], "tool_calls[1]"),
        ([{"name": "f", "id": 5}], "tool_calls[0].id"),
    ],
)
def test_malformed_calls(calls: Any, path: str) -> None:
    with pytest.raises(turnwise.MessageError) as caught:
        message_tool_calls({"tool_calls": calls})
    assert caught.value.path == path
    read = message_tool_calls({"tool_calls": calls}, strict=False)
    assert all(call == CallFields("f", {}, None) for call in read)


@pytest.mark.parametrize("keys", list(combinations(REASONING_KEYS, 2)))
def test_one_order_of_reasoning_aliases(keys: tuple[str, str]) -> None:
    """What `render` writes, `write` writes and the reader reads."""
    template = turnwise.load("qwen3")
    reasoning = {key: f"reasoning under {key}" for key in reversed(keys)}
    message = {"role": "assistant", "content": "Yes.", **reasoning}
    expected = f"<think>\nreasoning under {keys[0]}\n</think>"
    with pytest.warns(
        turnwise.TurnwiseWarning, match="different texts, of which templates write one"
    ):
        rendered = template.render([{"role": "user", "content": "Really?"}, message]).text
    assert expected in rendered
    assert expected in write(template.grammar, message)
    assert message_reasoning(message) == reasoning[keys[0]]
