"""A gateway in front of a scripted upstream, and what a client makes of its streams."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from starlette.testclient import TestClient

from scripted_upstream import ScriptedUpstream
from served import client_of, make_service
from turnwise.serve.derendering import join_deltas

CHAT = "/v1/chat/completions"
QUESTION = [{"role": "user", "content": "Is it low?"}]
UPSTREAM_KINDS = ("generate", "completions", "llamacpp", "text")


@contextmanager
def gateway(upstream: ScriptedUpstream, name: str = "qwen3", **more: Any) -> Iterator[TestClient]:
    service = make_service(
        (name,), upstream="http://engine", upstream_kind=upstream.kind, playground=False, **more
    )
    with client_of(service, upstream) as client:
        yield client


def read_stream(client: TestClient, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of a stream; it ends with [DONE] or with an error."""
    with client.stream("POST", CHAT, json={**body, "stream": True}) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    if events[-1] == "[DONE]":
        del events[-1]
    else:
        assert "error" in json.loads(events[-1])
    return [json.loads(event) for event in events]


def add_up(chunks: list[dict[str, Any]], index: int = 0) -> tuple[dict[str, Any], str | None]:
    """The message and the finish reason of one choice of a stream."""
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    choices = [choice for choice in choices if choice["index"] == index]
    joined = join_deltas([choice["delta"] for choice in choices])
    calls = joined.pop("tool_calls", [])
    if calls:
        joined["tool_calls"] = [{k: v for k, v in call.items() if k != "index"} for call in calls]
        joined["content"] = joined["content"] or None
    reasons = [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
    assert len(reasons) <= 1
    return joined, reasons[0] if reasons else None
