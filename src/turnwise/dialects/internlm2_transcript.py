"""InternLM2 transcripts: text back to messages, and to the same bytes again.

One small machine reads the six tokens. It takes the text in chunks of any size and says what happens: a turn begins,
text, a call begins, its body, the call ends, the turn ends. `parse_transcript` feeds it the whole text and keeps every
byte: whitespace inside a turn is content, "JSON" that is none stays as it is, and code is never compiled. So
`parse_transcript(text).text() == text` always.

A transcript is written in one spelling, that of its first token; the other spelling's tokens are ordinary text in it.
Text cannot tell a token from somebody typing its name: where ids are at hand, decode them to turns and not through
this.

`messages()` gives what the dialect's Jinja renders back: calls as `tool_calls`, with `verbatim`, `before` and `tail`
only where the canonical writing would have other bytes. `openai()` moves tools and results to where OpenAI has them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

from turnwise.dialects.internlm2 import SPELLINGS
from turnwise.errors import MessageError, short_repr

HEADER = re.compile(r"(\w+)(?: name=(\S+))?")
FENCED = re.compile(r"\n```(\w+)\n(.*)\n```", re.DOTALL)
REACT = re.compile(r"Action:[ \t]*(\S+)[ \t]*\nAction Input:[ \t]*(\{.*\})\s*", re.DOTALL)
COMMA = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[\]}])')


class TranscriptEvent(NamedTuple):
    """What the machine saw: turn, text, call, body, call_end, end, or gap (text outside of turns)."""

    kind: str
    text: str = ""  # of a turn: its header; of a call: plugin or interpreter


class TranscriptScanner:
    """A transcript or a reply, read as it comes. `inside` starts within a turn, as a reply does."""

    def __init__(self, spelling: str | None = None, inside: bool = False) -> None:
        self.state = "content" if inside else "gap"
        self.held = ""  # what may be the beginning of a token, or the beginning of a call
        self.header: list[
            str
        ] = []  # its pieces: a header may be long, and must not be copied for each token in it
        self.names = tuple(SPELLINGS) if spelling is None else (spelling,)

    def feed(self, chunk: str) -> list[TranscriptEvent]:
        text, self.held = self.held + chunk, ""
        cut = self.undecided(text)
        self.held = text[cut:]
        return list(self.events(text[:cut]))

    def close(self) -> list[TranscriptEvent]:
        """What was held back, as the text that it turned out to be."""
        text, self.held = self.held, ""
        events = list(self.events(text))
        if self.state == "header":
            raise MessageError(
                f"the last header has no end: {short_repr(''.join(self.header))}", path="transcript"
            )
        return events

    def tokens(self) -> dict[str, str]:
        kinds = ("start", "end", "action_start", "action_end", "interpreter", "plugin")
        return {
            token: kind
            for name in self.names
            for token, kind in zip(SPELLINGS[name], kinds, strict=True)
        }

    def undecided(self, text: str) -> int:
        """Where to stop for now: at a token's beginning at the end, or at an action whose kind is not yet known."""
        tokens = self.tokens()
        longest = max(map(len, tokens))
        cut = len(text)
        for at in range(max(0, len(text) - longest + 1), len(text)):
            if any(token.startswith(text[at:]) for token in tokens):
                cut = at
                break
        for token, kind in tokens.items():
            if kind == "action_start" and text[:cut].endswith(token):
                cut -= len(token)
        return cut

    def events(self, text: str) -> Iterator[TranscriptEvent]:
        tokens = self.tokens()
        pattern = re.compile("|".join(map(re.escape, tokens)))
        at = 0
        while found := pattern.search(text, at):
            if len(self.names) > 1:  # the first token decides the spelling
                self.names = tuple(name for name in self.names if found[0] in SPELLINGS[name])
                tokens = self.tokens()
                pattern = re.compile("|".join(map(re.escape, tokens)))
            yield from self.plain(text[at : found.start()])
            at = found.end()
            kind = tokens[found[0]]
            following = (
                pattern.match(text, at)
                if kind == "action_start" and self.state == "content"
                else None
            )
            if following and tokens[following[0]] in ("plugin", "interpreter"):
                self.state, at = "body", following.end()
                yield TranscriptEvent("call", tokens[following[0]])
            else:
                yield from self.token(kind, found[0])
        yield from self.plain(text[at:])

    def token(self, kind: str, token: str) -> Iterator[TranscriptEvent]:
        step = STEPS.get((self.state, kind))
        if step is None:
            if self.state == "header" and kind not in ("plugin", "interpreter"):
                raise MessageError(
                    f"{token} in a header, behind {short_repr(''.join(self.header))}",
                    path="transcript",
                )
            yield from self.plain(token)
            return
        self.state, event = step
        if event:
            yield TranscriptEvent(event)

    def plain(self, text: str) -> Iterator[TranscriptEvent]:
        if self.state == "header" and text:
            head, newline, text = text.partition("\n")
            self.header.append(head)
            if not newline:
                return
            yield TranscriptEvent("turn", "".join(self.header))
            self.state, self.header = "content", []
        if text:
            yield TranscriptEvent({"content": "text"}.get(self.state, self.state), text)


