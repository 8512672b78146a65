"""The command line: one word per verb of the API, one file per word.

A command reads its arguments, calls one method and prints. Exit codes: 0 done, 1 the template or the conversation is
at fault, 2 the call is (a bad flag, a file that is not there). Errors are one block on stderr; results go to stdout, as
the exact bytes when that is not a terminal.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from turnwise.cli.compare import compare, convert
from turnwise.cli.demo import demo
from turnwise.cli.doctor import doctor
from turnwise.cli.encode import encode, stops
from turnwise.cli.explain import explain
from turnwise.cli.output import reported
from turnwise.cli.parse import parse
from turnwise.cli.registry import listed, match
from turnwise.cli.render import render

__all__ = ["app", "main"]

COMMANDS: dict[str, Callable[..., None]] = {
    "render": render,
    "encode": encode,
    "stops": stops,
    "parse": parse,
    "explain": explain,
    "list": listed,
    "match": match,
    "diff": compare,
    "convert": convert,
    "doctor": doctor,
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
    app.command(word)(reported(command))


def _show_version(wanted: bool) -> None:
    if wanted:
        try:
            typer.echo(version("turnwise"))
        except PackageNotFoundError:  # a checkout that is not installed
            typer.echo("unknown")
        raise typer.Exit


@app.callback()
def _shared(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version and stop."
        ),
    ] = False,
) -> None:
    pass


def main() -> None:
    """The console script."""
    app(prog_name="turnwise")
