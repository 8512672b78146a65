"""Output of commands: results on stdout, notes and errors on stderr.

Messages and templates are untrusted text, and a terminal obeys control characters. So everything that goes to a
terminal is escaped here, whatever the command; only the colours of `write_styled` pass. What others write (the errors
of click quote arguments, tracebacks quote anything) goes through `EscapedTerminal`, which does the same. Output for
programs (stdout that is not a terminal) is exact. A lone surrogate has no UTF-8 bytes, so it is written as its
escape, as in JSON.
"""

from __future__ import annotations

import functools
import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TextIO, TypeAlias

import click

from turnwise.errors import SourceError, TemplateRaised, TurnwiseError, TurnwiseWarning, printable
from turnwise.languages import find_language, translate
from turnwise.local_files import error_reason
from turnwise.messages import JsonMapping, JsonObject

FOUND = 1
"""Exit code for an answer that is no good news: a finding, a difference, a row with a problem."""
ERROR = 2
"""Exit code for every error: in the call, in a file, in the template or in the conversation."""
INTERRUPTED, UNREAD = 130, 141
"""Exit codes as shells have them: stopped with Ctrl-C, and by a pipe that nobody reads."""
P = ParamSpec("P")

MAX_ERROR_LENGTH = 100_000  # characters of an error that are written
MAX_INDENTED_ITEMS = 1000  # of a list that is written with a line for each item
STYLE = re.compile(r"(\x1b\[[0-9;]*m)")
# `exact=True`, `max_length=8`, `shape='list'`, `without=["white space"]`
ARGUMENT = re.compile(
    r"""\b(?P<name>[a-z_]+)=(?:True\b|(?P<number>\d+)|\[?(['"])(?P<text>[\w -]+)\3\]?)"""
)
colour_flag: ContextVar[bool | None] = ContextVar("colour_flag", default=None)
"""What --color or --no-color of the call says."""
LABELS = {"note": "cyan bold", "warning": "yellow bold", "error": "red bold"}
SGR = {
    **{"bold": 1, "dim": 2, "underline": 4, "reverse": 7, "strike": 9},
    **{"black": 30, "red": 31, "green": 32, "yellow": 33, "blue": 34, "cyan": 36, "on_green": 42},
}
"""What a terminal calls the words of a style."""
Line: TypeAlias = Iterable[str | tuple[str, str]]
"""Texts, or texts with their styles."""

REPORT_MARK = re.compile(r"^(?:(?:ok|problem)(?=:)|[+-].*|@@.*)|⟪[^⟪⟫]*⟫", re.MULTILINE)
REPORT_COLOURS = {"o": "green", "p": "red", "+": "green", "-": "red", "@": "cyan", "⟪": "yellow"}
"""By the first character of what `REPORT_MARK` finds."""


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
    """Let nothing raw reach a terminal, whoever writes to stdout and stderr; a closed stream is an empty one."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # the shell's `<&-` or `>&-`
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 as long as the process
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


def use_colour(stream: TextIO | None = None) -> bool:
    """Return what --color, NO_COLOR or FORCE_COLOR say; without them, True if the stream (stdout) is a terminal."""
    flag = colour_flag.get()
    if flag is not None:
        return flag
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return (stream or sys.stdout).isatty() and os.environ.get("TERM") != "dumb"


def write(text: str) -> None:
    """Write a result to stdout; on a terminal its control characters are escaped."""
    _write(escape(text) if is_terminal() else text)


def write_styled(text: str) -> None:
    """Write a result with colours, which are all that a terminal gets unescaped."""
    _write(_escape_unstyled(text) if is_terminal() else text)


def write_json(value: Any, indent: int | None = 2) -> None:
    """Write a result as JSON; on a terminal with JSON's own escapes of control characters."""
    text = format_json(value, indent)
    if is_terminal() and not text.isprintable():
        text = "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)
    _write(text + "\n")


def select_fields(value: Any, *names: str) -> JsonObject:
    """Return some attributes of a value by their names, for JSON."""
    return {name: getattr(value, name) for name in names}


def format_json(value: Any, indent: int | None) -> str:
    """Return a value, which may have dataclasses in it, as JSON; a long list in a mapping is one line.

    Indenting is done in Python, which takes half a minute for the ids of a megabyte of text.
    """
    dump = partial(json.dumps, ensure_ascii=False, default=asdict)
    if not isinstance(value, dict) or not any(map(_is_long, value.values())):
        return dump(value, indent=indent)
    entries = []
    for key, item in value.items():
        text = dump(item, indent=None if _is_long(item) else indent)
        # A line end in a text is escaped, so these are the ends of lines.
        entries.append(f"{json.dumps(key)}: {text}".replace("\n", "\n  "))
    return "{\n  " + ",\n  ".join(entries) + "\n}"


def _is_long(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) > MAX_INDENTED_ITEMS


def _write(text: str) -> None:
    data = text.encode("utf-8", "backslashreplace")
    try:
        # Bytes keep escape sequences and line ends as they are.
        click.echo(data.decode("utf-8") if is_terminal() else data, nl=False)
    except BrokenPipeError:
        raise
    except OSError as error:  # a full disk
        drop_output()
        raise TurnwiseError(
            f"the output cannot be written: {error_reason(error)}", hint="Send it elsewhere."
        ) from error


