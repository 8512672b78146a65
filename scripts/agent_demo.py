"""Agents of three APIs in front of one engine, and what each of their turns computed again: `make agent-demo`.

    SDK of Anthropic, or of OpenAI -> turnwise serve -> an engine with a prefix cache

The clients are the SDKs as they are published, streaming. After each reply they append it as it came, the results of
its calls, and a reminder as a system message in the middle of the conversation, as coding agents do. The engines are
llama.cpp's own server with a tiny model of random weights (its replies are noise), and one that replays replies with
calls in them. Both report how much of a prompt they had computed before.

"again" is what of the prompt before had to be computed once more: nothing, where prompts only grow. The last table
shows the same agents with `--late-system front`, the way in which reminders were placed until 2026.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from os.path import commonprefix
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

RULES = "You are a harbour master of {}. Answer briefly."  # of each client its own
QUESTIONS = ("High water at Brest?", "And at Calais?", "Which is earlier?", "Thanks. And tomorrow?")
REMINDER = "The list of open tasks has changed: {} left."
SCHEMA = {"type": "object", "properties": {"port": {"type": "string"}}, "required": ["port"]}
ABOUT = {"name": "tide", "description": "The tide at a port."}
REPLY_TOKENS = 24
TURNS = 8


class Turn(NamedTuple):
    """What an engine reported about one request."""

    prompt: int
    cached: int
    calls: list[str]
    """The ids of the calls in the reply."""


# -- clients: each makes one request and appends the reply to its conversation


class AnthropicAgent:
    """Anthropic's SDK, which speaks Messages."""

    name = "anthropic, messages"

    def __init__(self, url: str, model: str) -> None:
        import anthropic

        self._client = anthropic.Anthropic(api_key="-", base_url=url, max_retries=0)
        self._model = model
        self._messages: list[Any] = []

    def say(self, role: str, text: str) -> None:
        self._messages.append({"role": role, "content": text})

    def give_results(self, calls: list[str]) -> None:
        blocks = [{"type": "tool_result", "tool_use_id": id, "content": "7.1 m"} for id in calls]
        self._messages.append({"role": "user", "content": blocks})

    def ask(self) -> Turn:
        with self._client.messages.stream(
            model=self._model,
            max_tokens=REPLY_TOKENS,
            system=RULES.format(self.name),
            messages=self._messages,
            tools=[{**ABOUT, "input_schema": SCHEMA}],
        ) as stream:
            reply = stream.get_final_message()
        self._messages.append({"role": "assistant", "content": reply.content or "..."})
        calls = [block.id for block in reply.content if block.type == "tool_use"]
        cached = reply.usage.cache_read_input_tokens or 0
        return Turn(reply.usage.input_tokens + cached, cached, calls)


class ChatAgent:
    """OpenAI's SDK, speaking Chat Completions."""

    name = "openai, chat"

    def __init__(self, url: str, model: str) -> None:
        import openai

        self._client = openai.OpenAI(api_key="-", base_url=f"{url}/v1", max_retries=0)
        self._model = model
        self._messages: list[Any] = [{"role": "system", "content": RULES.format(self.name)}]

    def say(self, role: str, text: str) -> None:
        self._messages.append({"role": role, "content": text})

    def give_results(self, calls: list[str]) -> None:
        for id in calls:
            self._messages.append({"role": "tool", "tool_call_id": id, "content": "7.1 m"})

    def ask(self) -> Turn:
        with self._client.chat.completions.stream(
            model=self._model,
            max_completion_tokens=REPLY_TOKENS,
            messages=self._messages,
            tools=[{"type": "function", "function": {**ABOUT, "parameters": SCHEMA}}],
            stream_options={"include_usage": True},
        ) as stream:
            for _ in stream:  # get_final_completion refuses a reply that the limit cut
                pass
            found = stream.current_completion_snapshot
        message = found.choices[0].message
        calls = []
        for call in message.tool_calls or ():
            function = {"name": call.function.name, "arguments": call.function.arguments}
            calls.append({"id": call.id, "type": "function", "function": function})
        reply: dict[str, Any] = {"role": "assistant", "content": message.content}
        self._messages.append({**reply, "tool_calls": calls} if calls else reply)
        assert found.usage is not None
        details = found.usage.prompt_tokens_details
        cached = (details.cached_tokens if details else 0) or 0
        return Turn(found.usage.prompt_tokens, cached, [call["id"] for call in calls])


class ResponsesAgent:
    """OpenAI's SDK, speaking Responses: the whole conversation is sent each time."""

    name = "openai, responses"

    def __init__(self, url: str, model: str) -> None:
        import openai

        self._client = openai.OpenAI(api_key="-", base_url=f"{url}/v1", max_retries=0)
        self._model = model
        self._items: list[Any] = []

    def say(self, role: str, text: str) -> None:
        self._items.append({"role": role, "content": text})

    def give_results(self, calls: list[str]) -> None:
        for id in calls:
            self._items.append({"type": "function_call_output", "call_id": id, "output": "7.1 m"})

    def ask(self) -> Turn:
        with self._client.responses.stream(
            model=self._model,
            max_output_tokens=REPLY_TOKENS,
            instructions=RULES.format(self.name),
            input=self._items,
            tools=[{"type": "function", **ABOUT, "parameters": SCHEMA, "strict": False}],
            store=False,
        ) as stream:
            last: Any = list(stream)[-1]  # completed, or incomplete if the limit cut it
        self._items += [item.to_dict() for item in last.response.output]
        calls = [item.call_id for item in last.response.output if item.type == "function_call"]
        usage = last.response.usage
        return Turn(usage.input_tokens, usage.input_tokens_details.cached_tokens, calls)


