"""The method names of the package `renderers`, for any template and tokenizer.

    from turnwise.compat.renderers import Renderer

    renderer = Renderer(template, tokenizer)         # was: create_renderer(tokenizer, config)

That package has a class for each family of models, written by hand; this one reads the template. `render`,
`render_ids`, `get_stop_token_ids`, `bridge_to_next_turn` and `parse_response` take the same arguments and return values
with the same fields.

A bridge gets ids, not messages, so the conversation before it is not known. It is derived from made-up conversations, a
short one and a longer one: if both continue in the same way, that is the bridge. If they differ, or the template would
rewrite the reply once more follows, there is no bridge (None), and the caller renders anew. With `history="keep"`,
replies stay as they were sampled all the same. If you have the messages, use `Template.session`, which needs no guess.

A response is read by the parser derived from the template; `STATUSES` maps its statuses to this package's. A call of a
tool that was not offered always has its own status, and a call that failed has its name and arguments as far as they
could be read. Without the ids of the prompt, a prompt with the renderer's own options is assumed.

Not covered: images and other media, and the owners of the tokens of a bridge (`message_indices` are -1, `is_content` is
empty, which means unknown). Text that a template writes around a system message outside its loop belongs to no message.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate
from typing import Any

from turnwise.errors import MessageError, SourceError, TurnwiseError, short_repr
from turnwise.messages import InputReader, JsonMapping, JsonObject, message_tool_calls
from turnwise.messages.roles import ASSISTANT_ROLES
from turnwise.replies.events import Attempt, Message
from turnwise.replies.parser.detokenizer import IncrementalDetokenizer
from turnwise.shapes.row import ARGUMENT_NAMES
from turnwise.template import Template
from turnwise.token_ids import to_token_ids
from turnwise.tokens.loss import train_nothing
from turnwise.tokens.session import History, Session, to_plain_messages
from turnwise.tokens.tokenizers import tokenizer as adapted
from turnwise.tokens.tokenizers.protocol import Tokenizer

__all__ = [
    "ParsedResponse",
    "ParsedToolCall",
    "RenderedTokens",
    "Renderer",
    "TokenRenderer",
    "ToolCallParseStatus",
]

NOT_OPTIONS = ARGUMENT_NAMES - {"now", "normalise", "strict", "late_system"}
NO_MESSAGE = -1  # the message index of tokens that belong to no message
SESSION_CACHE_SIZE = 16  # sets of tools whose made-up conversations are kept
QUESTION: tuple[JsonMapping, ...] = ({"role": "user", "content": "Is it?"},)
MADE_UP_CHATS = (
    QUESTION,
    (
        *QUESTION,
        {"role": "assistant", "content": "It is."},
        {"role": "user", "content": "And this?"},
    ),
)
REPLY_WITH_REASONING = {
    "role": "assistant",
    "content": "It is.",
    "reasoning_content": "Let me see.",
}

Messages = Sequence[JsonMapping]
Tools = Sequence[JsonMapping] | None


@dataclass
class RenderedTokens:
    """Ids and, for each of them, its message, whether the model samples it, and whether it is content."""

    token_ids: list[int] = field(default_factory=list)
    message_indices: list[int] = field(default_factory=list)
    sampled_mask: list[bool] = field(default_factory=list)
    is_content: list[bool] = field(default_factory=list)
    message_roles: list[str] = field(default_factory=list)
    message_tool_names: list[str | None] = field(default_factory=list)
    multi_modal_data: None = None


class ToolCallParseStatus(StrEnum):
    """The result of reading one tool call."""

    OK = "ok"
    INVALID_JSON = "invalid_json"
    UNCLOSED_BLOCK = "unclosed_block"
    MISSING_NAME = "missing_name"
    MALFORMED_STRUCTURE = "malformed_structure"
    UNKNOWN_TOOL = "unknown_tool"


STATUSES = {
    "complete": ToolCallParseStatus.OK,
    "unclosed": ToolCallParseStatus.UNCLOSED_BLOCK,
    "unterminated": ToolCallParseStatus.UNCLOSED_BLOCK,
    "malformed": ToolCallParseStatus.INVALID_JSON,
    "unreadable": ToolCallParseStatus.MISSING_NAME,
    "unknown": ToolCallParseStatus.UNKNOWN_TOOL,
    "undeclared": ToolCallParseStatus.UNKNOWN_TOOL,
}


@dataclass
class ParsedToolCall:
    """A tool call of a response, complete or not; `token_span` counts the tokens of the response."""

    raw: str  # without the tokens that open and close it
    name: str | None = None
    arguments: JsonObject | str | None = None
    token_span: tuple[int, int] | None = None
    status: ToolCallParseStatus = ToolCallParseStatus.OK
    id: str | None = None  # as the model wrote it


@dataclass
class ParsedResponse:
    """A parsed response; `reasoning_complete` is False if it ended within the reasoning."""

    content: str
    reasoning_content: str | None = None
    tool_calls: list[ParsedToolCall] = field(default_factory=list)
    reasoning_complete: bool | None = True


class TokenRenderer:
    """A template and a tokenizer with the methods of `renderers`.

    Args:
        template: A Template.
        tokenizer: Any tokenizer that turnwise can read.
        history: "same", or "keep" to leave replies as they were sampled, even if the template would rewrite them.
        **options: Variables of the template.

    Example:
        >>> import turnwise
        >>> renderer = Renderer(turnwise.load("chatml"), "turnwise")
        >>> prompt = renderer.render([{"role": "user", "content": "hi"}], add_generation_prompt=True)
        >>> prompt.message_roles, len(prompt.token_ids) == len(prompt.sampled_mask)
        (['user'], True)
    """

    def __init__(
        self, template: Any, tokenizer: Any, *, history: History = "same", **options: Any
    ) -> None:
        if not isinstance(template, Template):
            hint = "See turnwise.load."
            if isinstance(template, str):
                hint = f"turnwise.load({short_repr(template)}) gives one"
            raise SourceError(f"a renderer has a Template, not {short_repr(template)}", hint=hint)
        if history not in ("same", "keep"):
            raise MessageError(f'history is "same" or "keep", not {history!r}', path="history")
        for name in NOT_OPTIONS & options.keys():
            raise MessageError(f"{name!r} is an argument of render, not an option", path=name)
        self.template = template
        self.tokenizer = adapted(tokenizer)
        self.history = history
        self.options = options
        self._sessions: dict[str, list[Session]] = {}

    @property
    def is_prefix_stable(self) -> bool:
        """True if a finished conversation keeps its text when messages follow, tried with and without reasoning."""
        for reply in (
            REPLY_WITH_REASONING,
            {key: REPLY_WITH_REASONING[key] for key in ("role", "content")},
        ):
            chat = [*QUESTION, reply]
            try:
                once = self.template.render(chat, normalise=False, **self.options).text
                more = self.template.render(chat + chat, normalise=False, **self.options).text
            except TurnwiseError:
                return False
            if not more.startswith(once):
                return False
        return True

    def render(
        self, messages: Messages, *, tools: Tools = None, add_generation_prompt: bool = False
    ) -> RenderedTokens:
        """Encode messages.

        Args:
            messages: The conversation.
            tools: The tools that are offered.
            add_generation_prompt: Append the start of the assistant's turn.

        Returns:
            The ids, and for each its message, and whether it is sampled and content.

        Raises:
            MessageError: If there is no message, or one is wrong.
        """
        messages = self._read_messages(messages)
        encoded = self.template.encode(
            messages,
            self.tokenizer,
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            add_stop=False,
            **self.options,
        )
        sampled = [bool(trained) for trained in encoded.mask]
        indices = []
        content = []
        for is_sampled, owner in zip(sampled, encoded.owners, strict=True):
            index = NO_MESSAGE if owner.message is None else owner.message
            indices.append(index)
            if index != NO_MESSAGE and messages[index].get("role") in ASSISTANT_ROLES:
                content.append(is_sampled)
            else:
                field = owner.field or ""
                content.append(field.startswith("messages[") and not field.endswith(".role"))
        return RenderedTokens(
            encoded.input_ids, indices, sampled, content, _roles(messages), _tool_names(messages)
        )

    def render_ids(
        self, messages: Messages, *, tools: Tools = None, add_generation_prompt: bool = False
    ) -> list[int]:
        """Encode messages and return only the ids, which is faster; the arguments are those of `render`."""
        messages = self._read_messages(messages)
        given = {"tools": tools, "add_generation_prompt": add_generation_prompt, **self.options}
        return self.template.encode(messages, self.tokenizer, train_nothing, **given).input_ids

    def _read_messages(self, messages: Any) -> list[JsonMapping]:
        given = self.template.codec.to_input(messages)
        chat = to_plain_messages([] if given is None else given)
        if not chat:
            raise MessageError("there are no messages to render", path="messages")
        return chat

    def get_stop_token_ids(self) -> list[int]:
        """Return the ids that end a reply."""
        return list(self.template.stops(self.tokenizer).ids)

    def bridge_to_next_turn(
        self,
        previous_prompt_ids: Sequence[int],
        previous_completion_ids: Sequence[int],
        new_messages: Messages,
        *,
        tools: Tools = None,
    ) -> RenderedTokens | None:
        """Return the prompt of the next turn without encoding the turns before it.

        Args:
            previous_prompt_ids: The ids that were sent.
            previous_completion_ids: The ids that the model sampled.
            new_messages: The messages after the reply, none of them by the assistant.
            tools: The tools that are offered.

        Returns:
            The given ids as they are, then the new messages and the generation prompt; None if the template does not
            simply continue.
        """
        prompt = to_token_ids(previous_prompt_ids, "prompt are a list of ids")
        reply = to_token_ids(previous_completion_ids, "completion are a list of ids")
        new_messages = to_plain_messages(self.template.codec.to_input(new_messages))
        if any(message.get("role") in ASSISTANT_ROLES for message in new_messages):
            return None
        if not prompt or not new_messages:
            return None
        continuations: list[list[int]] = []
        for prior in self._prepare_sessions(tools):
            session = prior.fork()
            try:
                session.replace_ids(prompt[-1:])
                session.add_reply(reply)
                length = len(session.ids)
                extended = session.extend(new_messages, history=self.history)
                continuations.append(extended[length:])
            except MessageError:
                raise
            except TurnwiseError:
                return None
        first = continuations[0]
        if any(other != first for other in continuations):
            return None
        ids = prompt + reply + first
        return RenderedTokens(
            token_ids=ids,
            message_indices=[NO_MESSAGE] * len(ids),
            sampled_mask=[False] * len(ids),
            message_roles=_roles(new_messages),
            message_tool_names=_tool_names(new_messages),
        )

    def parse_response(
        self, token_ids: Sequence[int], *, tools: Tools = None, prompt_ids: Any = None
    ) -> ParsedResponse:
        """Parse a response.

        Args:
            token_ids: The ids that the model sampled.
            tools: The tools that were offered.
            prompt_ids: The ids that were sent.

        Returns:
            The content, the reasoning and the tool calls, failed ones included.
        """
        ids = to_token_ids(token_ids, "a response is a list of ids")
        prompt: list[int] = []
        if prompt_ids is not None:
            prompt = to_token_ids(prompt_ids, "prompt_ids are a list of ids")
        parser = self.template.parser(
            prompt or self._prepare_sessions(tools)[0].text, tools, self.tokenizer
        )
        message = parser.read(ids)
        ends = list(accumulate(len(text) for text in _token_texts(ids, self.tokenizer)))
        calls = [
            self._to_call(message, attempt, ids, ends)
            for attempt in message.attempts
            if attempt.status in STATUSES
        ]
        thought = message.get("reasoning_content")
        return ParsedResponse(message["content"] or "", thought, calls, not parser.in_reasoning)

    def _to_call(
        self, message: Message, attempt: Attempt, ids: list[int], ends: list[int]
    ) -> ParsedToolCall:
        """Return a call with its span in tokens; `ends` are the offsets at which the tokens end."""
        start = attempt.end - len(self._without_section(attempt.raw))
        end = attempt.start + len(attempt.raw.rstrip())
        first = bisect_right(ends, start)
        last = bisect_left(ends, end) + 1
        found = ParsedToolCall(
            raw=self._text_inside(ids[first:last]),
            name=attempt.name,
            token_span=(first, last),
            status=STATUSES[attempt.status],
        )
        if attempt.index is not None:
            turn: Any = message.as_turn()
            call = turn["tool_calls"][attempt.index]
            found.arguments = call["function"]["arguments"]
            found.id = call["id"] if call["id"] in attempt.raw else None
        return found

    def _without_section(self, raw: str) -> str:
        """Return a call without the marker that opens the section of all calls."""
        raw = raw.lstrip()
        for calls in filter(None, (self.template.grammar.calls, *self.template.grammar.more)):
            if calls.section.open.core and calls.each.open.core:
                raw = raw.removeprefix(calls.section.open.core).lstrip()
        return raw

    def _text_inside(self, ids: list[int]) -> str:
        """Return the text of ids without a control token at the start and at the end."""
        added = {token.id for token in self.tokenizer.added.values()}
        start = 1 if ids and ids[0] in added else 0
        end = -1 if len(ids) > start and ids[-1] in added else None
        return "".join(_token_texts(ids[start:end], self.tokenizer)).strip()

    def _prepare_sessions(self, tools: Tools) -> list[Session]:
        """Return a session for each made-up conversation, ready for a reply; cached by the tools."""
        key = json.dumps(InputReader().read_tools(tools))
        found = self._sessions.get(key)
        if found is None:
            if len(self._sessions) >= SESSION_CACHE_SIZE:
                self._sessions.clear()
            found = []
            for chat in MADE_UP_CHATS:
                session = self.template.session(self.tokenizer, tools, **self.options)
                session.prompt(list(chat))
                found.append(session)
            self._sessions[key] = found
        return found


Renderer = TokenRenderer


def _token_texts(ids: list[int], tokenizer: Tokenizer) -> list[str]:
    detokenizer = IncrementalDetokenizer(tokenizer)
    texts = [detokenizer.decode([id]) for id in ids]
    if texts:
        texts[-1] += detokenizer.flush()
    return texts


def _roles(messages: Messages) -> list[str]:
    return [str(message.get("role") or "") for message in messages]


def _tool_names(messages: Messages) -> list[str | None]:
    """Return for each message the tool whose result it is: its own `name`, or that of the call it answers."""
    called: JsonObject = {}
    for message in messages:
        for call in message_tool_calls(message, strict=False):
            called[repr(call.id)] = call.name
    return [
        message.get("name") or called.get(repr(message.get("tool_call_id", NO_MESSAGE)))
        if message.get("role") == "tool"
        else None
        for message in messages
    ]