STEPS = {
    ("gap", "start"): ("header", ""),
    ("content", "end"): ("gap", "end"),
    ("body", "action_end"): ("content", "call_end"),
    ("body", "end"): ("gap", "end"),
}
"""State and token: the next state, and what it means. A token without a row is text."""


@dataclass(slots=True)
class TranscriptCall:
    """A call: what follows its kind, up to the end of the action."""

    kind: str
    body: str = ""
    closed: bool = False


@dataclass(slots=True)
class TranscriptTurn:
    """One turn, every byte of it."""

    role: str
    name: str | None  # as it was written: a token or a word
    parts: list[str | TranscriptCall] = field(default_factory=list)
    closed: bool = False
    gap: str = ""  # what follows the turn


@dataclass(slots=True)
class Transcript:
    """Turns, in one spelling."""

    turns: list[TranscriptTurn]
    spelling: str
    before: str = ""

    def text(self) -> str:
        """The same bytes again."""
        start, end, *_ = SPELLINGS[self.spelling]
        pieces = [self.before]
        for turn in self.turns:
            named = "" if turn.name is None else f" name={turn.name}"
            pieces += [
                start,
                turn.role,
                named,
                "\n",
                *map(self.part, turn.parts),
                end * turn.closed,
                turn.gap,
            ]
        return "".join(pieces)

    def part(self, part: str | TranscriptCall) -> str:
        if isinstance(part, str):
            return part
        _, _, action_start, action_end, interpreter, plugin = SPELLINGS[self.spelling]
        token = plugin if part.kind == "plugin" else interpreter
        return f"{action_start}{token}{part.body}{action_end * part.closed}"

    @property
    def prompted(self) -> bool:
        """Whether it ends with the opening of a reply."""
        return bool(self.turns) and not self.turns[-1].closed and not self.turns[-1].parts

    def messages(self, react: bool = False) -> list[dict[str, Any]]:
        """The turns as messages that the dialect's Jinja renders to the same text; the open end of a prompt is none."""
        turns = self.turns[:-1] if self.prompted else self.turns
        return [self.message(turn, react) for turn in turns]

    def message(self, turn: TranscriptTurn, react: bool) -> dict[str, Any]:
        _, _, _, _, interpreter, plugin = SPELLINGS[self.spelling]
        message: dict[str, Any] = {"role": turn.role}
        if turn.name is not None:
            message["name"] = {interpreter: "interpreter", plugin: "plugin"}.get(
                turn.name, turn.name
            )
        said: list[list[str]] = [[]]
        calls = []
        for part in turn.parts:
            if isinstance(part, TranscriptCall) and part.closed and turn.role == "assistant":
                calls.append(read_call(part))
                said.append([])
            else:  # a call that never ended is text
                said[-1].append(self.part(part))
        texts = ["".join(pieces) for pieces in said]
        message["content"] = texts[0]
        for call, before in zip(calls[1:], texts[1:-1], strict=True):
            call.update({"before": before} if before else {})
        if calls:
            message["tool_calls"] = calls
            message.update({"tail": texts[-1]} if texts[-1] else {})
        elif react and turn.role == "assistant":
            message = read_react(message)
        return message


def parse_transcript(text: str) -> Transcript:
    """A transcript from its text."""
    if not isinstance(text, str):
        raise MessageError(f"a transcript is text, not {type(text).__name__}", path="transcript")
    machine = TranscriptScanner()
    builder = Transcript([], "current")
    for kind, group in groupby(
        (*machine.feed(text), *machine.close()), key=lambda event: event.kind
    ):
        for event in joined(kind, group):
            take(builder, event)
    if len(machine.names) == 1:
        builder.spelling = machine.names[0]
    return builder


