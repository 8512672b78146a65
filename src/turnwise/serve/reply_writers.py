"""Replies as each API writes them: events of a stream, and the answer that they add up to.

    deltas of a reply -> blocks (reasoning, text, call) -> events of Anthropic's Messages, or of Responses

A block is begun, extended and ended; both APIs have an event for each step, with other names. The answer to a request
that is not streamed is made of the same blocks, so both ways agree.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from os.path import commonprefix
from typing import Any, NamedTuple

from turnwise.messages import JsonObject, message_text
from turnwise.serve.derendering import make_usage
from turnwise.serve.gateway import ReplyState
from turnwise.serve.upstreams import GenerationPlan
from turnwise.shapes.row import drop_nulls
from turnwise.shapes.tool_forms import CUSTOM_INPUT, is_custom

REASONING, TEXT, CALL, CUSTOM = "reasoning", "text", "call", "custom"
EventList = list[JsonObject]


class ReplyWriter:
    """Writes the replies to one request: chunks and completions of Chat Completions, unless a subclass has others.

    Args:
        plan: what the engine is asked.
        body: the request.
        state: what is known of the replies so far.
    """

    def __init__(self, plan: GenerationPlan, body: Any, state: ReplyState) -> None:
        self.plan = plan
        self.body = body
        self.state = state
        self.created = int(time.time())

    def _frame(self, kind: str) -> JsonObject:
        return {
            "id": self.plan.request_id,
            "object": kind,
            "created": self.created,
            "model": self.plan.model.name,
            "system_fingerprint": None,
        }

    def add(self, index: int, delta: JsonObject, reason: str | None) -> EventList:
        """Return the events of a delta."""
        if "reasoning_content" in delta:
            delta = {**delta, "reasoning": delta["reasoning_content"]}
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}
        # Text may be held back: its tokens then come with the next chunk.
        ids, logprobs = self.state.choices[index].take_tokens()
        if logprobs:
            choice["logprobs"] = {"content": logprobs}
        if self.plan.with_ids:
            choice["token_ids"] = ids
        return [self._make_chunk([choice], None)]

    def _make_chunk(self, choices: list[Any], usage: Any) -> JsonObject:
        frame = self._frame("chat.completion.chunk")
        if self.body.stream_options.include_usage:
            frame["usage"] = usage
        return {**frame, "choices": choices}

    def end(self) -> EventList:
        """Return the events after the last delta."""
        if not self.body.stream_options.include_usage:
            return []
        return [self._make_chunk([], self._total_usage())]

    def _total_usage(self) -> JsonObject:
        prompt, cached, reply = count_tokens(self.plan, self.state)
        return make_usage(prompt, reply, cached)

    def answer(self) -> JsonObject:
        """Return the whole answer."""
        with_ids = self.plan.with_ids
        choices = [
            {
                "index": index,
                "message": {"refusal": None, **choice.message},
                "logprobs": {"content": choice.logprobs} if choice.logprobs else None,
                "finish_reason": choice.finish_reason,
                **({"token_ids": choice.ids} if with_ids else {}),
            }
            for index, choice in sorted(self.state.choices.items())
        ]
        return {
            **self._frame("chat.completion"),
            "choices": choices,
            "usage": self._total_usage(),
            **({"prompt_token_ids": self.plan.ids} if with_ids else {}),
        }

    def write(self, event: JsonObject) -> bytes:
        """Return an event as it is sent."""
        return b"data: " + json.dumps(event).encode() + b"\n\n"

    def fail(self, error: JsonObject) -> bytes:
        """Return the event of a stream that fails."""
        return self.write(error)


class PlainWriter(ReplyWriter):
    """Writes completions of plain prompts, which have a text and no message."""

    def _frame(self, kind: str) -> JsonObject:
        return {**super()._frame(kind), "object": "text_completion"}

    def add(self, index: int, delta: JsonObject, reason: str | None) -> EventList:
        [event] = super().add(index, delta, reason)
        choice = event["choices"][0]
        choice["text"] = choice.pop("delta").get("content") or ""
        return [event]

    def answer(self) -> JsonObject:
        answer = super().answer()
        for choice in answer["choices"]:
            choice["text"] = choice.pop("message").get("content") or ""
        return answer


@dataclass
class ReplyBlock:
    """A part of a reply: reasoning, text or a call."""

    index: int
    kind: str
    given: str  # the kind that its deltas have
    id: str = ""
    name: str = ""
    call: int | None = None
    texts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self.texts)


def split_delta(delta: JsonObject) -> Iterator[tuple[str, str, JsonObject]]:
    """Yield kind, text and call of each part of a delta."""
    if delta.get("reasoning_content"):
        yield REASONING, delta["reasoning_content"], {}
    if delta.get("content"):
        yield TEXT, delta["content"], {}
    for call in delta.get("tool_calls", ()):
        yield CALL, call.get("function", {}).get("arguments") or "", call


class BlockReplies(ReplyWriter):
    """Writes a reply block by block.

    Args:
        make_format: makes the format of the API: its events and its answer. What it calls `prefix` is the text of a
            reply that the request has begun, which is no part of the answer.
        plan, body, state: see `ReplyWriter`.
    """

    def __init__(
        self,
        make_format: Callable[[GenerationPlan, Any, ReplyState], BlockFormat],
        plan: GenerationPlan,
        body: Any,
        state: ReplyState,
    ) -> None:
        super().__init__(plan, body, state)
        self._format = make_format(plan, body, state)
        self._blocks: list[ReplyBlock] = []
        self._open: ReplyBlock | None = None
        self._has_begun = False
        self._prefix = self._format.prefix

    def add(self, index: int, delta: JsonObject, reason: str | None) -> EventList:
        events = self._begin_once()
        for kind, text, call in split_delta(self._cut_prefix(delta)):
            block, place = self._open, call.get("index")
            if block is None or block.given != kind or block.call != place:
                events += self._finish_block()
                name = call.get("function", {}).get("name") or ""
                own = self._format.find_kind(kind, name)
                block = ReplyBlock(len(self._blocks), own, kind, call.get("id") or "", name, place)
                self._blocks.append(block)
                self._open = block
                events += self._format.begin_block(block)
            if text:
                block.texts.append(text)
                events += self._format.extend_block(block, text)
        if reason is not None:
            events += self._finish_block()
        return events

    def _cut_prefix(self, delta: JsonObject) -> JsonObject:
        """Return a delta without the text that the request has: the parser reads that again."""
        text = delta.get("content")
        if not text or not self._prefix:
            return delta
        same = len(commonprefix([self._prefix, text]))
        self._prefix = self._prefix[same:] if same == len(text) else ""  # what differs is new
        return {**delta, "content": text[same:]}

    def _begin_once(self) -> EventList:
        if self._has_begun:
            return []
        self._has_begun = True
        return self._format.begin()

    def _finish_block(self) -> EventList:
        block, self._open = self._open, None
        return [] if block is None else self._format.end_block(block)

    def end(self) -> EventList:
        finished = [*self._begin_once(), *self._finish_block()]
        return [*finished, *self._format.finish(self._blocks)]

    def answer(self) -> JsonObject:
        return self._format.answer(self._blocks)

    def write(self, event: JsonObject) -> bytes:
        return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()

    def fail(self, error: JsonObject) -> bytes:
        return self.write(self._format.describe_error(error))


# -- Anthropic's Messages

STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
DELTAS = {
    REASONING: ("thinking_delta", "thinking"),
    TEXT: ("text_delta", "text"),
    CALL: ("input_json_delta", "partial_json"),
}


class MessagesFormat:
    """Events and messages of Anthropic's API.

    A conversation that ends with a reply is gone on with, and the answer is what is new.
    """

    def __init__(self, plan: GenerationPlan, body: Any, state: ReplyState) -> None:
        self._plan = plan
        self._state = state
        last = body.messages[-1]
        self.prefix = message_text(last) if last.get("role") == "assistant" else ""

    def find_kind(self, kind: str, name: str) -> str:
        return kind

    def begin(self) -> EventList:
        usage = {"input_tokens": len(self._plan.ids), "output_tokens": 0}
        stop = {"stop_reason": None, "stop_sequence": None}
        return [{"type": "message_start", "message": self._make_message([], stop, usage)}]

    def _make_message(self, content: list[Any], stop: JsonObject, usage: JsonObject) -> JsonObject:
        return {
            "id": self._plan.request_id,
            "type": "message",
            "role": "assistant",
            "model": self._plan.model.name,
            "content": content,
            **stop,
            "usage": usage,
        }

    def _make_block(self, block: ReplyBlock, text: str) -> JsonObject:
        if block.kind == REASONING:
            return {"type": "thinking", "thinking": text, "signature": ""}
        if block.kind == TEXT:
            return {"type": "text", "text": text, "citations": None}
        found = _parse_object(text)
        return {"type": "tool_use", "id": block.id, "name": block.name, "input": found}

    def begin_block(self, block: ReplyBlock) -> EventList:
        made = self._make_block(block, "")
        return [{"type": "content_block_start", "index": block.index, "content_block": made}]

    def extend_block(self, block: ReplyBlock, text: str) -> EventList:
        kind, key = DELTAS[block.kind]
        delta = {"type": kind, key: text}
        return [{"type": "content_block_delta", "index": block.index, "delta": delta}]

    def end_block(self, block: ReplyBlock) -> EventList:
        return [{"type": "content_block_stop", "index": block.index}]

    def _describe_end(self) -> tuple[JsonObject, JsonObject]:
        choice = self._state.choices.get(0)
        stop = choice.stop_text if choice is not None else None
        reason = STOP_REASONS.get(self._state.finish_reason, "refusal")
        prompt, cached, reply = count_tokens(self._plan, self._state)
        usage = {
            "input_tokens": prompt - (cached or 0),
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached or 0,
            "output_tokens": reply,
        }
        reason = reason if stop is None else "stop_sequence"
        return {"stop_reason": reason, "stop_sequence": stop}, usage

    def finish(self, blocks: list[ReplyBlock]) -> EventList:
        delta, usage = self._describe_end()
        last = {"type": "message_delta", "delta": delta, "usage": usage}
        return [last, {"type": "message_stop"}]

    def answer(self, blocks: list[ReplyBlock]) -> JsonObject:
        content = [self._make_block(block, block.text) for block in blocks]
        return self._make_message(content, *self._describe_end())

    def describe_error(self, error: JsonObject) -> JsonObject:
        return {"type": "error", **error}


def count_tokens(plan: GenerationPlan, state: ReplyState) -> tuple[int, int | None, int]:
    """Return the tokens of a prompt, those of it that were cached, if known, and those of the reply."""
    usage = state.usage
    return len(plan.ids), usage.cached_tokens, usage.completion_tokens


def _parse_object(text: str) -> JsonObject:
    """Return the arguments of a call; empty if a limit of tokens broke them off."""
    try:
        found = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


# -- OpenAI's Responses

ECHOED: JsonObject = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": None,
    "store": False,
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "truncation": "disabled",
}
"""Fields of a request that its answer repeats, and what they are if it has none."""


class ItemForm(NamedTuple):
    """How one kind of block is an item of Responses.

    Attributes:
        type, prefix: the type of the item, and how its id begins.
        event: the name of the events of its text.
        key: where its text is.
        part: what else its only part has; None if the text is in the item itself.
        more: what else the item has.
        place: what else the events of its text have.
    """

    type: str
    prefix: str
    event: str
    key: str = "text"
    part: JsonObject | None = None
    more: JsonObject = {}
    place: JsonObject = {}


ITEM_FORMS = {
    REASONING: ItemForm(
        "reasoning",
        "rs",
        "reasoning_text",
        part={"type": "reasoning_text"},
        more={"summary": []},
        place={"content_index": 0},
    ),
    TEXT: ItemForm(
        "message",
        "msg",
        "output_text",
        part={"type": "output_text", "annotations": [], "logprobs": []},
        more={"role": "assistant"},
        place={"content_index": 0, "logprobs": []},
    ),
    CALL: ItemForm("function_call", "fc", "function_call_arguments", "arguments"),
    CUSTOM: ItemForm("custom_tool_call", "ctc", "custom_tool_call_input", "input"),
}


class ResponsesFormat:
    """Events and responses of OpenAI's Responses."""

    prefix = ""

    def __init__(self, plan: GenerationPlan, body: Any, state: ReplyState) -> None:
        self._plan = plan
        self._state = state
        self._body = body
        self._created = int(time.time())
        self._sent = 0

    def find_kind(self, kind: str, name: str) -> str:
        customs = (tool.get("name") for tool in self._body.tools or () if is_custom(tool))
        return CUSTOM if kind == CALL and name in customs else kind

    def _event(self, name: str, block: ReplyBlock | None = None, /, **fields: Any) -> JsonObject:
        event: JsonObject = {"type": f"response.{name}", "sequence_number": self._sent}
        self._sent += 1
        if block is not None:
            event["output_index"] = block.index
        return event | fields

    def _item_id(self, block: ReplyBlock) -> str:
        return f"{ITEM_FORMS[block.kind].prefix}_{self._plan.request_id}_{block.index}"

    def begin(self) -> EventList:
        answer = self._make_response("in_progress", [], None)
        return [self._event(name, response=answer) for name in ("created", "in_progress")]

    def _make_response(self, status: str, output: list[Any], usage: Any) -> JsonObject:
        given = drop_nulls(self._body.given)
        echoed = {key: given.get(key, default) for key, default in ECHOED.items()}
        reason = "max_output_tokens" if self._state.finish_reason == "length" else "content_filter"
        return {
            "id": self._plan.request_id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": reason} if status == "incomplete" else None,
            "model": self._plan.model.name,
            **echoed,
            "output": output,
            "usage": usage,
        }

    def _make_item(self, block: ReplyBlock, status: str) -> JsonObject:
        form = ITEM_FORMS[block.kind]
        item = {"type": form.type, "id": self._item_id(block), "status": status, **form.more}
        if form.part is None:
            return item | {"call_id": block.id, "name": block.name, form.key: self._text_of(block)}
        content = [form.part | {"text": block.text}]
        return item | {"content": content if status != "in_progress" else []}

    def _text_of(self, block: ReplyBlock) -> str:
        """Return the text of a block; that of a custom call is an argument, and so is known when it ends."""
        if block.kind != CUSTOM:
            return block.text
        return str(_parse_object(block.text).get(CUSTOM_INPUT, ""))

    def _text_event(self, block: ReplyBlock, step: str, **fields: Any) -> JsonObject:
        form = ITEM_FORMS[block.kind]
        place = {"item_id": self._item_id(block), **form.place}
        return self._event(f"{form.event}.{step}", block, **place, **fields)

    def _part_events(self, block: ReplyBlock, step: str, text: str) -> EventList:
        part = ITEM_FORMS[block.kind].part
        if part is None:
            return []
        place = {"item_id": self._item_id(block), "content_index": 0}
        return [self._event(f"content_part.{step}", block, **place, part=part | {"text": text})]

    def begin_block(self, block: ReplyBlock) -> EventList:
        item = self._make_item(block, "in_progress")
        added = self._event("output_item.added", block, item=item)
        return [added, *self._part_events(block, "added", "")]

    def extend_block(self, block: ReplyBlock, text: str) -> EventList:
        return [] if block.kind == CUSTOM else [self._text_event(block, "delta", delta=text)]

    def end_block(self, block: ReplyBlock) -> EventList:
        text = self._text_of(block)
        events = [self._text_event(block, "delta", delta=text)] if block.kind == CUSTOM else []
        done = {ITEM_FORMS[block.kind].key: text}
        if block.kind == CALL:
            done["name"] = block.name
        events.append(self._text_event(block, "done", **done))
        events += self._part_events(block, "done", text)
        item = self._make_item(block, "completed")
        return [*events, self._event("output_item.done", block, item=item)]

    def finish(self, blocks: list[ReplyBlock]) -> EventList:
        answer = self.answer(blocks)
        return [self._event(answer["status"], response=answer)]

    def answer(self, blocks: list[ReplyBlock]) -> JsonObject:
        is_cut = self._state.finish_reason not in ("stop", "tool_calls")
        prompt, cached, reply = count_tokens(self._plan, self._state)
        usage = {
            "input_tokens": prompt,
            "input_tokens_details": {"cached_tokens": cached or 0, "cache_write_tokens": 0},
            "output_tokens": reply,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": prompt + reply,
        }
        output = [self._make_item(block, "completed") for block in blocks]
        return self._make_response("incomplete" if is_cut else "completed", output, usage)

    def describe_error(self, error: JsonObject) -> JsonObject:
        found = error["error"]
        event = {"type": "error", "code": found["type"], "message": found["message"]}
        return event | {"param": found.get("param"), "sequence_number": self._sent}


BlockFormat = MessagesFormat | ResponsesFormat
