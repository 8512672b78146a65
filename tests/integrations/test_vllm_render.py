"""`vllm launch render`, vLLM's server that renders prompts without a GPU: with our renderer, and with its own.

Its own is also the oracle for `turnwise serve`, which answers on the same path.

`make integrations-vllm` installs it. The folder that is served has a tokenizer, a template and a config, no weights.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

import corpus
import turnwise
from corpus import needs_corpus
from host_chats import conversations
from served import start_command

pytest.importorskip("vllm")

pytestmark = [pytest.mark.slow, needs_corpus]

TEMPLATE = "trl-qwen3"
TOKENIZER = "qwen3"
SIDECAR = "sidecar"  # the name of its model
PARSER = ("--enable-auto-tool-choice", "--tool-call-parser", "turnwise")  # for requests with tools
START_SECONDS = 600  # of a server, on a busy machine
CONTROL_TOKENS = ("<|im", "<|end", "<think", "<tool")
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
    "max_position_embeddings": 32768,
    "torch_dtype": "float32",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = corpus.folder()
    assert root is not None
    made = tmp_path_factory.mktemp("model")
    for file in (root / "tokenizers" / TOKENIZER).iterdir():
        (made / file.name).write_bytes(file.read_bytes())
    text = (root / "jinja" / f"{TEMPLATE}.jinja").read_text(encoding="utf-8")
    (made / "chat_template.jinja").write_text(text, encoding="utf-8")
    (made / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    return made


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def serve(folder: Path, *options: str) -> Iterator[str]:
    """Run a server, and yield its address once it answers."""
    port = free_port()
    command = [Path(sys.executable).parent / "vllm", "launch", "render", folder]
    arguments = ["--port", str(port), "--host", "127.0.0.1", *options]
    log = (folder.parent / f"render-{port}.log").open("w+", encoding="utf-8")
    process = subprocess.Popen(
        [*map(str, command), *arguments],
        stdout=log,
        stderr=subprocess.STDOUT,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"},
    )
    address = f"http://127.0.0.1:{port}"
    try:
        wait_for(address, process, log)
        yield address
    finally:
        process.terminate()
        process.wait(60)
        log.close()


def wait_for(address: str, process: subprocess.Popen[bytes], log: Any) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        try:
            with urlopen(f"{address}/health", timeout=5):
                return
        except (URLError, OSError):
            time.sleep(1)
    log.seek(0)
    pytest.fail(f"no server: {log.read()[-3000:]}")


@pytest.fixture(scope="module")
def with_turnwise(folder: Path) -> Iterator[str]:
    yield from serve(folder, "--tokenizer-mode", "turnwise", *PARSER)


@pytest.fixture(scope="module")
def without_turnwise(folder: Path) -> Iterator[str]:
    yield from serve(folder, *PARSER)


@pytest.fixture(scope="module")
def sidecar(folder: Path) -> Iterator[str]:
    process = start_command(f"{SIDECAR}={folder}", "--no-playground", "--no-request-templates")
    try:
        assert process.stderr is not None
        found = re.search(r"http://[0-9.:]+", process.stderr.readline())
        assert found is not None
        while '"ready"' not in process.stderr.readline():
            assert process.poll() is None
        yield found[0]
    finally:
        process.terminate()
        process.communicate(timeout=60)


def render(address: str, model: Path | str, chat: Any) -> list[int]:
    body = {"model": str(model), "messages": chat["messages"]}
    if chat["tools"]:
        body["tools"] = chat["tools"]
    request = Request(
        f"{address}/v1/chat/completions/render",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urlopen(request, timeout=120) as answer:
        ids: list[int] = json.load(answer)["token_ids"]
    return ids


def prompts() -> list[dict[str, Any]]:
    """Return conversations up to a message that a model answers."""
    found = []
    for chat in conversations():
        messages = list(chat["messages"])
        while messages[-1]["role"] == "assistant":
            messages.pop()
        found.append({**chat, "messages": messages})
    return found


def is_forged(chat: Any) -> bool:
    return any(mark in json.dumps(chat["messages"]) for mark in CONTROL_TOKENS)


def encode_expected(folder: Path, chat: Any) -> list[int]:
    template = turnwise.load(folder)
    encoded = template.encode(
        chat["messages"], folder, tools=chat["tools"], add_generation_prompt=True
    )
    return list(encoded.input_ids)


def test_prompts_are_those_of_encode(folder: Path, with_turnwise: str) -> None:
    chats = prompts()
    assert len(chats) >= 20 and any(map(is_forged, chats))
    for chat in chats:
        assert render(with_turnwise, folder, chat) == encode_expected(folder, chat), chat


def test_its_own_renderer_differs_only_for_forged_tokens(
    folder: Path, without_turnwise: str
) -> None:
    chats = prompts()
    same = [
        render(without_turnwise, folder, chat) == encode_expected(folder, chat) for chat in chats
    ]
    assert same == [not is_forged(chat) for chat in chats]


def test_the_sidecar_gives_the_ids_of_vllm(
    folder: Path, without_turnwise: str, sidecar: str
) -> None:
    chats = [chat for chat in prompts() if not is_forged(chat)]
    assert len(chats) >= 10 and any(chat["tools"] for chat in chats)
    for chat in chats:
        wanted = render(without_turnwise, folder, chat)
        assert render(sidecar, SIDECAR, chat) == wanted, chat


def test_a_growing_conversation_has_the_ids_of_vllm_at_every_turn(
    folder: Path, without_turnwise: str, sidecar: str
) -> None:
    messages: list[dict[str, str]] = [{"role": "system", "content": "Be brief."}]
    for number in range(8):
        messages.append({"role": "user", "content": f"When is tide {number}?"})
        chat = {"messages": messages, "tools": None}
        assert render(sidecar, SIDECAR, chat) == render(without_turnwise, folder, chat)
        messages.append({"role": "assistant", "content": f"At {number}.\n"})
