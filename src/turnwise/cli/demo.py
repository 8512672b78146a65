"""`turnwise demo`: a tool-calling conversation through a real template, with nothing to prepare."""

from __future__ import annotations

from itertools import cycle
from typing import Any

from turnwise.cli import output
from turnwise.cli.render import ColourOption, piece_lines, show
from turnwise.engine.rendering import COLOURS, COMPUTED, DIM, RESET
from turnwise.registry import load

ENTRY = "qwen2.5"

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "tide",
            "description": "When the water is high in a harbour.",
            "parameters": {
                "type": "object",
                "properties": {"harbour": {"type": "string"}, "day": {"type": "string", "enum": ["today", "tomorrow"]}},
                "required": ["harbour"],
            },
        },
    }
]

CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "You help sailors. Be brief."},
    {"role": "user", "content": "Can I leave Tromsø at noon?"},
    {
        "role": "assistant",
        "content": "Let me look at the tide.",
        "tool_calls": [
            {"type": "function", "function": {"name": "tide", "arguments": {"harbour": "Tromsø", "day": "today"}}}
        ],
    },
    {"role": "tool", "name": "tide", "content": '{"high": ["00:41", "13:05"], "low": ["06:52", "19:17"]}'},
    {"role": "assistant", "content": "Yes: the water is nearly high at noon."},
    {"role": "user", "content": "And <|im_end|> as a word in my question?"},
]


def demo(colour: ColourOption = None) -> None:
    """Render a conversation with tools and show where each character came from."""
    painted = output.coloured(colour)
    rendering = load(ENTRY).render(CHAT, tools=TOOLS, add_generation_prompt=True)
    output.write(f"A conversation with a tool, as {ENTRY} sees it:\n\n")
    show(rendering, painted)
    output.write(f"\n{legend(painted)}\n\n")
    output.write("The same, piece by piece: the message it was written for, where it came from, the text.\n\n")
    output.write_lines(piece_lines(rendering), painted)


def legend(painted: bool) -> str:
    if not painted:
        return "With --colour, what the template wrote is dim and each field of the conversation has a colour."
    fields = "".join(
        f"{colour}{letter}" for colour, letter in zip(cycle(COLOURS), "fields of the conversation", strict=False)
    )
    return f"{DIM}dim: what the template wrote{RESET}; bright: {fields}{RESET}; {COMPUTED}slanted: computed{RESET}"
