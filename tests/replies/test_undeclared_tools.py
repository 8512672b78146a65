"""Calls of tools that were not declared: kept by default, refused on request, never lost."""

from __future__ import annotations

import pytest

from loaded import load_entry
from reply_grammars import EXAMPLES, GRAMMARS
from turnwise.errors import TurnwiseError
from turnwise.replies.parser import Parser


def tool(name):
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


def read(grammar, reply, tools, size):
    parser = Parser(grammar, tools=tools, undeclared_tools="refuse")
    events = [
        event for at in range(0, len(reply), size) for event in parser.feed(reply[at : at + size])
    ]
    message = parser.close()
    return message, [*events, *message.events]


@pytest.mark.law
@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("declared", [(), ("get_weather",), ("now",), ("get_weather", "now")])
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.grammar)
def test_only_declared_calls_are_calls_and_nothing_is_lost(example, declared, size):
    tools = [tool(name) for name in declared]
    message, events = read(GRAMMARS[example.grammar], example.reply, tools, size)
    kept = [call["function"]["name"] for call in message.get("tool_calls", ())]
    expected = [name for name, _ in example.calls if name in declared]
    if example.grammar == "llama-4" and "get_weather" not in declared:
        expected = []  # calls without a marker are code, unless the first is one of a tool
    assert kept == expected
    # Each call that was refused is content, all of it.
    refused = [attempt for attempt in message.attempts if attempt.status == "undeclared"]
    assert all(attempt.index is None and attempt.name not in declared for attempt in refused)
    assert all(attempt.raw.strip() in (message["content"] or "") for attempt in refused)
    for name, _ in example.calls:
        assert name in kept or name in (message["content"] or "")
    # The events say the same, and the spans cover the reply.
    assert "".join(event.text for event in events if event.kind == "text") == (
        message["content"] or ""
    )
    assert [event.name for event in events if event.kind == "start"] == kept
    covered = "".join(example.reply[span.start : span.end] for span in message.spans)
    assert covered == example.reply


def test_by_default_the_call_is_kept():
    template = load_entry("qwen3")
    reply = '<tool_call>\n{"name": "tide", "arguments": {}}\n</tool_call>'
    kept = template.parse(reply, tools=[tool("berth")])
    assert len(kept["tool_calls"]) == 1 and kept.attempts[0].status == "unknown"
    refused = template.parse(reply, tools=[tool("berth")], undeclared_tools="refuse")
    assert refused["content"] == reply and "tool_calls" not in refused
    assert refused.finish_reason == "stop"
    parser = template.parser(tools=[tool("berth")], undeclared_tools="refuse")
    parser.feed(reply)
    assert parser.close() == refused


@pytest.mark.parametrize("cut", range(20, 58, 3))
def test_a_refused_call_that_breaks_off_is_content(cut):
    template = load_entry("qwen3")
    reply = '<tool_call>\n{"name": "tide", "arguments": {"day": 12}}\n</tool_call>'[:cut]
    message = template.parse(reply, tools=[tool("berth")], undeclared_tools="refuse")
    assert "tool_calls" not in message
    if "tide" in (message["content"] or ""):
        assert message["content"] == reply


@pytest.mark.parametrize("policy", ["drop", None, True])
def test_another_policy_is_an_error(policy):
    with pytest.raises(TurnwiseError, match="undeclared_tools"):
        load_entry("qwen3").parser(tools=[], undeclared_tools=policy)


def test_to_refuse_needs_the_tools():
    with pytest.raises(TurnwiseError, match="tools"):
        load_entry("qwen3").parse("", undeclared_tools="refuse")
