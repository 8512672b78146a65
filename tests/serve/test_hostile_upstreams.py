"""A gateway beside an upstream that sends too much, too small or too large pieces: other requests wait for none of it.

The server is a process of its own, and so is who asks for its health. A busy machine makes every answer late, so what
counts is the processor time that the server used between question and answer, where the system tells it.
"""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from test_soak import running_server

CHAT = "/v1/chat/completions"
LIMIT = 0.1  # seconds of 99 of 100 health checks
PROBE = """
import http.client, json, os, select, sys, time
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=30)
tick = os.sysconf("SC_CLK_TCK")

def read_clock():
    try:
        with open(f"/proc/{sys.argv[2]}/stat") as file:
            return sum(map(int, file.read().rpartition(")")[2].split()[11:13])) / tick
    except OSError:
        return time.monotonic()

found = []
print("ready", flush=True)
while not select.select([0], [], [], 0.02)[0]:  # until it is closed
    start, clock = time.monotonic(), read_clock()
    connection.request("GET", "/healthz")
    answer = connection.getresponse()
    assert answer.status == 200 and answer.read()
    found.append(min(time.monotonic() - start, read_clock() - clock))
print(json.dumps(found))
"""
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n"
NEAR_STOPS = ["a" * 999 + letter for letter in "bcde"]


def event(text: str, reason: str | None = None) -> bytes:
    choice = {"index": 0, "text": text, "finish_reason": reason}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


END = event("", "stop") + b"data: [DONE]\n\n"


def send_plain(share: float) -> Iterator[bytes]:
    yield HEAD + b"\r\n" + event("Hi.") + END


def send_long_pieces(share: float) -> Iterator[bytes]:
    yield HEAD + b"\r\n"
    yield from [event("a" * 60_000)] * int(200 * share)
    yield END


def send_short_events(share: float) -> Iterator[bytes]:
    yield HEAD + b"\r\n"
    yield from [event("a") * 1_000] * int(100 * share)
    yield END


def send_empty_lines(share: float) -> Iterator[bytes]:
    yield HEAD + b"\r\n"
    yield from [b"\n" * 50_000] * int(100 * share)
    yield event("Hi.") + END


def send_long_event(share: float) -> Iterator[bytes]:
    yield HEAD + b"\r\n" + event("a" * int(10_000_000 * share)) + END


def send_gzip(share: float) -> Iterator[bytes]:
    yield HEAD + b"content-encoding: gzip\r\n\r\n"
    yield gzip.compress(bytes(int(300_000_000 * share)), 1)


UPSTREAMS = {
    "plain": (send_plain, [], 200),
    "stops that are too long": (send_plain, ["a" * 60_000] * 4, 422),
    "too many stops": (send_plain, ["a"] * 5, 422),
    "long pieces and stops": (send_long_pieces, NEAR_STOPS, 200),
    "short events": (send_short_events, [], 200),
    "empty lines": (send_empty_lines, [], 200),
    "a long event": (send_long_event, [], 200),
    "gzip": (send_gzip, [], 502),
}


class Upstream:
    """An engine that answers every request with the bytes of one script."""

    def __init__(self) -> None:
        self.name, self.share = "plain", 1.0
        self.headers: list[bytes] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return  # closed
            with connection:
                try:
                    self.headers.append(self.read_request(connection))
                    for data in UPSTREAMS[self.name][0](self.share):
                        connection.sendall(data)
                except OSError:
                    continue  # the gateway has heard enough

    def read_request(self, connection: socket.socket) -> bytes:
        data = b""
        while b"\r\n\r\n" not in data:
            data += connection.recv(65_536)
        head, _, body = data.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split()[0])
        while len(body) < length:
            body += connection.recv(65_536)
        return head.lower()


@contextmanager
def probing(port: int, process: int) -> Iterator[list[float]]:
    """Ask for the health until the work is done; the times are in the list then."""
    command = [sys.executable, "-c", PROBE, str(port), str(process)]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as probe:
        times: list[float] = []
        assert probe.stdout is not None and probe.stdout.readline()
        yield times
        times += json.loads(probe.communicate()[0])


def ask(port: int, stops: list[str]) -> tuple[int, Any]:
    body = {"messages": [{"role": "user", "content": "Hi"}], "stop": stops, "model": "chatml"}
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("POST", CHAT, json.dumps(body), {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def measure_health(share: float, names: Iterable[str] = UPSTREAMS) -> dict[str, float]:
    """Return the 99th percentile of the health checks beside each upstream."""
    upstream = Upstream()
    url = f"http://127.0.0.1:{upstream.port}"
    found = {}
    with running_server("chatml", "--upstream", url, "--upstream-kind", "text") as server:
        for name in names:
            _, stops, status = UPSTREAMS[name]
            upstream.name, upstream.share = name, share
            with probing(*server) as times:
                for _ in range(3):
                    code, answer = ask(server[0], stops)
                    assert code == status, (name, answer)
                    time.sleep(0.1)
            found[name] = statistics.quantiles(times, n=100, method="inclusive")[-1]
    upstream.listener.close()
    assert all(b"accept-encoding: identity" in head for head in upstream.headers)
    return found


@pytest.mark.law
def test_health_beside_hostile_upstreams(sample: Any) -> None:
    found = measure_health(0.05, sample(UPSTREAMS, 2))
    assert all(late < LIMIT for late in found.values()), found


@pytest.mark.slow
def test_health_beside_huge_upstreams() -> None:
    found = measure_health(1)
    assert all(late < LIMIT for late in found.values()), found
