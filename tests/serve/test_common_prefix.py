"""`common_prefix_tokens` of a growing conversation is what comparing all ids gives."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

import turnwise
from agent_traces import Chat, make_trace
from served import client_of, make_service, post

RENDER = "/v1/chat/completions/render"
MODELS = ("qwen3", "qwen3.6", "deepseek-v3.1", "gpt-oss", "hermes-3", "glm-4.5")
TRACES = 300  # of about seven prompts each: more than 2,000


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with client_of(make_service(MODELS)) as client:
        yield client


def count_common(before: list[Any], after: list[Any]) -> int:
    return next(
        (at for at, (a, b) in enumerate(zip(before, after, strict=False)) if a != b),
        min(len(before), len(after)),
    )


@pytest.mark.law(2)
@pytest.mark.filterwarnings("ignore::turnwise.TurnwiseWarning")
@pytest.mark.parametrize("seed", range(TRACES))
def test_common_tokens_are_those_of_a_comparison(client: TestClient, seed: int) -> None:
    name = MODELS[seed % len(MODELS)]
    template = turnwise.load(name)
    trace = make_trace(random.Random(seed))
    sent: list[tuple[Chat, list[int]]] = []
    for chat in trace.requests:
        body = {"model": name, "messages": chat, "tools": trace.tools, "cache_salt": str(seed)}
        answer = post(client, RENDER, body)
        ids = template.encode(
            chat, "turnwise", tools=trace.tools, add_generation_prompt=True, add_stop=False
        ).input_ids
        assert answer["token_ids"] == ids
        # The memory compares with the last of the requests that share most messages.
        shared = [count_common(earlier, chat) for earlier, _ in sent]
        known = max(zip(shared, range(len(sent)), strict=True), default=(0, 0))
        expected = count_common(sent[known[1]][1], ids) if known[0] else 0
        assert answer["common_prefix_tokens"] == expected
        sent.append((chat, ids))


def test_a_server_has_a_policy_for_late_system_texts() -> None:
    chat = [
        {"role": "user", "content": "A"},
        {"role": "assistant", "content": "B"},
        {"role": "system", "content": "Rest."},
        {"role": "user", "content": "C"},
    ]
    body = {"model": "qwen3", "messages": chat, "return_prompt_text": True}
    with client_of(make_service(("qwen3",), late_system="front")) as client:
        answer = post(client, RENDER, body)
    assert answer["prompt_text"].startswith("<|im_start|>system\nRest.<|im_end|>")
    assert "warnings" not in answer  # nothing is trained
    assert answer["changes"] == [
        'messages[2]: the system text was joined to the first (late_system="front")'
    ]
