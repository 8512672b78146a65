"""The gateway does what it says, or refuses: formats are checked, tokens pass through, nothing is lost in silence."""

from __future__ import annotations

from typing import Any

import pytest

import turnwise
from gateway_streams import CHAT, QUESTION, gateway, read_stream
from scripted_upstream import TOKENIZER, ScriptedUpstream
from served import QUIET, post

pytestmark = QUIET

PLAIN = "<think>\nHm.\n</think>\n\nYes, it is low.<|im_end|>"
DISOBEDIENT = (
    "Yes, it is low.",
    "<think>\nHm.\n</think>\n\nYes.",
    '{"low": "yes"}',
    '{"high": true}',
    "{}",
    "[]",
    '{"low": true',
    '{"low": true} indeed',
    '```json\n{"low": true}\n```',
    "",
)


@pytest.mark.law(4)
@pytest.mark.parametrize("kind", ["generate", "completions"])
@pytest.mark.parametrize("name", ["qwen3", "llama-3.1", "chatml"])
@pytest.mark.parametrize("streams", [False, True])
def test_content_that_does_not_fit_its_schema_is_an_error(
    name: str, kind: str, streams: bool
) -> None:
    schema = {"type": "object", "properties": {"low": {"type": "boolean"}}, "required": ["low"]}
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    body = {"messages": QUESTION, "response_format": form}
    stop = turnwise.load(name).stops(TOKENIZER)[0]
    for reply in DISOBEDIENT:
        with gateway(ScriptedUpstream(kind, reply + stop), name) as client:
            if streams:
                last = client.post(CHAT, json={**body, "stream": True}).text
                assert "in the content" in last and 'finish_reason": "stop' not in last
            else:
                assert "in the content" in post(client, CHAT, body, 502)["error"]["message"]


@pytest.mark.parametrize("kind", ["generate", "completions", "llamacpp"])
def test_token_ids_and_log_probabilities_pass_through(kind: str) -> None:
    def add_logprobs(events: list[Any]) -> list[Any]:
        for event in events:
            for one in [event] if kind == "llamacpp" else event["choices"]:
                ids = one.get("tokens" if kind == "llamacpp" else "token_ids") or []
                texts = [TOKENIZER.decode([id]) for id in ids]
                entries = [{"token": text, "logprob": -0.5, "top_logprobs": []} for text in texts]
                if kind == "generate":
                    one["logprobs"] = {"content": entries}
                elif kind == "llamacpp":
                    one["completion_probabilities"] = entries
                else:
                    one["logprobs"] = {"tokens": texts, "token_logprobs": [-0.5] * len(texts)}
        return events

    body = {"messages": QUESTION, "return_token_ids": True, "logprobs": True, "top_logprobs": 2}
    with gateway(ScriptedUpstream(kind, PLAIN, edit=add_logprobs)) as client:
        answer = post(client, CHAT, body)
        rendered = post(client, f"{CHAT}/render", {"messages": QUESTION})
        chunks = read_stream(client, body)
    choice = answer["choices"][0]
    assert choice["token_ids"] == TOKENIZER.whole(PLAIN)
    assert answer["prompt_token_ids"] == rendered["token_ids"]
    entries = choice["logprobs"]["content"]
    assert len(entries) == len(choice["token_ids"])
    assert {entry["logprob"] for entry in entries} == {-0.5}
    parts = [chunk["choices"][0] for chunk in chunks]
    assert [id for part in parts for id in part["token_ids"]] == choice["token_ids"]
    streamed = [one for part in parts if part["logprobs"] for one in part["logprobs"]["content"]]
    assert streamed == entries


def test_tokens_that_an_engine_does_not_send_are_an_error() -> None:
    body = {"messages": QUESTION, "logprobs": True}
    with gateway(ScriptedUpstream("generate", PLAIN)) as client:
        assert "no log-probabilities" in post(client, CHAT, body, 502)["error"]["message"]
    with gateway(ScriptedUpstream("text", PLAIN)) as client:
        assert post(client, CHAT, body, 422)["error"]["param"] == "logprobs"
        asked = {"messages": QUESTION, "return_token_ids": True}
        assert post(client, CHAT, asked, 422)["error"]["param"] == "return_token_ids"


LOST: dict[str, dict[str, Any]] = {
    "an unknown role": {"messages": [{"role": "usr", "content": "Hi"}]},
    "an image": {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What?"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
                ],
            }
        ]
    },
    "a field": {"messages": QUESTION, "modalities": ["text", "audio"]},
    "a misspelt field": {"messages": QUESTION, "max_token": 5},
}


@pytest.mark.parametrize("name", LOST)
def test_what_is_lost_or_not_honoured_is_refused_unless_lenient(name: str) -> None:
    with gateway(ScriptedUpstream("generate", PLAIN)) as client:
        error = post(client, CHAT, LOST[name], 422)["error"]
        assert "--lenient" in error["message"]
    with gateway(ScriptedUpstream("generate", PLAIN), lenient=True) as client:
        assert post(client, CHAT, LOST[name])["warnings"]


def test_a_field_that_asks_for_nothing_is_accepted() -> None:
    body = {"messages": QUESTION, "modalities": ["text"], "audio": None, "prediction": None}
    with gateway(ScriptedUpstream("generate", PLAIN)) as client:
        assert "warnings" not in post(client, CHAT, body)
