"""Processor time of the sidecar for each request: short chats, and a conversation that grows turn by turn.

    python benchmarks/serve.py [MODEL] [TOKENIZER]

The server is a process of its own on loopback; its processor time is read from /proc, so the client costs nothing here.
`direct` is `Template.encode` in one process, without HTTP and JSON; `no memory` is the server with `--memory 0`.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import subprocess
import sys
import time
from typing import Any

import turnwise
from turnwise.tokens.tokenizers import tokenizer

WORDS = (
    "the",
    "tide",
    "is",
    "low",
    "at",
    "noon",
    "and",
    "high",
    "ships",
    "wait",
    "outside",
    "harbour",
)
TICKS = os.sysconf("SC_CLK_TCK")
SHORT_REQUESTS = 1000
TURNS = 60


def make_text(chance: random.Random, count: int) -> str:
    return " ".join(chance.choice(WORDS) for _ in range(count))


def make_conversation(chance: random.Random) -> list[dict[str, Any]]:
    chat = [{"role": "system", "content": make_text(chance, 120)}]
    for _ in range(TURNS):
        chat.append({"role": "user", "content": make_text(chance, 40)})
        chat.append({"role": "assistant", "content": make_text(chance, 120)})
    return chat


class ServedProcess:
    """A server whose processor time is measured."""

    def __init__(self, model: str, place: str, *more: str) -> None:
        command = [sys.executable, "-m", "turnwise", "serve", model, "-k", place, "--port", "0"]
        self.process = subprocess.Popen([*command, *more], stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        found = re.search(r"http://127.0.0.1:(\d+)", self.process.stderr.readline())
        assert found is not None
        while '"ready"' not in self.process.stderr.readline():
            assert self.process.poll() is None
        self.drain = subprocess.Popen(["cat"], stdin=self.process.stderr, stdout=subprocess.DEVNULL)
        self.connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=60)

    def post(self, data: bytes) -> bytes:
        headers = {"content-type": "application/json"}
        self.connection.request("POST", "/v1/chat/completions/render", data, headers)
        answer = self.connection.getresponse()
        body = answer.read()
        assert answer.status == 200, body
        return body

    def seconds(self) -> float:
        """Return the processor time that the process has used."""
        with open(f"/proc/{self.process.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def measure(self, bodies: list[bytes]) -> float:
        """Return the microseconds of a request."""
        start = self.seconds()
        for body in bodies:
            self.post(body)
        return (self.seconds() - start) / len(bodies) * 1e6

    def close(self) -> None:
        self.connection.close()
        self.process.terminate()
        self.process.wait()
        self.drain.wait()


def measure_direct(template: Any, known: Any, chats: list[list[dict[str, Any]]]) -> float:
    start = time.process_time()
    for chat in chats:
        template.encode(chat, known, add_generation_prompt=True)
    return (time.process_time() - start) / len(chats) * 1e6


def main() -> None:
    model, place = (
        [*sys.argv[1:], "qwen3", "turnwise"][:2] if len(sys.argv) > 2 else ("qwen3", "turnwise")
    )
    chance = random.Random(1)
    template, known = turnwise.load(model), tokenizer(place)
    short = [[{"role": "user", "content": make_text(chance, 30)}] for _ in range(SHORT_REQUESTS)]
    talk = make_conversation(chance)
    growing = [talk[:end] for end in range(2, len(talk), 2)]
    rows: dict[str, list[float]] = {}
    for more in ((), ("--memory", "0")):
        server = ServedProcess(model, place, *more)
        for name, chats in (("short", short), ("growing", growing), ("last turns", growing[-20:])):
            bodies = [json.dumps({"messages": chat}).encode() for chat in chats]
            rows.setdefault(name, []).append(server.measure(bodies))
        server.close()
    for name, chats in (("short", short), ("growing", growing), ("last turns", growing[-20:])):
        rows[name].append(measure_direct(template, known, chats))
    print(f"{'us of processor time':<22}{'memory':>10}{'no memory':>12}{'direct':>10}")
    for name, (kept, bare, direct) in rows.items():
        print(f"{name:<22}{kept:>10.0f}{bare:>12.0f}{direct:>10.0f}")


if __name__ == "__main__":
    main()
