"""Token ids of a reply become a message: `/v1/chat/completions/derender`, whole or one chunk after the other.

A stream is stateless: each call brings one chunk of ids and the `stream_state` of the call before. The state is the ids
so far, from which the parser is brought to where it was. Our parser's events do not depend on how a reply is cut and
are never retracted, so what such a parser says about the new ids is exactly what is new.

A parser that has read a chunk is kept for the next one, under a digest of everything it has read: then a chunk costs as
much as its own ids. A call that finds no parser, because another process had the stream or it was repeated, reads the
ids again. So the parsers that are kept change nothing but the cost.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from turnwise.messages import JsonMapping, JsonObject
from turnwise.replies.chunk_stream import ChunkStream
from turnwise.replies.events import Message
from turnwise.replies.parser.parser import Parser
from turnwise.serve.bodies import RequestError
from turnwise.serve.models import ServedModel
from turnwise.serve.rendering import ChatRenderer
from turnwise.serve.request_types import DerenderBody, EngineOutput, StreamState
from turnwise.serve.sampling import NONE, read_choice
from turnwise.sized_cache import SizedTable

STATE_FIELDS = ("role_sent", "output_token_ids", "output_chunk_lens")  # that every state has
MAX_KEPT_BYTES = 32 << 20  # of parsers that wait for the next chunk
PARSER_BYTES = 16_000  # of a parser without its ids, about
ID_BYTES = 8
REASONING = ("reasoning_content", "reasoning")


class Derenderer:
    """Reads the replies of a server's models.

    Args:
        renderer: renders the chat of a request, for the prompt of a reply.
    """

    def __init__(self, renderer: ChatRenderer) -> None:
        self._renderer = renderer
        self._kept = KeptStreams(MAX_KEPT_BYTES)

    def make_parser(self, model: ServedModel, body: DerenderBody) -> Parser:
        """Return a parser of a reply to `chat_request` and `prompt_token_ids`."""
        chat = body.chat_request
        tools = chat.tools if chat else None
        ids: Any = body.prompt_token_ids
        if not ids and chat and chat.messages:
            # Whether the prompt opened the reasoning, only the prompt can tell.
            ids = self._renderer.encode(chat, model).encoded
        may_call = not chat or not tools or read_choice(chat, tools) != NONE
        return model.make_parser(ids or None, tools, may_call)

    # -- whole replies

    def read_reply(self, body: DerenderBody, model: ServedModel, now: int) -> JsonObject:
        """Return the ChatCompletionResponse of a complete GenerateResponse."""
        given = _check_output(body.generate_response, "generate_response")
        choices = []
        count = 0
        for place, choice in enumerate(given.choices):
            count += len(choice.token_ids)
            message = self.make_parser(model, body).read(choice.token_ids)
            choices.append(
                {
                    "index": place if choice.index is None else choice.index,
                    "message": choose_reasoning(message, body),
                    "logprobs": None,
                    "finish_reason": choose_finish_reason(message, choice.finish_reason),
                    "stop_reason": choice.stop_reason,
                }
            )
        return {
            "id": given.request_id,
            "object": "chat.completion",
            "created": now if given.created is None else given.created,
            "model": model.name,
            "choices": choices,
            "usage": make_usage(body.prompt_tokens, count),
            "kv_transfer_params": given.kv_transfer_params,
        }

    # -- one chunk of a reply

    def read_chunk(self, body: DerenderBody, model: ServedModel, now: int) -> JsonObject:
        """Return a DerenderChatStreamResponse: what is new of a reply, and the state for the next call."""
        given = _check_output(body.generate_chunk, "generate_chunk")
        if len(given.choices) > 1:
            raise RequestError("a chunk has one choice", path="generate_chunk.choices")
        state = _read_state(body)
        before = state.output_token_ids or []
        lengths = _read_lengths(state, len(before))
        frame = {
            "id": given.request_id,
            "object": "chat.completion.chunk",
            "created": now,
            "model": model.name,
        }

        def answer(choices: list[Any], ids: list[int], new: JsonObject | None) -> JsonObject:
            usage = None if given.usage is None else make_usage(body.prompt_tokens, len(ids))
            chunk = {**frame, "choices": choices, "usage": usage}
            return {"chunk": chunk, "stream_state": _make_state(ids, lengths, state, new)}

        if not given.choices:  # the last chunk of a stream may have nothing but the usage
            return answer([], before, None)
        (choice,) = given.choices
        ids, reason, index = choice.token_ids, choice.finish_reason, choice.index or 0
        delta, message = self._advance(body, model, before, ids, index, reason is not None)
        if state.role_sent:
            delta.pop("role", None)
        elif "role" not in delta:
            delta = {"role": "assistant", "content": "", **delta}
        after = before + ids
        if ids:
            lengths = [*lengths, len(ids)]
        found = {
            "index": index,
            "delta": delta,
            "logprobs": None,
            "finish_reason": None if message is None else choose_finish_reason(message, reason),
            "stop_reason": choice.stop_reason,
        }
        return answer([found], after, delta)

    def _advance(
        self,
        body: DerenderBody,
        model: ServedModel,
        before: list[int],
        ids: list[int],
        index: int,
        is_last: bool,
    ) -> tuple[JsonObject, Message | None]:
        """Return what is new after some ids, and the message if they are the last."""
        key = _make_key(body, model, index)
        stream = self._kept.take(_digest_ids(key, before)) if before else None
        if stream is None:
            stream = ChunkStream(self.make_parser(model, body), id="", model="")
            if before:
                stream.feed(before)
        chunks = stream.feed(ids) if ids else []
        if is_last:
            chunks += stream.close()
        else:
            after = before + ids
            size = PARSER_BYTES + ID_BYTES * len(after)
            self._kept.keep(_digest_ids(key, after), stream, size)
        delta = join_deltas([one["choices"][0]["delta"] for one in chunks])
        return choose_reasoning(delta, body), stream.message


class KeptStreams(SizedTable[ChunkStream]):
    """Parsers that wait for the next chunk of their reply, under a digest of everything that they have read."""

    def take(self, key: bytes) -> ChunkStream | None:
        """Return the stream that has read exactly this, for this call alone."""
        with self._lock:
            self.bytes -= self._sizes.pop(key, 0)
            return self._entries.pop(key, None)


def _make_key(body: DerenderBody, model: ServedModel, index: int) -> bytes:
    """Return a digest of everything but the ids of the reply that its parser depends on."""
    parts = (model.name, index, body.given.get("prompt_token_ids"), body.given.get("chat_request"))
    return blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _digest_ids(key: bytes, ids: list[int]) -> bytes:
    return blake2b(array("Q", ids).tobytes(), key=key, digest_size=16).digest()


def _check_output(given: EngineOutput | None, name: str) -> EngineOutput:
    if given is None:
        raise RequestError("this field is missing", path=name)
    if given.output_mode != "tokens":
        raise RequestError(
            "only token ids are read back: text has lost its special tokens",
            path=f"{name}.output_mode",
            hint='ask the engine for output_mode "tokens"',
        )
    return given


def _read_state(body: DerenderBody) -> StreamState:
    """Return the state that the client sent back; an empty one for a new stream.

    Raises:
        RequestError: it is not as it was sent.
    """
    state = body.stream_state
    if state is None or not state.given:
        return StreamState()
    missing = [name for name in STATE_FIELDS if getattr(state, name) is None]
    if missing:
        raise _not_a_state(f"it has no {', '.join(missing)}")
    if state.output_token_ids and not state.role_sent:
        raise _not_a_state("it has ids, and no role was sent", "role_sent")
    return state


def _not_a_state(problem: str, field: str = "") -> RequestError:
    return RequestError(
        f"this is not the state of a stream: {problem}",
        path=f"stream_state.{field}" if field else "stream_state",
        hint="send back the stream_state of the last answer as it came, and none with the first chunk",
    )


def _read_lengths(state: StreamState, total: int) -> list[int]:
    lengths = state.output_chunk_lens
    if lengths is None:
        return [total] if total else []
    if any(length < 1 for length in lengths) or sum(lengths) != total:
        raise RequestError(
            f"the chunks must have the {total} ids of output_token_ids together",
            path="stream_state.output_chunk_lens",
        )
    return lengths


def _make_state(
    ids: list[int], lengths: list[int], before: StreamState, delta: JsonObject | None
) -> JsonObject:
    """Return the state for the next call, with vLLM's fields; those of its own decoding stay as they are."""
    new = [call["id"] for call in (delta or {}).get("tool_calls", ()) if call.get("id")]
    call_ids = before.last_tool_call_ids + new
    return {
        "prev_tokens": [],
        "prefix_offset": 0,
        "read_offset": 0,
        "role_sent": bool(before.role_sent) or delta is not None,
        "output_token_ids": ids,
        "output_chunk_lens": lengths,
        "tools_streamed": bool(call_ids),
        "last_tool_call_ids": call_ids,
    }


