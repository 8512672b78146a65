"""Read the arguments TEMPLATE and CHAT of the commands.

TEMPLATE is what `load` takes, or `-` for stdin. CHAT is JSON of any shape that `turnwise.shapes` reads: a list of
messages, a request, a row of a dataset; or JSON Lines or a JSON list of those. The shape is guessed if --shape is not
given; a bare text, which PaddleNLP takes for a question, is not accepted, since there is --user.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from turnwise.cli.output import note, warn
from turnwise.engine.option_names import (
    RENDER_ARGUMENTS,
    SPECIAL_TOKENS,
    reject_misspelt_options,
)
from turnwise.errors import MessageError, SourceError, short_repr
from turnwise.local_files import error_reason, read_file
from turnwise.messages import InputReader, JsonMapping, JsonObject
from turnwise.registry import compile_source, find_source
from turnwise.registry.files import names_in_folder, read_bytes
from turnwise.template import Template

STDIN = "-"
MAX_CHAT = 256 * 2**20
OPENAI_SHAPES = ("openai", "list")  # read without a note
CHAT_HINT = 'A conversation is JSON such as [{"role": "user", "content": "Hi"}].'
# A tool has one of them; a message may, too, and has a role.
TOOL_KEYS = {"function", "name", "type"}
TOOLS_HINT = "Tools are a JSON list of functions, as OpenAI has them."
DECLARATION_HINT = "A declaration is a TOML file: docs/replies.md, Declarations."
SCHEMA_HINT = "It should be a JSON schema."
PYTHON_WORDS = {"True": True, "False": False, "None": None}
"""JSON's words as Python spells them: as texts, all of them would be true."""


def check_stdin(*places: str | None) -> None:
    """Refuse two arguments that both read stdin."""
    if places.count(STDIN) > 1:
        raise click.BadParameter("stdin (-) can be read for one argument only", param_hint="-")


def check_url(url: str | None, flag: str) -> None:
    """Refuse an address that does not say how the server is asked; None is a flag that was not given."""
    if url is not None and not url.startswith(("http://", "https://")):
        problem = f"{short_repr(url)} does not begin with http:// or https://"
        raise click.BadParameter(f"{problem}: http://localhost:8000", param_hint=flag)


def load_template(where: str, pick: str | None, exact: bool = False) -> Template:
    """Return the template of the argument TEMPLATE."""
    if where == STDIN:
        found = read_bytes(_read_stdin(), "stdin", pick, exact=exact)
    else:
        found = find_source(where, pick=pick, exact=exact)
    if found.warning:
        note(found.warning)
    return compile_source(found)


def read_chat(
    place: str | None,
    tools: str | None,
    user: str | None,
    system: str | None = None,
    line: int | None = None,
    shape: str | None = None,
) -> tuple[Any, JsonObject]:
    """Return the conversation of CHAT or --user, with --system and --tools added: messages, and other arguments."""
    if (place is None) == (user is None):
        raise click.BadParameter("give a CHAT or --user, one of the two", param_hint="CHAT")
    if shape is not None and place is None:
        raise click.BadParameter(
            "it is the shape of CHAT, and there is no CHAT", param_hint="--shape"
        )
    arguments: JsonObject = {"messages": [{"role": "user", "content": user}]}
    if place is not None:
        arguments = _read_conversation(place, line, shape)
    messages = arguments.pop("messages")
    if system is not None and isinstance(messages, list):  # else `render` tells what is wrong
        if messages and isinstance(messages[0], dict) and messages[0].get("role") == "system":
            raise click.BadParameter(
                "the conversation has a system message already", param_hint="--system"
            )
        messages = [{"role": "system", "content": system}, *messages]
    if tools is not None:
        arguments["tools"] = read_tools(tools)
    return messages, arguments


def read_request(
    template: str, pick: str | None, exact: bool = False, *, chat: Any, tools: Any, **given: Any
) -> tuple[Template, Any, JsonObject]:
    """Return the template, the messages and the other arguments of `Template.render`.

    `chat`, `tools` and `given` are the options that `scripts/commands.py` names `REQUEST`.
    """
    check_stdin(template, chat, tools)
    words = (given.pop(name) for name in ("user", "system", "line", "shape"))
    messages, arguments = read_chat(chat, tools, *words)
    loaded = load_template(template, pick, exact)
    return loaded, messages, render_arguments(loaded, arguments, **given)


