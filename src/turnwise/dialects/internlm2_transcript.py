r"""InternLM2 transcripts: text back to messages, and to the same bytes again.

    parse_transcript("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n").messages()
    == [{"role": "user", "content": "Hi"}]

A small state machine, `TranscriptScanner`, reads the six tokens of the format (see `internlm2.py`).
It takes text in chunks of any size and emits events: a turn begins, text, a call begins, its body,
the call ends, the turn ends. `parse_transcript` feeds it the whole text and keeps every byte: white
space inside a turn is content, invalid JSON is kept as text, and code is never compiled. So
`parse_transcript(text).text() == text` always.

A transcript has one spelling, that of its first token; tokens of the other spelling are ordinary
text in it. Text cannot tell a token from a user who typed its name: if you have token ids, do not
go through text.

`messages()` gives what the dialect's Jinja renders to the same text: calls as `tool_calls`, with
`verbatim`, `before` and `tail` only where the canonical form would have other bytes. `to_openai`
moves tools and results to OpenAI's places.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

from turnwise.dialects.internlm2 import SPELLINGS, TOKENS
from turnwise.errors import MessageError, short_repr

HEADER = re.compile(r"(\w+)(?: name=(\S+))?")
FENCED_CODE = re.compile(r"\n```(\w+)\n(.*)\n```", re.DOTALL)
REACT_CALL = re.compile(r"Action:[ \t]*(\S+)[ \t]*\nAction Input:[ \t]*(\{.*\})\s*", re.DOTALL)
STRING_OR_TRAILING_COMMA = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[\]}])')


class TranscriptEvent(NamedTuple):
    """A part of a transcript: turn, text, call, body, call_end, end, or gap (between turns)."""

    kind: str
    text: str = ""  # of a turn: its header; of a call: plugin or interpreter


class TranscriptScanner:
    """Scans a transcript, or a reply, chunk by chunk.

    Args:
        spelling: the spelling of the tokens; None takes that of the first token.
        inside: start within a turn, as a reply does.
    """

    def __init__(self, spelling: str | None = None, inside: bool = False) -> None:
        self.spellings = tuple(SPELLINGS) if spelling is None else (spelling,)
        self._state = "content" if inside else "gap"
        self._buffer = ""  # may be the start of a token, or of a call
        # The pieces of a header: it may be long, and must not be copied for each token in it.
        self._header: list[str] = []

    def feed(self, chunk: str) -> list[TranscriptEvent]:
        """Return the events of a chunk; a possible start of a token is held back."""
        text = self._buffer + chunk
        end = self._find_decided_end(text)
        self._buffer = text[end:]
        return list(self._scan(text[:end]))

    def close(self) -> list[TranscriptEvent]:
        """Return the events of the text that was held back."""
        text, self._buffer = self._buffer, ""
        events = list(self._scan(text))
        if self._state == "header":
            header = short_repr("".join(self._header))
            raise MessageError(f"the last header has no end: {header}", path="transcript")
        return events

    def _token_kinds(self) -> dict[str, str]:
        kinds: dict[str, str] = {}
        for spelling in self.spellings:
            kinds.update(zip(SPELLINGS[spelling], TOKENS, strict=True))
        return kinds

    def _find_decided_end(self, text: str) -> int:
        """Return where the rest may be the start of a token, or an action of unknown kind."""
        tokens = self._token_kinds()
        longest = max(map(len, tokens))
        end = len(text)
        for start in range(max(0, len(text) - longest + 1), len(text)):
            if any(token.startswith(text[start:]) for token in tokens):
                end = start
                break
        for token, kind in tokens.items():
            if kind == "action_start" and text[:end].endswith(token):
                end -= len(token)
        return end

    def _scan(self, text: str) -> Iterator[TranscriptEvent]:
        tokens = self._token_kinds()
        pattern = re.compile("|".join(map(re.escape, tokens)))
        at = 0
        while found := pattern.search(text, at):
            if len(self.spellings) > 1:  # the first token decides the spelling
                self.spellings = tuple(
                    spelling for spelling in self.spellings if found[0] in SPELLINGS[spelling]
                )
                tokens = self._token_kinds()
                pattern = re.compile("|".join(map(re.escape, tokens)))
            yield from self._emit_text(text[at : found.start()])
            at = found.end()
            kind = tokens[found[0]]
            # An action is a call only if its kind, plugin or interpreter, follows at once.
            if kind == "action_start" and self._state == "content":
                following = pattern.match(text, at)
                call_kind = tokens[following[0]] if following else ""
                if following and call_kind in ("plugin", "interpreter"):
                    self._state, at = "body", following.end()
                    yield TranscriptEvent("call", call_kind)
                    continue
            yield from self._emit_token(kind, found[0])
        yield from self._emit_text(text[at:])

    def _emit_token(self, kind: str, token: str) -> Iterator[TranscriptEvent]:
        transition = TRANSITIONS.get((self._state, kind))
        if transition is None:
            if self._state == "header" and kind not in ("plugin", "interpreter"):
                header = short_repr("".join(self._header))
                raise MessageError(f"{token} in a header, after {header}", path="transcript")
            yield from self._emit_text(token)
            return
        self._state, event = transition
        if event:
            yield TranscriptEvent(event)

    def _emit_text(self, text: str) -> Iterator[TranscriptEvent]:
        if self._state == "header" and text:
            head, newline, text = text.partition("\n")
            self._header.append(head)
            if not newline:
                return
            yield TranscriptEvent("turn", "".join(self._header))
            self._state, self._header = "content", []
        if text:
            kind = "text" if self._state == "content" else self._state
            yield TranscriptEvent(kind, text)


TRANSITIONS = {
    ("gap", "start"): ("header", ""),
    ("content", "end"): ("gap", "end"),
    ("body", "action_end"): ("content", "call_end"),
    ("body", "end"): ("gap", "end"),
}
"""State and token: the next state, and the event. A token without a transition is text."""


@dataclass(slots=True)
class TranscriptCall:
    """A call: everything between its kind and the end of the action."""

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
    gap: str = ""  # the text after the turn


@dataclass(slots=True)
class Transcript:
    """Turns, in one spelling."""

    turns: list[TranscriptTurn]
    spelling: str
    before: str = ""

    def text(self) -> str:
        """Return the bytes of the transcript."""
        start, end, *_ = SPELLINGS[self.spelling]
        pieces = [self.before]
        for turn in self.turns:
            name = "" if turn.name is None else f" name={turn.name}"
            pieces += [start, turn.role, name, "\n", *map(self._part_text, turn.parts)]
            if turn.closed:
                pieces.append(end)
            pieces.append(turn.gap)
        return "".join(pieces)

    def _part_text(self, part: str | TranscriptCall) -> str:
        if isinstance(part, str):
            return part
        _, _, action_start, action_end, interpreter, plugin = SPELLINGS[self.spelling]
        token = plugin if part.kind == "plugin" else interpreter
        return f"{action_start}{token}{part.body}{action_end if part.closed else ''}"

    @property
    def has_generation_prompt(self) -> bool:
        """True if the last turn has a header and nothing else."""
        return bool(self.turns) and not self.turns[-1].closed and not self.turns[-1].parts

    def messages(self, react: bool = False) -> list[dict[str, Any]]:
        """Return messages that the dialect's Jinja renders to the same text.

        Args:
            react: read `Action:` and `Action Input:` at the end of a reply as a call.
        """
        turns = self.turns[:-1] if self.has_generation_prompt else self.turns
        return [self._to_message(turn, react) for turn in turns]

    def _to_message(self, turn: TranscriptTurn, react: bool) -> dict[str, Any]:
        message: dict[str, Any] = {"role": turn.role}
        if turn.name is not None:
            _, _, _, _, interpreter, plugin = SPELLINGS[self.spelling]
            token_names = {interpreter: "interpreter", plugin: "plugin"}
            message["name"] = token_names.get(turn.name, turn.name)
        pieces: list[list[str]] = [[]]  # before the first call, between calls, after the last
        calls = []
        for part in turn.parts:
            if isinstance(part, TranscriptCall) and part.closed and turn.role == "assistant":
                calls.append(_to_tool_call(part))
                pieces.append([])
            else:  # a call that never ended is text
                pieces[-1].append(self._part_text(part))
        texts = ["".join(parts) for parts in pieces]
        message["content"] = texts[0]
        for call, before in zip(calls[1:], texts[1:-1], strict=True):
            if before:
                call["before"] = before
        if calls:
            message["tool_calls"] = calls
            if texts[-1]:
                message["tail"] = texts[-1]
        elif react and turn.role == "assistant":
            message = _parse_react(message)
        return message


def parse_transcript(text: str) -> Transcript:
    """Parse the text of a transcript."""
    if not isinstance(text, str):
        raise MessageError(f"a transcript is text, not {type(text).__name__}", path="transcript")
    scanner = TranscriptScanner()
    transcript = Transcript([], "current")
    events = (*scanner.feed(text), *scanner.close())
    for kind, group in groupby(events, key=lambda event: event.kind):
        for event in _join_texts(kind, group):
            add_event(transcript, event)
    if len(scanner.spellings) == 1:
        transcript.spelling = scanner.spellings[0]
    return transcript


def _join_texts(kind: str, events: Iterable[TranscriptEvent]) -> Iterable[TranscriptEvent]:
    """Join consecutive texts of one kind, so that no text is copied more than once."""
    if kind not in ("text", "body", "gap"):
        return events
    return [TranscriptEvent(kind, "".join(event.text for event in events))]


def add_event(transcript: Transcript, event: TranscriptEvent) -> None:
    """Append one event to a transcript."""
    turn = transcript.turns[-1] if transcript.turns else None
    if event.kind == "turn":
        transcript.turns.append(_parse_header(event.text, len(transcript.turns)))
    elif turn is None:
        transcript.before += event.text
    elif event.kind == "gap":
        turn.gap += event.text
    elif event.kind == "end":
        turn.closed = True
    elif event.kind == "call":
        turn.parts.append(TranscriptCall(event.text))
    else:
        _extend_parts(turn.parts, event)


def _extend_parts(parts: list[str | TranscriptCall], event: TranscriptEvent) -> None:
    last = parts[-1] if parts else None
    if isinstance(last, TranscriptCall) and event.kind == "body":
        last.body += event.text
    elif isinstance(last, TranscriptCall) and event.kind == "call_end":
        last.closed = True
    elif isinstance(last, str):
        parts[-1] = last + event.text
    else:
        parts.append(event.text)


def _parse_header(header: str, index: int) -> TranscriptTurn:
    found = HEADER.fullmatch(header)
    if found is None:
        raise MessageError(
            f"a header is a role, or a role and a name: {short_repr(header)}",
            path=f"transcript[{index}]",
            hint="for example: system, user name=file",
        )
    return TranscriptTurn(role=found[1], name=found[2])


def _to_tool_call(call: TranscriptCall) -> dict[str, Any]:
    """Return a call as its kind says.

    It has `verbatim` if writing it again would change a byte, or if it cannot be parsed.
    """
    if call.kind == "interpreter":
        block = FENCED_CODE.fullmatch(call.body)
        if block:
            return {"type": "code_interpreter", "code": block[2], "lang": block[1]}
        code = {"type": "code_interpreter", "code": call.body.strip(), "lang": None}
        return {**code, "verbatim": call.body}
    value, is_json = parse_lenient_json(call.body)
    name = value.get("name") if is_json and isinstance(value, dict) else None
    if not isinstance(name, str):
        return {"type": "function", "function": None, "verbatim": call.body}
    arguments = value.get("parameters", value.get("arguments", {}))
    function = {"name": name, "arguments": arguments}
    tool_call: dict[str, Any] = {"type": "function", "function": function}
    canonical = json.dumps({"name": name, "parameters": arguments}, ensure_ascii=False)
    if call.body != f"\n{canonical}":
        tool_call["verbatim"] = call.body
    return tool_call


def _parse_react(message: dict[str, Any]) -> dict[str, Any]:
    """Return the message with a final `Action:` and `Action Input:` as a call."""
    content = message["content"]
    found = list(REACT_CALL.finditer(content))
    if not found or found[-1].end() != len(content):
        return message
    action = found[-1]
    arguments, is_json = parse_lenient_json(action[2])
    if not is_json:
        return message
    function = {"name": action[1], "arguments": arguments}
    call = {"type": "function", "function": function, "react": action[0]}
    return {**message, "content": content[: action.start()], "tool_calls": [call]}


def parse_lenient_json(text: str) -> tuple[Any, bool]:
    """Parse JSON that may have trailing commas; `(text, False)` if it is not JSON."""
    try:
        strict = STRING_OR_TRAILING_COMMA.sub(lambda found: found[1] or "", text)
        return json.loads(strict), True
    except (ValueError, RecursionError):
        return text, False


def to_openai(
    messages: list[dict[str, Any]],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]] | None]:
    """Return messages and tools in OpenAI's shape.

    The tools of a system message become `tools`; results become `tool` messages with the id of
    their call.
    """
    chat: list[dict[str, Any]] = []
    tools: list[dict[str, Any]] | None = None
    unanswered_ids: list[str] = []
    for message in messages:
        if message["role"] == "system" and message.get("name") == "plugin":
            functions, is_json = parse_lenient_json(message["content"])
            if is_json and isinstance(functions, list):
                wrapped = [{"type": "function", "function": function} for function in functions]
                tools = (tools or []) + wrapped
                continue
        if message["role"] == "environment":
            result = {"role": "tool"}
            if unanswered_ids:
                result["tool_call_id"] = unanswered_ids.pop(0)
            if message.get("name") == "interpreter":
                result["name"] = "interpreter"
            message = {**result, "content": message["content"]}
        elif calls := message.get("tool_calls"):
            unanswered_ids = [f"call_{len(chat)}_{number}" for number in range(len(calls))]
            with_ids = zip(unanswered_ids, calls, strict=True)
            message = {**message, "tool_calls": [{"id": id_, **call} for id_, call in with_ids]}
        chat.append(message)
    return chat, tools
