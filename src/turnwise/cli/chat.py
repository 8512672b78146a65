"""`turnwise chat`: talk to an engine from the terminal; the template is ours, the engine only samples."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing
from typing import Any

from turnwise.cli import inputs, output
from turnwise.cli.extras import import_extra
from turnwise.cli.serve import KINDS as KINDS
from turnwise.cli.serve import check_tokenizer
from turnwise.messages import JsonObject
from turnwise.serve.bodies import read_fields
from turnwise.serve.models import ServedModels, load_model
from turnwise.serve.request_types import GatewayBody
from turnwise.serve.service import Service
from turnwise.serve.settings import ServeSettings
from turnwise.serve.upstreams import UpstreamError

PROMPT = "> "
MAX_LINE = 1 << 20  # characters of a question


def chat(
    base_url: str,
    template: str,
    tokenizer: str | None = None,
    kind: str | None = None,
    model: str | None = None,
    user: str | None = None,
    system: str | None = None,
    tools: str | None = None,
    max_tokens: int | None = None,
    temperature: float | None = None,
    option: list[str] | None = None,
    as_json: bool = False,
) -> None:
    """Talk to an engine that continues token ids or text; replies are parsed as they arrive.

    Questions are lines of stdin. With --json, each reply is one line: the message.

    Example: turnwise chat --base-url http://localhost:8000 -t qwen3

    Options:
        base_url URL: The address of the engine.
        template -t: A model folder, a file, or an entry.
        tokenizer -k PATH: The model's tokenizer.
        kind --upstream-kind KIND: {KINDS}; completions with a tokenizer, else text.
        model: What the engine calls the model.
        user: One question; without it, they are read.
        system: A system message to put first.
        tools FILE: A JSON file with a list of tools.
        max_tokens min=1: The most tokens of a reply.
        temperature min=0: 0 is the likeliest reply.
    """
    inputs.check_url(base_url, "--base-url")
    engines = import_extra("turnwise.serve.gateway", "chat")
    served = load_model(template, tokenizer)
    is_text = kind == "text" or (kind is None and served.has_shipped_tokenizer)
    kind = kind or ("text" if is_text else "completions")
    if not is_text:
        check_tokenizer(served)
    settings = ServeSettings(upstream=base_url, upstream_kind=kind, upstream_model=model)
    fields: JsonObject = {"max_tokens": max_tokens, "temperature": temperature}
    options = fields["chat_template_kwargs"] = inputs.parse_options(option or [])
    inputs.check_options(options, served.template)
    if tools is not None:
        fields["tools"] = inputs.read_tools(tools)
    service = Service(ServedModels([served]), settings)
    gateway = engines.Gateway(settings, service.renderer)
    history: list[Any] = [] if system is None else [{"role": "system", "content": system}]
    with asyncio.Runner() as runner:
        try:
            for question in [user] if user is not None else _read_questions():
                history.append({"role": "user", "content": question})
                body = read_fields(GatewayBody, {"messages": history, **fields}, settings)
                show = None if as_json else _Printer()
                state = engines.ReplyState()
                message = runner.run(_ask(gateway, body, served, show, state))
                history.append(message)
                if as_json:
                    output.write_json(message, indent=None)
        except (
            UpstreamError
        ) as error:  # which does not tell the clients of a server where the engine is
            error.message = error.message.replace("the upstream", base_url, 1)
            raise
        finally:
            runner.run(gateway.close())


def _read_questions() -> Any:
    while True:
        if sys.stdin.isatty():
            output.write(PROMPT)
        line = sys.stdin.readline(MAX_LINE)
        if not line:
            return
        if line.strip():
            yield line.rstrip("\n")


class _Printer:
    """Writes the deltas of a reply to the terminal: reasoning dim, calls as `name(arguments)`."""

    def __init__(self) -> None:
        self._call: int | None = None

    def show(self, delta: JsonObject) -> None:
        if delta.get("reasoning_content"):
            output.write_styled(output.paint_if_wanted(delta["reasoning_content"], "dim"))
        if delta.get("content"):
            output.write(delta["content"])
        for call in delta.get("tool_calls", ()):
            function = call.get("function", {})
            if call["index"] != self._call:
                self.close("")
                self._call = call["index"]
                output.write(f"\n{function.get('name', '')}(")
            output.write(function.get("arguments", ""))
        sys.stdout.flush()

    def close(self, end: str = "\n") -> None:
        output.write(end if self._call is None else f"){end}")


async def _ask(
    gateway: Any, body: Any, model: Any, show: _Printer | None, state: Any
) -> JsonObject:
    plan = gateway.plan(body, model, "chatcmpl-terminal")
    calls = gateway.make_calls(plan)
    chunks = gateway.stream(plan, calls, lambda _, delta, reason: delta, {}, state)
    async with aclosing(chunks):
        async for deltas in chunks:
            for delta in deltas:
                if show is not None:
                    show.show(delta)
    if show is not None:
        show.close()
    message: JsonObject = state.choices[0].message
    message.pop("reasoning", None)  # the same text under another name
    return message
