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
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from turnwise.errors import MessageError, short_repr
from turnwise.shapes.row import Row

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
class TranscriptTurn:
    """One turn, every byte of it."""

    role: str
    name: str | None  # as it was written: a token or a word
    body: str = ""
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
            pieces.append(f"{start}{turn.role}{name}\n{turn.body}")
            pieces += [end if turn.closed else "", turn.gap]
        return "".join(pieces)

    @property
    def has_generation_prompt(self) -> bool:
        """True if the last turn has a header and nothing else."""
        return bool(self.turns) and not self.turns[-1].closed and not self.turns[-1].body

    def messages(self) -> list[Row]:
        """Return messages that the dialect's Jinja renders to the same text."""
        turns = self.turns[:-1] if self.has_generation_prompt else self.turns
        return list(map(self._to_message, turns))

    def to_openai(self) -> tuple[list[Row], list[Row] | None]:
        """Return messages and tools in OpenAI's shape; see the function `to_openai`."""
        return to_openai(self.messages())

    def _to_message(self, turn: TranscriptTurn) -> Row:
        message: Row = {"role": turn.role}
        _, _, action_start, action_end, interpreter, plugin = SPELLINGS[self.spelling]
        kinds = {interpreter: "interpreter", plugin: "plugin"}
        if turn.name is not None:
            message["name"] = kinds.get(turn.name, turn.name)
        pieces = [turn.body]
        if turn.role == "assistant":
            # A call that never ends is text, and is not looked for.
            head, ended, tail = turn.body.rpartition(action_end)
            call = f"{re.escape(action_start)}({_any_of(*kinds)})(.*?){re.escape(action_end)}"
            pieces = re.split(call, head + ended, flags=re.DOTALL)
            pieces[-1] += tail
        texts = pieces[::3]  # before the first call, between calls, after the last
        calls = [
            _to_tool_call(kinds[token], body)
            for token, body in zip(pieces[1::3], pieces[2::3], strict=True)
        ]
        message["content"] = texts[0]
        for made, before in zip(calls[1:], texts[1:-1], strict=True):
            if before:
                made["before"] = before
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
    # The spelling is that of the first token; the current one if there is none.
    first = re.search(_any_of(*SPELLINGS["current"], *SPELLINGS["original"]), text)
    spelling = "original" if first and first[0] in SPELLINGS["original"] else "current"
    start, end, *_ = SPELLINGS[spelling]
    transcript = Transcript([], spelling)
    transcript.before, found, rest = text.partition(start)
    while found:
        header, line_end, rest = rest.partition("\n")
        turn = _parse_header(header, line_end, len(transcript.turns), spelling)
        turn.body, ended, rest = rest.partition(end)
        turn.closed = bool(ended)
        turn.gap, found, rest = rest.partition(start)
        transcript.turns.append(turn)
    return transcript


def _any_of(*tokens: str) -> str:
    return "|".join(map(re.escape, tokens))


def _parse_header(header: str, line_end: str, index: int, spelling: str) -> TranscriptTurn:
    if token := re.search(_any_of(*SPELLINGS[spelling][:4]), header):
        read = short_repr(header[: token.start()])
        raise MessageError(f"{token[0]} in a header, after {read}", path="transcript")
    if not line_end:
        raise MessageError(f"the last header has no end: {short_repr(header)}", path="transcript")
    found = HEADER.fullmatch(header)
    if found is None:
        raise MessageError(
            f"a header is a role, or a role and a name: {short_repr(header)}",
            path=f"transcript[{index}]",
            hint="for example: system, user name=file",
        )
    return TranscriptTurn(role=found[1], name=found[2])


def _to_tool_call(kind: str, body: str) -> Row:
    """Return a call as its kind says.

    It has `verbatim` if writing it again would change a byte, or if it cannot be parsed.
    """
    if kind == "interpreter":
        block = FENCED_CODE.fullmatch(body)
        if block:
            return {"type": "code_interpreter", "code": block[2], "lang": block[1]}
        code = {"type": "code_interpreter", "code": body.strip(), "lang": None}
        return {**code, "verbatim": body}
    value, is_json = parse_lenient_json(body)
    name = value.get("name") if is_json and isinstance(value, dict) else None
    if not isinstance(name, str):
        return {"type": "function", "function": None, "verbatim": body}
    arguments = value.get("parameters", value.get("arguments", {}))
    function = {"name": name, "arguments": arguments}
    canonical = json.dumps({"name": name, "parameters": arguments}, ensure_ascii=False)
    verbatim = {} if body == f"\n{canonical}" else {"verbatim": body}
    return {"type": "function", "function": function, **verbatim}


def parse_lenient_json(text: str) -> tuple[Any, bool]:
    """Parse JSON that may have trailing commas; `(text, False)` if it is not JSON."""
    try:
        strict = STRING_OR_TRAILING_COMMA.sub(lambda found: found[1] or "", text)
        return json.loads(strict), True
    except (ValueError, RecursionError):
        return text, False


def to_openai(
    messages: list[Row],
) -> tuple[list[Row], list[Row] | None]:
    """Return messages and tools in OpenAI's shape.

    The tools of the last system message before the conversation become `tools`, for that is where
    templates write them; others stay where they are. Results of calls become `tool` messages with
    the id of their call; what else the environment says stays.
    """
    chat: list[Row] = []
    tools: list[Row] | None = None
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
