"""A completions server that samples nothing: it answers `/v1/completions` with texts of a script.

`CompletionsServer(replies)` is a context manager; `.url` is where it listens, `.bodies` are the requests. `replies` is
a function of a request's body. The answer to a request with `echo` has log-probabilities for each id of the prompt: the
less, the larger the id. After `dies_after` requests it closes connections without an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scripted_server import RawAnswer, ScriptedServer, to_answer


class CompletionsServer(ScriptedServer):
    prefix = "/v1"

    def __init__(
        self, replies: Callable[[dict[str, Any]], str], dies_after: int | None = None
    ) -> None:
        super().__init__()
        self.replies, self.dies_after = replies, dies_after
        self.bodies: list[dict[str, Any]] = []

    def reply(self, path: str, body: Any) -> RawAnswer | None:
        if self.dies_after is not None and len(self.bodies) >= self.dies_after:
            return None
        self.bodies.append(body)
        return to_answer(answer(body, self.replies))


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