def render_arguments(
    template: Template,
    arguments: JsonObject,
    option: list[str] | None,
    generation: bool = True,
    continued: bool = False,
    now: str | None = None,
    late_system: str | None = None,
) -> JsonObject:
    """Return the arguments of `Template.render` besides the messages; flags override those of the chat."""
    options = parse_options(option) if option else {}
    check_options(options, template)
    arguments = {**arguments, **options, "now": parse_time(now), "late_system": late_system}
    if generation:
        arguments["add_generation_prompt"] = True
    if continued:
        arguments["continue_final_message"] = True
    return arguments


def parse_options(pairs: list[str], flag: str = "--option") -> JsonObject:
    """Return the options of `key=value`, which `flag` gave; a value that is not JSON is text."""
    from turnwise.shapes.row import ARGUMENT_NAMES

    options: JsonObject = split_pairs(pairs, "key=value", r"(?s)([^\W\d]\w*)=(.*)", flag)
    for key, text in options.items():
        if key in ARGUMENT_NAMES:
            raise click.BadParameter(f"{key!r} is not a variable of the template", param_hint=flag)
        with suppress(ValueError, RecursionError):
            options[key] = PYTHON_WORDS[text] if text in PYTHON_WORDS else json.loads(text)
    return options


def split_pairs(pairs: list[str] | None, form: str, pattern: str, flag: str) -> dict[str, str]:
    """Return the values by names that a flag gave.

    Args:
        pairs: what was given.
        form: what errors call a pair.
        pattern: a name and a value, the two groups of a regular expression.
        flag: the flag, for errors.
    """
    found = {}
    for pair in pairs or ():
        match = re.fullmatch(pattern, pair)
        if match is None:
            raise click.BadParameter(f"{pair!r} is not of the form {form}", param_hint=flag)
        found[match[1]] = match[2]
    return found


def check_options(options: JsonMapping, template: Template, flag: str = "--option") -> None:
    """Refuse a misspelt variable of a template, which `flag` gave, and warn of one that the template does not read.

    Raises:
        MessageError: it is probably misspelt.
    """
    reject_misspelt_options(options, template.variables, flag)
    passed = ("messages", *RENDER_ARGUMENTS, *SPECIAL_TOKENS)
    unread = [name for name in options if name not in (*template.variables, *passed)]
    if unread:
        known = ", ".join(name for name in template.variables if name not in passed)
        names = ", ".join(map(short_repr, unread))
        warn(f"{flag}: the template does not read {names}; it reads: {known or 'no variable'}")


def parse_time(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not a time such as 2025-01-15T12:00", param_hint="--now"
        ) from None


# -- conversations ---------------------------------------------------------------------------------------------------


def _read_conversation(place: str, line: int | None, shape: str | None) -> JsonObject:
    from turnwise.shapes import are_rows, conversation

    name = _name_of(place)
    text = read_text(place)
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            raise _not_json(name, error, CHAT_HINT) from error
        lines = {number: row for number, row in enumerate(text.split("\n"), 1) if row.strip()}
        wanted, row = _choose_row(lines, name, line)
        value = _parse_json(row, name, CHAT_HINT, wanted)
    except (ValueError, RecursionError) as error:
        raise _not_json(name, error, CHAT_HINT) from error
    else:
        rows = value if are_rows(value) else [value]
        value = _choose_row(dict(enumerate(rows, 1)), name, line)[1]
    if shape is None and not isinstance(value, list | dict):
        raise MessageError(f"{name} holds {short_repr(value)}", hint=CHAT_HINT)
    try:
        found = conversation(value, shape)
    except MessageError as error:
        raise MessageError(f"{name}: {error.message}", hint=error.hint) from error
    if shape is None and found.shape not in OPENAI_SHAPES:
        note(f"{name} is read as {found.shape} data")
    for unknown in found.notes:
        note(f"{name}: {unknown}")
    if found.rest:
        note(f"{name} also has {', '.join(sorted(found.rest))}: not used")
    return found.arguments


def _choose_row(rows: dict[int, Any], name: str, line: int | None) -> tuple[int, Any]:
    if line is None:
        if len(rows) > 1:
            note(
                f"{name} has {len(rows)} conversations; this is the first. --line chooses another."
            )
        return next(iter(rows.items()))
    if line not in rows:
        raise click.BadParameter(f"{name} has no conversation in line {line}", param_hint="--line")
    return line, rows[line]


