"""The SDKs of Anthropic and OpenAI against the gateway: one reply, streamed or not, and the errors of each API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pydantic
import pytest
from starlette.testclient import TestClient

from gateway_streams import gateway
from lazy_modules import LazyModule
from scripted_upstream import TOKENIZER, ScriptedUpstream
from served import QUIET, TIDE, client_of, make_service, post

openai = LazyModule("openai")
anthropic = pytest.importorskip("anthropic")

pytestmark = QUIET

MODEL = "qwen3"
CALL = '<tool_call>\n{"name": "tide", "arguments": {"port": "A"}}\n</tool_call>'
TWO = CALL + "\n" + CALL.replace('"A"', '"B"')
REPLIES = {
    "text": "Yes, it is low.<|im_end|>",
    "reasoning": "<think>\nHm.\n</think>\n\nYes.<|im_end|>",
    "call": f"{CALL}<|im_end|>",
    "two calls": f"{TWO}<|im_end|>",
    "all": f"<think>\nHm.\n</think>\n\nWait.{CALL}<|im_end|>",
    "nothing": "<|im_end|>",
    "other scripts": "<think>\n潮。\n</think>\n\nПрилив 🌊.<|im_end|>",
}
SCHEMA = {"type": "object", "properties": {"port": {"type": "string"}}, "required": ["port"]}
FUNCTION: dict[str, Any] = {"name": "tide", "description": "The tide at a port."}
ANTHROPIC_TOOL = {**FUNCTION, "input_schema": SCHEMA}
RESPONSES_TOOL = {"type": "function", **FUNCTION, "parameters": SCHEMA, "strict": False}
PNG = "iVBORw0KGgo="
ASKED = [{"role": "user", "content": "Is it low?"}]
USED = {"type": "tool_use", "id": "t1", "name": "tide", "input": {"port": "A"}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "low"}

# What a request may have, and the kind of reply that it gets.
MESSAGES: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("text", {}),
    "a system text": ("text", {"system": "Be brief."}),
    "system blocks": (
        "text",
        {"system": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]},
    ),
    "text blocks": (
        "text",
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "Is it?"}]}]},
    ),
    "a late system text": ("text", {"messages": [*ASKED, {"role": "system", "content": "Now."}]}),
    "metadata": ("text", {"metadata": {"user_id": "u"}}),
    "sampling": (
        "text",
        {"stop_sequences": ["zzz"], "extra_body": {"temperature": 0.5, "top_p": 0.9, "top_k": 4}},
    ),
    "tools": ("call", {"tools": [ANTHROPIC_TOOL]}),
    "tools and text": ("text", {"tools": [ANTHROPIC_TOOL], "tool_choice": {"type": "auto"}}),
    "a tool without a description": (
        "call",
        {"tools": [{"name": "tide", "input_schema": SCHEMA, "type": "custom"}]},
    ),
    "a cached tool": (
        "call",
        {"tools": [{**ANTHROPIC_TOOL, "cache_control": {"type": "ephemeral"}}]},
    ),
    "two calls": ("two calls", {"tools": [ANTHROPIC_TOOL]}),
    "one call": (
        "call",
        {
            "tools": [ANTHROPIC_TOOL],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        },
    ),
    "any tool": ("call", {"tools": [ANTHROPIC_TOOL], "tool_choice": {"type": "any"}}),
    "this tool": (
        "call",
        {"tools": [ANTHROPIC_TOOL], "tool_choice": {"type": "tool", "name": "tide"}},
    ),
    "no tool": ("text", {"tools": [ANTHROPIC_TOOL], "tool_choice": {"type": "none"}}),
    "thinking": (
        "reasoning",
        {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2000},
    ),
    "no thinking": ("text", {"thinking": {"type": "disabled"}}),
    "all": ("all", {"tools": [ANTHROPIC_TOOL]}),
    "an empty reply": ("nothing", {}),
    "other scripts": ("other scripts", {}),
    "a result": (
        "text",
        {
            "tools": [ANTHROPIC_TOOL],
            "messages": [
                *ASKED,
                {"role": "assistant", "content": [{"type": "text", "text": "Wait."}, USED]},
                {"role": "user", "content": [RESULT]},
            ],
        },
    ),
    "a result that is an error, and a question": (
        "text",
        {
            "tools": [ANTHROPIC_TOOL],
            "messages": [
                *ASKED,
                {"role": "assistant", "content": [USED]},
                {
                    "role": "user",
                    "content": [{**RESULT, "is_error": True}, {"type": "text", "text": "And?"}],
                },
            ],
        },
    ),
    "a result of blocks": (
        "text",
        {
            "tools": [ANTHROPIC_TOOL],
            "messages": [
                *ASKED,
                {"role": "assistant", "content": [USED]},
                {"role": "user", "content": [{**RESULT, "content": [{"type": "text", "text": "low"}]}]},
            ],
        },
    ),
    "signed thoughts": (
        "text",
        {
            "messages": [
                *ASKED,
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
                        {"type": "redacted_thinking", "data": "eA=="},
                        {"type": "text", "text": "Yes."},
                    ],
                },
                *ASKED,
            ]
        },
    ),
    "prefill": ("text", {"messages": [*ASKED, {"role": "assistant", "content": "Yes,"}]}),
}  # fmt: skip


@contextmanager
def anthropic_of(upstream: ScriptedUpstream, **more: Any) -> Iterator[Any]:
    with gateway(upstream, MODEL, **more) as client:
        yield anthropic.Anthropic(
            api_key="k", base_url="http://testserver", http_client=client, max_retries=0
        )


@contextmanager
def openai_of(upstream: ScriptedUpstream, **more: Any) -> Iterator[Any]:
    with gateway(upstream, MODEL, **more) as client:
        yield openai.OpenAI(
            api_key="k", base_url="http://testserver/v1", http_client=client, max_retries=0
        )


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_are_the_same_streamed_and_not(name: str) -> None:
    kind, fields = MESSAGES[name]
    request = {"model": MODEL, "max_tokens": 100, "messages": ASKED, **fields}
    with anthropic_of(ScriptedUpstream("generate", REPLIES[kind])) as client:
        whole = client.messages.create(**request)
        with client.messages.stream(**request) as stream:
            streamed = stream.get_final_message()
    assert whole.to_dict() | {"id": 0} == without_empty(streamed.to_dict()) | {"id": 0}
    texts = [block.text for block in whole.content if block.type == "text"]
    calls = [block for block in whole.content if block.type == "tool_use"]
    assert whole.stop_reason == ("tool_use" if calls else "end_turn")
    assert len(calls) == REPLIES[kind].count("<tool_call>")
    assert [call.input["port"] for call in calls] == ["A", "B"][: len(calls)]
    assert whole.usage.output_tokens and whole.usage.input_tokens
    if kind == "text":
        assert texts == ["Yes, it is low."]
    if kind in ("reasoning", "all"):
        assert [block.thinking for block in whole.content if block.type == "thinking"] == ["Hm."]


def without_empty(message: dict[str, Any]) -> dict[str, Any]:
    """The accumulator adds a field that the API may leave out."""
    return {key: value for key, value in message.items() if key != "stop_details"}


ITEM = {"type": "function_call", "call_id": "t1", "name": "tide", "arguments": '{"port": "A"}'}
OUTPUT = {"type": "function_call_output", "call_id": "t1", "output": "low"}
RESPONSES: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("text", {}),
    "instructions": ("text", {"instructions": "Be brief."}),
    "items": ("text", {"input": ASKED}),
    "parts": ("text", {"input": [{"role": "user", "content": [{"type": "input_text", "text": "Is it?"}]}]}),
    "a developer": ("text", {"input": [{"role": "developer", "content": "Be brief."}, *ASKED]}),
    "a late system text": ("text", {"input": [*ASKED, {"role": "system", "content": "Now."}]}),
    "sampling": ("text", {"temperature": 0.5, "top_p": 0.9, "max_output_tokens": 100}),
    "tools": ("call", {"tools": [RESPONSES_TOOL]}),
    "tools and text": ("text", {"tools": [RESPONSES_TOOL], "tool_choice": "auto"}),
    "two calls": ("two calls", {"tools": [RESPONSES_TOOL]}),
    "one call": ("call", {"tools": [RESPONSES_TOOL], "parallel_tool_calls": False, "tool_choice": "required"}),
    "this tool": ("call", {"tools": [RESPONSES_TOOL], "tool_choice": {"type": "function", "name": "tide"}}),
    "no tool": ("text", {"tools": [RESPONSES_TOOL], "tool_choice": "none"}),
    "a strict tool": ("call", {"tools": [{**RESPONSES_TOOL, "strict": True}]}),
    "reasoning": ("reasoning", {"include": ["reasoning.encrypted_content"], "store": False}),
    "all": ("all", {"tools": [RESPONSES_TOOL]}),
    "an empty reply": ("nothing", {}),
    "other scripts": ("other scripts", {}),
    "a result": ("text", {"tools": [RESPONSES_TOOL], "input": [*ASKED, ITEM, OUTPUT]}),
    "a result of parts": (
        "text",
        {
            "tools": [RESPONSES_TOOL],
            "input": [*ASKED, ITEM, {**OUTPUT, "output": [{"type": "input_text", "text": "low"}]}],
        },
    ),
    "encrypted reasoning": (
        "text",
        {
            "tools": [RESPONSES_TOOL],
            "input": [
                *ASKED,
                {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "eA=="},
                ITEM,
                OUTPUT,
            ],
        },
    ),
    "a reply before": (
        "text",
        {
            "input": [
                *ASKED,
                {
                    "type": "message",
                    "id": "m",
                    "status": "completed",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "Yes.", "annotations": []}],
                },
                *ASKED,
            ]
        },
    ),
    "free text": ("text", {"text": {"format": {"type": "text"}}}),
    "metadata": ("text", {"metadata": {"a": "b"}, "user": "u", "prompt_cache_key": "k"}),
}  # fmt: skip


@pytest.mark.parametrize("name", RESPONSES)
def test_responses_are_the_same_streamed_and_not(name: str) -> None:
    kind, fields = RESPONSES[name]
    request = {"model": MODEL, "input": "Is it low?", **fields}
    with openai_of(ScriptedUpstream("generate", REPLIES[kind])) as client:
        whole = client.responses.create(**request)
        with client.responses.stream(**request) as stream:
            events = list(stream)
            streamed = stream.get_final_response()
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert list(map(essence, whole.output)) == list(map(essence, streamed.output))
    assert whole.status == streamed.status == "completed"
    assert whole.usage == streamed.usage
    calls = [item for item in whole.output if item.type == "function_call"]
    assert [json.loads(call.arguments)["port"] for call in calls] == ["A", "B"][: len(calls)]
    assert len(calls) == REPLIES[kind].count("<tool_call>")
    if kind == "text":
        assert whole.output_text == streamed.output_text == "Yes, it is low."


def essence(item: Any) -> dict[str, Any]:
    """An item without the ids of its request, and what a parser of the SDK adds."""
    found: dict[str, Any] = item.to_dict()
    for part in found.get("content", ()):
        part.pop("parsed", None)
    return {
        key: value
        for key, value in found.items()
        if key not in ("id", "call_id", "parsed_arguments")
    }


class Tide(pydantic.BaseModel):
    port: str


def test_parse_helpers_give_what_was_asked_for() -> None:
    with openai_of(ScriptedUpstream("generate", '{"port": "A"}<|im_end|>')) as client:
        found = client.responses.parse(model=MODEL, input="Where?", text_format=Tide)
        assert found.output_parsed == Tide(port="A")
    with anthropic_of(ScriptedUpstream("generate", '{"port": "A"}<|im_end|>')) as client:
        answer = client.messages.parse(
            model=MODEL, max_tokens=50, messages=ASKED, output_format=Tide
        )
        assert answer.parsed_output == Tide(port="A")


def test_a_tool_runner_goes_on_until_there_is_an_answer() -> None:
    calls = []

    @anthropic.beta_tool
    def tide(port: str) -> str:
        """The tide at a port.

        Args:
            port: where.
        """
        calls.append(port)
        upstream.replies = [REPLIES["text"]]
        return "low"

    upstream = ScriptedUpstream("generate", REPLIES["call"])
    with anthropic_of(upstream) as client:
        runner = client.beta.messages.tool_runner(
            model=MODEL, max_tokens=100, messages=ASKED, tools=[tide]
        )
        last = runner.until_done()
    assert calls == ["A"]
    assert last.content[0].text == "Yes, it is low."


def test_a_stop_sequence_and_a_limit_are_reported() -> None:
    request = {"model": MODEL, "max_tokens": 100, "messages": ASKED}
    with anthropic_of(ScriptedUpstream("generate", REPLIES["text"])) as client:
        found = client.messages.create(**request, stop_sequences=[" low"])
        assert (found.stop_reason, found.stop_sequence) == ("stop_sequence", " low")
        assert found.content[0].text == "Yes, it is"
    with anthropic_of(ScriptedUpstream("generate", "Yes, it", stop="length")) as client:
        assert client.messages.create(**request).stop_reason == "max_tokens"
    with openai_of(ScriptedUpstream("generate", "Yes, it", stop="length")) as client:
        response = client.responses.create(model=MODEL, input="?")
        assert response.status == "incomplete"
        assert response.incomplete_details.reason == "max_output_tokens"


def test_tokens_are_counted_and_rendered_as_for_a_chat() -> None:
    chat = {"messages": [{"role": "system", "content": "S"}, *ASKED], "tools": [TIDE]}
    tide = TIDE["function"]
    assert isinstance(tide, dict)
    flat = {key: tide[key] for key in ("name", "description")}
    other = {"system": "S", "messages": ASKED}
    other["tools"] = [{**flat, "input_schema": tide["parameters"]}]
    item = {"instructions": "S", "input": ASKED}
    item["tools"] = [{"type": "function", **flat, "parameters": tide["parameters"]}]
    with client_of(make_service((MODEL,))) as client:
        ids = post(client, "/v1/chat/completions/render", chat)["token_ids"]
        assert post(client, "/v1/messages/render", {**other, "max_tokens": 9})["token_ids"] == ids
        assert post(client, "/v1/responses/render", item)["token_ids"] == ids
        assert post(client, "/v1/messages/count_tokens", other) == {"input_tokens": len(ids)}
        info = client.get("/tokenizer_info").json()
        assert info["eos_token"] == "<|im_end|>"
        assert "messages" in info["chat_template"]


BAD_MESSAGES: dict[str, tuple[dict[str, Any], int, str, str]] = {
    "no limit": ({"max_tokens": None}, 400, "invalid_request_error", "max_tokens"),
    "a limit of 0": ({"max_tokens": 0}, 400, "invalid_request_error", "max_tokens"),
    "no messages": ({"messages": []}, 400, "invalid_request_error", "messages"),
    "a temperature": ({"temperature": 3}, 400, "invalid_request_error", "temperature"),
    "a model": ({"model": "other"}, 404, "not_found_error", "other"),
    "a block": (
        {"messages": [{"role": "user", "content": [{"type": "container_upload", "file_id": "f"}]}]},
        400,
        "invalid_request_error",
        "messages[0].content[0].type",
    ),
    "a server tool": (
        {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
        400,
        "invalid_request_error",
        "web_search_20250305",
    ),
    "a choice": ({"tool_choice": {"type": "some"}}, 400, "invalid_request_error", "tool_choice"),
    "a container": ({"container": "c"}, 400, "invalid_request_error", "container"),
}


@pytest.mark.parametrize("name", BAD_MESSAGES)
def test_errors_of_messages_are_those_of_the_api(name: str) -> None:
    change, status, kind, word = BAD_MESSAGES[name]
    request = {"model": MODEL, "max_tokens": 100, "messages": ASKED, **change}
    with gateway(ScriptedUpstream("generate", REPLIES["text"]), MODEL) as client:
        answer = client.post("/v1/messages", json=request)
    assert answer.status_code == status
    found = answer.json()
    assert (found["type"], found["error"]["type"]) == ("error", kind)
    assert word in found["error"]["message"]


BAD_RESPONSES: dict[str, tuple[dict[str, Any], str]] = {
    "no input": ({"input": None}, "input"),
    "an item": ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
    "a stored response": ({"previous_response_id": "r"}, "previous_response_id"),
    "truncation": ({"truncation": "auto"}, "truncation"),
    "a tool": ({"tools": [{"type": "web_search"}]}, "tools[0]"),
    "a format": ({"text": {"format": {"type": "xml"}}}, "text.format"),
}


@pytest.mark.parametrize("name", BAD_RESPONSES)
def test_errors_of_responses_are_those_of_the_api(name: str) -> None:
    change, path = BAD_RESPONSES[name]
    with gateway(ScriptedUpstream("generate", REPLIES["text"]), MODEL) as client:
        answer = client.post("/v1/responses", json={"model": MODEL, "input": "x", **change})
    assert answer.status_code == 400
    found = answer.json()["error"]
    assert (found["type"], found["param"]) == ("invalid_request_error", path)


def read_events(client: TestClient, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    with client.stream("POST", path, json={**body, "stream": True}) as answer:
        assert answer.status_code == 200, answer.read()
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if "data: " in line]
    return [json.loads(line) for line in lines]


def test_a_stream_that_breaks_off_ends_with_an_error() -> None:
    for path, body in (
        ("/v1/messages", {"messages": ASKED, "max_tokens": 9}),
        ("/v1/responses", {"input": "x"}),
    ):
        upstream = ScriptedUpstream("generate", REPLIES["other scripts"] * 9, dies_after=900)
        with gateway(upstream, MODEL) as client:
            events = read_events(client, path, body)
        assert events[-1]["type"] == "error"
        assert "broke off" in json.dumps(events[-1])


def test_an_engine_that_disobeys_is_an_error_of_each_api() -> None:
    upstream = ScriptedUpstream("generate", REPLIES["text"])
    forced = {"tools": [ANTHROPIC_TOOL], "tool_choice": {"type": "any"}}
    with gateway(upstream, MODEL) as client:
        request = {"messages": ASKED, "max_tokens": 9, **forced}
        answer = client.post("/v1/messages", json=request)
        assert (answer.status_code, answer.json()["error"]["type"]) == (502, "api_error")


@pytest.mark.parametrize("kind", ["generate", "completions", "llamacpp", "text"])
def test_plain_prompts_are_continued(kind: str) -> None:
    upstream = ScriptedUpstream(
        kind, "Brest 潮汐 at noon.<|im_end|>" if kind != "text" else "Brest."
    )
    expected = "Brest 潮汐 at noon." if kind != "text" else "Brest."
    with openai_of(upstream) as client:
        whole = client.completions.create(model=MODEL, prompt="High water in", max_tokens=50)
        parts = list(
            client.completions.create(
                model=MODEL,
                prompt="High water in",
                stream=True,
                stream_options={"include_usage": True},
            )
        )
    assert whole.choices[0].text == expected
    assert whole.object == parts[0].object == "text_completion"
    assert "".join(part.choices[0].text for part in parts if part.choices) == expected
    assert parts[-1].usage == whole.usage
    if kind in ("generate", "completions", "llamacpp"):
        sent = upstream.requests[0]
        assert (sent.get("token_ids") or sent["prompt"]) == TOKENIZER.whole("High water in")


def test_plain_prompts_may_be_ids_and_are_one_at_a_time() -> None:
    upstream = ScriptedUpstream("generate", "Brest.")
    with gateway(upstream, MODEL) as client:
        post(client, "/v1/completions", {"prompt": [5, 6], "stop": ["s"]})
        for bad in ({"prompt": ["a", "b"]}, {"prompt": "a", "suffix": "b"}, {"prompt": ""}):
            assert "error" in post(client, "/v1/completions", bad, 422)
    assert upstream.requests[0]["token_ids"] == [5, 6]
