"""The work of a server without HTTP: each path is a function from a body to an answer, run in a thread.

Nothing is rendered, encoded or parsed on the event loop, so health checks are answered while others work. Threads
share the interpreter; what may take long or is a stranger's code (a template of a request, the playground) runs in
worker processes that are started with the server.
"""

from __future__ import annotations

import json
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from turnwise.engine.option_names import SPECIAL_TOKENS
from turnwise.isolation import WorkerPool, isolated
from turnwise.messages import JsonObject
from turnwise.serve.api_requests import CountBody, MessagesBody, ResponsesBody, read_api_request
from turnwise.serve.bodies import RequestBody, RequestError
from turnwise.serve.derendering import Derenderer
from turnwise.serve.memory import ConversationMemory, join_ids
from turnwise.serve.models import ServedModels
from turnwise.serve.operations import Metrics
from turnwise.serve.rendering import (
    ChatRenderer,
    describe_prompt,
    encode_plain,
    find_plain_offsets,
    find_unknown_fields,
    make_generate_request,
    note_warnings,
    read_prompts,
    write_with_ids,
)
from turnwise.serve.request_types import (
    CompletionBody,
    DerenderBody,
    DetokenizeBody,
    RenderBody,
    TokenizeBody,
)
from turnwise.serve.sampling import read_plain_sampling
from turnwise.serve.settings import ServeSettings

PLAYGROUND = "turnwise.serve.playground_api:call"
PRELOAD = (
    "from turnwise.tokens.tokenizers import tokenizer\nfor place in {places!r}: tokenizer(place)"
)
SLOW = "turnwise-slow"  # the beginning of the names of threads that may wait


class RefusedCall(RequestError):
    """A call of the playground that failed; `answer` is the JSON returned to the page, in the shape of the call."""

    def __init__(self, answer: JsonObject) -> None:
        super().__init__(answer["error"]["message"])
        self.answer = answer


class SlowWork(Exception):
    """Work for the slow lane was begun in the quick one; it never leaves the server."""


