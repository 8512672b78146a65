"""`POST /v1/chat/completions`, `/v1/messages`, `/v1/responses`: the gateway over HTTP, streamed or as one answer.

Each path is a row of `REPLY_APIS`: what reads its requests, what writes its replies, and its errors.

What fails before the first chunk is an HTTP error; what fails later is an event with an error, after which the stream
ends without `[DONE]`. A client that leaves closes the connection to the upstream.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from turnwise.errors import TurnwiseError
from turnwise.serve.api_requests import (
    MESSAGES,
    MESSAGES_PATH,
    RESPONSES,
    RESPONSES_PATH,
    ErrorWriter,
    RequestReader,
    write_chat_error,
)
from turnwise.serve.bodies import RequestBody, RequestError, read_fields
from turnwise.serve.gateway import Gateway
from turnwise.serve.operations import status_of
from turnwise.serve.rendering import find_unknown_fields
from turnwise.serve.reply_writers import (
    BlockReplies,
    ChatWriter,
    MessagesFormat,
    PlainWriter,
    ReplyState,
    ReplyWriter,
    ResponsesFormat,
)
from turnwise.serve.request_types import GatewayBody, PlainGatewayBody, SamplingBody
from turnwise.serve.service import Service, explain_failure
from turnwise.serve.upstreams import GenerationPlan, StreamUsage, UpstreamCall

CHAT_PATH, PLAIN_PATH = "/v1/chat/completions", "/v1/completions"
FORWARDED = ("authorization",)  # headers of the client that the upstream gets
CLIENT_LEFT = 499  # in logs, of a request whose client did not wait; no client gets it
LENIENT_HINT = "a server that was started with --lenient answers with a warning"
EVENT_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}


Result = TypeVar("Result")


class ReplyApi(NamedTuple):
    """An API whose requests get replies.

    Attributes:
        request: reads its requests, and writes its errors; None for Chat Completions.
        writer: writes its replies.
        id_format: how the id of a reply is made from that of the request.
        end: what ends a stream.
        body: what a request has, if it needs no reader.
    """

    request: RequestReader | None
    writer: Callable[[GenerationPlan, RequestBody, ReplyState], ReplyWriter]
    id_format: str
    end: bytes = b""
    body: type[RequestBody] = GatewayBody


REPLY_APIS = {
    CHAT_PATH: ReplyApi(None, ChatWriter, "chatcmpl-{}", b"data: [DONE]\n\n"),
    PLAIN_PATH: ReplyApi(None, PlainWriter, "cmpl-{}", b"data: [DONE]\n\n", PlainGatewayBody),
    MESSAGES_PATH: ReplyApi(MESSAGES, partial(BlockReplies, MessagesFormat), "msg_{}"),
    RESPONSES_PATH: ReplyApi(RESPONSES, partial(BlockReplies, ResponsesFormat), "resp_{}"),
}


class ChatWork(NamedTuple):
    """A request that was read, and what the upstream is asked."""

    plan: GenerationPlan
    calls: list[UpstreamCall]
    stream: bool
    body: RequestBody
    warnings: list[str]


class ClientLeft(Exception):
    """The client closed its connection; it never leaves this module."""


class HttpServer(Protocol):
    """What this path needs of the server."""

    service: Service

    async def read_body(self, request: Request) -> bytes: ...

    async def run_work(self, work: Any, kind: Any, data: bytes, request_id: str) -> Any: ...

    def refuse(
        self, error: Exception, request_id: str, write_error: ErrorWriter = ...
    ) -> Response: ...


class ChatRoute:
    """Answers requests of one API with replies of the upstream.

    Args:
        server: reads bodies and runs threads.
        gateway: asks the upstream.
        path: the path, a key of `REPLY_APIS`.
    """

    def __init__(self, server: HttpServer, gateway: Gateway, path: str = CHAT_PATH) -> None:
        self._server = server
        self._gateway = gateway
        self._settings = server.service.settings
        self._path = path
        self._api = REPLY_APIS[path]
        reader = self._api.request
        self._kind: type[RequestBody] = self._api.body if reader is None else reader.body
        self._write_error = write_chat_error if reader is None else reader.write_error

    def route(self) -> Route:
        """Return the route."""
        return Route(self._path, self.handle, methods=["POST"])

    async def handle(self, request: Request) -> Response:
        """Answer one request."""
        request.scope["route_path"] = self._path
        request_id = request.state.request_id
        headers = {name: request.headers[name] for name in FORWARDED if name in request.headers}
        try:
            data = await self._server.read_body(request)
            work: ChatWork = await self._server.run_work(self.prepare, self._kind, data, request_id)
            if self._gateway.running >= self._settings.max_streams:
                raise RequestError("too many replies are being sampled; try again", status=429)
            if not work.stream:
                return JSONResponse(await _do_for_client(request, self._complete(work, headers)))
            events = self._write_events(work, headers, request_id)
            first = await _do_for_client(request, anext(events))
        except ClientLeft:
            return Response(status_code=CLIENT_LEFT)
        except Exception as error:  # every request gets an answer; defects are logged
            return self._server.refuse(error, request_id, self._write_error)
        return StreamingResponse(
            _chain(first, events), media_type="text/event-stream", headers=EVENT_HEADERS
        )

    def prepare(self, body: RequestBody, request_id: str, warnings: list[str]) -> ChatWork:
        """Read a request, make its prompt and its grammar: the work of a thread."""
        model = self._server.service.models.find(getattr(body, "model", None))
        request_id = self._api.id_format.format(request_id)
        if isinstance(body, PlainGatewayBody):
            chat: SamplingBody = body
            plan = self._gateway.plan_plain(body, model, request_id)
        else:
            if self._api.request is not None:
                given = self._api.request.read(body, model)
                chat = read_fields(GatewayBody, given, self._settings)
            else:
                assert isinstance(body, GatewayBody)
                chat = body
            assert isinstance(chat, GatewayBody)
            plan = self._gateway.plan(chat, model, request_id)
        lost = [warning for warning in warnings if warning not in model.problems]
        warnings = [*lost, *find_unknown_fields(body, ())]
        if warnings and not self._settings.lenient:
            raise RequestError("; ".join(warnings), hint=LENIENT_HINT)
        calls = self._gateway.make_calls(plan)
        return ChatWork(plan, calls, chat.stream, body, warnings)

    # -- answers

    async def _complete(self, work: ChatWork, headers: dict[str, str]) -> dict[str, Any]:
        """Return an answer: the sum of what would be streamed."""
        state = ReplyState(StreamUsage(), {})
        writer = self._api.writer(work.plan, work.body, state)
        async with aclosing(self._sample(work, headers, state, writer)) as chunks:
            async for _ in chunks:
                pass
        answer = writer.answer()
        return {**answer, "warnings": work.warnings} if work.warnings else answer

    async def _write_events(
        self, work: ChatWork, headers: dict[str, str], request_id: str
    ) -> AsyncGenerator[bytes, None]:
        """Yield server-sent events; an error before the first is raised, later ones are events."""
        state = ReplyState(StreamUsage(), {})
        writer = self._api.writer(work.plan, work.body, state)
        has_begun = False
        try:
            async with aclosing(self._sample(work, headers, state, writer)) as chunks:
                async for events in chunks:
                    for event in events:
                        yield writer.write(event)
                        has_begun = True
            for event in writer.end():
                yield writer.write(event)
            if self._api.end:
                yield self._api.end
        except Exception as error:  # a stream that has begun ends with an event that says why
            if not has_begun:
                raise
            if isinstance(error, TurnwiseError):
                found, _ = self._write_error(error, status_of(error), request_id)
            else:
                found, _ = self._write_error(explain_failure(error), 500, request_id)
            yield writer.fail(found)

    async def _sample(
        self, work: ChatWork, headers: dict[str, str], state: ReplyState, writer: ReplyWriter
    ) -> AsyncGenerator[list[dict[str, Any]], None]:
        """Yield the events of all replies, those of one delta in one list."""
        self._gateway.running += 1
        try:
            chunks = self._gateway.stream(
                work.plan, work.calls, writer.add, headers, state.usage, state.choices
            )
            async with aclosing(chunks):
                async for events in chunks:
                    yield events
        finally:
            self._gateway.running -= 1


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
