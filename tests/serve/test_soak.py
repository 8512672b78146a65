"""Many clients at once, some of them hostile: no wrong answer, no crash, a server that stays healthy and small.

The server is a process of its own, and so is who asks for its health: neither waits for the clients' interpreter.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import turnwise
from served import TIDE, make_chat, start_command
from turnwise.tokens.tokenizers import tokenizer

MODELS = ("qwen3", "llama-3.1")
HOSTILE = (
    "{% for a in range(99999) %}{% for b in range(99999) %}{{ a * b }}{% endfor %}{% endfor %}",
    "{{ 'x' * 999999999 }}",
    "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
    "{{ ''.__class__.__mro__ }}",
    "{% set x = ['a'] %}{% for i in range(60) %}{% set x = x + x %}{% endfor %}",
    "{{ raise_exception('\x1b[2J' ~ 'x' * 100000) }}",
)
PROBE = """
import http.client, json, sys, time
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=30)
end, found = time.monotonic() + float(sys.argv[2]), []
while time.monotonic() < end:
    start = time.perf_counter()
    connection.request("GET", "/healthz")
    answer = connection.getresponse()
    assert answer.status == 200 and answer.read()
    found.append(time.perf_counter() - start)
    time.sleep(0.02)
print(json.dumps(found))
"""


@contextmanager
def running_server(
    *arguments: str, start: Callable[..., subprocess.Popen[str]] = start_command
) -> Iterator[tuple[int, int]]:
    """The port and the process id of a server."""
    process = start(*(arguments or (*MODELS, "--memory", "8")))
    assert process.stderr is not None
    url = re.search(r"http://127.0.0.1:(\d+)", process.stderr.readline())
    assert url is not None
    while '"ready"' not in (line := process.stderr.readline()):
        assert line, "the server did not start"
    log = subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL)
    try:
        yield int(url[1]), process.pid
        assert process.poll() is None, "the server has ended"
    finally:
        process.terminate()
        process.wait(60)
        log.wait(10)
        process.stderr.close()


class Connection:
    """A client of HTTP/1.1 on one connection that stays open."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.writer: asyncio.StreamWriter | None = None
        self.reader: asyncio.StreamReader | None = None

    async def post(self, path: str, data: bytes, cut: int | None = None) -> tuple[int, Any]:
        """The status and the value of an answer; `cut` leaves after so many bytes, and gets none."""
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        assert self.reader is not None
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        self.writer.write(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data[:cut])
        if cut is not None:
            await self.close()
            return 0, None
        await self.writer.drain()
        headers = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        length = re.search(r"content-length: (\d+)", headers)
        assert length is not None, headers
        body = await self.reader.readexactly(int(length[1]))
        if "connection: close" in headers:
            await self.close()
        return int(headers.split(" ", 2)[1]), json.loads(body)

    async def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None


def make_jobs(chance: random.Random) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Paths, bodies and what must be in their answers."""
    known = tokenizer("turnwise")
    jobs: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
    for number in range(60):
        name = MODELS[number % 2]
        template = turnwise.load(name)
        chat = make_chat(chance, chance.choice([1, 3, 9, 25]))
        tools = {"tools": [TIDE]} if number % 3 == 0 else {}
        for end in range(1, len(chat) + 1, 2):  # a conversation that grows
            if chat[end - 1]["role"] != "user":
                continue
            encoded = template.encode(chat[:end], known, add_generation_prompt=True, **tools)
            body = {"model": name, "messages": chat[:end], **tools}
            ids = encoded.input_ids
            jobs.append(("/v1/chat/completions/render", body, {"token_ids": ids}))
            jobs.append(("/tokenize", body, {"tokens": ids, "count": len(ids)}))
            jobs.append(("/detokenize", {"tokens": ids}, {"prompt": known.decode(ids)}))
    return jobs


async def run_client(port: int, seed: int, end: float, jobs: Any, counts: Counter[str]) -> None:
    chance = random.Random(seed)
    connection = Connection(port)
    huge = b'{"messages": [{"role": "user", "content": "' + b"x" * (10 << 20) + b'"}]}'
    while time.monotonic() < end:
        dice = chance.random()
        if dice < 0.01:
            body = {
                "messages": [{"role": "user", "content": "x"}],
                "chat_template": chance.choice(HOSTILE),
            }
            status, value = await connection.post(
                "/v1/chat/completions/render", json.dumps(body).encode()
            )
            assert status in (422, 429), value
            counts["hostile"] += 1
        elif dice < 0.013:
            status, value = await connection.post("/tokenize", huge)
            assert status == 413, value
            counts["huge"] += 1
        elif dice < 0.03:
            status, value = await connection.post("/tokenize", b'{"messages": 5}')
            assert status == 422, value
            counts["invalid"] += 1
        elif dice < 0.04:
            path, body, _ = chance.choice(jobs)
            await connection.post(path, json.dumps(body).encode(), cut=30)
            counts["left"] += 1
        else:
            path, body, wanted = chance.choice(jobs)
            status, value = await connection.post(path, json.dumps(body).encode())
            if status == 429:
                counts["shed"] += 1
                continue
            assert status == 200, value
            assert {key: value[key] for key in wanted} == wanted, path
            counts["right"] += 1
    await connection.close()


def resident_bytes(pid: int) -> int:
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * 4096


def soak(seconds: float, clients: int) -> tuple[Counter[str], list[float], list[int]]:
    """Let clients loose for some seconds; what they did, how long health took, and the memory over time."""
    jobs = make_jobs(random.Random(5))
    counts: Counter[str] = Counter()
    sizes: list[int] = []

    async def run(port: int, pid: int) -> None:
        end = time.monotonic() + seconds

        async def measure() -> None:
            while time.monotonic() < end:
                await asyncio.sleep(seconds / 20)
                sizes.append(resident_bytes(pid))

        tasks = [run_client(port, seed, end, jobs, counts) for seed in range(clients)]
        await asyncio.gather(measure(), *tasks)

    with running_server() as (port, pid):
        command = [sys.executable, "-c", PROBE, str(port), str(seconds)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as probe:
            asyncio.run(run(port, pid))
            assert probe.stdout is not None
            health = json.loads(probe.stdout.read())
    return counts, health, sizes


@pytest.mark.law
@pytest.mark.once
def test_a_short_soak() -> None:
    counts, health, _ = soak(2.5, 16)
    assert counts["right"] > 10 and counts["invalid"] and counts["left"]
    assert len(health) > 10


@pytest.mark.slow
def test_a_minute_with_64_clients() -> None:
    counts, health, sizes = soak(60.0, 64)
    p99 = statistics.quantiles(health, n=100)[-1]
    print(
        f"\n{dict(counts)}; health p50 {statistics.median(health) * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms;"
    )
    print(f"memory {sizes[4] >> 20} MB after a quarter, {sizes[-1] >> 20} MB at the end")
    assert counts["right"] > 1000 and counts["hostile"] > 10 and counts["huge"] > 5
    assert p99 < 0.1
    assert sizes[-1] < 1.15 * sizes[4], "memory is flat after the first quarter"
