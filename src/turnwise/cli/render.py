"""`turnwise render`: a conversation as the text that the model sees, and where each character came from."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from turnwise.cli import inputs, output
from turnwise.engine.provenance.rendering import Origin, Rendering
from turnwise.errors import printable
from turnwise.shapes import SHAPES

TemplateArgument = Annotated[
    str,
    typer.Argument(
        metavar="TEMPLATE",
        show_default=False,
        help="A file, a model folder, a built-in name, or -.",
    ),
]
PickOption = Annotated[
    str | None, typer.Option("--pick", help="Which template, where a model has several.")
]
ExactOption = Annotated[
    bool,
    typer.Option(
        "--exact", help="Another software's template: its text, recorded defects included."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ColourOption = Annotated[
    bool | None,
    typer.Option("--colour/--no-colour", help="Paint, or not; else only on a terminal."),
]
ChatArgument = Annotated[
    str | None,
    typer.Argument(metavar="CHAT", show_default=False, help="A JSON file of messages, or -."),
]
UserOption = Annotated[str | None, typer.Option(help="A user's message, instead of CHAT.")]
SystemOption = Annotated[str | None, typer.Option(help="A system message to put first.")]
ToolsOption = Annotated[
    str | None, typer.Option(metavar="FILE", help="A JSON file with a list of tools, or -.")
]
VariableOption = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", metavar="KEY=VALUE", help="A variable of the template."),
]
GenerationOption = Annotated[
    bool,
    typer.Option(
        "--generation", "-g", "--add-generation-prompt", help="Invite the assistant to speak."
    ),
]
ContinueOption = Annotated[
    bool,
    typer.Option("--continue", "--continue-final-message", help="Leave the last message open."),
]
NowOption = Annotated[
    str | None, typer.Option(metavar="ISO", help="The time, for templates that ask for it.")
]
LineOption = Annotated[int | None, typer.Option(min=1, help="Which line of a JSON Lines file.")]
ShapeOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help=f"What CHAT is, if not guessed: {', '.join(SHAPES)}."),
]


def render(
    template: TemplateArgument,
    chat: ChatArgument = None,
    user: UserOption = None,
    system: SystemOption = None,
    tools: ToolsOption = None,
    option: VariableOption = None,
    generation: GenerationOption = False,
    continued: ContinueOption = False,
    now: NowOption = None,
    line: LineOption = None,
    shape: ShapeOption = None,
    pick: PickOption = None,
    exact: ExactOption = False,
    as_json: JsonOption = False,
    pieces: Annotated[
        bool, typer.Option("--pieces", help="List the pieces with their origins.")
    ] = False,
    whitespace: Annotated[
        bool, typer.Option("--whitespace", "-w", help="Make white space visible.")
    ] = False,
    colour: ColourOption = None,
) -> None:
    """Render a conversation: template text dim, each field bright."""
    inputs.check_stdin(template, chat, tools)
    messages, arguments = inputs.asked(
        inputs.chat_of(chat, user, system, tools, line, shape), option, generation, continued, now
    )
    rendering = inputs.template_of(template, pick, exact).render(messages, **arguments)
    if as_json:
        output.write_json(as_data(rendering))
    elif pieces:
        output.write_lines(piece_lines(rendering), output.coloured(colour))
    else:
        show(rendering, output.coloured(colour), whitespace)


def show(rendering: Rendering, colour: bool, whitespace: bool = False) -> None:
    """The text: exact for programs, painted for people."""
    if not (colour or whitespace or output.terminal()):
        output.write(rendering.text)
        return
    text = rendering.show(colour=colour, whitespace=whitespace)
    output.write(text if text.endswith("\n") else text + "\n")


def as_data(rendering: Rendering) -> dict[str, Any]:
    return {
        "text": rendering.text,
        "pieces": [
            {"text": piece.text, "origin": origin_data(piece.origin)} for piece in rendering.pieces
        ],
        "changes": [str(change) for change in rendering.changes],
    }


def origin_data(origin: Origin) -> dict[str, Any]:
    return {
        "kind": origin.kind,
        "field": origin.field,
        "path": origin.path,
        "key": origin.key,
        "line": origin.line,
        "column": origin.column,
        "message": origin.message,
        "generation": origin.generation,
        "sources": origin.sources,
    }


def piece_lines(rendering: Rendering) -> list[Text]:
    """One line for each piece: the message it was written for, its origin, its text."""
    origins = [printable(str(piece.origin)) for piece in rendering.pieces]
    width = min(60, max(map(len, origins), default=0))
    lines = []
    for piece, origin in zip(rendering.pieces, origins, strict=True):
        style = "bold" if piece.origin.kind == "field" else "dim"
        message = "" if piece.origin.message is None else f"[{piece.origin.message}]"
        # repr: quotes around it, newlines as \n, so that one piece is one line
        text = printable(repr(piece.text), 10**9)
        lines.append(
            Text.assemble(
                (f"{message:<5}{origin:<{width}}  ", "dim" if style == "dim" else ""), (text, style)
            )
        )
    return lines
