"""A small server that renders chat templates with jinja2, as llama.cpp's or vLLM's does, and differs on purpose.

`StandIn(template, change=...)` is a context manager; `.url` is where it listens. `change` is applied to the messages
before they are rendered; `after` to the text; `raw` replaces every answer (status, headers, body).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from scripted_server import RawAnswer, ScriptedServer, to_answer

Messages = list[dict[str, Any]]


class Refusal(Exception):
    """What `raise_exception` raises."""


def render(template: str, body: dict[str, Any], tokens: dict[str, str]) -> str:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value, **how: json.dumps(
        value, ensure_ascii=False, **how
    )
    environment.globals["raise_exception"] = _refuse
    messages = [_with_parsed_arguments(message) for message in body["messages"]]
    return environment.from_string(template).render(
        messages=messages,
        tools=body.get("tools"),
        add_generation_prompt=body.get("add_generation_prompt", True),
        **tokens,
        **body.get("chat_template_kwargs", {}),
    )


def _refuse(message: str) -> None:
    raise Refusal(message)


def _with_parsed_arguments(message: dict[str, Any]) -> dict[str, Any]:
    calls = [
        {
            **call,
            "function": {
                **call["function"],
                "arguments": json.loads(call["function"]["arguments"]),
            },
        }
        for call in message.get("tool_calls") or []
    ]
    return {**message, "tool_calls": calls} if calls else message


class StandIn(ScriptedServer):
    def __init__(
        self,
        template: str,
        kind: str = "llamacpp",
        change: Callable[[Messages], Messages] | None = None,
        after: Callable[[str], str] | None = None,
        raw: RawAnswer | None = None,
        tokens: dict[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.template, self.kind, self.change, self.after, self.raw = (
            template,
            kind,
            change,
            after,
            raw,
        )
        self.tokens = tokens or {}
        self.asked: list[str] = []

    def reply(self, path: str, body: Any) -> RawAnswer:
        self.asked.append(path)
        if self.raw is not None:
            return self.raw
        try:
            status, value = self.answers(path, body)
        except (Refusal, jinja2.TemplateError) as error:
            status, value = 400, {"error": {"message": str(error), "code": 400}}
        return to_answer(value, status)

    def answers(self, path: str, body: Any) -> tuple[int, Any]:
        if self.kind == "llamacpp":
            if path == "/props":
                return 200, {"chat_template": self.template, **self.tokens}
            if path == "/apply-template":
                text = self.make_prompt(body)
                return 200, {"prompt": text.removeprefix(self.tokens.get("bos_token", ""))}
        elif path == "/v1/chat/completions/render" and self.kind == "vllm":
            return 200, {"request_id": "r", "token_ids": ids_of(self.make_prompt(body))}
        elif path == "/tokenize":
            text = body["prompt"] if "prompt" in body else self.make_prompt(body)
            return 200, {"tokens": ids_of(text), "count": len(text)}
        elif path == "/detokenize":
            return 200, {"prompt": "".join(map(chr, body["tokens"]))}
        return 404, {"error": {"message": f"no {path}", "code": 404}}

    def make_prompt(self, body: dict[str, Any]) -> str:
        if self.change is not None:
            body = {**body, "messages": self.change(body["messages"])}
        text = render(self.template, body, self.tokens)
        return text if self.after is None else self.after(text)


def ids_of(text: str) -> list[int]:
    """A tokenizer with one id for each character."""
    return list(map(ord, text))
