"""The method names of `renderers`, over any template and tokenizer.

Change `create_renderer(tokenizer, config)` to `Renderer(template, tokenizer, **options)`: where that package has a
class for each family of models, written by hand, this one reads the template. `render`, `render_ids`,
`get_stop_token_ids`, `bridge_to_next_turn` and `parse_response` take the same arguments and give values with the same
fields.

A bridge is given ids, not messages, so what stood before is not known. It is worked out behind conversations made up
for it, one short and one longer; what both say is added, and where they disagree, or the template would write the reply
in another way once more follows, there is no bridge (None), and the caller renders anew. `history="keep"` says that
replies stay as they were sampled all the same. Whoever has the messages uses `Template.session`, which needs no such
guess.

A response is read by the parser that is derived from the template. `STATUSES` says what its words are there; a call of
a tool that was not offered is always told apart, and of a call that failed name and arguments are given as far as they
could be read. Without the ids of the prompt, a prompt with the renderer's own options stands for it.

Not here: images and other media; and whose each token of a bridge is (`message_indices` are -1, `is_content` is empty,
which means unknown). What a template writes around a system message outside of its loop belongs to no message.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate
from typing import Any

from turnwise.errors import MessageError, SourceError, TurnwiseError, short_repr
from turnwise.messages import InputReader
from turnwise.replies.events import Attempt, Message
from turnwise.replies.parser.detokenizer import IncrementalDetokenizer
from turnwise.shapes.row import ARGUMENT_NAMES
from turnwise.template import Template
from turnwise.tokens.attribution import ASSISTANT_ROLES
from turnwise.tokens.session import Session, to_ids, to_plain_messages
from turnwise.tokens.stop_ids import find_token_id
from turnwise.tokens.tokenizers import tokenizer as adapted
from turnwise.tokens.tokenizers.protocol import Tokenizer

ARGUMENTS = ARGUMENT_NAMES - {"now", "normalise", "strict"}
NOBODY = -1  # the message of tokens that belong to none
KEPT = 16  # sets of tools for which the conversations made up are kept
ASKED: tuple[Mapping[str, Any], ...] = ({"role": "user", "content": "Is it?"},)
PRIORS = (
    ASKED,
    (*ASKED, {"role": "assistant", "content": "It is."}, {"role": "user", "content": "And this?"}),
)
REASONED = {"role": "assistant", "content": "It is.", "reasoning_content": "Let me see."}

Messages = Sequence[Mapping[str, Any]]
Tools = Sequence[Mapping[str, Any]] | None


@dataclass
class RenderedTokens:
    """Ids and, for each of them, whose message it is, whether the model wrote it and whether somebody said it."""

    token_ids: list[int] = field(default_factory=list)
    message_indices: list[int] = field(default_factory=list)
    sampled_mask: list[bool] = field(default_factory=list)
    is_content: list[bool] = field(default_factory=list)
    message_roles: list[str] = field(default_factory=list)
    message_tool_names: list[str | None] = field(default_factory=list)
    multi_modal_data: None = None


class ToolCallParseStatus(StrEnum):
    """What became of an attempt at a call."""

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
    "recipient": ToolCallParseStatus.MALFORMED_STRUCTURE,
}


@dataclass
class ParsedToolCall:
    """An attempt at a call; `token_span` counts tokens of the response up to its stop."""

    raw: str  # without the tokens that open and close it
    name: str | None = None
    arguments: dict[str, Any] | str | None = None
    token_span: tuple[int, int] | None = None
    status: ToolCallParseStatus = ToolCallParseStatus.OK
    id: str | None = None  # as the model wrote it


@dataclass
class ParsedResponse:
    """A response, read; `reasoning_complete` is False where it ended within the reasoning."""

    content: str
    reasoning_content: str | None = None
    tool_calls: list[ParsedToolCall] = field(default_factory=list)
    reasoning_complete: bool | None = True


class Renderer:
    """A template and a tokenizer under the other package's names; `options` are the template's variables."""

    def __init__(
        self, template: Any, tokenizer: Any, *, history: str = "same", **options: Any
    ) -> None:
        if not isinstance(template, Template):
            hint = (
                f"turnwise.load({short_repr(template)}) gives one"
                if isinstance(template, str)
                else "See turnwise.load."
            )
            raise SourceError(f"a renderer has a Template, not {short_repr(template)}", hint=hint)
        if history not in ("same", "keep"):
            raise MessageError(f'history is "same" or "keep", not {history!r}', path="history")
        for name in ARGUMENTS & options.keys():
            raise MessageError(f"{name!r} is an argument of render, not an option", path=name)
        self.template = template
        self.tokenizer = adapted(tokenizer)
        self.history = history
        self.options = options
        self._priors: dict[str, list[Session]] = {}

    @property
    def is_prefix_stable(self) -> bool:
        """Whether a finished conversation stays as it is when more follows, tried with and without reasoning."""
        for reply in (REASONED, {key: REASONED[key] for key in ("role", "content")}):
            chat = [*ASKED, reply]
            try:
                once, more = (
                    self.template.render(messages, **self.options).text
                    for messages in (chat, chat + chat)
                )
            except TurnwiseError:
                return False
            if not more.startswith(once):
                return False
        return True

    def render(
        self, messages: Messages, *, tools: Tools = None, add_generation_prompt: bool = False
    ) -> RenderedTokens:
        """The ids of the messages, and what is known of each."""
        messages = some(self.template.to_input(messages))
        found = self.template.encode(
            messages,
            self.tokenizer,
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            **self.options,
        )
        indices = [NOBODY if owner.message is None else owner.message for owner in found.owners]
        sampled = [bool(trained) for trained in found.mask]
        said = [(owner.field or "").startswith("messages[") for owner in found.owners]
        speaking = [message.get("role") in ASSISTANT_ROLES for message in messages]
        content = [
            own if index != NOBODY and speaking[index] else spoken and not role_of(owner.field)
            for own, index, spoken, owner in zip(sampled, indices, said, found.owners, strict=True)
        ]
        return RenderedTokens(
            found.input_ids, indices, sampled, content, roles(messages), tool_names(messages)
        )

    def render_ids(
        self, messages: Messages, *, tools: Tools = None, add_generation_prompt: bool = False
    ) -> list[int]:
        """The ids alone, which is faster."""
        messages = some(self.template.to_input(messages))
        given = {"tools": tools, "add_generation_prompt": add_generation_prompt, **self.options}
        return self.template.encode(messages, self.tokenizer, **given).input_ids

    def get_stop_token_ids(self) -> list[int]:
        """The ids that end a reply."""
        found = (find_token_id(text, self.tokenizer) for text in self._prior(None)[0].stops)
        return [id for id in found if id is not None]

    def bridge_to_next_turn(
        self,
        previous_prompt_ids: Sequence[int],
        previous_completion_ids: Sequence[int],
        new_messages: Messages,
        *,
        tools: Tools = None,
    ) -> RenderedTokens | None:
        """The next prompt: the ids of before as they are, then the messages and the opening; None where the template
        does not simply go on."""
        prompt, reply = (
            to_ids(ids, f"{name} are a list of ids")
            for name, ids in (
                ("prompt", previous_prompt_ids),
                ("completion", previous_completion_ids),
            )
        )
        new_messages = to_plain_messages(self.template.to_input(new_messages))
        if (
            not prompt
            or not new_messages
            or any(one.get("role") in ASSISTANT_ROLES for one in new_messages)
        ):
            return None
        following: list[list[int]] = []
        for prior in self._prior(tools):
            session = prior.fork()
            try:
                session.ids = session.validate_ids(prompt[-1:])
                session.add_reply(reply)
                said = len(session.ids)
                following.append(session.extend(new_messages, history=self.history)[said:])
            except MessageError:
                raise
            except TurnwiseError:
                return None
        if any(other != following[0] for other in following):
            return None
        ids = prompt + reply + following[0]
        nobody, unsampled = [NOBODY] * len(ids), [False] * len(ids)
        return RenderedTokens(
            ids, nobody, unsampled, [], roles(new_messages), tool_names(new_messages)
        )

    def parse_response(
        self, token_ids: Sequence[int], *, tools: Tools = None, prompt_ids: Any = None
    ) -> ParsedResponse:
        """The response as content, reasoning and attempts at calls."""
        ids = to_ids(token_ids, "a response is a list of ids")
        prompt = [] if prompt_ids is None else to_ids(prompt_ids, "prompt_ids are a list of ids")
        parser = self.template.parser(prompt or self._prior(tools)[0].text, tools, self.tokenizer)
        parser.feed(ids)
        message = parser.close()
        ends = list(accumulate(len(text) for text in spelled(ids, self.tokenizer)))
        calls = [self._attempt(message, attempt, ids, ends) for attempt in message.attempts]
        thought = message.get("reasoning_content")
        return ParsedResponse(message["content"] or "", thought, calls, not parser.in_reasoning)

    def _attempt(
        self, message: Message, attempt: Attempt, ids: list[int], ends: list[int]
    ) -> ParsedToolCall:
        """An attempt, with its place in tokens: `ends` says behind which character each token stops."""
        start, end = (
            attempt.end - len(self._unsectioned(attempt.raw)),
            attempt.start + len(attempt.raw.rstrip()),
        )
        first, last = bisect_right(ends, start), bisect_left(ends, end) + 1
        found = ParsedToolCall(
            self._inner(ids[first:last]),
            attempt.name,
            None,
            (first, last),
            STATUSES[attempt.status],
        )
        if attempt.index is not None:
            call = message.as_turn()["tool_calls"][attempt.index]
            found.arguments = call["function"]["arguments"]
            found.id = call["id"] if call["id"] in attempt.raw else None
        return found

    def _unsectioned(self, raw: str) -> str:
        """An attempt without the marker that opens the section of all calls."""
        raw = raw.lstrip()
        for calls in filter(None, (self.template.grammar.calls, *self.template.grammar.more)):
            if calls.section.open.core and calls.each.open.core:
                raw = raw.removeprefix(calls.section.open.core).lstrip()
        return raw

    def _inner(self, ids: list[int]) -> str:
        """The text of ids between two control tokens."""
        added = {token.id for token in self.tokenizer.added.values()}
        start = 1 if ids and ids[0] in added else 0
        end = -1 if len(ids) > start and ids[-1] in added else None
        return "".join(spelled(ids[start:end], self.tokenizer)).strip()

    def _prior(self, tools: Tools) -> list[Session]:
        """Sessions in which something was asked, ready for a reply."""
        key = json.dumps(InputReader().read_tools(tools))
        found = self._priors.get(key)
        if found is None:
            if len(self._priors) >= KEPT:
                self._priors.clear()
            found = []
            for prior in PRIORS:
                session = self.template.session(self.tokenizer, tools, **self.options)
                session.prompt(list(prior))
                found.append(session)
            self._priors[key] = found
        return found


def spelled(ids: list[int], tokenizer: Tokenizer) -> list[str]:
    """What each id adds to the text."""
    detokenizer = IncrementalDetokenizer(tokenizer)
    texts = [detokenizer.decode([id]) for id in ids]
    return [*texts[:-1], texts[-1] + detokenizer.flush()] if texts else []


def some(messages: Any) -> list[Mapping[str, Any]]:
    """The messages as plain data; not none."""
    chat = to_plain_messages(messages if messages is not None else [])
    if not chat:
        raise MessageError("there are no messages to render", path="messages")
    return chat


def role_of(field: str | None) -> bool:
    return field is not None and field.endswith(".role")


def roles(messages: Messages) -> list[str]:
    return [str(message.get("role") or "") for message in messages]


def tool_names(messages: Messages) -> list[str | None]:
    """For each message the name of the tool whose result it is: its own `name`, or that of the call it answers."""
    calls: dict[str, Any] = {}
    for message in messages:
        made = message.get("tool_calls")
        for call in made if isinstance(made, list | tuple) else ():
            function = call.get("function") if isinstance(call, Mapping) else None
            if isinstance(function, Mapping):
                calls[repr(call.get("id"))] = function.get("name")
    results = [message if message.get("role") == "tool" else {} for message in messages]
    return [
        result.get("name") or calls.get(repr(result.get("tool_call_id", NOBODY)))
        for result in results
    ]
