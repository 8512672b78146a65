"""The conversations and replies on which a release is proved, small enough to be read in a file of goldens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from turnwise.analysis.conversations import (
    CLOCK,
    FIRST,
    ONE,
    OSLO,
    RULES,
    SECOND,
    WEATHER,
    make_call_message,
    make_message,
    make_tool_result,
)
from turnwise.errors import TurnwiseError
from turnwise.replies.equality import messages_equal
from turnwise.replies.write import write
from turnwise.template import Template

TOOLS = [WEATHER, CLOCK]
CALL = make_call_message(("weather", OSLO))
CALLS = make_call_message(("weather", OSLO), ("clock", {}))
ANSWER = make_message("assistant", "It rains, and it is 4 degrees.")


class SampleChat(NamedTuple):
    """A conversation and the arguments of `render`."""

    name: str
    messages: list[dict[str, Any]]
    arguments: dict[str, Any] = {}  # never changed


CHATS = (
    SampleChat("one round", [FIRST, ONE]),
    SampleChat("system text", [RULES, FIRST, ONE, SECOND, ANSWER]),
    SampleChat("prompt", [FIRST, ONE, SECOND], {"add_generation_prompt": True}),
    SampleChat("prompt with tools", [FIRST], {"add_generation_prompt": True, "tools": TOOLS}),
    SampleChat("a call", [FIRST, CALL, make_tool_result("4 degrees"), ANSWER], {"tools": TOOLS}),
    SampleChat(
        "two calls",
        [FIRST, CALLS, make_tool_result("4"), make_tool_result("12:00", 1, "clock"), ANSWER],
        {"tools": TOOLS},
    ),
    SampleChat("reasoning", [FIRST, {**ANSWER, "reasoning_content": "Let me look it up."}]),
)
REPLIES: dict[str, dict[str, Any]] = {
    "content": ANSWER,
    "lines": make_message("assistant", 'First: 1 < 2.\n\n* "two"\n* é, 東京'),
    "reasoning": {**ANSWER, "reasoning_content": "Let me see:\n1 < 2."},
    "call": CALL,
    "two calls": CALLS,
    "content and call": {**CALL, "content": "I look."},
    "reasoning and call": {**CALL, "reasoning_content": "I must look."},
}


def write_replies(template: Template) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield the name, the message and the text of each reply that the model can write and that is read back equal."""
    grammar = template.grammar
    for name, message in REPLIES.items():
        has_calls, has_reasoning = "tool_calls" in message, "reasoning_content" in message
        if (has_calls and grammar.calls is None) or (has_reasoning and grammar.reasoning is None):
            continue
        try:
            text = write(grammar, message)
        except TurnwiseError:
            continue  # the grammar has no way to write it
        if messages_equal(template.parse(text, tools=TOOLS), message):
            yield name, message, text
