"""The HTTP application: paths, and what stands before every one of them.

    request -> host -> size and type of the body -> a thread that does the work -> answer
              421     413, 415, 408                 429 if too many wait, 504 if it takes too long

Errors have the shape of OpenAI's API and one sentence. Every answer has an `x-request-id`, the caller's if it sent one,
and every request is one JSON line in the log. Nothing is ever fetched for a request but what the gateway asks of its
upstream.
"""

from __future__ import annotations

import asyncio
import json
import mimetypes
import re
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnwise import __version__
from turnwise.errors import TurnwiseError, TurnwiseWarning
from turnwise.serve.api_requests import write_api_error
from turnwise.serve.bodies import (
    NOT_FOUND,
    TOO_LARGE,
    RequestBody,
    RequestError,
    parse_body,
    read_fields,
)
from turnwise.serve.chat_route import REPLY_APIS, ChatRoute
from turnwise.serve.gateway import Gateway
from turnwise.serve.openapi import PATHS, describe_service
from turnwise.serve.operations import (
    JsonLog,
    RequestWarnings,
    error_body,
    make_request_id,
)
from turnwise.serve.playground_api import VERBS
from turnwise.serve.service import (
    SLOW,
    RefusedCall,
    Service,
    SlowWork,
    locate_failure,
)
from turnwise.serve.settings import ServeSettings
from turnwise.serve.trajectories import PATH as TRAJECTORY_PATH
from turnwise.serve.trajectories import Trajectories

Work = Callable[[Any, str, list[str]], Any]
STATIC = Path(__file__).with_name("static")
OPEN_PATHS = ("/healthz", "/health", "/readyz", "/metrics")  # probes know only an address
QUICK = "turnwise-quick"
LARGE_BODY = 256 * 1024  # bytes; a smaller request takes some milliseconds
JSON_TYPE = "application/json"
EVENTS_TYPE = b"text/event-stream"
MAX_HEADERS = 16 * 1024  # bytes
HOST = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(:[0-9]*)?")  # a name or address, and a port
NO_PATH = {NOT_FOUND: "there is no such path", 405: "this path takes another method"}
STOPPING = "the server is stopping: send it again"
DRAINED_BODIES = (
    4  # as many times the largest body are read and dropped, so that a client hears why
)
SECURITY_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
}


