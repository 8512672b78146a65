"""`turnwise parse`: a reply becomes a message, at once or while it arrives.

REPLY is a text, or `@FILE`; `-` is stdin, which `--stream` reads as it arrives. With a
tokenizer, a REPLY that is a JSON list of numbers is token ids. What a model wrote is never an error: a call that could
not be read is shown with its status and a note; so is text after the stop, if it is more than white space.

`--declared` gives the parser what the template does not show, as in the table `replies` of an entry.
"""

from __future__ import annotations

import codecs
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import click

from turnwise.cli import inputs, output
from turnwise.cli.encode import load_tokenizer
from turnwise.errors import printable
from turnwise.local_files import read_file
from turnwise.messages import JsonObject
from turnwise.replies.events import STATUSES, Event, Message
from turnwise.replies.parser.parser import Parser
from turnwise.shapes import REPLY_WRITERS as REPLY_WRITERS
from turnwise.shapes import write_reply

CHUNK = re.compile(r"\s*\S{1,8}|\s+")  # about as long as a token
FILE_NAME = re.compile(r"[\w.~/\\:-]*\w\.[A-Za-z]\w{0,4}")  # rather than a reply
READ_SIZE = 2**16
MAX_REPLY = 64 * 2**20  # bytes
STYLES = {
    "reasoning": "dim",
    "text": "",
    "start": "bold",
    "arguments": "cyan",
    "end": "bold",
    "stop": "bold reverse",
}


def parse(
    template: str,
    reply: str,
    stream: bool = False,
    chat: str | None = None,
    user: str | None = None,
    tools: str | None = None,
    option: list[str] | None = None,
    tokenizer: str | None = None,
    declared: str | None = None,
    reasoning: str = "auto",
    now: str | None = None,
    pick: str | None = None,
    as_json: bool = False,
    as_api: str | None = None,
) -> None:
    """Parse a reply into a message: reasoning, content, tool calls, and the stop.

    Example: turnwise parse qwen2.5 'Hello!<|im_end|>'

    Arguments:
        reply REPLY: A text, @FILE, or - for stdin.

    Options:
        stream: Show events as they come.
        chat FILE: The conversation that was sent; it decides the prompt.
        tokenizer -k: For a REPLY of token ids.
        declared FILE: TOML: what the template does not show of replies.
        reasoning STATE: auto, or assume: the prompt opened the reasoning out of sight.
        as_api --as API: JSON as the answer of {REPLY_WRITERS}.
    """
    inputs.check_stdin(template, reply, chat, tools, declared)
    if as_api and stream:
        raise click.BadParameter("it is a whole answer, without --stream", param_hint="--as")
    loaded = inputs.load_template(template, pick)
    is_given = chat is not None or user is not None
    question = user if is_given else "?"  # every question has the same generation prompt
    messages, arguments = inputs.read_chat(chat, tools, question)
    offered = arguments.get("tools")
    prompt: Any = None  # the grammar's own
    if is_given or option:
        arguments = inputs.render_arguments(loaded, arguments, option, now=now)
        prompt = loaded.render(messages, **arguments)
    known = load_tokenizer(tokenizer) if tokenizer else None
    data = None if declared is None else inputs.read_declaration(declared)
    with inputs.name_file(declared):
        parser = loaded.parser(prompt, offered, known, data, reasoning=cast(Any, reasoning))
    chunks = _split_reply(reply, stream, ids=tokenizer is not None)
    if stream:
        for chunk in chunks:
            _show_events(parser.feed(chunk), as_json)
        message = parser.close()
        _show_events(message.events, as_json)
    else:
        message = parser.read(next(chunks, ""))
    if as_api:
        output.write_json(write_reply(message, as_api, message.finish_reason))
    elif as_json:
        output.write_json(message_data(message), indent=None if stream else 2)
    elif not stream:
        output.write_lines(_message_lines(message))
    _note_problems(parser, message)


