"""Parse a whole reply with a grammar alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turnwise.replies.events import Message
from turnwise.replies.grammar_parts import GrammarParts
from turnwise.replies.parser.parser import Parser


def parse(
    grammar: GrammarParts,
    reply: str | Sequence[int],
    prompt: Any = None,
    tools: Any = None,
    **more: Any,
) -> Message:
    """Return the message of a reply; `more` is for `Parser`."""
    return Parser(grammar, prompt, tools, **more).read(reply)
