"""What the arguments TEMPLATE and CHAT stand for.

A template is whatever `load` takes, or `-`. A conversation is JSON of any shape that `turnwise.shapes` reads: a list of
messages, a request, a row of a dataset; or JSON Lines or a JSON list of those. The shape is guessed unless --shape says
it; a bare text, which PaddleNLP would take for a question, is not guessed: there is --user. A place that is not there
is the caller's mistake (exit 2), a conversation that is not one is the conversation's (exit 1).
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import typer

from turnwise.cli.output import note
from turnwise.errors import MessageError, SourceError, did_you_mean, short_repr
from turnwise.messages import InputReader
from turnwise.registry import compile_source, find_source
from turnwise.registry.files import read_bytes
from turnwise.replies.declared import DECLARATION_KEYS
from turnwise.shapes import SHAPES, are_rows, conversation
from turnwise.shapes.row import ARGUMENT_NAMES
from turnwise.template import Template

STDIN = "-"
MAX_CHAT = 256 * 2**20
PLAIN = ("openai", "list")  # shapes whose messages need no reading


@dataclass(slots=True)
class Chat:
    """The arguments of one `render`."""

    messages: Any
    arguments: dict[str, Any] = field(default_factory=dict)


def check_stdin(*places: str | None) -> None:
    if places.count(STDIN) > 1:
        raise typer.BadParameter("stdin (-) can be read for one argument only", param_hint="-")


def template_of(where: str, pick: str | None, exact: bool = False) -> Template:
    if where != STDIN:
        found = find_source(where, pick=pick, exact=exact)
        if found.warning:
            note(found.warning)
        return compile_source(found)
    return compile_source(read_bytes(_stdin(), "stdin", pick, exact=exact))


def chat_of(
    place: str | None,
    user: str | None,
    system: str | None,
    tools: str | None,
    line: int | None,
    shape: str | None,
) -> Chat:
    """The conversation of the arguments, put together."""
    if (place is None) == (user is None):
        raise typer.BadParameter("give a CHAT or --user, one of the two", param_hint="CHAT")
    if shape is not None and place is None:
        raise typer.BadParameter("it says what CHAT is, and there is none", param_hint="--shape")
    if shape is not None and shape not in SHAPES:
        raise typer.BadParameter(did_you_mean(shape, SHAPES, "Shapes") or "", param_hint="--shape")
    chat = Chat([{"role": "user", "content": user}]) if place is None else _read(place, line, shape)
    if system is not None:
        chat.messages = _with_system(chat.messages, system)
    if tools is not None:
        chat.arguments["tools"] = _tools(tools)
    return chat


def asked(
    chat: Chat, option: list[str] | None, generation: bool, continued: bool, now: str | None
) -> tuple[Any, dict[str, Any]]:
    """The messages, and everything else that `Template.render` takes; flags count more than what the chat says."""
    arguments = {**chat.arguments, **options_of(option or []), "now": time_of(now)}
    flags = {"add_generation_prompt": generation, "continue_final_message": continued}
    return chat.messages, arguments | {name: True for name, given in flags.items() if given}


def options_of(pairs: list[str]) -> dict[str, Any]:
    """`key=value`, where a value that is JSON is that value and any other text is itself."""
    options = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.isidentifier():
            raise typer.BadParameter(
                f"{pair!r} is not of the form key=value", param_hint="--option"
            )
        if key in ARGUMENT_NAMES:
            raise typer.BadParameter(
                f"{key!r} has a flag of its own or none", param_hint="--option"
            )
        try:
            options[key] = json.loads(text)
        except (ValueError, RecursionError):
            options[key] = text
    return options


def time_of(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        hint = f"{text!r} is not a time such as 2025-01-15T12:00"
        raise typer.BadParameter(hint, param_hint="--now") from None


# -- conversations ---------------------------------------------------------------------------------------------------


def _read(place: str, line: int | None, shape: str | None) -> Chat:
    name = "stdin" if place == STDIN else place
    text = _text(_stdin() if place == STDIN else _file(place), name)
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            raise _not_json(name, error) from error
        value = _row(text, name, line)
    except (ValueError, RecursionError) as error:
        raise _not_json(name, error) from error
    if are_rows(value):
        value = _chosen(dict(enumerate(value, 1)), name, line)[1]
    return _conversation(value, name, shape)


def _row(text: str, name: str, line: int | None) -> Any:
    """One conversation of JSON Lines."""
    rows = {number: row for number, row in enumerate(text.split("\n"), 1) if row.strip()}
    wanted, row = _chosen(rows, name, line)
    try:
        return json.loads(row)
    except (ValueError, RecursionError) as error:
        raise _not_json(name, error, wanted) from error


def _chosen(rows: dict[int, Any], name: str, line: int | None) -> tuple[int, Any]:
    """The conversation asked for, else the first, which is then said."""
    if line is None:
        if len(rows) > 1:
            note(
                f"{name} has {len(rows)} conversations; this is the first. --line chooses another."
            )
        return next(iter(rows.items()))
    if line not in rows:
        raise typer.BadParameter(f"{name} has no conversation in line {line}", param_hint="--line")
    return line, rows[line]


def _conversation(value: Any, name: str, shape: str | None) -> Chat:
    if shape is None and not isinstance(value, list | dict):
        hint = "A conversation is a list of messages, or an object with `messages`."
        raise MessageError(f"{name} holds {short_repr(value)}", hint=hint)
    try:
        found = conversation(value, shape)
    except MessageError as error:
        raise MessageError(f"{name}: {error.message}", hint=error.hint) from error
    if shape is None and found.shape not in PLAIN:
        note(f"{name} is read as {found.shape} data")
    if found.rest:
        note(f"{name} also has {', '.join(sorted(found.rest))}: not used")
    arguments = found.arguments
    return Chat(arguments.pop("messages"), arguments)


def _with_system(messages: Any, system: str) -> Any:
    if not isinstance(messages, list):
        return messages  # render says what is wrong with it
    if messages and isinstance(messages[0], dict) and messages[0].get("role") == "system":
        raise typer.BadParameter(
            "the conversation has a system message already", param_hint="--system"
        )
    return [{"role": "system", "content": system}, *messages]


def _tools(place: str) -> Any:
    name = "stdin" if place == STDIN else place
    try:
        value = json.loads(
            _text(_stdin() if place == STDIN else _file(place, "Tools are a JSON file."), name)
        )
    except (ValueError, RecursionError) as error:
        raise _not_json(name, error) from error
    found = value["tools"] if isinstance(value, dict) and "tools" in value else value
    try:
        return InputReader().read_tools(found)
    except MessageError as error:
        raise MessageError(f"{name}: {error.message}", hint=error.hint) from error


def declared_of(place: str) -> dict[str, Any]:
    """What a TOML file declares of replies: an entry's table `replies`, or the words of one by themselves."""
    import tomllib  # slow to import, and rarely needed

    name = "stdin" if place == STDIN else place
    text = _stdin() if place == STDIN else _file(place, "A declaration is a TOML file.")
    try:
        data = tomllib.loads(text.decode("utf-8-sig"))
    except ValueError as error:  # not UTF-8, not TOML
        raise SourceError(f"{name} is not TOML: {error}") from error
    except RecursionError as error:
        raise SourceError(
            f"{name} is not TOML that can be read: it is nested too deeply"
        ) from error
    found = data.get("replies", data)
    if not isinstance(found, dict):
        raise SourceError(f"{name}: replies is {short_repr(found)}", hint="It must be a table.")
    if not found:
        raise SourceError(
            f"{name} declares nothing", hint=f"It may say: {', '.join(DECLARATION_KEYS)}."
        )
    return found