AGENTS: tuple[Callable[[str, str], Any], ...] = (AnthropicAgent, ChatAgent, ResponsesAgent)


def run_agent(agent: Any) -> Iterator[Turn]:
    """Yield the turns of one agent: a question or results, and a reminder between them."""
    agent.say("user", QUESTIONS[0])
    asked = 1
    for number in range(TURNS):
        turn = agent.ask()
        yield turn
        if turn.calls:
            agent.give_results(turn.calls)
            agent.say("system", REMINDER.format(TURNS - number))
        else:
            agent.say("system", REMINDER.format(TURNS - number))
            agent.say("user", QUESTIONS[asked % len(QUESTIONS)])
            asked += 1


# -- engines


@contextmanager
def run_scripted() -> Iterator[tuple[str, str]]:
    """Run an engine that replays replies, in the protocol of vLLM; its address, and its kind."""
    from turnwise.tokens.tokenizers import tokenizer

    known = tokenizer("turnwise")
    call = '<tool_call>\n{"name": "tide", "arguments": {"port": "Brest"}}\n</tool_call>'
    replies = [f"{call}<|im_end|>", "At noon.<|im_end|>", f"Wait.\n{call}\n{call}<|im_end|>"]
    served: list[list[int]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            prompt = body["token_ids"]
            cached = max((len(commonprefix([prompt, one])) for one in served), default=0)
            ids = known.whole(replies[len(served) % len(replies)])
            served.append([*prompt, *ids])
            usage = {
                "completion_tokens": len(ids),
                "prompt_tokens_details": {"cached_tokens": cached},
            }
            choices = [{"index": 0, "token_ids": [id], "finish_reason": None} for id in ids]
            choices.append({"index": 0, "token_ids": [], "finish_reason": "stop"})
            events = [json.dumps({"choices": [choice]}) for choice in choices]
            events += [json.dumps({"choices": [], "usage": usage}), "[DONE]"]
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self.wfile.write("".join(f"data: {event}\n\n" for event in events).encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", "generate"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def run_llamacpp() -> Iterator[tuple[str, str]]:
    """Run llama.cpp's server with a model of noise; its address, and its kind."""
    import xllamacpp  # type: ignore[import-not-found]

    from tiny_gguf import write_model  # type: ignore[import-not-found]
    from turnwise.tokens.tokenizers.files import SHIPPED

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "noise.gguf"
        write_model(Path(SHIPPED), place)
        settings = xllamacpp.CommonParams()
        settings.model.path = str(place)
        settings.port = 0
        settings.verbosity = 0
        settings.n_ctx = 8192
        settings.n_parallel = 1
        settings.warmup = False
        settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
        running = xllamacpp.Server(settings)
        yield running.listening_address, "llamacpp"
        del running


ENGINES = {"llama.cpp": run_llamacpp, "scripted": run_scripted}


@contextmanager
def run_gateway(model: str, engine: str, kind: str, *more: str) -> Iterator[str]:
    """Run `turnwise serve` before an engine; its address."""
    from turnwise.tokens.tokenizers.files import SHIPPED

    words = [
        "serve",
        model,
        "--port",
        "0",
        "--json",
        "--tokenizer",
        str(SHIPPED),
        "--no-playground",
    ]
    words += ["--upstream", engine, "--upstream-kind", kind, *more]
    command = [sys.executable, "-m", "turnwise", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        try:
            assert server.stdout is not None
            yield json.loads(server.stdout.readline())["url"]
        finally:
            server.terminate()


def show_agents(model: str, engine: str, kind: str, *more: str) -> tuple[int, int]:
    """Print the turns of each agent; return the tokens that were computed again, and those of all prompts."""
    print(f"{'client':<20} {'turn':>4} {'prompt':>6} {'cached':>6} {'new':>5} {'again':>6}  calls")
    again_total = prompt_total = 0
    with run_gateway(model, engine, kind, *more) as url:
        for make_agent in AGENTS:
            before = 0
            agent = make_agent(url, model)
            for number, turn in enumerate(run_agent(agent), 1):
                again = max(0, before - turn.cached)
                new = turn.prompt - before
                print(
                    f"{agent.name:<20} {number:>4} {turn.prompt:>6} {turn.cached:>6} {new:>5} {again:>6}"
                    f"  {len(turn.calls) or ''}"
                )
                before = turn.prompt
                again_total += again
                prompt_total += turn.prompt
    return again_total, prompt_total


def main() -> int:
    """Run the agents before each engine; fail if a prompt did not begin with the one before it."""
    parser = argparse.ArgumentParser(description="Agents of three APIs in front of one engine.")
    parser.add_argument("--model", default="qwen3", help="an entry")
    parser.add_argument("--engine", choices=ENGINES, action="append", help="all, if none is named")
    options = parser.parse_args()
    lost = 0
    for name in options.engine or ENGINES:
        with ENGINES[name]() as (engine, kind):
            print(f"\n{name}, {options.model}: prompts that only grow")
            again, total = show_agents(options.model, engine, kind)
            print(f"computed again: {again:,} of {total:,} tokens")
            lost += again
            print(f"\n{name}, {options.model}: --late-system front")
            front, total = show_agents(options.model, engine, kind, "--late-system", "front")
            print(f"computed again: {front:,} of {total:,} tokens")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
