"""`POST /v1/chat/completions`, `/v1/messages`, `/v1/responses`: the gateway over HTTP, streamed or as one answer.

Each path is a row of `REPLY_APIS`: what reads its requests, what writes its replies, and its errors.

What fails before the first chunk is an HTTP error; what fails later is an event with an error, after which the stream
ends without `[DONE]`. A client that leaves closes the connection to the upstream.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from turnwise.messages import JsonObject
from turnwise.serve.api_requests import (
    MESSAGES_PATH,
    RESPONSES_PATH,
    CountBody,
    MessagesBody,
    ResponsesBody,
    read_api_request,
    write_api_error,
)
from turnwise.serve.bodies import RequestBody, RequestError
from turnwise.serve.gateway import Gateway, ReplyState
from turnwise.serve.rendering import find_unknown_fields, note_warnings
from turnwise.serve.reply_writers import (
    BlockReplies,
    MessagesFormat,
    PlainWriter,
    ReplyWriter,
    ResponsesFormat,
)
from turnwise.serve.request_types import GatewayBody, PlainGatewayBody
from turnwise.serve.trajectories import HEADER, Trajectories, make_key
from turnwise.serve.upstreams import GenerationPlan, UpstreamCall

DONE = b"data: [DONE]\n\n"
FORWARDED = ("authorization",)  # headers of the client that the upstream gets
CLIENT_LEFT = 499  # in logs, of a request whose client did not wait; no client gets it
LENIENT_HINT = "a server that was started with --lenient answers with a warning"
EVENT_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}


Result = TypeVar("Result")
EventLists = AsyncGenerator[list[JsonObject], None]


class ReplyApi(NamedTuple):
    """An API whose requests get replies.

    Attributes:
        body: what a request has.
        writer: writes its replies.
        id_format: how the id of a reply is made from that of the request.
        end: what ends a stream.
    """

    body: type[RequestBody]
    writer: Callable[[GenerationPlan, RequestBody, ReplyState], ReplyWriter]
    id_format: str
    end: bytes = b""


REPLY_APIS = {
    "/v1/chat/completions": ReplyApi(GatewayBody, ReplyWriter, "chatcmpl-{}", DONE),
    "/v1/completions": ReplyApi(PlainGatewayBody, PlainWriter, "cmpl-{}", DONE),
    MESSAGES_PATH: ReplyApi(MessagesBody, partial(BlockReplies, MessagesFormat), "msg_{}"),
    RESPONSES_PATH: ReplyApi(ResponsesBody, partial(BlockReplies, ResponsesFormat), "resp_{}"),
}


class ChatWork(NamedTuple):
    """A request that was read, and what the upstream is asked."""

    plan: GenerationPlan
    calls: list[UpstreamCall]
    stream: bool
    body: RequestBody
    warnings: list[str]
    trajectory: bytes | None = None


class ClientLeft(Exception):
    """The client closed its connection; it never leaves this module."""


class ChatRoute:
    """Answers requests of one API with replies of the upstream.

    Args:
        server: reads bodies and runs threads.
        gateway: asks the upstream.
        trajectories: keeps what was sampled in sessions that ask for it.
        path: the path, a key of `REPLY_APIS`.
    """

    def __init__(
        self, server: Any, gateway: Gateway, trajectories: Trajectories, path: str
    ) -> None:
        self._server = server
        self._gateway = gateway
        self._trajectories = trajectories
        self._settings = server.service.settings
        self._path = path
        self._api = REPLY_APIS[path]

    async def answer(self, request: Request) -> Response:
        """Answer one request."""
        request_id = request.state.request_id
        headers = {name: request.headers[name] for name in FORWARDED if name in request.headers}
        data = await self._server.read_body(request)
        name = request.headers.get(HEADER)
        prepare = partial(self.prepare, None if name is None else make_key(request, name))
        work: ChatWork = await self._server.run_work(prepare, self._api.body, data, request_id)
        if self._gateway.running >= self._settings.max_streams:
            raise RequestError("too many replies are being sampled; try again", status=429)
        writer = self._api.writer(work.plan, work.body, ReplyState())
        chunks = self._sample(work, headers, writer)
        try:
            if not work.stream:
                answer = self._complete(work, chunks, writer)
                return JSONResponse(await _do_for_client(request, answer))
            events = self._write_events(work, chunks, writer, request_id)
            first = await _do_for_client(request, anext(events))
        except ClientLeft:
            return Response(status_code=CLIENT_LEFT)
        return StreamingResponse(
            _chain(first, events), media_type="text/event-stream", headers=EVENT_HEADERS
        )

    def prepare(
        self, trajectory: bytes | None, body: RequestBody, request_id: str, warnings: list[str]
    ) -> ChatWork:
        """Read a request, make its prompt and its grammar: the work of a thread."""
        model = self._server.service.models.find(getattr(body, "model", None))
        request_id = self._api.id_format.format(request_id)
        chat: Any = body
        if isinstance(body, CountBody | ResponsesBody):
            chat = read_api_request(body, GatewayBody, self._settings)
        is_plain = isinstance(chat, PlainGatewayBody)
        make_plan = self._gateway.plan_plain if is_plain else self._gateway.plan
        plan = make_plan(chat, model, request_id)
        warnings = [*warnings, *find_unknown_fields(body, ())]
        warnings = [one for one in warnings if one not in model.problems]
        # A level of reasoning is advice, which every agent sends: the nearest one is used, with a warning.
        advice = model.describe_effort(chat)
        refused = [warning for warning in warnings if warning not in advice]
        if refused and not self._settings.lenient:
            raise RequestError("; ".join(refused), hint=LENIENT_HINT)
        if trajectory is not None:
            plan = replace(plan, with_ids=True, sampling={"logprobs": 0, **plan.sampling})
        calls = self._gateway.make_calls(plan)
        return ChatWork(plan, calls, chat.stream, body, warnings, trajectory)

    # -- answers

    async def _complete(
        self, work: ChatWork, chunks: EventLists, writer: ReplyWriter
    ) -> JsonObject:
        async with aclosing(chunks):
            async for _ in chunks:
                pass
        return writer.answer() | note_warnings(work.warnings)

    async def _write_events(
        self, work: ChatWork, chunks: EventLists, writer: ReplyWriter, request_id: str
    ) -> AsyncGenerator[bytes, None]:
        """Yield server-sent events; an error before the first is raised, later ones are events."""
        has_begun = False
        try:
            async with aclosing(chunks):
                async for events in chunks:
                    if not has_begun:
                        events[0] |= note_warnings(work.warnings)
                    has_begun = True
                    yield b"".join(map(writer.write, events))
            yield b"".join(map(writer.write, writer.end())) + self._api.end
        except Exception as error:  # a stream that has begun ends with an event that says why
            if not has_begun:
                raise
            yield writer.fail(write_api_error(self._path, error, request_id)[0])

    async def _sample(
        self, work: ChatWork, headers: dict[str, str], writer: ReplyWriter
    ) -> EventLists:
        self._gateway.running += 1
        try:
            chunks = self._gateway.stream(work.plan, work.calls, writer.add, headers, writer.state)
            async with aclosing(chunks):
                async for lists in chunks:
                    # One write for what came together: each costs as much as reading it.
                    events = [event for events in lists for event in events]
                    if events:
                        yield events
            if work.trajectory is not None:
                self._trajectories.add(work.trajectory, work.plan, writer.state.choices)
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
