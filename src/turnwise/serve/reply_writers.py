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

from turnwise.messages import message_text
from turnwise.serve.bodies import RequestBody
from turnwise.serve.gateway import ChoiceStream, list_choices, total_usage
from turnwise.serve.request_types import GatewayBody, PlainGatewayBody
from turnwise.serve.upstreams import GenerationPlan, StreamUsage

Event = dict[str, Any]
REASONING, TEXT, CALL = "reasoning", "text", "call"


class ReplyState(NamedTuple):
    """What is known of the replies to one request."""

    usage: StreamUsage
    choices: dict[int, ChoiceStream]


class ReplyWriter:
    """Writes the replies to one request.

    Args:
        plan: what the engine is asked.
        body: the request.
        state: what is known of the replies so far.
    """

    def __init__(self, plan: GenerationPlan, body: Any, state: ReplyState) -> None:
        self.plan = plan
        self.body: RequestBody = body
        self.state = state
        self.created = int(time.time())

    def add(self, index: int, delta: dict[str, Any], reason: str | None) -> list[Event]:
        """Return the events of a delta."""
        raise NotImplementedError

    def end(self) -> list[Event]:
        """Return the events after the last delta."""
        raise NotImplementedError

    def answer(self) -> dict[str, Any]:
        """Return the whole answer."""
        raise NotImplementedError

    def write(self, event: Event) -> bytes:
        """Return an event as it is sent."""
        raise NotImplementedError

    def fail(self, error: dict[str, Any]) -> bytes:
        """Return the event of a stream that fails."""
        raise NotImplementedError


class ChatWriter(ReplyWriter):
    """Writes chunks and completions of Chat Completions."""

    @property
    def _has_usage(self) -> bool:
        if not isinstance(self.body, (GatewayBody, PlainGatewayBody)):
            return False
        return self.body.stream_options.include_usage

    def _frame(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.plan.request_id,
            "object": kind,
            "created": self.created,
            "model": self.plan.model.name,
            "system_fingerprint": None,
        }

    def add(self, index: int, delta: dict[str, Any], reason: str | None) -> list[Event]:
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

    def _make_chunk(self, choices: list[Any], usage: Any) -> Event:
        frame = self._frame("chat.completion.chunk")
        if self._has_usage:
            frame["usage"] = usage
        return {**frame, "choices": choices}

    def end(self) -> list[Event]:
        if not self._has_usage:
            return []
        return [self._make_chunk([], total_usage(self.plan, self.state.usage))]

    def answer(self) -> dict[str, Any]:
        return {
            **self._frame("chat.completion"),
            "choices": list(list_choices(self.state.choices)),
            "usage": total_usage(self.plan, self.state.usage),
            **({"prompt_token_ids": self.plan.ids} if self.plan.with_ids else {}),
        }

    def write(self, event: Event) -> bytes:
        return b"data: " + json.dumps(event).encode() + b"\n\n"

    def fail(self, error: dict[str, Any]) -> bytes:
        return self.write(error)


class PlainWriter(ChatWriter):
    """Writes completions of plain prompts, which have a text and no message."""

    def _frame(self, kind: str) -> dict[str, Any]:
        return {**super()._frame(kind), "object": "text_completion"}

    def add(self, index: int, delta: dict[str, Any], reason: str | None) -> list[Event]:
        [event] = super().add(index, delta, reason)
        choice = event["choices"][0]
        choice["text"] = choice.pop("delta").get("content") or ""
        return [event]

    def answer(self) -> dict[str, Any]:
        answer = super().answer()
        for choice in answer["choices"]:
            choice["text"] = choice.pop("message").get("content") or ""
        return answer


@dataclass
class ReplyBlock:
    """A part of a reply: reasoning, text or a call."""

    index: int
    kind: str
    id: str = ""
    name: str = ""
    call: int | None = None
    texts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self.texts)