# -- files -----------------------------------------------------------------------------------------------------------


def _stdin() -> bytes:
    data = sys.stdin.buffer.read(MAX_CHAT + 1)
    if len(data) > MAX_CHAT:
        raise SourceError(f"stdin is larger than {MAX_CHAT:,} bytes")
    return data


def _file(place: str, hint: str | None = None) -> bytes:
    try:
        with Path(place).open("rb") as file:
            data = file.read(MAX_CHAT + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        if hint is None and not Path(place).suffix:
            hint = f"To render it as what a user says: --user {short_repr(place)}"
        raise SourceError(
            f"{short_repr(place, 200)} cannot be read: {reason.lower()}", hint=hint
        ) from error
    if len(data) > MAX_CHAT:
        raise SourceError(f"{place} is larger than {MAX_CHAT:,} bytes")
    return data


def _text(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MessageError(
            f"{name} is not UTF-8: byte {data[error.start]:#04x} at offset {error.start}"
        ) from error


def _not_json(name: str, error: Exception, line: int | None = None) -> MessageError:
    if isinstance(error, json.JSONDecodeError):
        return MessageError(
            f"{name} is not JSON: {error.msg} at line {line or error.lineno}, column {error.colno}"
        )
    reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
    return MessageError(f"{name} is not JSON that can be read: {reason}")
