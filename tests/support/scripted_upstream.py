"""An engine that samples nothing: it replays replies in random chunks, in the protocol of each kind of upstream.

A reply that a grammar does not accept is never sampled: of several, the first that is accepted is taken, as an engine
that masks tokens would. The grammar is decided by our test's own reader of GBNF.
"""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import jsonschema

from gbnf_reader import read_gbnf
from turnwise.tokens.tokenizers import tokenizer

TOKENIZER = tokenizer("turnwise")
PATHS = {
    "generate": "/inference/v1/generate",
    "completions": "/v1/completions",
    "llamacpp": "/completion",
    "text": "/v1/completions",
}


def fits_schema(reply: str, schema: Any) -> bool:
    """Whether the content of a reply, its stop left out, is JSON that fits a schema."""
    try:
        jsonschema.validate(json.loads(reply.removesuffix("<|im_end|>")), schema)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


class EventBytes(httpx.AsyncByteStream):
    """The body of a stream, cut anywhere; it may die after so many bytes."""

    def __init__(self, events: list[bytes], chance: random.Random, dies_after: int | None) -> None:
        self.events = events
        self.chance = chance
        self.dies_after = dies_after
        self.is_closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        data = b"".join(self.events)
        end = len(data) if self.dies_after is None else min(len(data), self.dies_after)
        start = 0
        while start < end:
            size = self.chance.randint(1, 400)
            yield data[start : min(start + size, end)]
            start += size
        if self.dies_after is not None:
            raise httpx.ReadError("the connection was reset")

    async def aclose(self) -> None:
        self.is_closed = True


class ScriptedUpstream(httpx.AsyncBaseTransport):
    """Replays replies.

    Args:
        kind: the kind of the upstream.
        replies: what it would sample, in this order; the choice `i` is the i-th.
        as_text: answer with text, where the kind has both.
        stop: why it ends.
    """

    def __init__(
        self,
        kind: str,
        *replies: str,
        as_text: bool = False,
        stop: str = "stop",
        dies_after: int | None = None,
        edit: Callable[[list[Any]], list[Any]] | None = None,
        seed: int = 0,
    ) -> None:
        self.kind = kind
        self.replies = list(replies)
        self.as_text = as_text or kind == "text"
        self.stop = stop
        self.dies_after = dies_after
        self.edit = edit
        self.chance = random.Random(seed)
        self.requests: list[dict[str, Any]] = []
        self.headers: list[httpx.Headers] = []
        self.streams: list[EventBytes] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        assert request.url.path == PATHS[self.kind]
        body = json.loads(await request.aread())
        self.requests.append(body)
        self.headers.append(request.headers)
        events: list[Any] = list(self._events(body))
        if self.edit is not None:
            events = self.edit(events)
        lines = [
            event if isinstance(event, bytes) else b"data: " + json.dumps(event).encode() + b"\n\n"
            for event in events
        ]
        if self.kind != "llamacpp":
            lines.append(b"data: [DONE]\n\n")
        stream = EventBytes(lines, self.chance, self.dies_after)
        self.streams.append(stream)
        return httpx.Response(200, stream=stream)

    def _events(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if self.kind == "llamacpp":
            yield from self._llamacpp_events(body)
            return
        count = body.get("sampling_params", body).get("n", 1)
        parts = [list(self._cut(self.replies[index])) for index in range(count)]
        total = 0
        while any(parts):
            index = self.chance.choice([i for i, rest in enumerate(parts) if rest])
            chunk = parts[index].pop(0)
            total += len(chunk)
            yield {"choices": [{"index": index, **self._content(chunk), "finish_reason": None}]}
        for index in range(count):
            last = {"index": index, **self._content([]), "finish_reason": self.stop}
            yield {"choices": [last]}
        details = {"cached_tokens": 3}
        usage = {"prompt_tokens": 1, "completion_tokens": total, "prompt_tokens_details": details}
        yield {"choices": [], "usage": usage}

    def _llamacpp_events(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        number = len(self.requests) - 1
        reply = self.replies[number % len(self.replies)]
        if body.get("grammar") and not body["grammar_lazy"]:
            grammar = read_gbnf(body["grammar"])
            reply = next(
                one
                for one in self.replies
                if any(grammar.accepts(one.removesuffix(stop)) for stop in ("", *body["stop"]))
            )
        if body.get("json_schema"):
            fits = [one for one in self.replies if fits_schema(one, body["json_schema"])]
            reply = fits[0]
        for chunk in self._cut(reply):
            text = TOKENIZER.decode(chunk)
            yield {"content": text, "tokens": [] if self.as_text else chunk, "stop": False}
        kind = "limit" if self.stop == "length" else "eos"
        yield {"content": "", "tokens": [1, 2], "stop": True, "stop_type": kind}

    def _cut(self, reply: str) -> Iterator[list[int]]:
        """Yield the ids of a reply in chunks; whole characters, if they are sent as text."""
        ids = TOKENIZER.whole(reply)
        start = 0
        for end in range(1, len(ids) + 1):
            whole = not self.as_text or "\ufffd" not in TOKENIZER.decode(ids[start:end])
            if end == len(ids) or (whole and self.chance.random() < 0.4):
                yield ids[start:end]
                start = end

    def _content(self, chunk: list[int]) -> dict[str, Any]:
        if self.kind == "generate":
            return {"token_ids": chunk}
        text = {"text": TOKENIZER.decode(chunk)}
        return text if self.as_text else {**text, "token_ids": chunk}