def joined(kind: str, events: Iterable[TranscriptEvent]) -> Iterable[TranscriptEvent]:
    """Events of one kind in a row; those of text as one, so that no text is copied more than once."""
    return (
        [TranscriptEvent(kind, "".join(event.text for event in events))]
        if kind in ("text", "body", "gap")
        else events
    )


def take(found: Transcript, event: TranscriptEvent) -> None:
    """One event more."""
    turn = found.turns[-1] if found.turns else None
    if event.kind == "turn":
        found.turns.append(new_turn(event.text, len(found.turns)))
    elif turn is None:
        found.before += event.text
    elif event.kind == "gap":
        turn.gap += event.text
    elif event.kind == "end":
        turn.closed = True
    elif event.kind == "call":
        turn.parts.append(TranscriptCall(event.text))
    else:
        grow(turn.parts, event)


def grow(parts: list[str | TranscriptCall], event: TranscriptEvent) -> None:
    last = parts[-1] if parts else ""
    if isinstance(last, TranscriptCall) and event.kind == "body":
        last.body += event.text
    elif isinstance(last, TranscriptCall) and event.kind == "call_end":
        last.closed = True
    elif isinstance(last, str) and parts:
        parts[-1] = last + event.text
    else:
        parts.append(event.text)


def new_turn(header: str, index: int) -> TranscriptTurn:
    found = HEADER.fullmatch(header)
    if found is None:
        raise MessageError(
            f"a header is a role, or a role and a name: {short_repr(header)}",
            path=f"transcript[{index}]",
            hint="for example: system, user name=file",
        )
    return TranscriptTurn(found[1], found[2])


def read_call(call: TranscriptCall) -> dict[str, Any]:
    """A call as its kind says, with `verbatim` where writing it again would change a byte or it cannot be read."""
    if call.kind == "interpreter":
        found = FENCED.fullmatch(call.body)
        if found:
            return {"type": "code_interpreter", "code": found[2], "lang": found[1]}
        return {
            "type": "code_interpreter",
            "code": call.body.strip(),
            "lang": None,
            "verbatim": call.body,
        }
    value, read = loosely(call.body)
    if not read or not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return {"type": "function", "function": None, "verbatim": call.body}
    arguments = value.get("parameters", value.get("arguments", {}))
    said: dict[str, Any] = {
        "type": "function",
        "function": {"name": value["name"], "arguments": arguments},
    }
    canonical = json.dumps({"name": value["name"], "parameters": arguments}, ensure_ascii=False)
    return said if call.body == f"\n{canonical}" else {**said, "verbatim": call.body}


def read_react(message: dict[str, Any]) -> dict[str, Any]:
    """The last `Action:` and `Action Input:` of a reply as a call that keeps its own words."""
    found = list(REACT.finditer(message["content"]))
    if not found or found[-1].end() != len(message["content"]):
        return message
    arguments, read = loosely(found[-1][2])
    if not read:
        return message
    function = {"name": found[-1][1], "arguments": arguments}
    call = {"type": "function", "function": function, "react": found[-1][0]}
    return {**message, "content": message["content"][: found[-1].start()], "tool_calls": [call]}


def loosely(text: str) -> tuple[Any, bool]:
    """JSON, trailing commas forgiven, and True; or the text itself, and False."""
    try:
        return json.loads(COMMA.sub(lambda found: found[1] or "", text)), True
    except (ValueError, RecursionError):
        return text, False


def openai(
    messages: list[dict[str, Any]],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]] | None]:
    """Messages and tools in OpenAI's shape: told tools become `tools`, results `tool` messages with their call's id."""
    chat: list[dict[str, Any]] = []
    tools: list[dict[str, Any]] | None = None
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "system" and message.get("name") == "plugin":
            value, read = loosely(message["content"])
            if read and isinstance(value, list):
                tools = (tools or []) + [{"type": "function", "function": tool} for tool in value]
                continue
        if message["role"] == "environment":
            name = {"name": "interpreter"} if message.get("name") == "interpreter" else {}
            identity = {"tool_call_id": waiting.pop(0)} if waiting else {}
            message = {"role": "tool", **identity, **name, "content": message["content"]}
        elif calls := message.get("tool_calls"):
            waiting = [f"call_{len(chat)}_{number}" for number in range(len(calls))]
            named = [
                {"id": identity, **call} for identity, call in zip(waiting, calls, strict=True)
            ]
            message = {**message, "tool_calls": named}
        chat.append(message)
    return chat, tools
