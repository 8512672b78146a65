"""Replies of token ids: messages are those of `parse`, streams add up to them, and nothing is ever retracted."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from starlette.testclient import TestClient

import turnwise
from served import QUIET, TIDE, client_of, make_service, post
from turnwise.serve.derendering import KeptStreams, join_deltas
from turnwise.serve.service import Service
from turnwise.tokens.tokenizers import tokenizer

pytestmark = QUIET

DERENDER = "/v1/chat/completions/derender"
TOKENIZER = tokenizer("turnwise")
CHAT = {"messages": [{"role": "user", "content": "Is it low?"}], "tools": [TIDE]}
REPLIES = {
    "qwen3": [
        "Yes.<|im_end|>",
        "<think>\nLow, I think 海.\n</think>\n\nYes, low.<|im_end|>",
        '<think>\nAsk.\n</think>\n\nA moment.\n<tool_call>\n{"name": "tide", "arguments": {"port": "Île", "day": 3}}\n'
        '</tool_call>\n<tool_call>\n{"name": "tide", "arguments": {"port": "B"}}\n</tool_call><|im_end|>',
        "It is <b>low</b> < high",
        "<think>\nnever closed",
    ],
    "llama-3.1": [
        "Yes.<|eot_id|>",
        '{"name": "tide", "parameters": {"port": "A"}}<|eom_id|>',
    ],
}
CASES = [(name, reply) for name, replies in REPLIES.items() for reply in replies]


@cache
def service() -> Service:
    return make_service(tuple(REPLIES))


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with client_of(service()) as client:
        yield client


def expect(name: str, ids: list[int]) -> turnwise.Message:
    template = turnwise.load(name)
    prompt = template.render(CHAT["messages"], tools=[TIDE], add_generation_prompt=True)
    return template.parse(ids, prompt, [TIDE], TOKENIZER)


def as_wire(message: turnwise.Message) -> dict[str, Any]:
    more = {"reasoning": message["reasoning_content"]} if "reasoning_content" in message else {}
    return {**message, **more}


def stream(
    client: TestClient, name: str, ids: list[int], cuts: list[int], forget: Any = None
) -> Iterator[dict[str, Any]]:
    """Send a reply chunk by chunk, with the state that comes back."""
    prompt = post(client, "/v1/chat/completions/render", {"model": name, **CHAT})["token_ids"]
    state = None
    edges = [0, *sorted(cuts), len(ids)]
    for number, (start, end) in enumerate(zip(edges, edges[1:], strict=False)):
        if forget is not None:
            forget(number)
        is_last = number == len(edges) - 2
        choice = {"index": 0, "token_ids": ids[start:end]}
        choice |= {"finish_reason": "stop"} if is_last else {}
        body = {
            "model": name,
            "stream": True,
            "generate_chunk": {"request_id": "r", "choices": [choice]},
            "stream_state": state,
            "prompt_token_ids": prompt,
            "chat_request": CHAT,
        }
        answer = post(client, DERENDER, json.loads(json.dumps(body)))
        state = answer["stream_state"]
        yield answer["chunk"]


@pytest.mark.parametrize(("name", "reply"), CASES)
def test_a_whole_reply_is_parsed(client: TestClient, name: str, reply: str) -> None:
    ids = TOKENIZER.whole(reply)
    body = {
        "model": name,
        "generate_response": {"request_id": "r", "choices": [{"index": 0, "token_ids": ids}]},
        "prompt_tokens": 12,
        "chat_request": CHAT,
    }
    answer = post(client, DERENDER, body)
    (choice,) = answer["choices"]
    message = expect(name, ids)
    assert choice["message"] == as_wire(message)
    assert choice["finish_reason"] == ("tool_calls" if "tool_calls" in message else "stop")
    assert answer["usage"]["total_tokens"] == 12 + len(ids)


@pytest.mark.parametrize(("name", "reply"), CASES)
@pytest.mark.parametrize("keeps", [True, False], ids=["kept", "stateless"])
def test_a_stream_adds_up_to_the_message(
    client: TestClient, name: str, reply: str, keeps: bool
) -> None:
    """With parsers that were kept, and with another process for every chunk."""
    ids, replies = TOKENIZER.whole(reply), service().replies
    chance = random.Random(reply)
    forget = None if keeps else lambda number: setattr(replies, "_kept", KeptStreams())
    for _ in range(2):
        cuts = chance.sample(range(len(ids) + 1), min(len(ids), chance.randint(0, 9)))
        chunks = list(stream(client, name, ids, cuts, forget))
        joined = join_deltas([chunk["choices"][0]["delta"] for chunk in chunks])
        message = as_wire(expect(name, ids))
        for call, wanted in zip(
            joined.pop("tool_calls", []), message.pop("tool_calls", []), strict=True
        ):
            assert {key: call[key] for key in wanted} == wanted
        assert joined == {**message, "content": message["content"] or ""}
        reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
        assert reasons[:-1] == [None] * (len(chunks) - 1) and reasons[-1] is not None
        roles = [chunk["choices"][0]["delta"].get("role") for chunk in chunks]
        assert roles == ["assistant"] + [None] * (len(chunks) - 1)


def test_kept_parsers_are_used(client: TestClient, monkeypatch: Any) -> None:
    ids = TOKENIZER.whole("Yes, it is low today.<|im_end|>")
    made = []
    make = service().replies.make_parser
    monkeypatch.setattr(service().replies, "make_parser", lambda *a: made.append(1) or make(*a))
    list(stream(client, "qwen3", ids, list(range(1, len(ids)))))
    assert len(made) == 1, "one parser reads the whole stream"


def test_kept_parsers_are_bounded_by_what_they_read() -> None:
    kept = KeptStreams(100_000)
    stream = turnwise.ChunkStream(turnwise.load("chatml").parser(), id="", model="")
    for number in range(20):
        kept.keep(b"%d" % number, stream, 10_000)
        assert kept.bytes <= 100_000
    assert kept.take(b"0") is None and kept.take(b"19") is stream and kept.take(b"19") is None
    before = kept.bytes
    kept.keep(b"18", stream, 5_000)  # in the place of the other
    assert kept.bytes == before - 5_000
    kept.keep(b"huge", stream, 10**6)
    assert kept.take(b"huge") is None and kept.take(b"18") is stream


def test_no_call_where_none_is_allowed(client: TestClient) -> None:
    reply = REPLIES["qwen3"][2]
    body = {
        "model": "qwen3",
        "generate_response": {"choices": [{"token_ids": TOKENIZER.whole(reply)}]},
        "chat_request": {**CHAT, "tool_choice": "none"},
    }
    (choice,) = post(client, DERENDER, body)["choices"]
    assert "tool_calls" not in choice["message"] and choice["finish_reason"] == "stop"
    assert "<tool_call>" in choice["message"]["content"]


def test_reasoning_can_be_left_out(client: TestClient) -> None:
    ids = TOKENIZER.whole(REPLIES["qwen3"][1])
    chat = {**CHAT, "include_reasoning": False}
    choice = {"index": 0, "token_ids": ids, "finish_reason": "stop"}
    body = {"model": "qwen3", "generate_response": {"choices": [choice]}, "chat_request": chat}
    (whole,) = post(client, DERENDER, body)["choices"]
    body = {**body, "stream": True, "generate_chunk": {"choices": [choice]}}
    (part,) = post(client, DERENDER, body)["chunk"]["choices"]
    assert whole["message"]["content"] == part["delta"]["content"] == "Yes, low."
    assert "reasoning" not in whole["message"] and "reasoning" not in part["delta"]


def test_a_prompt_that_opened_the_reasoning() -> None:
    with client_of(make_service(("deepseek-r1",))) as client:
        ids = TOKENIZER.whole("So low.\n</think>\n\nYes.<｜end▁of▁sentence｜>")
        body = {
            "generate_response": {"choices": [{"token_ids": ids}]},
            "chat_request": {"messages": CHAT["messages"]},
        }
        (choice,) = post(client, DERENDER, body)["choices"]
        assert choice["message"]["content"] == "Yes."
        assert choice["message"]["reasoning"].strip() == "So low."


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "generate_response"),
        ({"stream": True}, "generate_chunk"),
        ({"generate_response": {}}, "generate_response.choices"),
        (
            {"generate_response": {"choices": [{"token_ids": [-1]}]}},
            "generate_response.choices[0].token_ids",
        ),
        (
            {"generate_response": {"choices": [], "output_mode": "text"}},
            "generate_response.output_mode",
        ),
        (
            {"stream": True, "generate_chunk": {"choices": [{}, {}]}},
            "generate_chunk.choices",
        ),
        (
            {
                "stream": True,
                "generate_chunk": {"choices": [{"token_ids": [1]}]},
                "stream_state": {
                    "role_sent": True,
                    "output_token_ids": [1, 2],
                    "output_chunk_lens": [3],
                },
            },
            "stream_state.output_chunk_lens",
        ),
    ],
)
def test_bad_bodies_name_their_field(client: TestClient, body: Any, param: str) -> None:
    assert post(client, DERENDER, body, 422)["error"]["param"] == param


@pytest.mark.parametrize(
    ("state", "param"),
    [
        ({"garbage": 1}, "stream_state"),
        ({"role_sent": True}, "stream_state"),
        ({"role_sent": True, "output_token_ids": None, "output_chunk_lens": []}, "stream_state"),
        (
            {"role_sent": False, "output_token_ids": [1], "output_chunk_lens": [1]},
            "stream_state.role_sent",
        ),
        ("text", "stream_state"),
    ],
)
def test_a_damaged_state_is_no_new_stream(client: TestClient, state: Any, param: str) -> None:
    chunk = {"choices": [{"token_ids": [1]}]}
    body = {"stream": True, "generate_chunk": chunk, "stream_state": state}
    error = post(client, DERENDER, body, 422)["error"]
    assert error["param"] == param
    for state in ({}, None):
        assert post(client, DERENDER, {**body, "stream_state": state})["stream_state"]["role_sent"]


@pytest.mark.parametrize("id", [10**6, 2**32, 2**62])
def test_ids_that_no_tokenizer_has_are_no_failure(client: TestClient, id: int) -> None:
    """An engine may sample the padding of its vocabulary."""
    ids = [*TOKENIZER.whole("Yes"), id, *TOKENIZER.whole(".")]
    body = {"generate_response": {"choices": [{"token_ids": ids}]}}
    (choice,) = post(client, DERENDER, body)["choices"]
    assert choice["message"]["content"] == "Yes\ufffd."
