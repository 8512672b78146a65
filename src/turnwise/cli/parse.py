"""`turnwise parse`: a reply becomes a message, at once or as it comes.

REPLY is a text; a file, if there is one of that name; or - for stdin, which `--stream` reads as it arrives. With a
tokenizer, a REPLY that is a JSON list of numbers is token ids. What a model wrote is never an error: a call that could
not be read is shown with its status, and noted; so is how much stands behind a stop, if it is more than white space.

`--declared` tells the parser what the template does not show, in the words of an entry's table `replies`.
"""

from __future__ import annotations

import codecs
import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from turnwise.cli import inputs, output
from turnwise.cli.encode import tokenizer_of
from turnwise.cli.render import (
    ColourOption,
    JsonOption,
    NowOption,
    PickOption,
    TemplateArgument,
    ToolsOption,
    UserOption,
    VariableOption,
)
from turnwise.errors import SourceError, printable
from turnwise.replies.events import STATUSES, Event, Message
from turnwise.replies.parser.parser import Parser
from turnwise.template import Template

WORDS = re.compile(r"\s*\S{1,8}|\s+")  # about what a model says at a time
FILE = re.compile(
    r"[\w.~/\\:-]*\w\.[A-Za-z]\w{0,4}"
)  # what is more likely the name of a file than a reply
ONCE = 2**16
STYLES = {
    "reasoning": "dim",
    "text": "",
    "start": "bold",
    "arguments": "cyan",
    "end": "bold",
    "stop": "bold reverse",
}


def parse(
    template: TemplateArgument,
    reply: Annotated[str, typer.Argument(metavar="REPLY", help="A text, a file, or - for stdin.")],
    stream: Annotated[bool, typer.Option("--stream", help="Show events as they come.")] = False,
    chat: Annotated[
        str | None,
        typer.Option(
            "--chat", metavar="FILE", help="The conversation that was sent; it decides the prompt."
        ),
    ] = None,
    user: UserOption = None,
    tools: ToolsOption = None,
    option: VariableOption = None,
    tokenizer: Annotated[
        str | None, typer.Option("--tokenizer", "-k", help="For a REPLY of token ids.")
    ] = None,
    declared: Annotated[
        str | None,
        typer.Option(
            "--declared", metavar="FILE", help="TOML: what the template does not show of replies."
        ),
    ] = None,
    now: NowOption = None,
    pick: PickOption = None,
    as_json: JsonOption = False,
    colour: ColourOption = None,
) -> None:
    """Read a reply back into a message: reasoning, content, calls, and what ended it."""
    inputs.check_stdin(template, reply, chat, tools, declared)
    loaded = inputs.template_of(template, pick)
    prompt, offered = prompt_of(loaded, chat, user, tools, option, now)
    parser = parser_of(loaded, prompt, offered, tokenizer, declared)
    painted = output.coloured(colour)
    for chunk in chunks(reply, stream, ids=tokenizer is not None):
        events = parser.feed(chunk)
        if stream:
            show_events(events, as_json, painted)
    message = parser.close()
    if stream:
        show_events(message.events, as_json, painted)
    if as_json:
        line = json.dumps(as_data(message), ensure_ascii=False) + "\n"
        output.write(line) if stream else output.write_json(as_data(message))
    elif not stream:
        output.write_lines(message_lines(message), painted)
    for one in message.attempts:
        if one.status != "complete":
            output.note(f"{one.status}: {STATUSES[one.status]}: {printable(repr(one.raw))}")
    if (behind := rest_of(parser, message)).strip():
        stand = "character stands" if len(behind) == 1 else "characters stand"
        output.note(f"{len(behind)} {stand} behind the stop {message.stop!r}, and were not read")


def prompt_of(
    template: Template,
    chat: str | None,
    user: str | None,
    tools: str | None,
    option: list[str] | None,
    now: str | None,
) -> tuple[Any, Any]:
    """What was sent, and the tools that were offered; without a conversation and options, the grammar's own opening."""
    said = (
        user if chat is not None or user is not None else "?"
    )  # any question has the same opening
    given = inputs.chat_of(chat, said, None, tools, None, None)
    offered = given.arguments.get("tools")
    if chat is None and user is None and not option:
        return None, offered
    messages, arguments = inputs.asked(given, option, True, False, now)
    return template.render(messages, **arguments), offered


