"""A message that was read, put back into a conversation.

    template.render([*history, template.parse(reply, prompt)])  ==  prompt + reply

A parser gives OpenAI's shape: arguments are JSON text, a message that only calls has null for its content, reasoning
stands under `reasoning_content`. Templates are particular about what they take. Most want a mapping and write a text
within quotes once more; a few want the text; some refuse null, others ask for it; reasoning may go under a name of
the template's own, or in parts. So the template is asked once, with the probes that its grammar is derived from, and
the form that was answered is the form in which messages are put back.

It holds for replies as the template itself writes them. White space that a model puts elsewhere, keys in another order,
`1e3` for `1000.0` are read, and written as the template writes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from turnwise.analysis.prober import (
    ABSENT,
    ARGUMENTS,
    REASONING,
    SETTINGS,
    THOUGHTS,
    Prober,
    Shape,
    Template,
)
from turnwise.replies.derive.probe_results import Answers
from turnwise.replies.derive.reasoning import keys, listed, messages
from turnwise.replies.events import Message

THOUGHT = THOUGHTS[0]  # where a message that was read has its reasoning
IN_PARTS = "content"  # reasoning is a part of the content, beside the text


class InputFormat(NamedTuple):
    """How a template takes an assistant's message."""

    shape: Shape = Shape()
    parts: bool = False  # content is a list of parts
    reasoning: str = THOUGHT  # the key of reasoning

    def to_message(self, message: Message) -> dict[str, Any]:
        """The message as plain data in this form."""
        found = message.as_turn(as_text=self.shape.as_text)
        said = found["content"] or (self.shape.content if found.get("tool_calls") else "")
        if self.parts and said and isinstance(said, str):
            said = [{"type": "text", "text": said}]
        thought = found.pop(THOUGHT, None)
        if thought and self.reasoning == IN_PARTS:
            texts = (
                said if isinstance(said, list) else [{"type": "text", "text": said}] if said else []
            )
            said = [{"type": "thinking", "thinking": thought}, *texts]
        elif thought:
            found[self.reasoning] = thought
        found["content"] = said
        return {
            key: value
            for key, value in {**found, **self.calls(found)}.items()
            if value is not ABSENT
        }

    def calls(self, turn: dict[str, Any]) -> dict[str, Any]:
        """The calls of a turn, if this form has them otherwise."""
        calls = turn.get("tool_calls") or []
        if not isinstance(calls, list) or not all(map(is_call, calls)):
            return {}  # somebody else's
        if self.shape.single and len(calls) == 1:
            return {"tool_calls": ABSENT, "function_call": calls[0]["function"]}
        if self.shape.bare and calls:
            return {"tool_calls": [{"id": call.get("id"), **call["function"]} for call in calls]}
        return {}


def is_call(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("function"), Mapping)


def detect_input_format(template: Template) -> InputFormat:
    """The form in which this template takes messages, as far as its renderings tell."""
    prober = Prober(template)
    if not any(map(prober.settle, (False, True))):
        return InputFormat()
    one = Answers(prober).one
    shape = one.shape if one is not None else Shape()
    return InputFormat(shape, prober.parts, thinking(prober, shape))


def thinking(prober: Prober, shape: Shape) -> str:
    """The key under which reasoning comes out."""
    asked = [
        *messages(prober),
        *(prober.calls(shape, ARGUMENTS[0], **{key: REASONING}) for key in keys(prober)),
    ]
    for options in ({}, *prober.switches(SETTINGS)):
        for message in asked:
            turn = prober.turn(message, **options)
            if turn is not None and REASONING in turn.text and not listed(turn):
                return next((key for key, value in message.items() if value == REASONING), IN_PARTS)
    return THOUGHT
