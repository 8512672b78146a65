"""Servers for tests: some entries with the shipped tokenizer, through starlette's client or on a port of loopback."""

from __future__ import annotations

import io
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import turnwise
from turnwise.serve.app import Server
from turnwise.serve.models import ServedModels, load_model
from turnwise.serve.operations import JsonLog
from turnwise.serve.running import make_server
from turnwise.serve.service import Service
from turnwise.serve.settings import ServeSettings

ENTRIES = ("qwen3", "llama-3.1", "deepseek-v3.1", "mistral-tekken")
TIDE = {
    "type": "function",
    "function": {
        "name": "tide",
        "description": "The tide at a port.",
        "parameters": {
            "type": "object",
            "properties": {"port": {"type": "string"}, "day": {"type": "integer"}},
            "required": ["port"],
        },
    },
}
WORDS = (
    *("tide", "low", "high", "port", "ship", "rope", "wind", "海", "сюда", "7", "{x}", "'a'", "\n"),
    *("<|im_end|>", "</think>", "[INST]", "<|eot_id|>"),
)
SIZES = (1, 7, 21, 61)  # messages of a chat


load_once = cache(load_model)


def start_command(*arguments: str) -> subprocess.Popen[str]:
    """Start `turnwise serve` of this checkout on a free port, in a process of its own."""
    command = [sys.executable, "-m", "turnwise", "serve", *arguments, "--port", "0"]
    folder = str(Path(turnwise.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": folder}
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)


def make_service(names: Sequence[str] = ("qwen3",), **changes: Any) -> Service:
    models = ServedModels([load_once(name) for name in names])
    changes.setdefault("allowed_hosts", ("testserver", "127.0.0.1", "localhost"))
    for name in ("request_templates", "playground"):  # they start worker processes
        changes.setdefault(name, False)
    return Service(models, ServeSettings(**changes))


@contextmanager
def client_of(service: Service, upstream: Any = None) -> Iterator[TestClient]:
    app = Server(service, JsonLog(io.StringIO()), upstream).application()
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


@contextmanager
def listening(service: Service) -> Iterator[str]:
    """Run a server on a free port of loopback, in a thread; its address."""
    server = make_server(service)
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
        assert thread.is_alive(), "the server did not start"
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive(), "the server did not stop"


QUIET = pytest.mark.filterwarnings("ignore::turnwise.errors.TurnwiseWarning")
"""For clients that live longer than a test: pytest sets its own filters for each."""


def make_text(chance: random.Random, most: int = 40) -> str:
    return " ".join(chance.choice(WORDS) for _ in range(chance.randint(1, most)))


def make_chat(chance: random.Random, size: int) -> list[dict[str, Any]]:
    """A conversation that ends with a question, with control tokens in its texts."""
    chat: list[dict[str, Any]] = []
    if size > 1 and chance.random() < 0.5:
        chat.append({"role": "system", "content": make_text(chance)})
    while len(chat) < size or chat[-1]["role"] != "user":
        role = "assistant" if chat and chat[-1]["role"] == "user" else "user"
        chat.append({"role": role, "content": make_text(chance)})
    return chat


def post(client: Any, path: str, body: Any, status: int = 200) -> Any:
    headers = {"content-type": "application/json"}
    answer = client.post(path, content=json.dumps(body), headers=headers)
    assert answer.status_code == status, answer.text
    return answer.json()
