"""The command line: one command for each verb of the API.

A command reads its arguments, calls one method and prints the result. Exit codes of all commands: 0 all is well; 1 the
command answers a question, and the answer is a finding, a difference or a row with a problem; 2 an error, be it in the
call, a file, the template or the conversation. A command that is stopped exits as shells have it: 130 by Ctrl-C, 141 if
nobody reads on. Errors are written to stderr, results to stdout: escaped on a terminal, else the exact bytes. With
`--json`, an error is data on stdout, too.

What all commands share is here and not in them: --color and --no-color, how errors are shown, and the exit codes.

A command's module is imported when the command runs: help, completion and errors of the call are there at once.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from typing import Any

import click

from turnwise import __version__
from turnwise.cli.completion import install_completion
from turnwise.cli.help import SETTINGS, HelpContext
from turnwise.cli.options import make_command, read_table
from turnwise.cli.output import (
    ERROR,
    INTERRUPTED,
    UNREAD,
    colour_flag,
    drop_output,
    escape_terminals,
    report_error,
    report_errors,
    use_colour,
)
from turnwise.errors import short_repr

__all__ = ["app", "main"]


JSON_FLAG = "--json"
COLOUR_FLAGS = {"--color": True, "--no-color": False}
# A start makes many objects and no garbage: to look for some took a tenth of it.
GARBAGE_THRESHOLD = 100_000


COMMANDS = {
    "render": "render.render",
    "encode": "encode.encode",
    "stops": "encode.stops",
    "parse": "parse.parse",
    "explain": "explain.explain",
    "grammar": "grammar.grammar",
    "list": "registry.list_entries",
    "match": "registry.match",
    "diff": "compare.compare",
    "convert": "compare.convert",
    "check": "check.check",
    "stability": "stability.stability",
    "conform": "conform.conform_engine",
    "eval-card": "eval_card.eval_card",
    "scan": "scan.scan_dataset",
    "prepare": "prepare.prepare",
    "inspect": "inspect.inspect",
    "fix": "fix.fix",
    "release": "release.release_folder",
    "serve": "serve.serve",
    "chat": "chat.chat",
    "demo": "demo.demo",
}
"""The module and the function of each command; `commands.json` has their help."""
REMOVED = {
    "doctor": "`doctor` is a part of `turnwise check FOLDER`; `turnwise check TEMPLATE --reference MODEL` compares "
    "a template with that of a model",
}
"""Commands that there were, and what replaces them."""


class LazyGroup(click.Group):
    """The commands of the table: one is imported when it runs."""

    context_class = HelpContext

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, which is imported when it runs."""
        if cmd_name in COMMANDS:
            return make_command(cmd_name, partial(_run, cmd_name))
        if not ctx.resilient_parsing:  # which a shell asks for that completes words
            near = get_close_matches(cmd_name, COMMANDS, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            ctx.fail(REMOVED.get(cmd_name) or f"No such command {short_repr(cmd_name)}.{hint}")
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands; none is imported."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, row["help"][0]) for name, row in read_table().items()])

    def main(self, args: Sequence[str] | None = None, *rest: Any, **settings: Any) -> Any:
        """Run the command that is called, and exit with its code."""
        words = sys.argv[1:] if args is None else list(args)
        settings["standalone_mode"] = False
        # They also hold for help and for what is wrong with the call, so they are found before it is parsed.
        flags = [COLOUR_FLAGS[word] for word in words if word in COLOUR_FLAGS]
        colour_flag.set(flags[-1] if flags else None)
        try:
            code = super().main(words or ["--help"], *rest, color=use_colour(), **settings)
        except click.Abort:
            code = INTERRUPTED
        except click.ClickException as error:
            code = _report_misuse(error, words)
        sys.exit(code or (0 if words else ERROR))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that is called, until nobody reads on."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            drop_output()
            raise click.exceptions.Exit(UNREAD) from None


def load_command(name: str) -> Callable[..., None]:
    """Import a command, and return its function."""
    module, function = COMMANDS[name].split(".")
    found: Callable[..., None] = getattr(import_module(f"turnwise.cli.{module}"), function)
    return found


def _run(name: str, **values: Any) -> None:
    report_errors(load_command(name))(**values)


def _report_misuse(error: click.ClickException, words: Sequence[str]) -> int:
    command = f"turnwise {words[0]}" if words[0] in COMMANDS else "turnwise"
    message = f"{command}: {error.format_message()}"
    shown = "lists the commands" if command == "turnwise" else "shows what it takes, and an example"
    hint = f"`{command} --help` {shown}."
    if command == "turnwise" and getattr(error, "option_name", None) == JSON_FLAG:
        hint = f"{JSON_FLAG} stands after the command, as in `turnwise list {JSON_FLAG}`."
    data = {"type": "Misuse", "message": message, "hint": hint, "command": command}
    report_error(f"{message}\n  {hint}", data, JSON_FLAG in words)
    return ERROR


INSTALL = click.Option(
    ["--install-completion"],
    help="Let the shell complete words: bash, zsh or fish.",
    metavar="[SHELL]",
    is_flag=False,
    flag_value="",
    callback=install_completion,
    expose_value=False,
    is_eager=True,
)
app = click.version_option(__version__, message="%(version)s", help="Print the version and stop.")(
    LazyGroup(
        "turnwise",
        help="One engine for LLM chat templates.",
        context_settings=SETTINGS,
        params=[INSTALL],
    )
)


def main() -> None:
    """Run the console script."""
    gc.set_threshold(GARBAGE_THRESHOLD)
    try:
        with escape_terminals():
            app(prog_name="turnwise")
    finally:
        gc.freeze()  # an exit looks for garbage three times, which took a sixth of a command
