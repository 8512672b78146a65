"""`turnwise render`: the text that the model sees, and the origin of each character; options of all commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnwise.cli import inputs, output
from turnwise.engine.provenance.rendering import Rendering
from turnwise.errors import printable
from turnwise.normalisation.systems import LATE_SYSTEM
from turnwise.shapes import SHAPES

if TYPE_CHECKING:
    from rich.text import Text


ORIGIN_KEYS = (
    *("kind", "field", "path", "key", "line", "column", "message", "generation", "sources"),
)


def make_flag(*names: str, help: str) -> Any:
    """Return an option that takes no value; without a metavar, help would show one."""
    return typer.Option(*names, metavar="", help=help)


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
    make_flag("--exact", help="Other software's template: its text, with its known defects."),
]
JsonOption = Annotated[bool, make_flag("--json", help="Print JSON.")]
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
    typer.Option(
        "--option", metavar="KEY=VALUE", help="A variable of the template; the value as JSON."
    ),
]
GenerationOption = Annotated[
    bool,
    make_flag("--generation", "-g", "--add-generation-prompt", help="Add the generation prompt."),
]
ContinueOption = Annotated[
    bool,
    make_flag("--continue", "--continue-final-message", help="Leave the last message open."),
]
NowOption = Annotated[
    str | None, typer.Option(metavar="ISO", help="The time, for templates that ask for it.")
]
LateSystemOption = Annotated[
    str | None,
    typer.Option(
        "--late-system",
        metavar="NAME",
        help=f"Where a late system text is put: {', '.join(LATE_SYSTEM)}; what fits the template, if not given.",
    ),
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
    late_system: LateSystemOption = None,
    line: LineOption = None,
    shape: ShapeOption = None,
    pick: PickOption = None,
    exact: ExactOption = False,
    as_json: JsonOption = False,
    pieces: Annotated[
        bool, make_flag("--pieces", help="List the pieces with their origins.")
    ] = False,
    whitespace: Annotated[
        bool, make_flag("--whitespace", "-w", help="Make white space visible.")
    ] = False,
    strict: Annotated[
        bool, make_flag("--strict", help="Refuse text that the template does not write.")
    ] = False,
) -> None:
    """Render a conversation: the text of the template is dim, the fields of the messages are bright.

    Example: turnwise render qwen2.5 --user "Hi" --generation
    """
    inputs.check_stdin(template, chat, tools)
    request = inputs.read_chat(chat, user, system, tools, line, shape)
    loaded = inputs.load_template(template, pick, exact)
    messages, arguments = inputs.render_arguments(
        loaded, request, option, generation, continued, now, late_system
    )
    rendering = loaded.render(messages, strict=strict, **arguments)
    if as_json:
        output.write_json(rendering_data(rendering))
    elif pieces:
        output.write_lines(piece_lines(rendering), output.use_colour())
    else:
        show(rendering, output.use_colour(), whitespace)
    if not as_json:
        note_changes(rendering)


def note_changes(rendering: Rendering) -> None:
    """Write to stderr what was changed in the conversation before it was rendered."""
    for change in rendering.changes:
        output.note(f"changed: {printable(str(change))}")


def show(rendering: Rendering, colour: bool, whitespace: bool = False) -> None:
    """Write the text: exact for programs, in colour for people."""
    if not (colour or whitespace or output.is_terminal()):
        output.write(rendering.text)
        return
    text = rendering.show(colour=colour, whitespace=whitespace)
    output.write_styled(text if text.endswith("\n") else text + "\n")


def rendering_data(rendering: Rendering) -> dict[str, Any]:
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


def piece_lines(rendering: Rendering) -> list[Text]:
    """Return one line for each piece: its message, its origin and its text."""
    from rich.text import Text

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
