"""How commands speak: results on stdout, notes and errors on stderr, nothing raw on a terminal.

Messages and templates are untrusted text, and a terminal obeys control characters. So what people look at is escaped;
what programs read (stdout that is not a terminal, `--json`) is exact. A lone surrogate has no bytes: it is written as
its escape, which is also what JSON calls it.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec

import typer
from rich.console import Console
from rich.text import Text

from turnwise.errors import SourceError, TurnwiseError, TurnwiseWarning, printable

USAGE, FAULT = 2, 1
P = ParamSpec("P")


def terminal() -> bool:
    return sys.stdout.isatty()


def coloured(wanted: bool | None) -> bool:
    """Whether to paint: as asked, else on a terminal whose owner did not object."""
    if wanted is not None:
        return wanted
    return terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def write(text: str) -> None:
    data = text.encode("utf-8", "backslashreplace")
    # Bytes keep escape sequences that were asked for, and line ends, as they are.
    typer.echo(data.decode("utf-8") if terminal() else data, nl=False)


def write_json(value: Any) -> None:
    write(json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def write_lines(lines: Iterable[Text], colour: bool) -> None:
    """Painted lines, left to the terminal to wrap."""
    console = Console(force_terminal=colour, no_color=not colour, highlight=False, markup=False)
    with console.capture() as captured:
        for line in lines:
            console.print(line, soft_wrap=True)
    write(captured.get())


def note(text: str) -> None:
    typer.echo(f"note: {printable(text)}", err=True)


def warn(text: str) -> None:
    typer.echo(f"warning: {printable(text)}", err=True)


@contextmanager
def saying_warnings() -> Iterator[None]:
    """Our warnings as one line each, as long as this lasts; others' stay what they are."""
    with warnings.catch_warnings():
        others = warnings.showwarning

        def said(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            warn(str(message)) if issubclass(category, TurnwiseWarning) else others(
                message, category, *place, **more
            )

        warnings.simplefilter("always", TurnwiseWarning)
        warnings.showwarning = said
        yield


def reported(command: Callable[P, None]) -> Callable[P, None]:
    """The command, with its errors turned into one block and an exit code."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            with saying_warnings():
                command(*args, **kwargs)
        except TurnwiseError as error:
            typer.echo(f"error: {printable(str(error), limit=10_000)}", err=True)
            raise typer.Exit(USAGE if isinstance(error, SourceError) else FAULT) from None
        except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
            raise
        except Exception as error:  # a defect of ours: one block that says so, never a traceback
            typer.echo(_bug(error), err=True)
            raise typer.Exit(FAULT) from None

    return wrapped


def _bug(error: Exception) -> str:
    if os.environ.get("TURNWISE_DEBUG"):
        return "".join(traceback.format_exception(error))
    where = traceback.extract_tb(error.__traceback__)[-1]
    what = printable(f"{type(error).__name__}: {error}")
    place = f"{os.path.basename(where.filename)}:{where.lineno}"
    return f"error: turnwise itself failed ({what}, at {place})\n  Please report this; TURNWISE_DEBUG=1 shows more."
