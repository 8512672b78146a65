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
from sdk_requests import ASKED, CHAT, MESSAGES, REPLIES, RESPONSES, TOOL
from served import QUIET, TIDE, client_of, make_service, post

openai = LazyModule("openai")
anthropic = LazyModule("anthropic")

pytestmark = QUIET

MODEL = "qwen3"
ANTHROPIC_TOOL = TOOL


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


@pytest.fixture(scope="module")
def engine() -> ScriptedUpstream:
    return ScriptedUpstream("generate", REPLIES["text"])


@pytest.fixture(scope="module")
def anthropic_client(engine: ScriptedUpstream) -> Iterator[Any]:
    with anthropic_of(engine) as client:
        yield client


@pytest.fixture(scope="module")
def openai_client(engine: ScriptedUpstream) -> Iterator[Any]:
    with openai_of(engine) as client:
        yield client


def test_there_are_sixty_kinds_of_request_for_each_api() -> None:
    assert min(map(len, (MESSAGES, RESPONSES, CHAT))) >= 60


def check_reply(kind: str, texts: list[str], thoughts: list[str], arguments: list[Any]) -> None:
    """Compare what a client has with the reply that the engine wrote."""
    written = REPLIES[kind].removesuffix("<|im_end|>")
    thinking, _, rest = written.rpartition("</think>")
    calls = [json.loads(one.partition("</tool_call>")[0]) for one in rest.split("<tool_call>")[1:]]
    assert arguments == [call["arguments"] for call in calls]
    assert "".join(thoughts).strip() == thinking.removeprefix("<think>").strip()
    assert "".join(texts).strip() == rest.partition("<tool_call>")[0].strip()


@pytest.mark.law(5)
@pytest.mark.parametrize("name", MESSAGES)
def test_messages_are_the_same_streamed_and_not(
    name: str, anthropic_client: Any, engine: ScriptedUpstream
) -> None:
    kind, fields = MESSAGES[name]
    engine.replies = [REPLIES[kind]]
    request = {"model": MODEL, "max_tokens": 100, "messages": ASKED, **fields}
    whole = anthropic_client.messages.create(**request)
    with anthropic_client.messages.stream(**request) as stream:
        streamed = stream.get_final_message()
    assert essence_of_message(whole) == essence_of_message(streamed)
    calls = [block.input for block in whole.content if block.type == "tool_use"]
    texts = [block.text for block in whole.content if block.type == "text"]
    thoughts = [block.thinking for block in whole.content if block.type == "thinking"]
    check_reply(kind, texts, thoughts, calls)
    assert whole.stop_reason == ("tool_use" if calls else "end_turn")
    assert whole.usage.output_tokens and whole.usage.input_tokens


def essence_of_message(message: Any) -> dict[str, Any]:
    """A message without its id, a field that the accumulator adds, and warnings, which are in the first event."""
    found = message.to_dict()
    return {k: v for k, v in found.items() if k not in ("id", "stop_details", "warnings")}


@pytest.mark.law(5)
@pytest.mark.parametrize("name", RESPONSES)
def test_responses_are_the_same_streamed_and_not(
    name: str, openai_client: Any, engine: ScriptedUpstream
) -> None:
    kind, fields = RESPONSES[name]
    engine.replies = [REPLIES[kind]]
    request = {"model": MODEL, "input": "Is it low?", **fields}
    whole = openai_client.responses.create(**request)
    with openai_client.responses.stream(**request) as stream:
        events = list(stream)
        streamed = stream.get_final_response()
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert list(map(essence, whole.output)) == list(map(essence, streamed.output))
    assert whole.status == streamed.status == "completed"
    assert whole.usage == streamed.usage
    arguments = [
        json.loads(item.arguments) if item.type == "function_call" else {"input": item.input}
        for item in whole.output
        if item.type in ("function_call", "custom_tool_call")
    ]
    thoughts = [
        part.text for item in whole.output if item.type == "reasoning" for part in item.content
    ]
    check_reply(kind, [whole.output_text], thoughts, arguments)
    assert whole.output_text == streamed.output_text


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


@pytest.mark.law(5)
@pytest.mark.parametrize("name", CHAT)
def test_chats_are_the_same_streamed_and_not(
    name: str, openai_client: Any, engine: ScriptedUpstream
) -> None:
    kind, fields = CHAT[name]
    engine.replies = [REPLIES[kind]]
    request = {"model": MODEL, "messages": ASKED, **fields}
    whole = openai_client.chat.completions.create(**request)
    usage = {"stream_options": {"include_usage": True}}
    with openai_client.chat.completions.stream(**request, **usage) as stream:
        streamed = stream.get_final_completion()
    [choice], [other] = whole.choices, streamed.choices
    message, again = choice.message, other.message
    assert choice.finish_reason == other.finish_reason
    assert (message.content or "") == (again.content or "")
    assert whole.usage == streamed.usage
    calls = [call.function for call in message.tool_calls or ()]
    assert calls == [
        type(calls[0])(name=call.function.name, arguments=call.function.arguments)
        for call in again.tool_calls or ()
    ]
    arguments = [json.loads(call.arguments) for call in calls]
    thoughts = [getattr(message, "reasoning_content", None) or ""]
    check_reply(kind, [message.content or ""], thoughts, arguments)
    assert choice.finish_reason == ("tool_calls" if calls else "stop")


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
