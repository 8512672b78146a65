"""Many clients of three APIs at once: each gets its own reply, whole, and the server stays healthy and small.

The engine, the server and who asks for its health are processes of their own. The engine echoes a word that only one
request has, so a byte of another client's reply would show.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from test_soak import PROBE, resident_bytes, running_server

from sdk_requests import DEEP, FLAT, TOOL
from turnwise.tokens.tokenizers.files import SHIPPED

MODELS = ("qwen3", "llama-3.1")
WORD = re.compile(rb"w[0-9]+x[0-9]+y")
ENGINE = """
import asyncio, json, re
from turnwise.tokens.tokenizers import tokenizer
known = tokenizer("turnwise")

async def answer(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\\r\\n\\r\\n")
            size = int(re.search(rb"content-length: (\\d+)", head.lower())[1])
            body = json.loads(await reader.readexactly(size))
            text = known.decode(body["token_ids"])
            word = re.findall(r"w[0-9]+x[0-9]+y", text)[-1]
            reply = f"<think>\\nOf {word}.\\n</think>\\n\\nEcho {word}."
            if "CALL" in text:
                reply = '<tool_call>\\n{"name": "tide", "arguments": {"port": "%s"}}\\n</tool_call>' % word
            ids = known.whole(reply)
            events = [{"choices": [{"index": 0, "token_ids": ids[at : at + 5]}]} for at in range(0, len(ids), 5)]
            events.append({"choices": [{"index": 0, "token_ids": [], "finish_reason": "stop"}]})
            head = b"HTTP/1.1 200 OK\\r\\ncontent-type: text/event-stream\\r\\n"
            writer.write(head + b"transfer-encoding: chunked\\r\\n\\r\\n")
            for event in [*map(json.dumps, events), "[DONE]"]:
                data = f"data: {event}\\n\\n".encode()
                writer.write(b"%x\\r\\n%b\\r\\n" % (len(data), data))
                await writer.drain()
            writer.write(b"0\\r\\n\\r\\n")
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()

async def main():
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""


@contextmanager
def running_engine() -> Iterator[str]:
    environment = {**os.environ, "PYTHONPATH": "src"}
    command = [sys.executable, "-c", ENGINE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as engine:
        try:
            assert engine.stdout is not None
            yield f"http://127.0.0.1:{int(engine.stdout.readline())}"
        finally:
            engine.terminate()


def make_request(chance: random.Random, word: str, is_call: bool) -> tuple[str, dict[str, Any]]:
    """Return the path and the body of a request of some API, with a reminder in the middle."""
    api = chance.choice(["/v1/chat/completions", "/v1/messages", "/v1/responses"])
    text = f"{'CALL ' if is_call else ''}say {word}"
    chat = [
        {"role": "user", "content": "Hi " * chance.choice([1, 20, 200])},
        {"role": "assistant", "content": "Hello."},
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": text},
    ]
    stream = chance.random() < 0.5
    tool = {"/v1/chat/completions": DEEP, "/v1/messages": TOOL, "/v1/responses": FLAT}[api]
    body: dict[str, Any] = {"model": chance.choice(MODELS[:1] if is_call else MODELS)}
    body |= {"stream": stream, "input" if api == "/v1/responses" else "messages": chat}
    if is_call:
        body["tools"] = [tool]
    if api == "/v1/messages":
        body["max_tokens"] = 100
    return api, body


async def post(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, body: Any
) -> tuple[int, bytes]:
    """Return the status and the whole body of an answer, of known length or in chunks."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    writer.write(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
    await writer.drain()
    headers = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    length = re.search(r"content-length: (\d+)", headers)
    if length is not None:
        found = await reader.readexactly(int(length[1]))
    else:
        found = b""
        while size := int(await reader.readline(), 16):
            found += await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readexactly(2)
    return int(headers.split(" ", 2)[1]), found


def is_right(path: str, is_streamed: bool, found: bytes, word: str, is_call: bool) -> bool:
    """Whether an answer is finished, and says what the engine echoed."""
    text = found.decode()
    if is_streamed:
        events = [line[6:] for line in text.splitlines() if line.startswith("data: {")]
        values = [json.loads(event) for event in events]
        ends = ('"finish_reason": "', '"message_stop"', '"response.completed"')
        if not any(end in one for one in events[-3:] for end in ends):
            return False
    else:
        values = [json.loads(text)]
    said = "".join(_list_texts(values))
    return word in said if is_call else f"Echo {word}." in said


def _list_texts(value: Any) -> Iterator[str]:
    """Yield the texts of deltas, or of the whole answer."""
    if isinstance(value, list):
        for one in value:
            yield from _list_texts(one)
    elif isinstance(value, dict):
        for key, one in value.items():
            is_text = key in ("content", "text", "delta", "arguments", "partial_json", "port")
            if is_text and isinstance(one, str):
                yield one
            elif key not in ("tools", "response", "item", "part") or "sequence_number" not in value:
                yield from _list_texts(one)


async def run_client(port: int, number: int, end: float, counts: Counter[str]) -> None:
    chance = random.Random(number)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    turn = 0
    while time.monotonic() < end:
        turn += 1
        word = f"w{number}x{turn}y"
        is_call = chance.random() < 0.3
        path, body = make_request(chance, word, is_call)
        status, found = await post(reader, writer, path, body)
        if status == 429:
            counts["shed"] += 1
            continue
        assert status == 200, found
        counts["foreign"] += len({*WORD.findall(found)} - {word.encode()})
        counts["right" if is_right(path, body["stream"], found, word, is_call) else "wrong"] += 1
        counts[path] += 1
    writer.close()


def soak(
    seconds: float,
    clients: int,
    tokenizer: str = str(SHIPPED),
    serve: Callable[..., AbstractContextManager[tuple[int, int]]] = running_server,
) -> tuple[Counter[str], list[float], list[int]]:
    """Let clients loose for some seconds; what they got, how long health took, and the memory over time."""
    counts: Counter[str] = Counter()
    sizes: list[int] = []

    async def run(port: int, pid: int) -> None:
        end = time.monotonic() + seconds

        async def measure() -> None:
            while time.monotonic() < end:
                await asyncio.sleep(seconds / 20)
                sizes.append(resident_bytes(pid))

        await asyncio.gather(measure(), *(run_client(port, n, end, counts) for n in range(clients)))

    with running_engine() as engine:
        words = (*MODELS, "--memory", "8", "--tokenizer", tokenizer, "--no-playground")
        with serve(*words, "--upstream", engine) as (port, pid):
            command = [sys.executable, "-c", PROBE, str(port), str(seconds)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as probe:
                asyncio.run(run(port, pid))
                assert probe.stdout is not None
                health = json.loads(probe.stdout.read())
    return counts, health, sizes


@pytest.mark.law
@pytest.mark.once
def test_a_short_soak_of_all_apis() -> None:
    counts, _, _ = soak(2.5, 12)
    assert counts["right"] > 5 and not counts["wrong"] and not counts["foreign"], counts


@pytest.mark.slow
def test_a_minute_with_64_clients_of_all_apis() -> None:
    counts, health, sizes = soak(60.0, 64)
    p99 = statistics.quantiles(health, n=100)[-1]
    print(f"\n{dict(counts)}; load {os.getloadavg()}")
    print(f"health p50 {statistics.median(health) * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms")
    print(f"memory {sizes[4] >> 20} MB after a quarter, {sizes[-1] >> 20} MB at the end")
    assert counts["right"] > 500 and not counts["wrong"] and not counts["foreign"], counts
    assert p99 < 0.1
    assert sizes[-1] < 1.15 * sizes[4], "memory is flat after the first quarter"
