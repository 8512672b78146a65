r"""InternLM2 transcripts: text back to messages, and to the same bytes again.

    parse_transcript("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n").messages()
    == [{"role": "user", "content": "Hi"}]

A turn is a header (a role, or a role and a name), a line break, and text with calls in it; it ends
with a token, and what follows up to the next turn is kept as its gap.
Every byte is kept: white space inside a turn is content, invalid JSON is kept as text, and code is
never compiled. So `parse_transcript(text).text() == text` always. Replies that are still arriving
are parsed by the template's own parser.

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
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from turnwise.errors import MessageError, short_repr

SPELLINGS: dict[str, tuple[str, ...]] = {
    "current": (
        "<|im_start|>",
        "<|im_end|>",
        "<|action_start|>",
        "<|action_end|>",
        "<|interpreter|>",
        "<|plugin|>",
    ),
    "original": tuple(f"[UNUSED_TOKEN_{number}]" for number in range(146, 140, -1)),
}
"""The six tokens in both spellings, in the order of `TOKENS` and `IDS` in `dialects/internlm2.py`."""

RESULT_NAMES = ("plugin", "interpreter")
HEADER = re.compile(r"(\w+)(?: name=(\S+))?")
FENCED_CODE = re.compile(r"\n```([^\s`]+)\n(.*)\n```", re.DOTALL)
# A string that is not closed goes to the end, so that none is looked at twice.
STRING_OR_TRAILING_COMMA = re.compile(r'("(?:[^"\\]++|\\.)*+(?:"|\\?\Z))|,(?=\s*[\]}])', re.DOTALL)


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

    def messages(self) -> list[dict[str, Any]]:
        """Return messages that the dialect's Jinja renders to the same text."""
        turns = self.turns[:-1] if self.has_generation_prompt else self.turns
        return [self._to_message(turn) for turn in turns]

    def to_openai(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]] | None]:
        """Return messages and tools in OpenAI's shape; see the function `to_openai`."""
        return to_openai(self.messages())

    def _to_message(self, turn: TranscriptTurn) -> dict[str, Any]:
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
        return message


def parse_transcript(text: str) -> Transcript:
    r"""Parse text in InternLM2's format: a whole conversation, or a prompt.

    Args:
        text: The text, in either spelling of the format's tokens.

    Returns:
        The turns. `messages()` are what the dialect internlm2 renders to the same text, `to_openai()` the messages and
        the tools in OpenAI's shape, `text()` is the text again.

    Raises:
        MessageError: If a turn has no header.

    Example:
        >>> parse_transcript("<|im_start|>user\nHi<|im_end|>\n").messages()
        [{'role': 'user', 'content': 'Hi'}]
    """
    if not isinstance(text, str):
        raise MessageError(f"a transcript is text, not {type(text).__name__}", path="transcript")
    spelling = _find_spelling(text)
    start_token = SPELLINGS[spelling][0]
    transcript = Transcript([], spelling, text.partition(start_token)[0])
    at = len(transcript.before)
    while at < len(text):  # at the start of a turn
        header = at + len(start_token)
        turn, end = _parse_turn(text, header, spelling, len(transcript.turns))
        at = text.find(start_token, end)
        at = len(text) if at < 0 else at
        turn.gap = text[end:at]
        transcript.turns.append(turn)
    return transcript


def _find_spelling(text: str) -> str:
    """Return the spelling of the first token of a text; the current one if there is none."""
    found = _any_of(*SPELLINGS["current"], *SPELLINGS["original"]).search(text)
    return "original" if found and found[0] in SPELLINGS["original"] else "current"


def _any_of(*tokens: str) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, tokens)))


def _parse_turn(text: str, at: int, spelling: str, index: int) -> tuple[TranscriptTurn, int]:
    """Parse the turn whose header starts at `at`; return it and the place after it.

    A call is an action whose kind, plugin or interpreter, follows at once. Every other token is
    text, the start of a turn within a turn included.
    """
    start, end, action_start, action_end, interpreter, plugin = SPELLINGS[spelling]
    kinds = {action_start + interpreter: "interpreter", action_start + plugin: "plugin"}
    line_end = text.find("\n", at)
    header = text[at:] if line_end < 0 else text[at:line_end]
    if token := _any_of(start, end, action_start, action_end).search(header):
        read = short_repr(header[: token.start()])
        raise MessageError(f"{token[0]} in a header, after {read}", path="transcript")
    if line_end < 0:
        raise MessageError(f"the last header has no end: {short_repr(header)}", path="transcript")
    turn = _parse_header(header, index)
    at = line_end + 1
    in_content, in_call = _any_of(end, *kinds), _any_of(end, action_end)
    call = None
    while found := (in_call if call else in_content).search(text, at):
        _add_text(turn, call, text[at : found.start()])
        at = found.end()
        if found[0] == end:
            turn.closed = True
            return turn, at
        if call:
            call.closed, call = True, None
        else:
            call = TranscriptCall(kinds[found[0]])
            turn.parts.append(call)
    _add_text(turn, call, text[at:])
    return turn, len(text)


def _add_text(turn: TranscriptTurn, call: TranscriptCall | None, text: str) -> None:
    if call:
        call.body = text
    elif text:
        turn.parts.append(text)


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

    The tools of the last system message before the conversation become `tools`, for that is where
    templates write them; others stay where they are. Results of calls become `tool` messages with
    the id of their call; what else the environment says stays.
    """
    chat: list[dict[str, Any]] = []
    tools: list[dict[str, Any]] | None = None
    unanswered_ids: list[str] = []
    last_system = len(list(takewhile(lambda message: message["role"] == "system", messages))) - 1
    for index, message in enumerate(messages):
        if index == last_system and message.get("name") == "plugin":
            functions, is_json = parse_lenient_json(message["content"])
            if is_json and isinstance(functions, list):
                tools = [{"type": "function", "function": function} for function in functions]
                continue
        if message["role"] == "environment" and message.get("name") in RESULT_NAMES:
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