def _note_problems(parser: Parser, message: Message) -> None:
    for call in message.attempts:
        if call.status != "complete":
            output.note(f"{call.status}: {STATUSES[call.status]}: {printable(repr(call.raw))}")
    size = sum(span.end - span.start for span in message.spans if span.kind == "rest")
    if size and parser.text[-size:].strip():
        count = "1 character" if size == 1 else f"{size} characters"
        output.note(f"not parsed: {count} after the stop {message.stop!r}")


# -- input


def _split_reply(reply: str, stream: bool, ids: bool) -> Iterator[Any]:
    if reply == inputs.STDIN:
        texts: Iterable[str] = _read_stdin() if stream and not ids else ["".join(_read_stdin())]
    else:
        texts = [_read_reply(reply)]
    for text in texts:
        found = _parse_ids(text) if ids else None
        if found is not None:
            yield from found if stream else [found]
        elif stream and reply != inputs.STDIN:
            yield from CHUNK.findall(text)
        else:
            yield text


def _read_stdin() -> Iterator[str]:
    """Yield stdin as it arrives; bytes that are not UTF-8 are replaced."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    read = getattr(sys.stdin.buffer, "read1", sys.stdin.buffer.read)
    while data := read(READ_SIZE):
        yield decoder.decode(data)
    yield decoder.decode(b"", final=True)


def _read_reply(reply: str) -> str:
    """Return the content of the file after `@`, or the argument itself: a model's text must name no file.

    Raises:
        SourceError: there is no such file, or it cannot be read.
    """
    if reply.startswith("@"):
        try:
            return read_file(Path(reply[1:]), MAX_REPLY).decode("utf-8", "replace")
        except (OSError, ValueError) as error:
            raise inputs.unreadable_file(
                reply[1:], error, "Text that begins with @ is read from stdin: write - and pipe it."
            ) from None
    if FILE_NAME.fullmatch(reply):
        output.note(f"{reply!r} was read as the text of a reply; a file is @{reply}")
    return reply


def _parse_ids(text: str) -> list[int] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, list) and all(type(one) is int for one in found) else None


# -- output


def _show_events(events: Iterable[Event], as_json: bool) -> None:
    if as_json:
        for event in events:
            output.write_json(event_data(event), indent=None)
    else:
        output.write_lines(map(event_line, events))


def event_data(event: Event) -> JsonObject:
    """Return an event, and the delta that it is for OpenAI."""
    return {**event._asdict(), "delta": event.delta()}


def event_line(event: Event) -> output.Line:
    """Return an event as one line."""
    call = "" if event.call is None else f" {event.call}"
    text = repr(event.text) if event.text else ""
    if event.kind == "start":
        text = event.name or ""
    return (f"{event.kind + call:<12}", "dim"), (printable(text, 10**6), STYLES[event.kind])


def message_data(message: Message) -> JsonObject:
    """Return a message with the spans and attempts of its parser, as JSON takes it."""
    return {
        "message": dict(message),
        "stop": message.stop,
        "attempts": message.attempts,
        "spans": message.spans,
    }


def _message_lines(message: Message) -> Iterator[output.Line]:
    statuses = {one.index: one.status for one in message.attempts if one.index is not None}
    rows = [
        (key, repr(message[key])) for key in ("reasoning_content", "content") if message.get(key)
    ]
    for index, call in enumerate(message.get("tool_calls", ())):
        function = call["function"]
        id = f"  id {call['id']}" if call["id"] else ""
        call_text = f"{function['name']}({function['arguments']}"
        status = statuses.get(index, "complete")
        call_text += "…" if status == "unterminated" else ")"
        # what is broken says so first
        shown = (call_text, status) if status == "complete" else (f"{status}:", call_text)
        rows.append((f"call {index}", "  ".join(shown) + id))
    rows += [(one.status, repr(one.raw)) for one in message.attempts if one.index is None]
    rows += [("stop", repr(message.stop))] if message.stop else []
    for name, text in rows:
        label = f"{name.removesuffix('_content'):<12} "
        yield (label, "dim"), printable(text, 10**6).rstrip()
