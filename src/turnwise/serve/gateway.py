"""A chat becomes a reply: the prompt goes to an engine, and what it samples comes back as OpenAI's messages.

    chat -> ids -> engine -> ids or text, as they arrive -> parser -> deltas -> chunks, or one message

A message that is not streamed is the sum of the same deltas, so both ways always agree. The parser holds back what may
still become a marker and retracts nothing; texts of `stop` are held back and cut off in the same way.

An engine that breaks off, or whose calls are not those that were asked for, is an error: in a stream an event, which
clients raise. Calls are checked when a reply ends, in a thread, whatever grammar the engine was sent: it may ignore it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import httpx

from turnwise.errors import TurnwiseError
from turnwise.local_files import error_reason
from turnwise.messages import JsonMapping, JsonObject
from turnwise.replies.chunk_stream import ChunkStream
from turnwise.serve.bodies import NOT_FOUND, RequestError, refuse_fields
from turnwise.serve.derendering import join_deltas
from turnwise.serve.models import ServedModel
from turnwise.serve.plain_stream import PlainStream
from turnwise.serve.rendering import ChatRenderer, make_plan, read_prompts
from turnwise.serve.reply_checks import find_broken_promise, find_content_misfit
from turnwise.serve.request_types import GatewayBody, PlainGatewayBody
from turnwise.serve.sampling import read_plain_sampling
from turnwise.serve.settings import ServeSettings
from turnwise.serve.stop_texts import StopFilter
from turnwise.serve.upstreams import (
    LOG_HINT,
    UPSTREAMS,
    GenerationPlan,
    ReplyPiece,
    StreamUsage,
    UpstreamCall,
    UpstreamError,
    ask_for_one,
    bans_calls,
    describe_problem,
    odd_answer,
    read_event,
    report_failure,
)

CONNECT_SECONDS = 10.0
MAX_LINE = 16 << 20  # bytes of one event
MAX_REPLY = 64 << 20  # bytes of the events of one reply
MAX_ON_LOOP = (
    4_096  # characters of events that are read on the event loop; more are the work of a thread
)
FIELDS = (b"data:", b"error:")
ENDING = re.compile(r'"(?:finish_reason|stop)"\s*:\s*(?:"|true)')
LINE_END = re.compile(rb"\r\n|\n|\r")
MAX_ERROR = 65_536  # bytes of an upstream's error that are read
DONE = "[DONE]"
NOT_PASSED = {
    "prompt_logprobs": "log-probabilities of prompts are not passed on",
    "audio": "replies are text",
    "echo": "a prompt is not repeated in a reply",
    "functions": "this field is out of date: use tools",
    "function_call": "this field is out of date: use tool_choice",
}
NOT_PLAIN = {
    "logprobs": "log-probabilities are those of /v1/chat/completions",
    "suffix": "a prompt is continued, not filled in",
    "best_of": "ask for `n` replies, and choose",
}
# Why an engine ended a reply before its end, and what the client is told.
CUT = {"length": "length", "abort": "length", "content_filter": "content_filter"}
GRAMMAR_HINT = "does it take grammars, and is --upstream-kind right?"

Chunks = Sequence[JsonMapping]
Made = TypeVar("Made")
"""What a caller makes of a delta."""


class ChoiceStream:
    """One reply of several: its parser, its stop texts, and the deltas so far.

    Args:
        plan: what the engine was told.
        index: the number of the choice.
    """

    def __init__(self, plan: GenerationPlan, index: int) -> None:
        self._stream: ChunkStream | PlainStream = PlainStream(plan.model.tokenizer)
        if not plan.is_plain:
            parser = plan.model.make_parser(plan.text, plan.tools, not bans_calls(plan))
            self._stream = ChunkStream(parser, id="", model="")
        self._stops = StopFilter(plan.sampling.get("stop", []))
        self._plan = plan
        self.index = index
        self.deltas: list[JsonObject] = []
        self.message: JsonObject = {}  # when it is finished
        self.has_ended = False
        self.ids: list[int] = []
        self.logprobs: list[JsonObject] = []
        self._sent = (0, 0)  # how many ids and log-probabilities chunks have had
        self._cut_reason: str | None = None
        self.finish_reason: str | None = None

    def feed(self, piece: ReplyPiece) -> list[JsonObject]:
        """Return the deltas of the next piece of the reply; `finish` is due when it has ended."""
        if self.has_ended:
            return []
        if isinstance(piece.chunk, list):
            self.ids += piece.chunk
        self.logprobs += piece.logprobs or ()
        deltas = self._cut(self._read(piece.chunk)) if piece.chunk else []
        if self._stops.found is None and piece.finish_reason is not None:
            self._cut_reason = CUT.get(piece.finish_reason)
            self.has_ended = True
            deltas += self._cut(self._stream.close())
            if held := self._stops.close():
                deltas.append({"content": held})
        self.has_ended = self.has_ended or self.stop_text is not None
        self.deltas += deltas
        return deltas

    def take_tokens(self) -> tuple[list[int], list[JsonObject]]:
        """Return the ids and log-probabilities that came since the last call."""
        first, begun = self._sent
        self._sent = len(self.ids), len(self.logprobs)
        return self.ids[first:], self.logprobs[begun:]

    def _read(self, chunk: str | list[int]) -> Chunks:
        try:
            return self._stream.feed(chunk)
        except TurnwiseError as error:  # ids after text, which no parser can put together
            raise odd_answer(f"a reply that cannot be read: {error.message}") from None

    def finish(self) -> None:
        """Check the calls of a reply that has ended, and say why it did: the work of a thread.

        Raises:
            UpstreamError: the calls are not those that were asked for.
        """
        self.message = self._join_message()
        calls = self.message.get("tool_calls", [])
        is_cut = self._cut_reason is not None
        problem = find_broken_promise(self._plan, calls, is_cut, self._find_open_call())
        if problem is None and not is_cut and not calls:
            problem = find_content_misfit(self._plan, self.message["content"])
        problem = problem or self._find_missing_tokens()
        if problem is not None:
            is_stopped = self.stop_text is not None
            raise UpstreamError(
                f"the upstream's reply is not what was asked for: {problem}",
                hint="`stop` ended the reply: leave it out" if is_stopped else GRAMMAR_HINT,
            )
        has_calls = bool(calls) and self._stops.found is None
        self.finish_reason = self._cut_reason or ("tool_calls" if has_calls else "stop")

    def _find_missing_tokens(self) -> str | None:
        has_text = bool(self.message.get("content") or self.message.get("tool_calls"))
        if has_text and self._plan.with_ids and not self.ids:
            return "there are no token ids"
        if has_text and "logprobs" in self._plan.sampling and not self.logprobs:
            return "there are no log-probabilities"
        return None

    def _find_open_call(self) -> int | None:
        message = self._stream.message
        if self._cut_reason is None or message is None or not message.attempts:
            return None
        last = message.attempts[-1]
        return last.index if last.status == "unterminated" else None

    def _cut(self, chunks: Chunks) -> list[JsonObject]:
        """Return the deltas of chunks, their content cut at a stop text; nothing follows that."""
        deltas = []
        for chunk in chunks:
            if self._stops.found is not None:
                break
            delta = dict(chunk["choices"][0]["delta"])
            if not self._plan.with_reasoning:
                delta.pop("reasoning_content", None)
            if delta.get("content"):
                delta["content"] = self._stops.feed(delta["content"])
                if not delta["content"] and len(delta) == 1:
                    continue
            if delta:
                deltas.append(delta)
        return deltas

    @property
    def stop_text(self) -> str | None:
        """The stop text of the request that ended the reply, if one did."""
        return self._stops.found

    def _join_message(self) -> JsonObject:
        joined = {"role": "assistant", "content": "", **join_deltas(self.deltas)}
        calls = joined.pop("tool_calls", [])
        if calls:
            joined["tool_calls"] = [
                {key: value for key, value in call.items() if key != "index"} for call in calls
            ]
            joined["content"] = joined["content"] or None
        return joined


@dataclass
class ReplyState:
    """What is known of the replies to one request."""

    usage: StreamUsage = field(default_factory=StreamUsage)
    choices: dict[int, ChoiceStream] = field(default_factory=dict)

    @property
    def finish_reason(self) -> str:
        """Why the first reply ended."""
        return (self.choices[0].finish_reason if 0 in self.choices else None) or "stop"


class Gateway:
    """Asks an engine for replies.

    Args:
        settings: where the engine is, and of which kind.
        renderer: makes the prompts.
        transport: how requests are sent, if not over the network.
    """

    def __init__(
        self,
        settings: ServeSettings,
        renderer: ChatRenderer,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        if settings.upstream is None:
            raise RequestError("a gateway needs an upstream")
        self.settings = settings
        self.kind = settings.upstream_kind
        self.running = 0  # replies that are being sampled
        self._renderer = renderer
        self._url = settings.upstream.rstrip("/").removesuffix("/v1")
        timeout = httpx.Timeout(settings.upstream_seconds, connect=CONNECT_SECONDS)
        # No proxies, redirects or credentials of the environment: nobody but the upstream is asked.
        self._client = httpx.AsyncClient(
            timeout=timeout,
            trust_env=False,
            limits=NO_LIMITS,
            transport=transport,
            headers={"accept-encoding": "identity"},
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def plan(self, body: GatewayBody, model: ServedModel, request_id: str) -> GenerationPlan:
        """Read a request and make its prompt: the work of a thread.

        Raises:
            RequestError: a field is malformed, or cannot be honoured.
            TurnwiseError: the template cannot render the chat.
        """
        refuse_fields(body, NOT_PASSED)
        if body.chat_template is not None:
            raise RequestError(
                "replies to a template of the request are not read here", path="chat_template"
            )
        prompt = self._renderer.encode(body, model)
        plan = make_plan(body, model, prompt, request_id, self.settings)
        return replace(plan, known=prompt.known)

    def plan_plain(
        self, body: PlainGatewayBody, model: ServedModel, request_id: str
    ) -> GenerationPlan:
        """Read a request with a plain prompt.

        Raises:
            RequestError: a field is malformed, or cannot be honoured.
        """
        refuse_fields(body, NOT_PASSED | NOT_PLAIN)
        prompts = read_prompts(body, model, self.settings)
        if len(prompts) > 1:
            raise RequestError("one prompt is answered at a time", path="prompt")
        [(prompt, ids)] = prompts
        return GenerationPlan(
            request_id=request_id,
            model=model,
            upstream_model=self.settings.upstream_model or model.name,
            ids=ids,
            text=prompt if prompt is not None else model.tokenizer.decode(ids),
            sampling=read_plain_sampling(body, model, len(ids)),
            with_ids=bool(body.return_token_ids),
            is_plain=True,
        )

    def make_calls(self, plan: GenerationPlan) -> list[UpstreamCall]:
        """Return the requests to the engine; grammars are written here, so this is the work of a thread, too."""
        calls = UPSTREAMS[self.kind](plan)
        if plan.known is not None:
            self._renderer.memory.keep(plan.known)  # nothing can refuse the chat any more
        return calls

    # -- streams

    async def stream(
        self,
        plan: GenerationPlan,
        calls: list[UpstreamCall],
        make_chunk: Callable[[int, JsonObject, str | None], Made],
        headers: dict[str, str],
        state: ReplyState,
    ) -> AsyncGenerator[list[Made], None]:
        """Yield what is made of the deltas of all replies as they arrive: a list for events that came together.

        Raises:
            UpstreamError: the engine fails, breaks off, or does not follow a grammar.
        """
        choices = state.choices
        for call in list_calls(plan, calls, choices):
            reader = EventReader(self.kind, plan, call, state, make_chunk)
            async with aclosing(self._ask(call, headers, MAX_REPLY * plan.count)) as batches:
                async for events in batches:
                    problem = None
                    try:
                        if sum(map(len, events)) > MAX_ON_LOOP or reader.is_ending(events):
                            await asyncio.to_thread(reader.read, events)
                        else:
                            reader.read(events)
                    except UpstreamError as error:
                        problem = error  # after the chunks before it
                    if reader.chunks:
                        yield reader.chunks
                    reader.chunks = []
                    if problem is not None:
                        raise problem
                    if reader.is_done:
                        break  # the engine need not go on
        if not choices:
            raise odd_answer("no event of a reply")
        if not _are_finished(plan, choices):
            raise UpstreamError("the upstream broke off in the middle of a reply", hint=LOG_HINT)

    async def _ask(
        self, call: UpstreamCall, headers: dict[str, str], most: int
    ) -> AsyncGenerator[list[str], None]:
        """Send a request to the engine, and yield the events of its stream, those that arrived together in one list."""
        try:
            async with self._client.stream(
                "POST", self._url + call.path, json=call.body, headers=headers
            ) as response:
                if response.headers.get("content-encoding", "identity").lower() != "identity":
                    # To unpack it could take any time and memory.
                    raise odd_answer("a compressed answer, and none was asked for")
                if response.status_code != 200:
                    raise await _read_refusal(response, call.path)
                async for lines in read_lines(response.aiter_raw(), most):
                    yield lines
                    await asyncio.sleep(0)  # a read that does not wait gives no turn to others
        except httpx.TimeoutException:
            seconds = self.settings.upstream_seconds
            raise UpstreamError(
                f"the upstream was silent for {seconds:g} s", hint=LOG_HINT, status=504
            ) from None
        except (httpx.ConnectError, httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            raise UpstreamError(
                f"no answer from the upstream: {_find_reason(error)}",
                hint="is it running at the address that was given?",
            ) from None
        except httpx.HTTPError as error:
            raise UpstreamError(
                f"the upstream broke off ({type(error).__name__})", hint=LOG_HINT
            ) from None


@dataclass
class EventReader(Generic[Made]):
    """Reads the events of one request to the engine.

    Attributes:
        kind: the kind of the upstream.
        plan, call: what it was asked.
        state: what is known of the replies, for all requests.
        make_chunk: makes a chunk of the answer from a choice, a delta and a reason.
        is_done: nothing more is needed.
        chunks: what was made; its reader takes them.
    """

    kind: str
    plan: GenerationPlan
    call: UpstreamCall
    state: ReplyState
    make_chunk: Callable[[int, JsonObject, str | None], Made]
    is_done: bool = False
    chunks: list[Made] = field(default_factory=list)

    def is_ending(self, lines: list[str]) -> bool:
        """Return whether a reply may end in these lines: it is checked then, which is the work of a thread."""
        return "stop" in self.plan.sampling or any(map(ENDING.search, lines))

    def read(self, lines: list[str]) -> None:
        """Read lines of the stream.

        Raises:
            UpstreamError: the engine fails, or does not follow a grammar.
        """
        for line in lines:
            if self.is_done:
                return
            if line.startswith("error:"):
                raise report_failure(line[6:].strip())
            text = line[5:].strip()
            if text == DONE:
                self.is_done = True
                return
            try:
                event = json.loads(text)
            except (ValueError, RecursionError):
                raise odd_answer("an event that is not JSON") from None
            for piece in read_event(self.kind, event, self.call, self.state.usage):
                self._read_piece(piece)

    def _read_piece(self, piece: ReplyPiece) -> None:
        number, choices = piece.number, self.state.choices
        if not 0 <= number < self.plan.count:
            raise odd_answer(f"a choice {number}, and {self.plan.count} were asked for")
        if isinstance(piece.chunk, list):
            self.state.usage.counted += len(piece.chunk)
        if number not in choices:
            choices[number] = ChoiceStream(self.plan, number)
        choice = choices[number]
        is_open = not choice.has_ended
        deltas = choice.feed(piece)
        if is_open and choice.has_ended:
            choice.finish()
        self.chunks += [self.make_chunk(choice.index, delta, None) for delta in deltas]
        if is_open and choice.has_ended:
            self.chunks.append(self.make_chunk(choice.index, {}, choice.finish_reason))
        self.is_done = choice.stop_text is not None and _are_finished(self.plan, choices)


NO_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=64)


def list_calls(
    plan: GenerationPlan, calls: list[UpstreamCall], choices: dict[int, ChoiceStream]
) -> Iterator[UpstreamCall]:
    """Yield the requests to the engine, each when the one before is done.

    An engine that samples fewer replies than `n` is asked again, once for each that it left out.
    """
    yield from calls
    if all(choice.finish_reason is not None for choice in choices.values()):
        for number in range(plan.count):
            if choices and number not in choices:
                yield ask_for_one(calls[-1], number)


def _are_finished(plan: GenerationPlan, choices: dict[int, ChoiceStream]) -> bool:
    finished = [choice for choice in choices.values() if choice.finish_reason is not None]
    return len(finished) == plan.count


async def read_lines(
    chunks: AsyncIterator[bytes], most: int = MAX_LINE
) -> AsyncGenerator[list[str], None]:
    """Yield the lines of a stream of events that have data or an error, those of one chunk in one list.

    Only the three line ends of server-sent events count: JSON may hold others as they are, such as U+2028.

    Raises:
        UpstreamError: a line is too long, or the stream has more bytes than `most`.
    """
    begun = bytearray()
    total = 0
    async for chunk in chunks:
        total += len(chunk)
        first, *others = LINE_END.split(chunk)
        begun += first
        if len(begun) > MAX_LINE or total > most:
            raise odd_answer(
                "an event that is too long" if total <= most else "a reply without end"
            )
        if others:
            lines = [begun, *others[:-1]]
            begun = bytearray(others[-1])
            yield [line.decode("utf-8", "replace") for line in lines if line.startswith(FIELDS)]
    if begun.startswith(FIELDS):
        yield [begun.decode("utf-8", "replace")]


def _find_reason(error: BaseException) -> str:
    """Return why a connection failed, in the words of the system; its own text may have the address."""
    name = type(error).__name__
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__ or error
        if isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
    if isinstance(error, socket.gaierror):
        return error_reason(error)
    number = getattr(error, "errno", None)
    return os.strerror(number).lower() if number else name


async def _read_refusal(response: httpx.Response, path: str) -> UpstreamError:
    """Return the error of an upstream that refuses a request; its being busy is passed on."""
    data = b""
    async for chunk in response.aiter_raw():
        data += chunk
        if len(data) > MAX_ERROR:
            break
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = data[:MAX_ERROR].decode("utf-8", "replace")
    code = response.status_code
    status = code if code in (401, 403, 429, 503) else 502
    hint = f"it has no {path}: is --upstream-kind right?" if code == NOT_FOUND else None
    return UpstreamError(
        f"the upstream answered {code}: {describe_problem(value)}", hint=hint, status=status
    )