class Service:
    """The models of a server and everything that requests share.

    Args:
        models: the models.
        settings: the limits.
    """

    def __init__(self, models: ServedModels, settings: ServeSettings) -> None:
        self.models = models
        self.settings = settings
        self.metrics = Metrics()
        self.memory = ConversationMemory(settings.memory_bytes)
        self.renderer = ChatRenderer(settings, self.memory, self.find_pool)
        self.replies = Derenderer(self.renderer)
        self.started = int(time.time())
        self._lock = threading.Lock()
        self._pools: dict[str, WorkerPool] = {}

    def warm_up(self) -> None:
        """Make the first request as fast as the second."""
        for model in self.models:
            model.warm_up()

    def start_workers(self) -> None:
        """Start the worker processes, and wait until they can work: that takes seconds on a busy machine.

        Raises:
            TurnwiseError: they do not start.
        """
        wanted = {
            self.find_pool: self.settings.request_templates,
            self._find_playground_pool: self.settings.playground,
        }
        for pool in [find() for find, is_wanted in wanted.items() if is_wanted]:
            pool.wait_until_ready()

    def close(self) -> None:
        """End the worker processes."""
        with self._lock:
            for pool in self._pools.values():
                pool.close()
            self._pools.clear()

    # -- worker processes

    def find_pool(self) -> WorkerPool:
        """Return the workers for templates of requests; they have loaded the tokenizers."""
        places = sorted({model.tokenizer_place for model in self.models})
        return self._start_pool(
            "templates", self.settings.worker_seconds, PRELOAD.format(places=places)
        )

    def call_playground(self, verb: str, body: Any) -> JsonObject:
        """Run a call of the playground in a worker."""
        pool = self._find_playground_pool()
        answer: JsonObject = pool.run(PLAYGROUND, verb, body, self.models.resources)
        return answer

    def _find_playground_pool(self) -> WorkerPool:
        module = PLAYGROUND.partition(":")[0]
        return self._start_pool("playground", self.settings.playground_seconds, f"import {module}")

    def _start_pool(self, name: str, seconds: float, setup: str) -> WorkerPool:
        # Whoever waits for a worker must not keep others from a thread.
        if not threading.current_thread().name.startswith(SLOW):
            raise SlowWork
        with self._lock:
            pool = self._pools.get(name)
            if pool is None:
                settings = self.settings
                pool = self._pools[name] = isolated(
                    settings.workers,
                    seconds=seconds,
                    megabytes=settings.worker_megabytes,
                    patience=settings.total_seconds,
                    setup=setup,
                )
            return pool

    # -- paths

    def render_chat(self, body: RenderBody, request_id: str, warnings: list[str]) -> bytes:
        """`/v1/chat/completions/render`: a GenerateRequest."""
        model = self.models.find(body.model)
        prompt = self.renderer.encode(body, model)
        answer = make_generate_request(
            body, model, prompt, f"chatcmpl-{request_id}", self.settings, warnings
        )
        written = write_with_ids(answer, "token_ids", prompt.known.text)
        self.memory.keep(prompt.known)
        self.metrics.add("prompt_tokens", len(prompt.encoded))
        self.metrics.add("common_prefix_tokens", prompt.known.common)
        return written

    def render_other(
        self, body: MessagesBody | ResponsesBody, request_id: str, warnings: list[str]
    ) -> bytes:
        """`/v1/messages/render`, `/v1/responses/render`: a GenerateRequest."""
        chat = read_api_request(body, RenderBody, self.settings)
        return self.render_chat(chat, request_id, warnings)

    def count_tokens(self, body: CountBody, request_id: str, warnings: list[str]) -> bytes:
        """`/v1/messages/count_tokens`: how long a prompt is."""
        chat = read_api_request(body, RenderBody, self.settings)
        prompt = self.renderer.encode(chat, self.models.find(body.model))
        return _write({"input_tokens": len(prompt.encoded)}, warnings)

    def describe_tokenizer(self) -> JsonObject:
        """`/tokenizer_info`: what a harness asks of the first model; the names are those of tokenizer_config.json."""
        model = next(iter(self.models))
        options = model.template.options
        tokens = {name: options[name] for name in SPECIAL_TOKENS if options.get(name)}
        length = {} if model.max_length is None else {"model_max_length": model.max_length}
        return {
            "tokenizer_class": type(model.tokenizer).__name__,
            **tokens,
            **length,
            "chat_template": model.template.text,
        }

    def render_completion(
        self, body: CompletionBody, request_id: str, warnings: list[str]
    ) -> bytes:
        """`/v1/completions/render`: a list of GenerateRequests, one for each prompt."""
        model = self.models.find(body.model)
        prompts = read_prompts(body, model, self.settings)
        answers = []
        for index, (prompt, ids) in enumerate(prompts):
            suffix = "" if len(prompts) == 1 else f"-{index}"
            answer: JsonObject = {
                "request_id": f"cmpl-{request_id}{suffix}",
                "model": model.name,
                "sampling_params": read_plain_sampling(body, model, len(ids)),
                "stream": body.stream,
                "cache_salt": body.cache_salt,
                "priority": body.priority,
                "features": None,
                "token_offsets": None,
            }
            if prompt is not None and body.return_token_offsets:
                answer["token_offsets"] = find_plain_offsets(model, prompt, ids)
            answers.append(write_with_ids(answer, "token_ids", join_ids(ids)))
        return b"[" + b",".join(answers) + b"]"

    def derender_chat(self, body: DerenderBody, request_id: str, warnings: list[str]) -> bytes:
        """`/v1/chat/completions/derender`: a message, or what is new of one."""
        read = self.replies.read_chunk if body.stream else self.replies.read_reply
        return _write(read(body, self.models.find(body.model), int(time.time())), warnings)

    def tokenize(self, body: TokenizeBody, request_id: str, warnings: list[str]) -> bytes:
        """`/tokenize`: the ids of a prompt or of a chat."""
        model = self.models.find(body.model)
        answer: JsonObject = {"max_model_len": model.max_length}
        if body.messages is not None:
            prompt = self.renderer.encode(body, model)
            ids, text = prompt.encoded.input_ids, prompt.known.text
            answer |= describe_prompt(body, prompt.encoded)
            warnings = [*warnings, *find_unknown_fields(body)]
        else:
            if body.prompt is None:
                raise RequestError("this field is missing", path="prompt")
            ids = encode_plain(model, body.prompt, body.add_special_tokens)
            text = join_ids(ids)
        answer["count"] = len(ids)
        answer["token_strs"] = None
        if body.return_token_strs:
            answer["token_strs"] = [model.tokenizer.token(id) for id in ids]
        return write_with_ids(answer | note_warnings(warnings), "tokens", text)

    def detokenize(self, body: DetokenizeBody, request_id: str, warnings: list[str]) -> bytes:
        """`/detokenize`: the text of ids."""
        model = self.models.find(body.model)
        ids = body.tokens
        unknown = next((id for id in set(ids) if model.tokenizer.token(id) is None), None)
        if unknown is not None:
            raise RequestError(f"the tokenizer has no id {unknown}", path="tokens")
        return _write({"prompt": model.tokenizer.decode(ids)}, warnings)

    def apply_template(self, body: RenderBody, request_id: str, warnings: list[str]) -> bytes:
        """`/apply-template`: the prompt of a chat as text."""
        prompt = self.renderer.render_text(body, self.models.find(body.model))
        return _write({"prompt": prompt}, [*warnings, *find_unknown_fields(body)])

    def list_models(self) -> JsonObject:
        """`/v1/models`: the models that are served."""
        rows = [
            {
                "id": model.name,
                "object": "model",
                "created": self.started,
                "owned_by": "turnwise",
                "root": model.name,
                "parent": None,
                "max_model_len": model.max_length,
            }
            for model in self.models
        ]
        return {"object": "list", "data": rows}

    def playground(self, verb: str) -> Callable[[RequestBody, str, list[str]], bytes]:
        """`/api/<verb>`: a call of the playground."""

        def run(body: RequestBody, request_id: str, warnings: list[str]) -> bytes:
            answer = self.call_playground(verb, body.given)
            if "error" in answer:
                raise RefusedCall(answer)
            return json.dumps(answer, allow_nan=False).encode()

        return run


def _write(answer: JsonObject, warnings: list[str]) -> bytes:
    return json.dumps(answer | note_warnings(warnings), allow_nan=False).encode()


def locate_failure(error: Exception) -> str:
    """Return where a defect is, for the log: the error's own text may quote the request."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames[-3:]]
    return f"{type(error).__name__} at {' < '.join(reversed(places))}"
