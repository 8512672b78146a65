"""The command line: one command for each verb of the API.

A command reads its arguments, calls one method and prints the result. Exit codes of all commands: 0 all is well; 1 the
command answers a question, and the answer is a finding, a difference or a row with a problem; 2 an error, be it in the
call, a file, the template or the conversation. Errors are written to stderr, results to stdout: escaped on a terminal,
else the exact bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from turnwise.cli.check import check
from turnwise.cli.compare import compare, convert
from turnwise.cli.conform import conform_engine
from turnwise.cli.demo import demo
from turnwise.cli.doctor import doctor
from turnwise.cli.encode import encode, stops
from turnwise.cli.explain import explain
from turnwise.cli.fix import fix
from turnwise.cli.grammar import grammar
from turnwise.cli.output import escape_terminals, report_errors
from turnwise.cli.parse import parse
from turnwise.cli.registry import list_entries, match
from turnwise.cli.release import release_folder
from turnwise.cli.render import render
from turnwise.cli.scan import scan_dataset
from turnwise.cli.stability import ledger, stability

__all__ = ["app", "main"]

COMMANDS: dict[str, Callable[..., None]] = {
    "render": render,
    "encode": encode,
    "stops": stops,
    "parse": parse,
    "explain": explain,
    "grammar": grammar,
    "list": list_entries,
    "match": match,
    "diff": compare,
    "convert": convert,
    "check": check,
    "stability": stability,
    "ledger": ledger,
    "conform": conform_engine,
    "scan": scan_dataset,
    "doctor": doctor,
    "fix": fix,
    "release": release_folder,
    "demo": demo,
}

app = typer.Typer(
    name="turnwise",
    help="One engine for LLM chat templates.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for word, command in COMMANDS.items():
    app.command(word)(report_errors(command))


def _show_version(wanted: bool) -> None:
    if wanted:
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
    with escape_terminals():
        app(prog_name="turnwise")
