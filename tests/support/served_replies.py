"""Replies that servers have to read: written by templates of every kind, broken off, and of other models."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import turnwise
from reply_messages import MESSAGES, TOOLS
from turnwise.replies.grammar import Grammar
from turnwise.replies.write import write

# One for each way in which calls are written: JSON, in a list, bare, after a name, between tags, in Python's and in
# Gemma's notation, with ids, in channels; with reasoning that the prompt opens, that the model opens, and without.
KINDS = (
    "qwen3",
    "qwen3-coder",
    "glm-4.5",
    "deepseek-r1",
    "deepseek-v3.1",
    "llama-3.1",
    "mistral-v3",
    "devstral-2",
    "gemma-4",
    "lfm2",
    "kimi-k2-thinking",
    "minimax-m2",
    "command-a-tools",
    "granite-3.3",
    "seed-oss",
    "gpt-oss",
)
UNKNOWN_TOOL = {
    "content": "",
    "tool_calls": [
        {
            "id": "abcd00001",
            "type": "function",
            "function": {"name": "sail", "arguments": {"to": "N"}},
        }
    ],
}
FOREIGN = (
    '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
    "<|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
    "[now()] is what I would call, if <b>I</b> could: {a: [1, 2]}",
    "<think>",
    "</think>",
    " \n",
)
NO_SCHEMA = [{"type": "function", "function": {"name": "now", "parameters": [1]}}]
"""Servers that check requests refuse it themselves."""
RECURSIVE = {"type": "object", "properties": {"next": {"$ref": "#"}}}
BROKEN_TOOLS: tuple[Any, ...] = (
    [{"type": "function", "function": {"name": "now", "parameters": RECURSIVE}}],
    [
        {
            "type": "function",
            "function": {"name": "now", "parameters": {**RECURSIVE, "required": ["next"]}},
        }
    ],
    [{"type": "function", "function": {"name": "now", "parameters": {"$ref": "#/nowhere"}}}],
    [{"type": "function", "function": {"name": "</tool_call>", "parameters": {"type": "object"}}}],
    [{"type": "function", "function": {"name": "now", "parameters": {"type": "no type"}}}],
    [{"type": "function", "function": {"name": 'a"b\\c', "parameters": {"type": "object"}}}],
    [{"type": "function", "function": {"name": "now", "parameters": {"not": {"type": "string"}}}}],
    [{"type": "function", "function": {"name": "now"}}],
)


@cache
def template(name: str) -> turnwise.Template:
    """A template as a server finds it: the text of an entry, without what the entry declares."""
    entry = turnwise.load(name)
    stop = next(iter(entry.stops()), "")
    return turnwise.compile(entry.text, "jinja", options={"eos_token": stop, **entry.options})


def written_replies(grammar: Grammar) -> dict[str, str]:
    """Replies as the model of a template writes them."""
    found = {}
    for label, message in (*MESSAGES.items(), ("unknown tool", UNKNOWN_TOOL)):
        needs_calls, needs_reasoning = "tool_calls" in message, "reasoning_content" in message
        if needs_calls > (grammar.calls is not None) or needs_reasoning > (
            grammar.reasoning is not None
        ):
            continue
        found[label] = write(grammar, message)
        found[f"{label}, no stop"] = write(grammar, message, stop=False)
    return found


def damaged_replies(grammar: Grammar) -> dict[str, str]:
    """Replies that were broken off, and replies of other models."""
    whole = written_replies(grammar)
    longest = max(whole.values(), key=len)
    cuts = {f"cut at {size}": longest[:size] for size in range(5, len(longest), 23)}
    return {**cuts, **{f"foreign {index}": text for index, text in enumerate(FOREIGN)}}


def essence(message: Mapping[str, Any]) -> tuple[str, str, list[tuple[str, str]]]:
    """Content, reasoning and calls of a message."""
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    return (
        message.get("content") or "",
        message.get("reasoning_content") or "",
        [(call["name"], call["arguments"]) for call in calls],
    )


def parse_expected(
    template: turnwise.Template, reply: str
) -> tuple[str, str, list[tuple[str, str]]]:
    return essence(template.parse(reply, tools=TOOLS))
