"""Processor time of the sidecar for each request: short chats, and a conversation that grows to 64 turns.

    python benchmarks/serve.py [--vllm COMMAND]

Contestants, all with one template and one tokenizer, and with the same ids before anything is counted:

    memory         `turnwise serve`
    no memory      `turnwise serve --memory 0`
    encode         `Template.encode` in this process, without HTTP and JSON
    transformers   `apply_chat_template` in this process: what vLLM's renderer in Python calls, without its overhead
    vllm           `vllm launch render`, if `--vllm` names the command

Servers are processes of their own on loopback, and their processor time is read from /proc, so the client costs
nothing here. Contestants take turns, conversation by conversation, in an order that rotates; figures are medians over
the rounds, in microseconds of processor time. Every round has conversations of its own.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import measure
import workloads

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

TEMPLATE, TOKENIZER = "npm-qwen3", "qwen3"
TURNS = 64
SHORT_REQUESTS = 200  # in a round
START_SECONDS = 600
RENDER = "/v1/chat/completions/render"
# What vLLM wants to know of a model that it never loads.
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 151936,
    "max_position_embeddings": 131072,
    "torch_dtype": "float32",
}

Chat = list[dict[str, Any]]


def make_folder(root: Path) -> Path:
    """Return a model folder with a tokenizer, a template and a config, without weights."""
    made = root / "model"
    made.mkdir()
    for file in workloads.tokenizer_folder(TOKENIZER).iterdir():
        (made / file.name).write_bytes(file.read_bytes())
    text = workloads.subjects([TEMPLATE])[0].text
    (made / "chat_template.jinja").write_text(text, encoding="utf-8")
    (made / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    return made


def make_short(seed: int) -> list[Chat]:
    dice = workloads.Dice(seed)
    return [
        [{"role": "user", "content": workloads.prose(dice, 150)}] for _ in range(SHORT_REQUESTS)
    ]


def make_growing(seed: int) -> list[Chat]:
    """Return a conversation before each of its replies."""
    dice = workloads.Dice(seed)
    chat: Chat = [{"role": "system", "content": workloads.prose(dice, 500)}]
    prompts = []
    for _ in range(TURNS):
        chat.append({"role": "user", "content": workloads.prose(dice, 200)})
        prompts.append(list(chat))
        chat.append({"role": "assistant", "content": workloads.prose(dice, 400)})
    return prompts


def find_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class ServedProcess:
    """A server whose processor time is measured."""

    def __init__(self, command: list[str], model: str) -> None:
        self.model = model
        port = find_port()
        self.process = subprocess.Popen(
            [*command, "--port", str(port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "VLLM_NO_USAGE_STATS": "1"},
        )
        self._wait(f"http://127.0.0.1:{port}/health")
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def _wait(self, address: str) -> None:
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            try:
                with urllib.request.urlopen(address, timeout=5):
                    return
            except OSError:
                time.sleep(0.5)
        raise SystemExit("a server did not start")

    def reconnect(self) -> None:
        """Open a new connection: a server closes one that is idle, while others have their turn."""
        self.connection.close()
        self.connection.connect()

    def render(self, chat: Chat) -> list[int]:
        body = json.dumps({"model": self.model, "messages": chat}).encode()
        headers = {"content-type": "application/json"}
        self.connection.request("POST", RENDER, body, headers)
        answer = self.connection.getresponse()
        data = answer.read()
        assert answer.status == 200, data
        ids: list[int] = json.loads(data)["token_ids"]
        return ids

    def seconds(self) -> float:
        """Return the processor time that the process and those that it started have used, threads included."""
        total = 0
        for pid in [self.process.pid, *self._children(self.process.pid)]:
            for task in Path(f"/proc/{pid}/task").iterdir():
                total += int((task / "schedstat").read_text().split()[0])
        return total / 1e9

    def _children(self, pid: int) -> list[int]:
        found: list[int] = []
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *self._children(int(child))]
        return found

    def close(self) -> None:
        self.connection.close()
        self.process.terminate()
        self.process.wait()


class InProcess:
    """A function of this process."""

    def __init__(self, render: Callable[[Chat], list[int]]) -> None:
        self.render = render
        self.seconds = time.process_time

    def reconnect(self) -> None:
        pass

    def close(self) -> None:
        pass


def make_encode(folder: Path) -> InProcess:
    import turnwise
    from turnwise.tokens.tokenizers import tokenizer

    template, known = turnwise.load(folder), tokenizer(folder)
    return InProcess(
        lambda chat: template.encode(chat, known, add_generation_prompt=True).input_ids
    )


def make_transformers(folder: Path) -> InProcess:
    from transformers import PreTrainedTokenizerFast

    reference = PreTrainedTokenizerFast.from_pretrained(folder)

    def render(chat: Chat) -> list[int]:
        ids: list[int] = reference.apply_chat_template(
            chat, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        return ids

    return InProcess(render)


def count(contestant: Any, chats: list[Chat]) -> list[float]:
    """Return the microseconds of each request."""
    spent = []
    contestant.reconnect()
    for chat in chats:
        start = contestant.seconds()
        contestant.render(chat)
        spent.append((contestant.seconds() - start) * 1e6)
    return spent


def compare(contestants: dict[str, Any], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Return for each kind of request the microseconds of each contestant, round by round."""
    samples: dict[str, dict[str, list[float]]] = {}
    names = list(contestants)
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            one = contestants[name]
            short = count(one, make_short(100 + number))
            growing = count(one, make_growing(1000 + number))
            for kind, spent in (
                ("short", short),
                (f"growing to {TURNS}", growing),
                ("its last 8", growing[-8:]),
            ):
                mean = sum(spent) / len(spent)
                samples.setdefault(kind, {}).setdefault(name, []).append(mean)
    return samples


def main() -> None:
    parser = argparse.ArgumentParser(description="Processor time of the sidecar.")
    parser.add_argument("--vllm", metavar="COMMAND", help="vLLM's command, to be measured too")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        folder = make_folder(Path(root))
        own = [sys.executable, "-m", "turnwise", "serve", f"model={folder}"]
        own += ["--no-playground", "--no-request-templates"]
        contestants: dict[str, Any] = {
            "memory": ServedProcess(own, "model"),
            "no memory": ServedProcess([*own, "--memory", "0"], "model"),
            "encode": make_encode(folder),
            "transformers": make_transformers(folder),
        }
        try:
            if asked.vllm:
                command = [asked.vllm, "launch", "render", str(folder), "--host", "127.0.0.1"]
                contestants["vllm"] = ServedProcess(command, str(folder))
            chats = [*make_short(1)[:20], *make_growing(1)]
            for chat in chats:
                wanted = contestants["transformers"].render(chat)
                for name, one in contestants.items():
                    assert one.render(chat) == wanted, f"{name} gives other ids"
            rows = compare(contestants, asked.rounds)
        finally:
            for one in contestants.values():
                one.close()
    if asked.json:
        print(json.dumps({"versions": measure.versions(), "us": rows}, indent=2))
        return
    table = [
        [kind, *(f"{median(row[name]):,.0f}" for name in contestants)] for kind, row in rows.items()
    ]
    print(measure.table(["µs of processor time", *contestants], table))


if __name__ == "__main__":
    main()
