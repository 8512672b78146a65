"""`POST /v1/chat/completions`: the gateway over HTTP, as a stream of server-sent events or as one answer.

What fails before the first chunk is an HTTP error; what fails later is an event with an error, after which the stream
ends without `[DONE]`. A client that leaves closes the connection to the upstream.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import aclosing
from typing import Any, NamedTuple, Protocol, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from turnwise.errors import TurnwiseError
from turnwise.serve.bodies import RequestError
from turnwise.serve.gateway import ChoiceStream, Gateway, list_choices, total_usage
from turnwise.serve.operations import error_body, status_of
from turnwise.serve.rendering import find_unknown_fields
from turnwise.serve.request_types import GatewayBody
from turnwise.serve.service import Service, explain_failure
from turnwise.serve.upstreams import GenerationPlan, StreamUsage, UpstreamCall

CHAT_PATH = "/v1/chat/completions"
FORWARDED = ("authorization",)  # headers of the client that the upstream gets
CLIENT_LEFT = 499  # in logs, of a request whose client did not wait; no client gets it
EVENT_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}


Result = TypeVar("Result")


class ChatWork(NamedTuple):
    """A request that was read, and what the upstream is asked."""

    plan: GenerationPlan
    calls: list[UpstreamCall]
    stream: bool
    include_usage: bool
    warnings: list[str]


class ClientLeft(Exception):
    """The client closed its connection; it never leaves this module."""


class HttpServer(Protocol):
    """What this path needs of the server."""

    service: Service

    async def read_body(self, request: Request) -> bytes: ...

    async def run_work(self, work: Any, kind: Any, data: bytes, request_id: str) -> Any: ...

    def refuse(self, error: Exception, request_id: str) -> Response: ...


class ChatRoute:
    """Answers chats with replies of the upstream.

    Args:
        server: reads bodies and runs threads.
        gateway: asks the upstream.
    """

    def __init__(self, server: HttpServer, gateway: Gateway) -> None:
        self._server = server
        self._gateway = gateway
        self._settings = server.service.settings
        self.running = 0

    def route(self) -> Route:
        """Return the route."""
        return Route(CHAT_PATH, self.handle, methods=["POST"])

    async def handle(self, request: Request) -> Response:
        """Answer one chat."""
        request.scope["route_path"] = CHAT_PATH
        request_id = request.state.request_id
        headers = {name: request.headers[name] for name in FORWARDED if name in request.headers}
        try:
            data = await self._server.read_body(request)
            work: ChatWork = await self._server.run_work(
                self.prepare, GatewayBody, data, request_id
            )
            if self.running >= self._settings.max_streams:
                raise RequestError("too many replies are being sampled; try again", status=429)
            if not work.stream:
                return JSONResponse(await _do_for_client(request, self._complete(work, headers)))
            events = self._write_events(work, headers, request_id)
            first = await _do_for_client(request, anext(events))
        except ClientLeft:
            return Response(status_code=CLIENT_LEFT)
        except Exception as error:  # every request gets an answer; defects are logged
            return self._server.refuse(error, request_id)
        return StreamingResponse(
            _chain(first, events), media_type="text/event-stream", headers=EVENT_HEADERS
        )

    def prepare(self, body: GatewayBody, request_id: str, warnings: list[str]) -> ChatWork:
        """Read a request, make its prompt and its grammar: the work of a thread."""
        model = self._server.service.models.find(body.model)
        plan = self._gateway.plan(body, model, f"chatcmpl-{request_id}")
        calls = self._gateway.make_calls(plan)
        warnings = [*warnings, *find_unknown_fields(body, ())]
        return ChatWork(plan, calls, body.stream, body.stream_options.include_usage, warnings)

    # -- answers

    async def _complete(self, work: ChatWork, headers: dict[str, str]) -> dict[str, Any]:
        """Return a completion: the sum of what would be streamed."""
        usage, choices = StreamUsage(), dict[int, ChoiceStream]()
        async with aclosing(self._sample(work, headers, usage, choices, {})) as chunks:
            async for _ in chunks:
                pass
        answer = {
            **_make_frame(work.plan, "chat.completion"),
            "choices": list(list_choices(choices)),
            "usage": total_usage(work.plan, usage),
        }
        return {**answer, "warnings": work.warnings} if work.warnings else answer

    async def _write_events(
        self, work: ChatWork, headers: dict[str, str], request_id: str
    ) -> AsyncGenerator[bytes, None]:
        """Yield server-sent events; an error before the first is raised, later ones are events."""
        usage, choices = StreamUsage(), dict[int, ChoiceStream]()
        frame = _make_frame(work.plan, "chat.completion.chunk")
        if work.include_usage:
            frame["usage"] = None
        has_begun = False
        try:
            async with aclosing(self._sample(work, headers, usage, choices, frame)) as chunks:
                async for chunk in chunks:
                    yield _to_event(chunk)
                    has_begun = True
            if work.include_usage:
                last = {**frame, "choices": [], "usage": total_usage(work.plan, usage)}
                yield _to_event(last)
            yield b"data: [DONE]\n\n"
        except Exception as error:  # a stream that has begun ends with an event that says why
            if not has_begun:
                raise
            if isinstance(error, TurnwiseError):
                yield _to_event(error_body(error, status_of(error), request_id))
            else:
                yield _to_event(error_body(explain_failure(error), 500, request_id))

    async def _sample(
        self,
        work: ChatWork,
        headers: dict[str, str],
        usage: StreamUsage,
        choices: dict[int, ChoiceStream],
        frame: dict[str, Any],
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the chunks of all replies."""

        def make_chunk(index: int, delta: dict[str, Any], reason: str | None) -> dict[str, Any]:
            if "reasoning_content" in delta:
                delta = {**delta, "reasoning": delta["reasoning_content"]}
            choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}
            return {**frame, "choices": [choice]}

        self.running += 1
        try:
            chunks = self._gateway.stream(
                work.plan, work.calls, make_chunk, headers, usage, choices
            )
            async with aclosing(chunks):
                async for chunk in chunks:
                    yield chunk
        finally:
            self.running -= 1


def _make_frame(plan: GenerationPlan, kind: str) -> dict[str, Any]:
    return {
        "id": plan.request_id,
        "object": kind,
        "created": int(time.time()),
        "model": plan.model.name,
        "system_fingerprint": None,
    }


def _to_event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


async def _chain(first: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    async with aclosing(rest):
        yield first
        async for event in rest:
            yield event


async def _do_for_client(request: Request, work: Awaitable[Result]) -> Result:
    """Wait for work, and end it when the client leaves.

    Raises:
        ClientLeft: it did.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_wait_for_leaving(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientLeft
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _wait_for_leaving(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