def read_json(place: str, hint: str = SCHEMA_HINT) -> Any:
    """Return the value of a JSON file; the hint says what it should be."""
    return _parse_json(read_text(place, hint), _name_of(place), hint)


def _parse_json(text: str, name: str, hint: str, line: int | None = None) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _not_json(name, error, hint, line) from error


def read_toml(place: str, hint: str | None) -> JsonObject:
    """Return the table of a TOML file; the hint says what it should be."""
    import tomllib  # slow to import, and rarely needed

    try:
        return tomllib.loads(read_text(place, hint))
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise SourceError(f"{_name_of(place)} is not TOML: {reason}", hint=hint) from error


def read_text(place: str, hint: str | None = None) -> str:
    """Return the text of a file, or of stdin (`-`); the hint says what it should be."""
    try:
        data = _read_stdin() if place == STDIN else read_file(Path(place), MAX_CHAT)
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        found = f"byte {error.object[error.start]:#04x} at offset {error.start}"
        raise MessageError(
            f"{_name_of(place)} is not UTF-8: {found}", hint=hint or CHAT_HINT
        ) from error
    except (OSError, ValueError) as error:
        if hint is None and not Path(place).suffix:
            hint = f"To render it as a message of the user: --user {short_repr(place)}"
        raise unreadable_file(place, error, hint or CHAT_HINT) from error


def read_tools(place: str) -> Any:
    """Return the tools of a JSON file."""
    name = _name_of(place)
    value = read_json(place, TOOLS_HINT)
    found = value["tools"] if isinstance(value, dict) and "tools" in value else value
    try:
        tools = InputReader().read_tools(found)
    except MessageError as error:
        raise MessageError(f"{name}: {error.message}", hint=error.hint) from error
    for index, tool in enumerate(tools or ()):
        if "role" in tool or not TOOL_KEYS & tool.keys():
            raise MessageError(
                f"{name}: tools[{index}] is no tool: {short_repr(tool)}", hint=TOOLS_HINT
            )
    return tools


def read_declaration(place: str) -> JsonObject:
    """Return the declaration of a TOML file: its table `replies`, or the whole file."""
    from turnwise.replies.declared import DECLARATION_KEYS

    name = _name_of(place)
    data = read_toml(place, DECLARATION_HINT)
    found = data.get("replies", data)
    if not isinstance(found, dict):
        raise SourceError(f"{name}: replies is {short_repr(found)}", hint="It must be a table.")
    if not found:
        raise SourceError(
            f"{name} declares nothing", hint=f"It may have: {', '.join(DECLARATION_KEYS)}."
        )
    return found


@contextmanager
def name_file(place: str | None) -> Iterator[None]:
    """Let errors of a source name the file that it was read from, if it was."""
    try:
        yield
    except SourceError as error:
        raise error if place is None else error.within(_name_of(place)) from None


# -- files -----------------------------------------------------------------------------------------------------------


def _name_of(place: str) -> str:
    return "stdin" if place == STDIN else place


def _read_stdin() -> bytes:
    data = sys.stdin.buffer.read(MAX_CHAT + 1)
    if len(data) > MAX_CHAT:
        raise SourceError(f"stdin is larger than {MAX_CHAT:,} bytes")
    return data


def unreadable_file(place: str, error: Exception, hint: str) -> SourceError:
    """Return the error for a file that cannot be read; if it is not there, similar names replace the hint."""
    if isinstance(error, FileNotFoundError):
        path = Path(place)
        near = get_close_matches(path.name, names_in_folder(path), n=3)
        if near:
            shown = " or ".join(short_repr(str(path.with_name(name)), 200) for name in near)
            hint = f"Did you mean {shown}?"
    return SourceError(f"{short_repr(place, 200)} cannot be read: {error_reason(error)}", hint=hint)


def _not_json(name: str, error: Exception, hint: str, line: int | None = None) -> MessageError:
    if isinstance(error, json.JSONDecodeError):
        place = f"at line {line or error.lineno}, column {error.colno}"
        problem = f"is not JSON: {error.msg} {place}" if error.doc.strip() else "is empty"
        return MessageError(f"{name} {problem}", hint=hint)
    reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
    return MessageError(f"{name} is not JSON that can be read: {reason}", hint=hint)
