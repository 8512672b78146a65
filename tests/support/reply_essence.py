"""What a message says, whatever its ids and its white space; and the tools of made-up messages."""

from __future__ import annotations

import json
from typing import Any

from reply_messages import tool
from turnwise.replies.grammar import Grammar

TYPES = {
    "city": "string",
    "days": "integer",
    "rate": "number",
    "sure": "boolean",
    "deep": "object",
    "tags": "array",
}

CALLED = ("get_weather", "tell_time")

TOOLS = [tool(name, **TYPES) for name in CALLED]


def id_of(grammar: Grammar, name: str, at: int) -> str:
    """An id; where the template writes no name, the id says it."""
    parts = getattr(
        grammar.calls and grammar.calls.call, "parts", ()
    )  # none: JSON that says the name
    return f"functions.{name}:{at}" if parts and "name" not in parts else f"abcd0000{at}"


def essence(message: Any) -> tuple[Any, ...]:
    functions = [call["function"] for call in message.get("tool_calls") or ()]
    calls = [(one["name"], as_data(one["arguments"])) for one in functions]
    return (message.get("content") or "").strip(), message.get("reasoning_content") or "", calls


def as_data(arguments: Any) -> Any:
    return json.loads(arguments) if isinstance(arguments, str) else arguments
