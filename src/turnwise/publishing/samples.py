"""The conversations and replies on which a release is proved, small enough to be read in a file of goldens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from turnwise.analysis.conversations import load_probes, name_values
from turnwise.errors import TurnwiseError
from turnwise.replies.events import messages_equal
from turnwise.replies.write import write
from turnwise.template import Template

TOOLS = name_values("weather", "clock")
CHATS = tuple(load_probes("samples"))


def write_replies(template: Template) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield the name, the message and the text of each reply that the model can write and that is read back equal."""
    grammar = template.grammar
    (replies,) = name_values("replies")
    for name, message in replies.items():
        has_calls, has_reasoning = "tool_calls" in message, "reasoning_content" in message
        if (has_calls and grammar.calls is None) or (has_reasoning and grammar.reasoning is None):
            continue
        try:
            text = write(grammar, message)
        except TurnwiseError:
            continue  # the grammar has no way to write it
        if messages_equal(template.parse(text, tools=TOOLS), message):
            yield name, message, text
