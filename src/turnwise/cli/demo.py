"""`turnwise demo`: text, origins, tokens, an attack and a reply, with nothing to prepare."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

from rich.text import Text

from turnwise.cli import encode, output
from turnwise.cli.parse import CHUNK, event_data, event_line, message_data
from turnwise.cli.render import piece_lines, rendering_data, show
from turnwise.engine.provenance.rendering import COLOURS, COMPUTED, DIM, RESET, Rendering
from turnwise.registry import load
from turnwise.template import Template
from turnwise.tokens.tokenizers import SHIPPED

ENTRY = "qwen2.5"

SCENES: dict[str, Any] = json.loads(
    Path(__file__).with_name("demo.json").read_text(encoding="utf-8")
)
TOOLS, CHAT, ATTACK, REPLY = (SCENES[name] for name in ("tools", "chat", "attack", "reply"))
CALL_INDEX = 2  # the message with the tool call


def demo(
    as_json: bool = False,
) -> None:
    """Show a prompt and its origins, tokens and loss, an attack, and a reply parsed as it arrives.

    Example: turnwise demo
    """
    coloured = output.use_colour()
    template = load(ENTRY)
    if as_json:
        output.write_json({"template": ENTRY, "steps": list(_list_steps(template))})
        return
    rendering = template.render(CHAT, tools=TOOLS, add_generation_prompt=True)
    output.write(f"1. Render: a conversation with a tool, as {ENTRY} sees it.\n\n")
    show(rendering, coloured)
    output.write_styled(f"\n{_legend(coloured)}\n\n")
    output.write(
        "2. Origins: each piece of the call knows the template node or the field that it came from.\n\n"
    )
    output.write_lines(list(_lines_of_message(rendering, CALL_INDEX)), coloured)
    _show_tokens(template, coloured)
    _show_reply(template, rendering, coloured)


def _list_steps(template: Template) -> Iterator[dict[str, Any]]:
    """Yield the data of the four steps."""
    prompt = template.render(CHAT, tools=TOOLS, add_generation_prompt=True)
    rendered = rendering_data(prompt)
    yield {"step": "render", "messages": CHAT, "tools": TOOLS, **rendered}
    of_call = [one for one in rendered["pieces"] if one["origin"]["message"] == CALL_INDEX]
    yield {"step": "origins", "message": CALL_INDEX, "pieces": of_call}
    encoded = template.encode(ATTACK, SHIPPED)
    yield {"step": "tokens", "messages": ATTACK, **encode.encoded_data(encoded)}
    parser = template.parser(prompt, TOOLS)
    events = [event for chunk in CHUNK.findall(REPLY) for event in parser.feed(chunk)]
    message = parser.close()
    shown = [event_data(event) for event in (*events, *message.events)]
    yield {"step": "reply", "reply": REPLY, "events": shown, **message_data(message)}


def _lines_of_message(rendering: Rendering, message: int) -> Iterator[Text]:
    for piece, line in zip(rendering.pieces, piece_lines(rendering), strict=True):
        if piece.origin.message == message:
            yield line


def _show_tokens(template: Template, coloured: bool) -> None:
    """Show the tokens of a chat in which a user tries to write a system message."""
    safe = template.encode(ATTACK, SHIPPED)
    unsafe = template.encode(ATTACK, SHIPPED, compatible=True)
    legend = (
        "trained tokens are green, control tokens reversed, forged ones struck out"
        if coloured
        else encode.LEGEND
    )
    output.write(f"\n3. Tokens: {legend}.\n\n")
    output.write_lines(encode.chip_lines(safe, coloured), coloured)
    forged = ", ".join(safe.text[start:end] for start, end in safe.defused)
    output.write(
        f"\nThe user wrote {forged}: text here ({len(safe.control)} control tokens), "
        f"real tokens elsewhere ({len(unsafe.control)}).\n"
    )


def _show_reply(template: Template, prompt: Rendering, coloured: bool) -> None:
    """Show how a reply to the first prompt is parsed, chunk by chunk."""
    output.write(
        "\n4. Reply: what a model sends, read as it comes by a parser derived from the template.\n\n"
    )
    parser = template.parser(prompt, TOOLS)
    for chunk in CHUNK.findall(REPLY):
        output.write_lines(map(event_line, parser.feed(chunk)), coloured)
    message = parser.close()
    output.write_lines(map(event_line, message.events), coloured)
    output.write(f"\nThe message:\n{json.dumps(message, ensure_ascii=False)}\n")
    again = template.render([*CHAT, message], tools=TOOLS)
    is_same = str(again).startswith(str(prompt) + REPLY)
    how = "letter for letter" if is_same else "in the template's own way"
    output.write(f"\nGiven back to the template, it follows the prompt {how}.\n")


def _legend(coloured: bool) -> str:
    if not coloured:
        return "With --color, what the template wrote is dim and each field of the conversation has a colour."
    fields = "".join(
        f"{colour}{letter}"
        for colour, letter in zip(cycle(COLOURS), "fields of the conversation", strict=False)
    )
    return f"{DIM}dim: what the template wrote{RESET}; bright: {fields}{RESET}; {COMPUTED}slanted: computed{RESET}"
