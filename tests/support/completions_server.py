"""A completions server that samples nothing: it answers `/v1/completions` with texts of a script.

`CompletionsServer(replies)` is a context manager; `.url` is where it listens, `.bodies` are the requests. `replies` is
a function of a request's body. The answer to a request with `echo` has log-probabilities for each id of the prompt: the
less, the larger the id. After `dies_after` requests it closes connections without an answer.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class CompletionsServer:
    def __init__(
        self, replies: Callable[[dict[str, Any]], str], dies_after: int | None = None
    ) -> None:
        self.bodies: list[dict[str, Any]] = []
        served = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if dies_after is not None and len(served.bodies) >= dies_after:
                    self.connection.close()
                    return
                served.bodies.append(body)
                data = json.dumps(answer(body, replies)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/v1"

    def __enter__(self) -> CompletionsServer:
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.server.shutdown()
        self.server.server_close()


def answer(body: dict[str, Any], replies: Callable[[dict[str, Any]], str]) -> dict[str, Any]:
    """Return the answer to a request, one choice for each prompt of it."""
    prompts = body["prompt"]
    if isinstance(prompts, str) or (prompts and isinstance(prompts[0], int)):
        prompts = [prompts]
    choices = []
    for index, prompt in enumerate(prompts):
        choice: dict[str, Any] = {"index": index, "finish_reason": "stop"}
        choice["text"] = replies({**body, "prompt": prompt})
        if body.get("echo"):
            scores = [-id / 10_000 for id in [*prompt, 0]]
            tops = [{str(place): score} for place, score in enumerate(scores)]
            choice["logprobs"] = {"token_logprobs": scores, "top_logprobs": tops}
        choices.append(choice)
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return {
        "id": "cmpl-1",
        "object": "text_completion",
        "created": 1,
        "model": body["model"],
        "choices": choices,
        "usage": usage,
    }
