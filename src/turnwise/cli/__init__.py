"""The command line: one command for each verb of the API.

A command reads its arguments, calls one method and prints the result. Exit codes of all commands: 0 all is well; 1 the
command answers a question, and the answer is a finding, a difference or a row with a problem; 2 an error, be it in the
call, a file, the template or the conversation. A command that is stopped exits as shells have it: 130 by Ctrl-C, 141 if
nobody reads on. Errors are written to stderr, results to stdout: escaped on a terminal, else the exact bytes. With
`--json`, an error is data on stdout, too.

What all commands share is here and not in them: --color and --no-color, how errors are shown, and the exit codes.

A command's module is imported when the command is called, not before: the list of all commands is there at once.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from turnwise.cli.output import (
    ERROR,
    INTERRUPTED,
    UNREAD,
    drop_output,
    escape_terminals,
    follow_colour_flag,
    report_error,
    report_errors,
)

__all__ = ["app", "main"]


JSON_FLAG = "--json"
COLOUR_FLAGS = {"--color": True, "--no-color": False}
# A start makes many objects and no garbage: to look for some took a tenth of it.
GARBAGE_THRESHOLD = 100_000


class Command(NamedTuple):
    """Where a command is, and the first sentence of its help."""

    module: str
    function: str
    summary: str

    def load(self) -> Callable[..., None]:
        """Return the function."""
        module = import_module(f"turnwise.cli.{self.module}")
        found: Callable[..., None] = getattr(module, self.function)
        return found


COMMANDS = {
    "render": Command(
        "render",
        "render",
        "Render a conversation: the text of the template is dim, the fields of the messages are bright.",
    ),
    "encode": Command(
        "encode",
        "encode",
        "Encode a conversation and show each token: its kind, and whether it is trained.",
    ),
    "stops": Command(
        "encode", "stops", "Print the texts that end a reply, and with a tokenizer their ids."
    ),
    "parse": Command(
        "parse",
        "parse",
        "Parse a reply into a message: reasoning, content, tool calls, and the stop.",
    ),
    "explain": Command("explain", "explain", "Say what a template reads and writes."),
    "grammar": Command(
        "grammar",
        "grammar",
        "Print a grammar of the replies that a template's model may write with some tools.",
    ),
    "list": Command("registry", "list_entries", "List the templates that have a name."),
    "match": Command("registry", "match", "Show which template a model has, and why."),
    "diff": Command(
        "compare",
        "compare",
        "Compare two templates; on a difference, show the smallest conversation on which they differ.",
    ),
    "convert": Command(
        "compare",
        "convert",
        "Write a template in another dialect; the result is verified, or refused with the reason.",
    ),
    "check": Command(
        "check",
        "check",
        "Check templates against what users send to them; exit with 1 if there is an error.",
    ),
    "stability": Command(
        "stability",
        "stability",
        "Show which appended messages change earlier text, and the option that prevents it; exit with 1 if one does.",
    ),
    "conform": Command(
        "conform",
        "conform_engine",
        "Compare the prompts of a running engine with its template; show the smallest conversation that differs.",
    ),
    "scan": Command(
        "scan",
        "scan_dataset",
        "Find rows that prepare would reject, control tokens, bad roles, broken arguments and null padding.",
    ),
    "prepare": Command(
        "prepare",
        "prepare",
        "Make training shards of ids and labels from conversations: JSON Lines, JSON, Parquet, Arrow.",
    ),
    "inspect": Command(
        "inspect",
        "inspect",
        "Show samples of prepared shards with their trained tokens, and a histogram of lengths.",
    ),
    "fix": Command(
        "fix",
        "fix",
        "Repair a template: null content, parts, arguments as text, late system texts, a missing generation prompt.",
    ),
    "release": Command(
        "release",
        "release_folder",
        "Write what a model folder lacks: response template, training template, stops, a card, a golden file.",
    ),
    "serve": Command(
        "serve",
        "serve",
        "Serve templates over HTTP: the paths of vLLM's renderer, a playground, and with --upstream a chat gateway.",
    ),
    "chat": Command(
        "chat",
        "chat",
        "Talk to an engine that continues token ids or text; replies are parsed as they arrive.",
    ),
    "demo": Command(
        "demo",
        "demo",
        "Show a prompt and its origins, tokens and loss, an attack, and a reply parsed as it arrives.",
    ),
}

REMOVED = {
    "doctor": "`doctor` is a part of `turnwise check FOLDER`; `turnwise check TEMPLATE --reference MODEL` compares "
    "a template with that of a model",
}
"""Commands that there were, and what replaces them."""


class PlainCommand(TyperCommand):
    """A command whose flags are shown as flags: typer writes a `<bool>` behind those that it makes itself."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, flags without the name of a value."""
        return _without_flag_values(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help: one long name in the column of names, so that it fits on 80 columns; all are parsed."""
        for param in self.get_params(ctx):
            long = [name for name in param.opts if name.startswith("--")]
            param.opts = [name for name in param.opts if name not in long[1:]]
            if param.secondary_opts:
                param.help = f"{param.help} Or {param.secondary_opts[0]}."
                param.secondary_opts = []
        super().format_help(ctx, formatter)


class LazyGroup(TyperGroup):
    """The commands of the table: one that is called is imported, the others are a name and a sentence."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        summaries = {name: command.summary for name, command in COMMANDS.items()}
        self.commands = {name: TyperCommand(name, help=text) for name, text in summaries.items()}

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, flags without the name of a value."""
        return _without_flag_values(super().get_params(ctx))

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of the table."""
        return list(COMMANDS)

    def main(self, args: Sequence[str] | None = None, *rest: Any, **settings: Any) -> Any:
        """Run the command that is called, and exit with its code."""
        words = sys.argv[1:] if args is None else list(args)
        settings["standalone_mode"] = False
        # The flags also hold for help and for what is wrong with the call, so they are found before it is parsed.
        with follow_colour_flag(_find_colour_flag(words)):
            try:
                code = super().main(words, *rest, **settings)
            except typer.Abort:
                code = INTERRUPTED
            except Exception as error:  # whatever is not a wrong call is raised again
                code = _report_misuse(error, words)
        sys.exit(code or 0)

    def invoke(self, ctx: Any) -> Any:
        """Run the command that is called, until nobody reads on."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            drop_output()
            raise typer.Exit(UNREAD) from None

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        """Return the command that is called, and its arguments."""
        if args[0] in REMOVED:
            ctx.fail(REMOVED[args[0]])
        name, found, rest = super().resolve_command(ctx, args)
        return name, found and _make_command(name or ""), rest


def _make_command(name: str) -> Any:
    """Import a command; typer makes of its function what it calls."""
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    options = import_module("turnwise.cli.options")
    function = options.add_options(report_errors(COMMANDS[name].load()))
    alone.command(name, cls=PlainCommand)(function)
    return typer.main.get_command(alone)


def _find_colour_flag(words: Sequence[str]) -> bool | None:
    """Return what the last of --color and --no-color says; None if there is neither."""
    found = [COLOUR_FLAGS[word] for word in words if word in COLOUR_FLAGS]
    return found[-1] if found else None


def _report_misuse(error: Exception, words: Sequence[str]) -> int:
    """Write what is wrong with the call, as typer's error says it; another error is raised again."""
    describe = getattr(error, "format_message", None)
    if describe is None:
        raise error
    if not describe():  # a call without words, for which typer has shown the help
        return ERROR
    context = getattr(error, "ctx", None)
    command = "turnwise" if context is None else context.command_path
    message = f"{command}: {describe()}"
    shown = "lists the commands" if command == "turnwise" else "shows what it takes, and an example"
    hint = f"`{command} --help` {shown}."
    if command == "turnwise" and getattr(error, "option_name", None) == JSON_FLAG:
        hint = f"{JSON_FLAG} stands after the command, as in `turnwise list {JSON_FLAG}`."
    data = {"type": "Misuse", "message": message, "hint": hint, "command": command}
    report_error(f"{message}\n  {hint}", data, JSON_FLAG in words)
    return ERROR


def _without_flag_values(params: list[Any]) -> list[Any]:
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


app = typer.Typer(
    name="turnwise",
    cls=LazyGroup,
    help="One engine for LLM chat templates.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(version("turnwise"))
        except PackageNotFoundError:  # a checkout that is not installed
            typer.echo("unknown")
        raise typer.Exit


@app.callback()
def _global_options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_version,
            is_eager=True,
            metavar="",
            help="Print the version and stop.",
        ),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the console script."""
    gc.set_threshold(GARBAGE_THRESHOLD)
    with escape_terminals():
        app(prog_name="turnwise")
