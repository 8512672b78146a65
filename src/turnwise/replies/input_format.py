"""Convert a parsed message to the input format that a template accepts.

    template.render([*history, template.parse(reply, prompt)])  ==  prompt + reply

A parser returns OpenAI's shape: arguments are JSON text, the content of a message with only calls is None, reasoning is
under `reasoning_content`. Templates differ in what they accept. Most expect arguments as a mapping, and would write a
text with quotes around it; a few expect the text; some fail on None, others check for it; reasoning may have a key of
the template's own, or be a part of the content. So the template is probed once, with the same probes that its grammar
is derived from, and the format that it rendered is the format of messages that are put back.

The equation holds for replies as the template itself writes them. White space elsewhere, keys in another order, `1e3`
for `1000.0` are parsed, and rendered as the template writes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from turnwise.analysis.facts import Facts
from turnwise.analysis.prober import (
    ABSENT,
    IN_PARTS,
    REASONING,
    REASONING_VALUES,
    CallShape,
    Prober,
)
from turnwise.messages import REASONING_KEYS, JsonObject
from turnwise.replies.events import Message

__all__ = ["IN_PARTS", "InputFormat", "detect_input_format"]

REASONING_KEY = REASONING_KEYS[0]  # of a parsed message


class InputFormat(NamedTuple):
    """The form in which a template accepts an assistant's message."""

    shape: CallShape = CallShape()
    parts: bool = False  # content is a list of parts
    reasoning: str = REASONING_KEY  # the key of reasoning

    def to_message(self, message: Message) -> JsonObject:
        """Return a parsed message as plain data in this format."""
        turn: Any = message.as_turn(as_text=self.shape.as_text)
        reasoning = turn.pop(REASONING_KEY, None)
        content = turn["content"]
        if not content and turn.get("tool_calls"):
            content = self.shape.content
        reasoning_in_parts = reasoning and self.reasoning == IN_PARTS
        if content and isinstance(content, str) and (self.parts or reasoning_in_parts):
            content = [{"type": "text", "text": content}]
        if reasoning_in_parts:
            texts = content if isinstance(content, list) else []
            content = [{"type": "thinking", "thinking": reasoning}, *texts]
        elif reasoning:
            turn[self.reasoning] = reasoning
        turn["content"] = content
        turn.update(self._reshape_calls(turn))
        return {key: value for key, value in turn.items() if value is not ABSENT}

    def _reshape_calls(self, turn: JsonObject) -> JsonObject:
        """Return the keys in which the calls of this format differ from OpenAI's."""
        calls = turn.get("tool_calls") or []
        if not isinstance(calls, list):
            return {}
        for call in calls:
            if not (isinstance(call, Mapping) and isinstance(call.get("function"), Mapping)):
                return {}
        if self.shape.single and len(calls) == 1:
            return {"tool_calls": ABSENT, "function_call": calls[0]["function"]}
        if self.shape.bare and calls:
            return {"tool_calls": [{"id": call.get("id"), **call["function"]} for call in calls]}
        return {}


def detect_input_format(facts: Facts) -> InputFormat:
    """Return the format in which a template accepts messages, as far as its renderings show it."""
    if not facts.is_accepting:
        return InputFormat()
    # `render` of a plain conversation asks nothing of this.
    from turnwise.replies.derive.calls import find_one_call

    prober, one_call = find_one_call(facts.prober)
    shape = one_call.shape if one_call is not None else CallShape()
    return InputFormat(shape, prober.settings.parts, _find_reasoning_key(prober, shape))


def _find_reasoning_key(prober: Prober, shape: CallShape) -> str:
    from turnwise.replies.derive.reasoning import (
        reasoning_calls,
        reasoning_messages,
        render_reasoning,
    )

    probes = [*reasoning_messages(prober), *reasoning_calls(prober, shape)]
    for options in ({}, *prober.reasoning_options(REASONING_VALUES)):
        for message, turn in render_reasoning(prober, probes, **options):
            if REASONING in turn.text:
                return next((key for key, value in message.items() if value == REASONING), IN_PARTS)
    return REASONING_KEY
