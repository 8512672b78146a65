"""What was sampled in a session: ids, masks and log-probabilities, whichever API the client speaks."""

from __future__ import annotations

from typing import Any

import pytest

from gateway_streams import gateway
from scripted_upstream import TOKENIZER, ScriptedUpstream
from sdk_requests import ASKED, CALL, DEEP, FLAT, TOOL
from served import QUIET, post

pytestmark = QUIET

SESSION = {"x-trajectory-id": "episode-7"}
ANSWER = "Low.<|im_end|>"


def add_logprobs(events: list[Any]) -> list[Any]:
    for event in events:
        for choice in event["choices"]:
            texts = [TOKENIZER.decode([id]) for id in choice["token_ids"]]
            entries = [{"token": text, "logprob": -0.5} for text in texts]
            choice["logprobs"] = {"content": entries}
    return events


def make_upstream(*replies: str) -> ScriptedUpstream:
    return ScriptedUpstream("generate", *replies, edit=add_logprobs)


def read_session(client: Any, **headers: str) -> Any:
    answer = client.get("/v1/trajectories/episode-7", headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()["segments"]


def check_segment(segment: Any, upstream: ScriptedUpstream, *replies: str) -> None:
    """Each reply is where its turn says, sampled ids and no others are masked, and have log-probabilities."""
    ids, mask, logprobs = (segment[name] for name in ("token_ids", "mask", "logprobs"))
    assert len(ids) == len(mask) == len(logprobs)
    assert [one is not None for one in logprobs] == [bool(one) for one in mask]
    found = [ids[turn["start"] : turn["end"]] for turn in segment["turns"]]
    assert found == [TOKENIZER.whole(reply) for reply in replies]
    assert sum(mask) == sum(map(len, found))
    assert ids[: segment["turns"][-1]["start"]] == upstream.requests[-1]["token_ids"]


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("api", ["chat", "messages", "responses"])
def test_a_session_of_calls_is_one_segment(api: str, streams: bool) -> None:
    upstream = make_upstream(f"{CALL}<|im_end|>")
    used = {"type": "tool_use", "id": "t1", "name": "tide", "input": {"port": "A"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "low"}
    made = {
        "id": "t1",
        "type": "function",
        "function": {"name": "tide", "arguments": '{"port": "A"}'},
    }
    items = [
        {"type": "function_call", "call_id": "t1", "name": "tide", "arguments": '{"port": "A"}'},
        {"type": "function_call_output", "call_id": "t1", "output": "low"},
    ]
    path, key, tools, more = {
        "chat": ("/v1/chat/completions", "messages", DEEP, [
            {"role": "assistant", "content": None, "tool_calls": [made]},
            {"role": "tool", "tool_call_id": "t1", "content": "low"},
        ]),
        "messages": ("/v1/messages", "messages", TOOL, [
            {"role": "assistant", "content": [used]}, {"role": "user", "content": [result]},
        ]),
        "responses": ("/v1/responses", "input", FLAT, items),
    }[api]  # fmt: skip
    body = {"tools": [tools], "stream": streams}
    if api == "messages":
        body["max_tokens"] = 99
    with gateway(upstream, "qwen2.5") as client:
        for turns in (ASKED, [*ASKED, *more]):
            answer = client.post(path, json={**body, key: turns}, headers=SESSION)
            assert answer.status_code == 200 and '"error": {' not in answer.text, answer.text
            upstream.replies = [ANSWER]
        [segment] = read_session(client)
    check_segment(segment, upstream, f"{CALL}<|im_end|>", ANSWER)
    assert upstream.requests[0]["sampling_params"]["logprobs"] == 0


def test_a_changed_history_begins_a_new_segment() -> None:
    upstream = make_upstream(ANSWER)
    with gateway(upstream, "qwen2.5") as client:
        for text in ("One?", "Two?"):
            chat = {"messages": [{"role": "user", "content": text}], "n": 1}
            client.post("/v1/chat/completions", json=chat, headers=SESSION)
        first, second = read_session(client)
    check_segment(second, upstream, ANSWER)
    assert first["token_ids"] != second["token_ids"]


def test_several_replies_to_one_prompt_are_segments() -> None:
    upstream = make_upstream(ANSWER, "High.<|im_end|>")
    with gateway(upstream, "qwen2.5") as client:
        client.post("/v1/chat/completions", json={"messages": ASKED, "n": 2}, headers=SESSION)
        segments = read_session(client)
    assert sorted(segment["turns"][0]["index"] for segment in segments) == [0, 1]


def test_a_session_is_its_clients_own_and_nothing_is_kept_unasked() -> None:
    with gateway(make_upstream(ANSWER), "qwen2.5") as client:
        post(client, "/v1/chat/completions", {"messages": ASKED})
        assert client.get("/v1/trajectories/episode-7").status_code == 404
        mine = {"authorization": "Bearer a"}
        client.post("/v1/chat/completions", json={"messages": ASKED}, headers=SESSION | mine)
        assert client.get("/v1/trajectories/episode-7").status_code == 404
        theirs = {"authorization": "Bearer b"}
        assert client.get("/v1/trajectories/episode-7", headers=theirs).status_code == 404
        assert read_session(client, **mine)


def test_an_engine_without_log_probabilities_is_an_error() -> None:
    with gateway(ScriptedUpstream("generate", ANSWER), "qwen2.5") as client:
        body = {"messages": ASKED}
        assert client.post("/v1/chat/completions", json=body, headers=SESSION).status_code == 502
    with gateway(ScriptedUpstream("text", ANSWER), "qwen2.5") as client:
        assert client.post("/v1/chat/completions", json=body, headers=SESSION).status_code == 422