def write_file(path: Path, text: str) -> None:
    """Write a result to a file."""
    try:
        path.write_bytes(text.encode("utf-8", "backslashreplace"))
    except (OSError, ValueError) as error:
        raise SourceError(f"{path} cannot be written: {error_reason(error)}") from error


def drop_output() -> None:
    """Write what is left for stdout nowhere: Python would try again when it ends, and complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def write_lines(lines: Iterable[Line]) -> None:
    """Write lines with or without their colours; the terminal wraps them."""
    parts = (part for line in lines for part in (*line, "\n"))
    texts = [part if isinstance(part, str) else paint_if_wanted(*part) for part in parts]
    write_styled("".join(texts))


def paint_if_wanted(text: str, style: str) -> str:
    """Return a text in a style, without control characters of its own; as it is where colours are not wanted."""
    return paint(escape(text), style) if use_colour() else text


def paint(text: str, style: str) -> str:
    """Return a text in a style such as "bold red"; an empty style is none."""
    codes = ";".join(str(SGR[word]) for word in style.split())
    return f"\x1b[{codes}m{text}\x1b[0m" if codes and text else text


def write_report(text: str) -> None:
    """Write a result of whole lines; in colour, its verdicts, the lines of a diff and the ⟪difference⟫ stand out."""
    text = localise(text)
    if use_colour():
        write_styled(
            REPORT_MARK.sub(
                lambda found: paint(found[0], REPORT_COLOURS[found[0][0]]), escape(text)
            )
        )
    else:
        write(text)


def finish(found: Any, data: JsonObject, as_json: bool, is_good: bool) -> None:
    """Write what a command found, as JSON or as its report, and exit with 1 if it is no good news."""
    if as_json:
        write_json(data)
    else:
        write_report(f"{found}\n")
    if not is_good:
        raise click.exceptions.Exit(FOUND)


def localise(text: str) -> str:
    """Return what a command shows in the language of the user: TURNWISE_LANG, else that of the locale."""
    return translate(text, find_language(os.environ))


def escape(text: str) -> str:
    """Return a text without control characters, so that only our colours reach the terminal."""
    return printable(text, limit=len(text))


def note(text: str) -> None:
    """Write a note to stderr."""
    _tell("note", printable(text))


def warn(text: str) -> None:
    """Write a warning to stderr."""
    _tell("warning", printable(text))


def report_error(text: str, data: JsonObject, as_json: bool) -> None:
    """Write an error to stderr; with --json it is data on stdout, too: one line, since others may stand before it."""
    if as_json:
        write_json({"error": data}, indent=None)
    _tell("error", printable(text, limit=MAX_ERROR_LENGTH))


def _tell(label: str, text: str) -> None:
    painted = use_colour(sys.stderr)
    shown = f"{paint(f'{label}:', LABELS[label])} {localise(text)}"
    click.echo(shown, err=True, color=painted)


@contextmanager
def show_progress() -> Iterator[Callable[[int, int | None, str], None]]:
    """Show a bar on stderr, if that is a terminal; the function takes how much is done, of how much, and a text."""
    if not sys.stderr.isatty():
        yield lambda done, total, text: None
        return
    # The bar moves the cursor, which `EscapedTerminal` would not pass on; there is no text of others in it.
    with click.progressbar(length=1, width=0, file=sys.__stderr__) as bar:

        def show(done: int, total: int | None, text: str) -> None:
            bar.label, bar.length = text, total
            bar.update(done - bar.pos)

        yield show


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
            _adapt_error(error, kwargs)
            report_error(str(error), error.as_data(), bool(kwargs.get("as_json")))
            raise click.exceptions.Exit(ERROR) from None
        except (click.exceptions.Exit, click.Abort, click.BadParameter, BrokenPipeError):
            raise
        except Exception as error:  # a defect of turnwise: a short report, not a traceback
            report = _bug_report(error)
            data = {"type": "Defect", "message": report}
            report_error(report, data, bool(kwargs.get("as_json")))
            raise click.exceptions.Exit(ERROR) from None

    return run


def _adapt_error(error: TurnwiseError, arguments: JsonMapping) -> None:
    """Name flags where an error of the API names arguments, and say who refuses a conversation."""
    if isinstance(error, TemplateRaised) and not error.hint:
        error.hint = "The template itself refuses this conversation."

    def name_flag(found: re.Match[str]) -> str:
        if found["name"] not in arguments:
            return found[0]
        from shlex import quote

        value = found["number"] or found["text"]
        flag = f"--{found['name'].replace('_', '-')}"
        return flag if value is None else f"{flag} {quote(value)}"

    error.message = ARGUMENT.sub(name_flag, error.message)
    error.hint = error.hint and ARGUMENT.sub(name_flag, error.hint)


def _bug_report(error: Exception) -> str:
    import traceback  # slow to import, and never needed if all is well

    if os.environ.get("TURNWISE_DEBUG"):
        return "".join(traceback.format_exception(error))
    where = traceback.extract_tb(error.__traceback__)[-1]
    what = printable(f"{type(error).__name__}: {error}")
    place = f"{os.path.basename(where.filename)}:{where.lineno}"
    return f"turnwise itself failed ({what}, at {place})\n  Please report this; TURNWISE_DEBUG=1 shows more."