# -- what clients see


def choose_reasoning(message: JsonObject, body: DerenderBody) -> JsonObject:
    """Return a message or a delta as a client gets it: reasoning, if it is wanted, under vLLM's name, too."""
    if body.chat_request is not None and not body.chat_request.include_reasoning:
        return {key: value for key, value in message.items() if key not in REASONING}
    thought = message.get("reasoning_content")
    return dict(message) if thought is None else {**message, "reasoning": thought}


def choose_finish_reason(message: Message, reason: str | None) -> str:
    """Return why a reply ended: a call is "tool_calls", however the engine stopped; a length limit is "length"."""
    if reason in ("length", "abort", "error", "repetition"):
        return reason
    return "tool_calls" if message.get("tool_calls") else "stop"


def make_usage(prompt: int, completion: int, cached: int | None = None) -> JsonObject:
    """Return the usage of a reply."""
    usage: JsonObject = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    if cached is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": cached}
    return usage


def join_deltas(deltas: Sequence[JsonMapping]) -> JsonObject:
    """Return several deltas as one: what a client that adds them up would have."""
    joined: JsonObject = {}
    texts: dict[str, list[str]] = {}
    for delta in deltas:
        for name, value in delta.items():
            if name == "tool_calls":
                _join_calls(joined.setdefault(name, []), value)
            elif name in ("content", "reasoning_content"):
                texts.setdefault(name, []).append(value)
            else:
                joined[name] = value
    joined |= {name: "".join(parts) for name, parts in texts.items()}
    for call in joined.get("tool_calls", ()):
        call["function"]["arguments"] = "".join(call["function"]["arguments"])
    if "reasoning_content" in joined:
        joined["reasoning"] = joined["reasoning_content"]
    return joined


def _join_calls(calls: list[JsonObject], deltas: list[JsonObject]) -> None:
    for delta in deltas:
        if calls and calls[-1]["index"] == delta["index"]:
            if delta.get("id"):
                calls[-1]["id"] = delta["id"]
        else:
            calls.append({**delta, "function": {**delta.get("function", {}), "arguments": []}})
        # Parts of the text, which are joined at the end.
        calls[-1]["function"]["arguments"].append(delta.get("function", {}).get("arguments", ""))
