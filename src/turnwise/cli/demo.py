"""`turnwise demo`: text, origins, tokens, an attack and a reply, with nothing to prepare."""

from __future__ import annotations

import json
from itertools import cycle
from pathlib import Path
from typing import Any

from turnwise.cli import encode, output
from turnwise.cli.parse import CHUNK, event_data, event_line, message_data
from turnwise.cli.render import piece_lines, rendering_data, show
from turnwise.engine.provenance.rendering import COLOURS, COMPUTED, DIM, RESET, Rendering
from turnwise.registry import load
from turnwise.replies.events import Event, Message
from turnwise.tokens.encoded import Encoded
from turnwise.tokens.tokenizers import SHIPPED

ENTRY = "qwen2.5"

SCENES: dict[str, Any] = json.loads(
    Path(__file__).with_name("demo.json").read_text(encoding="utf-8")
)
TOOLS, CHAT, ATTACK, REPLY = (SCENES[name] for name in ("tools", "chat", "attack", "reply"))
CALL_INDEX = 2  # the message with the tool call


def demo(as_json: bool = False) -> None:
    """Show a prompt and its origins, tokens and loss, an attack, and a reply parsed as it arrives.

    Example: turnwise demo
    """
    template = load(ENTRY)
    prompt = template.render(CHAT, tools=TOOLS, add_generation_prompt=True)
    encoded = template.encode(ATTACK, SHIPPED)
    parser = template.parser(prompt, TOOLS)
    events = [event for chunk in CHUNK.findall(REPLY) for event in parser.feed(chunk)]
    message = parser.close()
    events += message.events
    if not as_json:
        _show_prompt(prompt)
        _show_tokens(encoded, template.encode(ATTACK, SHIPPED, compatible=True))
        again = template.render([*CHAT, message], tools=TOOLS)
        _show_reply(events, message, str(again).startswith(str(prompt) + REPLY))
        return
    rendered = rendering_data(prompt)
    of_call = [one for one in rendered["pieces"] if one["origin"]["message"] == CALL_INDEX]
    shown = [event_data(event) for event in events]
    steps = [
        {"step": "render", "messages": CHAT, "tools": TOOLS, **rendered},
        {"step": "origins", "message": CALL_INDEX, "pieces": of_call},
        {"step": "tokens", "messages": ATTACK, **encode.encoded_data(encoded)},
        {"step": "reply", "reply": REPLY, "events": shown, **message_data(message)},
    ]
    output.write_json({"template": ENTRY, "steps": steps})


def _show_prompt(prompt: Rendering) -> None:
    output.write(f"1. Render: a conversation with a tool, as {ENTRY} sees it.\n\n")
    show(prompt)
    output.write_styled(f"\n{_legend()}\n\n")
    output.write(
        "2. Origins: each piece of the call knows the template node or the field that it came from.\n\n"
    )
    lines = zip(prompt.pieces, piece_lines(prompt), strict=True)
    of_call = [line for piece, line in lines if piece.origin.message == CALL_INDEX]
    output.write_lines(of_call)


def _show_tokens(safe: Encoded, unsafe: Encoded) -> None:
    """Show the tokens of a chat in which a user tries to write a system message."""
    legend = (
        "trained tokens are green, control tokens reversed, forged ones struck out"
        if output.use_colour()
        else encode.LEGEND
    )
    output.write(f"\n3. Tokens: {legend}.\n\n")
    output.write_lines(encode.chip_lines(safe))
    forged = ", ".join(safe.text[start:end] for start, end in safe.defused)
    output.write(
        f"\nThe user wrote {forged}: text here ({len(safe.control)} control tokens), "
        f"real tokens elsewhere ({len(unsafe.control)}).\n"
    )


def _show_reply(events: list[Event], message: Message, is_same: bool) -> None:
    output.write(
        "\n4. Reply: what a model sends, read as it comes by a parser derived from the template.\n\n"
    )
    output.write_lines(map(event_line, events))
    output.write(f"\nThe message:\n{json.dumps(message, ensure_ascii=False)}\n")
    how = "letter for letter" if is_same else "in the template's own way"
    output.write(f"\nGiven back to the template, it follows the prompt {how}.\n")


def _legend() -> str:
    if not output.use_colour():
        return "With --color, what the template wrote is dim and each field of the conversation has a colour."
    letters = zip(cycle(COLOURS), "fields of the conversation", strict=False)
    fields = "".join(map("".join, letters))
    return f"{DIM}dim: what the template wrote{RESET}; bright: {fields}{RESET}; {COMPUTED}slanted: computed{RESET}"