class RefusedUpload(Response):
    """An answer to a body that is not read: it is sent at once, then what the client still sends is dropped.

    A connection that is closed while the client writes would be reset, and the answer lost.
    """

    def __init__(self, content: bytes, limit: int, seconds: float) -> None:
        super().__init__(content, TOO_LARGE, media_type=JSON_TYPE)
        self.limit = limit
        self.seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send(
            {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        )
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        try:
            async with asyncio.timeout(self.seconds):
                await self._drain(receive)
        except TimeoutError:
            pass
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _drain(self, receive: Receive) -> None:
        size = 0
        while size < self.limit:
            message = await receive()
            size += len(message.get("body", b""))
            if message["type"] == "http.disconnect" or not message.get("more_body"):
                return


class Gatekeeper:
    """What stands before every path: the host, the id of the request, headers, the log and the metrics."""

    def __init__(self, app: ASGIApp, server: Server) -> None:
        self.app = app
        self.server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, partial(_await_shutdown, receive), send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        request_id = make_request_id(headers.get(b"x-request-id"))
        scope["state"] = {**scope.get("state", {}), "request_id": request_id}
        start = time.perf_counter()
        status = 500
        kind: bytes | None = None  # of the answer, once it has begun

        async def send_with_headers(message: Message) -> None:
            nonlocal status, kind
            if message["type"] == "http.response.start":
                status = message["status"]
                kind = dict(message["headers"]).get(b"content-type", b"")
                added = {"x-request-id": request_id, **SECURITY_HEADERS}
                pairs = [(name.encode(), value.encode()) for name, value in added.items()]
                message["headers"] = [*message["headers"], *pairs]
            await send(message)

        try:
            refused = self.find_refusal(scope, headers)
            if refused is None:
                await self.app(scope, receive, send_with_headers)
            else:
                error, code = refused
                refusal = JSONResponse(error_body(error, code, request_id), code)
                await refusal(scope, receive, send_with_headers)
        except asyncio.CancelledError:
            # The request has outlived the patience of a server that stops.
            content = error_body(STOPPING, 503, request_id)
            if kind is None:
                await JSONResponse(content, 503)(scope, receive, send_with_headers)
            elif kind.startswith(EVENTS_TYPE):
                event = b"data: " + json.dumps(content).encode() + b"\n\n"
                await send({"type": "http.response.body", "body": event, "more_body": False})
        finally:
            route = scope.get("route_path", "other")
            seconds = time.perf_counter() - start
            self.server.service.metrics.observe(route, status, seconds)
            self.server.log.write(
                "request",
                request_id=request_id,
                method=scope["method"],
                path=route,
                status=status,
                ms=round(seconds * 1000, 2),
            )

    def find_refusal(self, scope: Scope, headers: dict[bytes, str]) -> tuple[str, int] | None:
        """Return why a request is refused by its headers alone, None if it is not."""
        size = sum(len(name) + len(value) for name, value in scope["headers"])
        if size > MAX_HEADERS:
            return f"the headers are larger than {MAX_HEADERS:,} bytes", 431
        if not self.is_allowed(headers.get(b"host", ""), scope["path"]):
            return "this server does not answer to this host; --allowed-host adds it", 421
        return None

    def is_allowed(self, host: str, path: str) -> bool:
        """Return whether the server answers to a value of the Host header."""
        allowed = self.server.settings.allowed_hosts
        if "*" in allowed or path in OPEN_PATHS:
            return True
        found = HOST.fullmatch(host)
        return found is not None and found[1].lower() in allowed


async def _await_shutdown(receive: Receive) -> Message:
    """Return the next event in the life of a server; one that is interrupted shuts down in order, too."""
    try:
        return await receive()
    except asyncio.CancelledError:
        return {"type": "lifespan.shutdown"}


class WorkLane:
    """Threads that do the work of requests, and a bound on how many may wait for them.

    Args:
        name: the beginning of the names of the threads.
        threads: how many there are.
        max_waiting: how much work may wait.
    """

    def __init__(self, name: str, threads: int, max_waiting: int) -> None:
        self.limit = threads + max_waiting
        self.running = 0
        self._executor = ThreadPoolExecutor(threads, name)  # which starts them when there is work

    def close(self) -> None:
        """Finish what is running, and take no more."""
        self._executor.shutdown(wait=True, cancel_futures=True)

    def submit(self, work: Callable[[], Any]) -> asyncio.Future[Any]:
        """Do some work in a thread.

        Raises:
            RequestError: too much is waiting.
        """
        if self.running >= self.limit:
            raise RequestError("too many requests are waiting; try again in a second", status=429)
        self.running += 1
        future = asyncio.get_running_loop().run_in_executor(self._executor, work)
        future.add_done_callback(self._count_done)
        return future

    def _count_done(self, future: asyncio.Future[Any]) -> None:
        self.running -= 1
        if not future.cancelled():
            future.exception()  # it was reported, or its caller has left


class Server:
    """A service behind HTTP.

    Args:
        service: what does the work.
        log: where requests are logged.
        transport: how the upstream of a gateway is asked, if not over the network.
    """

    def __init__(
        self,
        service: Service,
        log: JsonLog | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.service = service
        self.settings: ServeSettings = service.settings
        self.log = log or JsonLog()
        self.is_ready = False
        self._quick = WorkLane(QUICK, self.settings.threads, self.settings.max_waiting)
        # A thread for each worker process of both pools.
        self._slow = WorkLane(SLOW, 2 * self.settings.workers, self.settings.max_waiting)
        self._gateway: Gateway | None = None
        if self.settings.upstream is not None:
            self._gateway = Gateway(self.settings, service.renderer, transport)

    # -- work

    async def run(self, work: Callable[..., Any], *arguments: Any, is_slow: bool = False) -> Any:
        """Run a function in a thread: of the quick lane, or of the slow one.

        Raises:
            RequestError: too many wait, or it takes too long.
        """
        lane = self._slow if is_slow else self._quick
        future = lane.submit(partial(work, *arguments))
        try:
            async with asyncio.timeout(self.settings.total_seconds):
                return await asyncio.shield(future)
        except TimeoutError:
            seconds = self.settings.total_seconds
            raise RequestError(f"there is no answer after {seconds:g} s", status=504) from None

    async def read_body(self, request: Request) -> bytes:
        """Return the body of a request.

        Raises:
            RequestError: it is too large, of another type, or does not come.
        """
        limit = self.settings.max_body
        length = request.headers.get("content-length", "")
        if length.isdigit() and int(length) > limit:
            raise self.too_large()
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != JSON_TYPE:
            raise RequestError(
                "a body of JSON is needed", hint=f"send content-type: {JSON_TYPE}", status=415
            )
        found = bytearray()
        try:
            async with asyncio.timeout(self.settings.read_seconds):
                async for chunk in request.stream():
                    found += chunk
                    if len(found) > limit:
                        raise self.too_large()
        except TimeoutError:
            seconds = self.settings.read_seconds
            raise RequestError(f"the body did not come within {seconds:g} s", status=408) from None
        except ClientDisconnect:
            raise RequestError("the client has left", status=408) from None
        return bytes(found)

    def too_large(self) -> RequestError:
        """Return the error for a body that is too large."""
        return RequestError(
            f"the body is larger than {self.settings.max_body:,} bytes", status=TOO_LARGE
        )

    def refuse(self, error: Exception, request_id: str, path: str) -> Response:
        """Return the answer to a request that failed."""
        if not isinstance(error, TurnwiseError):
            self.log.write("failure", request_id=request_id, error=locate_failure(error))
        content, status = write_api_error(path, error, request_id)
        if isinstance(error, RefusedCall):
            content = error.answer
        if status == TOO_LARGE:
            limit = DRAINED_BODIES * self.settings.max_body
            return RefusedUpload(json.dumps(content).encode(), limit, self.settings.read_seconds)
        return JSONResponse(content, status, {"retry-after": "1"} if status == 429 else None)

    def work(self, work: Work, kind: type[RequestBody], data: bytes, request_id: str) -> Any:
        """Read a request and do its work, in a thread."""
        with (log := RequestWarnings()):
            value = parse_body(data, self.settings.max_depth)
            return work(read_fields(kind, value, self.settings), request_id, log.found)

    async def run_work(
        self, work: Work, kind: type[RequestBody], data: bytes, request_id: str
    ) -> Any:
        """Do the work of a request in a thread, from the event loop.

        Large bodies, and templates that run in a worker process, get the slow lane: no other request waits for them.
        """
        is_slow = len(data) > LARGE_BODY
        arguments = (self.work, work, kind, data, request_id)
        try:
            return await self.run(*arguments, is_slow=is_slow)
        except SlowWork:
            return await self.run(*arguments, is_slow=True)

    def route(
        self, path: str, answer: Callable[[Request], Awaitable[Response]], method: str = "POST"
    ) -> Route:
        """Return the route of a path."""

        async def handle(request: Request) -> Response:
            request.scope["route_path"] = path
            try:
                return await answer(request)
            except Exception as error:  # every request gets an answer; defects are logged
                return self.refuse(error, request.state.request_id, path)

        return Route(path, handle, methods=[method])

    def post(self, path: str, work: Work, kind: type[RequestBody] = RequestBody) -> Route:
        """Return the route of a path whose answer is JSON."""

        async def answer(request: Request) -> Response:
            data = await self.read_body(request)
            made = await self.run_work(work, kind, data, request.state.request_id)
            return Response(made, media_type=JSON_TYPE)

        return self.route(path, answer)

    def get(self, path: str, make: Callable[[], Response]) -> Route:
        """Return the route of a path that is answered at once, on the event loop."""

        async def answer(request: Request) -> Response:
            return make()

        return self.route(path, answer, "GET")

    # -- paths

    def routes(self) -> list[BaseRoute]:
        """Return all paths."""
        service = self.service
        works: dict[str, Work] = {
            "/v1/chat/completions/render": service.render_chat,
            "/v1/chat/completions/derender": service.derender_chat,
            "/v1/completions/render": service.render_completion,
            "/tokenize": service.tokenize,
            "/detokenize": service.detokenize,
            "/apply-template": service.apply_template,
            "/v1/messages/count_tokens": service.count_tokens,
            "/v1/messages/render": service.render_other,
            "/v1/responses/render": service.render_other,
        }
        routes: list[BaseRoute] = [
            *(self.post(path, work, PATHS[path][1] or RequestBody) for path, work in works.items()),
            self.get("/v1/models", lambda: JSONResponse(service.list_models())),
            *(self.get(path, lambda: JSONResponse({"status": "ok"})) for path in OPEN_PATHS[:2]),
            self.get("/readyz", self._tell_ready),
            self.get("/tokenizer_info", lambda: JSONResponse(service.describe_tokenizer())),
            self.get("/version", lambda: JSONResponse({"version": __version__})),
            self.get("/metrics", self._write_metrics),
            self.get("/openapi.json", self._describe),
        ]
        if self._gateway is not None:
            kept = Trajectories()
            for path in REPLY_APIS:
                routes.append(self.route(path, ChatRoute(self, self._gateway, kept, path).answer))
            routes.append(self.route(TRAJECTORY_PATH, kept.answer, "GET"))
        if self.settings.playground:
            routes += [self.post(f"/api/{verb}", service.playground(verb)) for verb in VERBS]
            routes.append(self.route("/api/entries", self._list_entries, "GET"))
            routes += self._static_files()
        return routes

    async def _list_entries(self, request: Request) -> Response:
        call = self.service.call_playground
        return JSONResponse(await self.run(call, "entries", {}, is_slow=True))

    def _tell_ready(self) -> Response:
        word, status = ("ready", 200) if self.is_ready else ("starting", 503)
        return JSONResponse({"status": word}, status)

    def _write_metrics(self) -> Response:
        memory = self.service.memory
        gauges = {
            "requests_running": self._quick.running + self._slow.running,
            "memory_bytes": memory.size,
            "memory_conversations": len(memory),
        }
        text = self.service.metrics.write(gauges)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    def _describe(self) -> Response:
        hidden = () if self._gateway is not None else (*REPLY_APIS, TRAJECTORY_PATH)
        return JSONResponse(describe_service(__version__, hidden))

    def _static_files(self) -> list[BaseRoute]:
        """Return a route for each file of the playground: a table, so that no request names a path."""
        routes: list[BaseRoute] = []
        for file in sorted(STATIC.rglob("*")):
            if not file.is_file():
                continue
            path = f"/{file.relative_to(STATIC).as_posix()}"
            kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
            answer = partial(_send_file, file, kind)
            routes.append(self.get(path, answer))
            if path == "/index.html":
                routes.append(self.get("/", answer))
        return routes

    # -- life

    @asynccontextmanager
    async def live(self, app: Starlette) -> AsyncIterator[None]:
        """Load what is slow before the first request, and end threads and workers after the last."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TurnwiseWarning)  # each request answers with its own
            await self._slow.submit(self.service.warm_up)
            starting = asyncio.create_task(self._start_workers())
            try:
                yield
            finally:
                starting.cancel()
                self.is_ready = False
                if self._gateway is not None:
                    await self._gateway.close()
                self.service.close()
                self._quick.close()
                self._slow.close()
                self.log.write("stopped")

    async def _start_workers(self) -> None:
        """Be ready as soon as the worker processes are; without them, all but strangers' templates works."""
        try:
            await self._slow.submit(self.service.start_workers)
        except TurnwiseError as error:
            self.log.write("failure", error=str(error))
        self.is_ready = True
        self.log.write("ready", models=[model.name for model in self.service.models])

    def application(self) -> Starlette:
        """Return the ASGI application."""
        middleware = [Middleware(Gatekeeper, server=self)]
        if self.settings.cors_origins:
            middleware.append(
                Middleware(
                    CORSMiddleware,
                    allow_origins=list(self.settings.cors_origins),
                    allow_methods=["GET", "POST"],
                    # Any header: a page gets no credentials that it did not bring, and clients send their own.
                    allow_headers=["*"],
                )
            )
        handlers: Any = dict.fromkeys(NO_PATH, self._refuse_path)
        return Starlette(
            routes=self.routes(),
            middleware=middleware,
            lifespan=self.live,
            exception_handlers=handlers,
        )

    async def _refuse_path(self, request: Request, error: HTTPException) -> Response:
        status = error.status_code
        text = f"{NO_PATH[status]}; /openapi.json lists them"
        if status == NOT_FOUND and request.url.path in REPLY_APIS:
            text = "no engine answers here: start the server with --upstream URL to chat through it"
        return JSONResponse(error_body(text, status, request.state.request_id), status)


def _send_file(file: Path, kind: str) -> Response:
    return Response(file.read_bytes(), media_type=kind, headers={"cache-control": "no-cache"})