def parser_of(
    template: Template, prompt: Any, tools: Any, tokenizer: str | None, declared: str | None
) -> Parser:
    """The template's parser, told what a file declares; what is wrong with a declaration is said of its file."""
    known = tokenizer_of(tokenizer) if tokenizer else None
    if declared is None:
        return template.parser(prompt, tools, known)
    data = inputs.declared_of(declared)
    try:
        return template.parser(prompt, tools, known, data)
    except SourceError as error:
        raise error.within("stdin" if declared == inputs.STDIN else declared) from None


def rest_of(parser: Parser, message: Message) -> str:
    """What stands behind the stop."""
    size = sum(span.end - span.start for span in message.spans if span.kind == "rest")
    return parser.text[-size:] if size else ""


# -- what comes in


def chunks(reply: str, stream: bool, ids: bool) -> Iterator[Any]:
    """The reply: whole, or word by word, or as stdin brings it."""
    if reply == inputs.STDIN:
        texts: Iterable[str] = arriving() if stream and not ids else ["".join(arriving())]
    else:
        texts = [text_of(reply)]
    for text in texts:
        found = numbers(text) if ids else None
        if found is not None:
            yield from found if stream else [found]
        elif stream and reply != inputs.STDIN:
            yield from WORDS.findall(text)
        else:
            yield text


def arriving() -> Iterator[str]:
    """Stdin, as far as it has come; bytes that are no UTF-8 are shown as such."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    read = getattr(sys.stdin.buffer, "read1", sys.stdin.buffer.read)
    while data := read(ONCE):
        yield decoder.decode(data)
    yield decoder.decode(b"", final=True)


def text_of(reply: str) -> str:
    try:
        path = Path(reply)
        if path.is_file():
            return path.read_bytes().decode("utf-8", "replace")
    except (OSError, ValueError):  # too long for a name, or with a zero in it: it is a text
        return reply
    if FILE.fullmatch(reply):
        output.note(f"there is no file {reply!r}: it was read as the text of a reply")
    return reply


def numbers(text: str) -> list[int] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, list) and all(type(one) is int for one in found) else None


# -- what goes out


def show_events(events: Iterable[Event], as_json: bool, painted: bool) -> None:
    if as_json:
        for event in events:
            output.write(
                json.dumps({**event._asdict(), "delta": event.delta()}, ensure_ascii=False) + "\n"
            )
    else:
        output.write_lines(map(event_line, events), painted)


def event_line(event: Event) -> Text:
    call = "" if event.call is None else f" {event.call}"
    text = event.name or "" if event.kind == "start" else repr(event.text) if event.text else ""
    return Text.assemble(
        (f"{event.kind + call:<12}", "dim"), (printable(text, 10**6), STYLES[event.kind])
    )


def as_data(message: Message) -> dict[str, Any]:
    return {
        "message": dict(message),
        "stop": message.stop,
        "attempts": [asdict(one) for one in message.attempts],
        "spans": [asdict(span) for span in message.spans],
    }


def message_lines(message: Message) -> Iterator[Text]:
    """One line for each thing that the message holds."""
    statuses = {one.index: one.status for one in message.attempts if one.index is not None}
    rows = [
        (key, repr(message[key])) for key in ("reasoning_content", "content") if message.get(key)
    ]
    for index, call in enumerate(message.get("tool_calls", ())):
        function = call["function"]
        id = f"  id {call['id']}" if call["id"] else ""
        rows.append(
            (
                f"call {index}",
                f"{function['name']}({function['arguments']})  {statuses.get(index, '')}{id}",
            )
        )
    rows += [(one.status, repr(one.raw)) for one in message.attempts if one.index is None]
    rows += [("stop", repr(message.stop))] if message.stop else []
    for name, text in rows:
        yield Text.assemble(
            (f"{name.removesuffix('_content'):<12} ", "dim"), printable(text, 10**6).rstrip()
        )