def split_delta(delta: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield kind, text and call of each part of a delta."""
    if delta.get("reasoning_content"):
        yield REASONING, delta["reasoning_content"], {}
    if delta.get("content"):
        yield TEXT, delta["content"], {}
    for call in delta.get("tool_calls", ()):
        yield CALL, call.get("function", {}).get("arguments") or "", call


class BlockFormat:
    """The events and the answer of one API whose replies are made of blocks.

    Args:
        plan: what the engine is asked.
        body: the request.
        state: what is known of the replies so far.

    Attributes:
        prefix: the text of a reply that the request has begun, which is no part of the answer.
    """

    def __init__(self, plan: GenerationPlan, body: Any, state: ReplyState) -> None:
        self.plan = plan
        self.body: RequestBody = body
        self.state = state
        self.created = int(time.time())
        self.prefix = ""

    @property
    def choice(self) -> ChoiceStream | None:
        """The reply; None before it begins."""
        return self.state.choices.get(0)

    @property
    def finish_reason(self) -> str:
        """Why the reply ended, as Chat Completions has it."""
        return (self.choice.finish_reason if self.choice is not None else None) or "stop"

    def count_tokens(self) -> tuple[int, int, int]:
        """Return the tokens of the prompt, those of it that were cached, and those of the reply."""
        usage = total_usage(self.plan, self.state.usage)
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        return usage["prompt_tokens"], cached, usage["completion_tokens"]

    def begin(self) -> list[Event]:
        """Return the events before the first block."""
        raise NotImplementedError

    def begin_block(self, block: ReplyBlock) -> list[Event]:
        """Return the events with which a block begins."""
        raise NotImplementedError

    def extend_block(self, block: ReplyBlock, text: str) -> list[Event]:
        """Return the events of more text."""
        raise NotImplementedError

    def end_block(self, block: ReplyBlock) -> list[Event]:
        """Return the events with which a block ends."""
        raise NotImplementedError

    def finish(self, blocks: list[ReplyBlock]) -> list[Event]:
        """Return the events after the last block."""
        raise NotImplementedError

    def answer(self, blocks: list[ReplyBlock]) -> dict[str, Any]:
        """Return the whole answer."""
        raise NotImplementedError

    def describe_error(self, error: dict[str, Any]) -> Event:
        """Return the event of a stream that fails."""
        return {"type": "error", **error}


class BlockReplies(ReplyWriter):
    """Writes a reply block by block.

    Args:
        make_format: makes the format of the API.
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

    def add(self, index: int, delta: dict[str, Any], reason: str | None) -> list[Event]:
        events = self._begin_once()
        for kind, text, call in split_delta(self._cut_prefix(delta)):
            block = self._open
            if block is None or block.kind != kind or block.call != call.get("index"):
                events += self._finish_block()
                block = self._make_block(kind, call)
                events += self._format.begin_block(block)
            if text:
                block.texts.append(text)
                events += self._format.extend_block(block, text)
        if reason is not None:
            events += self._finish_block()
        return events

    def _cut_prefix(self, delta: dict[str, Any]) -> dict[str, Any]:
        """Return a delta without the text that the request has: the parser reads that again."""
        text = delta.get("content")
        if not text or not self._prefix:
            return delta
        same = len(commonprefix([self._prefix, text]))
        self._prefix = self._prefix[same:] if same == len(text) else ""  # what differs is new
        return {**delta, "content": text[same:]}

    def _begin_once(self) -> list[Event]:
        if self._has_begun:
            return []
        self._has_begun = True
        return self._format.begin()

    def _make_block(self, kind: str, call: dict[str, Any]) -> ReplyBlock:
        name = call.get("function", {}).get("name") or ""
        block = ReplyBlock(len(self._blocks), kind, call.get("id") or "", name, call.get("index"))
        self._blocks.append(block)
        self._open = block
        return block

    def _finish_block(self) -> list[Event]:
        block, self._open = self._open, None
        return [] if block is None else self._format.end_block(block)

    def end(self) -> list[Event]:
        finished = [*self._begin_once(), *self._finish_block()]
        return [*finished, *self._format.finish(self._blocks)]

    def answer(self) -> dict[str, Any]:
        return self._format.answer(self._blocks)

    def write(self, event: Event) -> bytes:
        return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()

    def fail(self, error: dict[str, Any]) -> bytes:
        return self.write(self._format.describe_error(error))


# -- Anthropic's Messages

STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
DELTAS = {
    REASONING: ("thinking_delta", "thinking"),
    TEXT: ("text_delta", "text"),
    CALL: ("input_json_delta", "partial_json"),
}


class MessagesFormat(BlockFormat):
    """Events and messages of Anthropic's API.

    A conversation that ends with a reply is gone on with, and the answer is what is new.
    """

    def __init__(self, plan: GenerationPlan, body: Any, state: ReplyState) -> None:
        super().__init__(plan, body, state)
        last = body.messages[-1]
        if last.get("role") == "assistant":
            self.prefix = message_text(last)

    def begin(self) -> list[Event]:
        usage = {"input_tokens": len(self.plan.ids), "output_tokens": 0}
        return [{"type": "message_start", "message": self._make_message([], None, None, usage)}]

    def _make_message(
        self, content: list[Any], reason: str | None, stop: str | None, usage: dict[str, Any]
    ) -> dict[str, Any]:
        return {
            "id": self.plan.request_id,
            "type": "message",
            "role": "assistant",
            "model": self.plan.model.name,
            "content": content,
            "stop_reason": reason,
            "stop_sequence": stop,
            "usage": usage,
        }

    def begin_block(self, block: ReplyBlock) -> list[Event]:
        start = {"type": "content_block_start", "index": block.index}
        return [{**start, "content_block": self._make_block_value(block, is_whole=False)}]

    def _make_block_value(self, block: ReplyBlock, *, is_whole: bool) -> dict[str, Any]:
        text = block.text if is_whole else ""
        if block.kind == REASONING:
            return {"type": "thinking", "thinking": text, "signature": ""}
        if block.kind == TEXT:
            return {"type": "text", "text": text, "citations": None}
        found = _parse_object(text)
        return {"type": "tool_use", "id": block.id, "name": block.name, "input": found}

    def extend_block(self, block: ReplyBlock, text: str) -> list[Event]:
        kind, key = DELTAS[block.kind]
        delta = {"type": kind, key: text}
        return [{"type": "content_block_delta", "index": block.index, "delta": delta}]

    def end_block(self, block: ReplyBlock) -> list[Event]:
        return [{"type": "content_block_stop", "index": block.index}]

    def _find_stop(self) -> tuple[str, str | None]:
        stop = self.choice.stop_text if self.choice is not None else None
        reason = STOP_REASONS.get(self.finish_reason, "refusal")
        return ("stop_sequence", stop) if stop is not None else (reason, None)

    def _make_usage(self) -> dict[str, Any]:
        prompt, cached, reply = self.count_tokens()
        return {
            "input_tokens": prompt - cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached,
            "output_tokens": reply,
        }

    def finish(self, blocks: list[ReplyBlock]) -> list[Event]:
        reason, stop = self._find_stop()
        delta = {"stop_reason": reason, "stop_sequence": stop}
        last = {"type": "message_delta", "delta": delta, "usage": self._make_usage()}
        return [last, {"type": "message_stop"}]

    def answer(self, blocks: list[ReplyBlock]) -> dict[str, Any]:
        content = [self._make_block_value(block, is_whole=True) for block in blocks]
        return self._make_message(content, *self._find_stop(), self._make_usage())


def _parse_object(text: str) -> dict[str, Any]:
    """Return the arguments of a call; empty if a limit of tokens broke them off."""
    try:
        found = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


# -- OpenAI's Responses

ECHOED: dict[str, Any] = {
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
ITEM_PREFIXES = {REASONING: "rs", TEXT: "msg", CALL: "fc"}


class ResponsesFormat(BlockFormat):
    """Events and responses of OpenAI's Responses."""

    def __init__(self, plan: GenerationPlan, body: Any, state: ReplyState) -> None:
        super().__init__(plan, body, state)
        self._sent = 0

    def _event(self, name: str, block: ReplyBlock | None = None, /, **fields: Any) -> Event:
        event: Event = {"type": f"response.{name}", "sequence_number": self._sent}
        self._sent += 1
        if block is not None:
            event["output_index"] = block.index
        return event | fields

    def _item_id(self, block: ReplyBlock) -> str:
        return f"{ITEM_PREFIXES[block.kind]}_{self.plan.request_id}_{block.index}"

    def begin(self) -> list[Event]:
        answer = self._make_response("in_progress", [], None)
        return [self._event(name, response=answer) for name in ("created", "in_progress")]

    def _make_response(self, status: str, output: list[Any], usage: Any) -> dict[str, Any]:
        given = self.body.given
        echoed = {
            key: default if given.get(key) is None else given[key]
            for key, default in ECHOED.items()
        }
        reason = "max_output_tokens" if self.finish_reason == "length" else "content_filter"
        return {
            "id": self.plan.request_id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": reason} if status == "incomplete" else None,
            "model": self.plan.model.name,
            **echoed,
            "output": output,
            "usage": usage,
        }

    def _make_item(self, block: ReplyBlock, status: str) -> dict[str, Any]:
        item: dict[str, Any] = {"id": self._item_id(block), "status": status}
        is_begun = status != "in_progress"
        if block.kind == CALL:
            call = {"call_id": block.id, "name": block.name, "arguments": block.text}
            return {"type": "function_call", **item, **call}
        content = [self._make_part(block, block.text)] if is_begun else []
        if block.kind == TEXT:
            return {"type": "message", **item, "role": "assistant", "content": content}
        return {"type": "reasoning", **item, "summary": [], "content": content}

    def _make_part(self, block: ReplyBlock, text: str) -> dict[str, Any]:
        if block.kind == REASONING:
            return {"type": "reasoning_text", "text": text}
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

    def begin_block(self, block: ReplyBlock) -> list[Event]:
        item = self._make_item(block, "in_progress")
        events = [self._event("output_item.added", block, item=item)]
        if block.kind != CALL:
            part = self._make_part(block, "")
            place = {"item_id": item["id"], "content_index": 0}
            events.append(self._event("content_part.added", block, **place, part=part))
        return events

    def _text_event(self, block: ReplyBlock, step: str, **fields: Any) -> Event:
        name = {REASONING: "reasoning_text", TEXT: "output_text", CALL: "function_call_arguments"}
        place: dict[str, Any] = {"item_id": self._item_id(block)}
        if block.kind != CALL:
            place["content_index"] = 0
        if block.kind == TEXT:
            place["logprobs"] = []
        return self._event(f"{name[block.kind]}.{step}", block, **place, **fields)

    def extend_block(self, block: ReplyBlock, text: str) -> list[Event]:
        return [self._text_event(block, "delta", delta=text)]

    def end_block(self, block: ReplyBlock) -> list[Event]:
        text = block.text
        if block.kind == CALL:
            events = [self._text_event(block, "done", arguments=text, name=block.name)]
        else:
            part = self._make_part(block, text)
            place = {"item_id": self._item_id(block), "content_index": 0}
            events = [
                self._text_event(block, "done", text=text),
                self._event("content_part.done", block, **place, part=part),
            ]
        item = self._make_item(block, "completed")
        return [*events, self._event("output_item.done", block, item=item)]

    def finish(self, blocks: list[ReplyBlock]) -> list[Event]:
        answer = self.answer(blocks)
        return [self._event(answer["status"], response=answer)]

    def answer(self, blocks: list[ReplyBlock]) -> dict[str, Any]:
        is_cut = self.finish_reason not in ("stop", "tool_calls")
        prompt, cached, reply = self.count_tokens()
        usage = {
            "input_tokens": prompt,
            "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
            "output_tokens": reply,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": prompt + reply,
        }
        output = [self._make_item(block, "completed") for block in blocks]
        return self._make_response("incomplete" if is_cut else "completed", output, usage)

    def describe_error(self, error: dict[str, Any]) -> Event:
        found = error["error"]
        event = {"type": "error", "code": found["type"], "message": found["message"]}
        return event | {"param": found.get("param"), "sequence_number": self._sent}
