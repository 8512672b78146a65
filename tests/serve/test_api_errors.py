"""Bad requests and failing engines get the status and the type of error that the real APIs document."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from gateway_streams import gateway
from lazy_modules import LazyModule
from scripted_upstream import EventBytes, ScriptedUpstream
from sdk_requests import ASKED, FLAT, PATCH, REPLIES, TOOL
from served import QUIET

openai = LazyModule("openai")
anthropic = LazyModule("anthropic")

pytestmark = QUIET

MODEL = "qwen3"
JSON = {"content-type": "application/json"}


class FailingUpstream(ScriptedUpstream):
    """An engine that answers every request with a status."""

    def __init__(self, status: int) -> None:
        super().__init__("generate", REPLIES["text"])
        self.status = status

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        stream = EventBytes([b'{"error": {"message": "no"}}'], self.chance, None)
        return httpx.Response(self.status, stream=stream)


def one(content: Any, role: str = "user") -> dict[str, Any]:
    return {"messages": [{"role": role, "content": content}]}


# What is wrong, and what the message of the error names. All are 400, invalid_request_error, at Anthropic.
BAD_MESSAGES: dict[str, tuple[dict[str, Any], str]] = {
    "no limit": ({"max_tokens": None}, "max_tokens"),
    "a limit of 0": ({"max_tokens": 0}, "max_tokens"),
    "a limit that is a text": ({"max_tokens": "9"}, "max_tokens"),
    "no messages": ({"messages": []}, "messages"),
    "messages that are a text": ({"messages": "hi"}, "messages"),
    "a message that is a text": ({"messages": ["hi"]}, "messages[0]"),
    "no role": ({"messages": [{"content": "hi"}]}, "messages[0]"),
    "an unknown role": (one("hi", "usr"), "usr"),
    "no content": ({"messages": [{"role": "user"}]}, "messages[0]"),
    "content that is a number": (one(5), "messages[0]"),
    "a temperature": ({"temperature": 3}, "temperature"),
    "a share": ({"top_p": -1}, "top_p"),
    "stop sequences": ({"stop_sequences": "a"}, "stop_sequences"),
    "too many stop sequences": ({"stop_sequences": list("abcde")}, "stop"),
    "a block": (one([{"type": "container_upload", "file_id": "f"}]), "messages[0].content[0].type"),
    "a block without a type": (one([{"text": "hi"}]), "messages[0].content[0].type"),
    "a text without text": (one([{"type": "text"}]), "messages[0].content[0]"),
    "an image for a text model": (
        one([{"type": "image", "source": {"type": "url", "url": "http://a/b.png"}}]),
        "messages[0].content[0]",
    ),
    "an odd source": (one([{"type": "image", "source": {"type": "x"}}]), "messages[0].content[0]"),
    "a server tool": ({"tools": [{"type": "web_search_20250305", "name": "w"}]}, "web_search"),
    "a tool without a name": ({"tools": [{"input_schema": {}}]}, "tools[0]"),
    "a choice": ({"tools": [TOOL], "tool_choice": {"type": "some"}}, "tool_choice"),
    "a choice of no tool": (
        {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "x"}},
        "tool_choice",
    ),
    "a call without tools": ({"tool_choice": {"type": "any"}}, "tool_choice"),
    "thinking": ({"thinking": {"type": "some"}}, "thinking.type"),
    "a container": ({"container": "c"}, "container"),
    "other servers": ({"mcp_servers": [{"type": "url"}]}, "mcp_servers"),
    "a misspelt field": ({"max_token": 5}, "max_token"),
}


@pytest.mark.parametrize("name", BAD_MESSAGES)
def test_bad_requests_of_messages(name: str) -> None:
    change, word = BAD_MESSAGES[name]
    request = {"model": MODEL, "max_tokens": 100, "messages": ASKED, **change}
    with gateway(ScriptedUpstream("generate", REPLIES["text"]), MODEL) as client:
        answer = client.post("/v1/messages", json=request)
    assert answer.status_code == 400, answer.text
    found = answer.json()
    assert (found["type"], found["error"]["type"]) == ("error", "invalid_request_error")
    assert word in found["error"]["message"]
    assert found["request_id"]


BAD_RESPONSES: dict[str, tuple[dict[str, Any], str]] = {
    "no input": ({"input": None}, "input"),
    "an input that is a number": ({"input": 5}, "input"),
    "an item": ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
    "an item without a role": ({"input": [{"content": "hi"}]}, "input[0]"),
    "a part": ({"input": [{"role": "user", "content": [{"type": "x"}]}]}, "input[0].content[0].type"),
    "a call without a name": ({"input": [{"type": "function_call", "arguments": ""}]}, "input[0]"),
    "a stored response": ({"previous_response_id": "r"}, "previous_response_id"),
    "a stored conversation": ({"conversation": "c"}, "conversation"),
    "a stored prompt": ({"prompt": {"id": "p"}}, "prompt"),
    "in the background": ({"background": True}, "background"),
    "truncation": ({"truncation": "auto"}, "truncation"),
    "a temperature": ({"temperature": 3}, "temperature"),
    "a limit": ({"max_output_tokens": 0}, "max_output_tokens"),
    "a tool": ({"tools": [{"type": "web_search"}]}, "tools[0]"),
    "a choice": ({"tools": [FLAT], "tool_choice": "some"}, "tool_choice"),
    "a choice of no tool": (
        {"tools": [FLAT], "tool_choice": {"type": "function", "name": "x"}},
        "tool_choice",
    ),
    "a call without tools": ({"tool_choice": "required"}, "tool_choice"),
    "a format": ({"text": {"format": {"type": "xml"}}}, "text.format"),
    "many log-probabilities": ({"top_logprobs": 5}, "top_logprobs"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_RESPONSES)
def test_bad_requests_of_responses(name: str) -> None:
    change, path = BAD_RESPONSES[name]
    with gateway(ScriptedUpstream("generate", REPLIES["text"]), MODEL) as client:
        answer = client.post("/v1/responses", json={"model": MODEL, "input": "x", **change})
    assert answer.status_code == 400, answer.text
    found = answer.json()["error"]
    assert (found["type"], found["param"]) == ("invalid_request_error", path)


def test_a_grammar_of_a_custom_tool_is_not_enforced_so_it_is_refused() -> None:
    grammar = {"type": "grammar", "syntax": "lark", "definition": 'start: "a"'}
    body = {"model": MODEL, "input": "x", "tools": [{**PATCH, "format": grammar}]}
    upstream = ScriptedUpstream("generate", REPLIES["custom"])
    with gateway(upstream, MODEL) as client:
        answer = client.post("/v1/responses", json=body)
        assert answer.status_code == 400 and "tools[0].format" in answer.text
    with gateway(upstream, MODEL, lenient=True) as client:
        found = client.post("/v1/responses", json=body).json()
        assert found["output"][0]["input"] == 'a "b"\n潮'
        assert "tools[0].format" in found["warnings"][0]


# What the engine answers, or what the client sends; the status and the types of both APIs.
FAILURES: dict[str, tuple[int, int, str, int]] = {
    "a key": (401, 401, "authentication_error", 401),
    "a permission": (403, 403, "permission_error", 403),
    "too many requests": (429, 429, "rate_limit_error", 429),
    "overloaded": (503, 529, "overloaded_error", 503),
    "a failure": (500, 502, "api_error", 502),
    "an odd status": (418, 502, "api_error", 502),
}


@pytest.mark.parametrize("name", FAILURES)
def test_an_engine_that_fails(name: str) -> None:
    given, status, kind, other = FAILURES[name]
    with gateway(FailingUpstream(given), MODEL) as client:
        sdk = anthropic.Anthropic(
            api_key="k", base_url="http://testserver", http_client=client, max_retries=0
        )
        with pytest.raises(anthropic.APIStatusError) as raised:
            sdk.messages.create(model=MODEL, max_tokens=9, messages=ASKED)
        assert raised.value.status_code == status
        assert raised.value.body["error"]["type"] == kind
        theirs = openai.OpenAI(
            api_key="k", base_url="http://testserver/v1", http_client=client, max_retries=0
        )
        for call in (
            lambda: theirs.responses.create(model=MODEL, input="x"),
            lambda: theirs.chat.completions.create(model=MODEL, messages=ASKED),
        ):
            with pytest.raises(openai.APIStatusError) as found:
                call()
            assert found.value.status_code == other


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/messages", {"max_tokens": 9, "messages": ASKED}),
        ("/v1/responses", {"input": "x"}),
        ("/v1/chat/completions", {"messages": ASKED}),
    ],
)
def test_errors_that_are_no_matter_of_fields(path: str, body: dict[str, Any]) -> None:
    is_anthropic = path == "/v1/messages"
    with gateway(ScriptedUpstream("generate", REPLIES["text"]), MODEL, max_body=5000) as client:
        answers = {
            404: client.post(path, json={"model": "other", **body}),
            413: client.post(path, json={**body, "metadata": {"a": "x" * 6000}}),
            400 if path != "/v1/chat/completions" else 422: client.post(
                path, content=b"{", headers=JSON
            ),
        }
    types = {404: "not_found_error", 413: "request_too_large"}
    for status, answer in answers.items():
        assert answer.status_code == status
        error = json.loads(answer.text)["error"]
        if is_anthropic:
            assert error["type"] == types.get(status, "invalid_request_error")
