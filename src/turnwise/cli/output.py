"""Output of commands: results on stdout, notes and errors on stderr.

Messages and templates are untrusted text, and a terminal obeys control characters. So everything that goes to a
terminal is escaped here, whatever the command; only the colours of `write_styled` pass. What others write (the errors
of typer quote arguments, tracebacks quote anything) goes through `EscapedTerminal`, which does the same. Output for
programs (stdout that is not a terminal) is exact. A lone surrogate has no UTF-8 bytes, so it is written as its
escape, as in JSON.
"""

from __future__ import annotations

import functools
import json
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, TextIO

import typer

from turnwise.errors import TurnwiseError, TurnwiseWarning, printable

if TYPE_CHECKING:
    from rich.text import Text

FOUND = 1
"""Exit code for an answer that is no good news: a finding, a difference, a row with a problem."""
ERROR = 2
"""Exit code for every error: in the call, in a file, in the template or in the conversation."""
P = ParamSpec("P")

MAX_INDENTED_ITEMS = 1000  # of a list that is written with a line for each item
STYLE = re.compile(r"(\x1b\[[0-9;]*m)")


class EscapedTerminal:
    """A stream to a terminal that passes on printable text, line breaks, tabs and colours; the rest is escaped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text; the number of its characters is returned."""
        self._stream.write(_escape_unstyled(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def escape_terminals() -> Iterator[None]:
    """Let nothing raw reach a terminal, whoever writes to stdout and stderr."""
    streams = sys.stdout, sys.stderr
    if sys.stdout.isatty():
        sys.stdout = EscapedTerminal(sys.stdout)
    if sys.stderr.isatty():
        sys.stderr = EscapedTerminal(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams


def _escape_unstyled(text: str) -> str:
    parts = STYLE.split(text)  # text and style in turn
    parts[::2] = [printable(part, limit=len(part)) for part in parts[::2]]
    return "".join(parts)


def is_terminal() -> bool:
    """Return True if stdout is a terminal."""
    return sys.stdout.isatty()


def use_colour(wanted: bool | None) -> bool:
    """Return the flag of the call; without one, what NO_COLOR or FORCE_COLOR say, else True on a terminal."""
    if wanted is not None:
        return wanted
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (
        is_terminal() and os.environ.get("TERM") != "dumb"
    )


def write(text: str) -> None:
    """Write a result to stdout; on a terminal its control characters are escaped."""
    _write(printable(text, limit=len(text)) if is_terminal() else text)


def write_styled(text: str) -> None:
    """Write a result with colours, which are all that a terminal gets unescaped."""
    _write(_escape_unstyled(text) if is_terminal() else text)


def write_json(value: Any, indent: int | None = 2) -> None:
    """Write a result as JSON; on a terminal with JSON's own escapes of control characters."""
    text = format_json(value, indent)
    if is_terminal() and not text.isprintable():
        text = "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)
    _write(text + "\n")


def format_json(value: Any, indent: int | None) -> str:
    """Return a value as JSON; a long list in a mapping is one line.

    Indenting is done in Python, which takes half a minute for the ids of a megabyte of text.
    """
    if not isinstance(value, dict) or not any(map(_is_long, value.values())):
        return json.dumps(value, ensure_ascii=False, indent=indent)
    entries = []
    for key, item in value.items():
        text = json.dumps(item, ensure_ascii=False, indent=None if _is_long(item) else indent)
        # A line end in a text is escaped, so these are the ends of lines.
        entries.append(f"{json.dumps(key)}: {text}".replace("\n", "\n  "))
    return "{\n  " + ",\n  ".join(entries) + "\n}"


def _is_long(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) > MAX_INDENTED_ITEMS


def _write(text: str) -> None:
    data = text.encode("utf-8", "backslashreplace")
    # Bytes keep escape sequences and line ends as they are.
    typer.echo(data.decode("utf-8") if is_terminal() else data, nl=False)


def write_lines(lines: Iterable[Text], colour: bool) -> None:
    """Write lines with or without their colours; the terminal wraps them."""
    from rich.console import (
        Console,  # when it is needed: it takes longer to load than most commands
    )

    console = Console(force_terminal=colour, no_color=not colour, highlight=False, markup=False)
    with console.capture() as captured:
        for line in lines:
            console.print(line, soft_wrap=True)
    write_styled(captured.get())


def note(text: str) -> None:
    """Write a note to stderr."""
    typer.echo(f"note: {printable(text)}", err=True)


def warn(text: str) -> None:
    """Write a warning to stderr."""
    typer.echo(f"warning: {printable(text)}", err=True)


@contextmanager
def show_progress(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a bar on stderr, if that is a terminal; the function takes how much of `total` is done."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    # The bar moves the cursor, which `EscapedTerminal` would not pass on; there is no text of others in it.
    console = Console(file=sys.__stderr__)
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda done: progress.update(task, completed=done)


@contextmanager
def short_warnings() -> Iterator[None]:
    """Show warnings of turnwise as one line each; those of other libraries as usual."""
    with warnings.catch_warnings():
        show_others = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, TurnwiseWarning):
                warn(str(message))
            else:
                show_others(message, category, *place, **more)

        warnings.simplefilter("always", TurnwiseWarning)
        warnings.showwarning = show
        yield


def report_errors(command: Callable[P, None]) -> Callable[P, None]:
    """Return the command with its errors printed."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            with short_warnings():
                command(*args, **kwargs)
        except TurnwiseError as error:
            if kwargs.get("as_json"):
                write_json({"error": error.as_data()})
            typer.echo(f"error: {printable(str(error), limit=10_000)}", err=True)
            raise typer.Exit(ERROR) from None
        except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
            raise
        except Exception as error:  # a defect of turnwise: a short report, not a traceback
            typer.echo(_bug_report(error), err=True)
            raise typer.Exit(ERROR) from None

    return run


def _bug_report(error: Exception) -> str:
    if os.environ.get("TURNWISE_DEBUG"):
        return printable("".join(traceback.format_exception(error)), limit=100_000)
    where = traceback.extract_tb(error.__traceback__)[-1]
    what = printable(f"{type(error).__name__}: {error}")
    place = f"{os.path.basename(where.filename)}:{where.lineno}"
    return f"error: turnwise itself failed ({what}, at {place})\n  Please report this; TURNWISE_DEBUG=1 shows more."
