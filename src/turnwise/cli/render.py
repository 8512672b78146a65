"""`turnwise render`: the text that the model sees, and the origin of each character; options of all commands."""

from __future__ import annotations

from typing import Any

from turnwise.cli import inputs, output
from turnwise.engine.provenance.rendering import Rendering
from turnwise.errors import printable
from turnwise.messages import JsonObject

ORIGIN_KEYS = (
    *("kind", "field", "path", "key", "line", "column", "message", "generation", "sources"),
)


def render(
    template: str,
    pick: str | None = None,
    exact: bool = False,
    as_json: bool = False,
    pieces: bool = False,
    whitespace: bool = False,
    strict: bool = False,
    **request: Any,
) -> None:
    """Render a conversation: the text of the template is dim, the fields of the messages are bright.

    Example: turnwise render qwen2.5 --user "Hi" --generation

    Options:
        pieces: List the pieces with their origins.
        whitespace -w: Make white space visible.
        strict: Refuse text that the template does not write.
    """
    loaded, messages, arguments = inputs.read_request(template, pick, exact, **request)
    rendering = loaded.render(messages, strict=strict, **arguments)
    if as_json:
        output.write_json(rendering_data(rendering))
    elif pieces:
        output.write_lines(piece_lines(rendering))
    else:
        show(rendering, whitespace)
    if not as_json:
        note_changes(rendering)


def note_changes(rendering: Rendering) -> None:
    """Write to stderr what was changed in the conversation before it was rendered."""
    for change in rendering.changes:
        output.note(f"changed: {printable(str(change))}")


def show(rendering: Rendering, whitespace: bool = False) -> None:
    """Write the text: exact for programs, in colour for people."""
    colour = output.use_colour()
    if not (colour or whitespace or output.is_terminal()):
        output.write(rendering.text)
        return
    text = rendering.show(colour=colour, whitespace=whitespace)
    output.write_styled(text if text.endswith("\n") else text + "\n")


def rendering_data(rendering: Rendering) -> JsonObject:
    """Return a rendering with the origin of each piece, as JSON takes it."""
    return {
        "text": rendering.text,
        "pieces": [
            {"text": piece.text, "origin": output.select_fields(piece.origin, *ORIGIN_KEYS)}
            for piece in rendering.pieces
        ],
        "changes": [str(change) for change in rendering.changes],
        "warnings": list(rendering.warnings),
    }


def piece_lines(rendering: Rendering) -> list[output.Line]:
    """Return one line for each piece: its message, its origin and its text."""
    origins = [printable(str(piece.origin)) for piece in rendering.pieces]
    width = min(60, max(map(len, origins), default=0))
    lines: list[output.Line] = []
    for piece, origin in zip(rendering.pieces, origins, strict=True):
        style = "bold" if piece.origin.kind == "field" else "dim"
        message = "" if piece.origin.message is None else f"[{piece.origin.message}]"
        # repr: quotes around it, newlines as \n, so that one piece is one line
        text = printable(repr(piece.text), 10**9)
        place = f"{message:<5}{origin:<{width}}  "
        lines.append(((place, "dim" if style == "dim" else ""), (text, style)))
    return lines
