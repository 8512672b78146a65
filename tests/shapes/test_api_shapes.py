"""Requests and replies of Anthropic, Responses and Gemini: read, written, and the same both ways."""

from __future__ import annotations

from typing import Any

import pytest

from api_chats import API_NAMES, ChatMaker
from turnwise.errors import MessageError
from turnwise.shapes import conversation, write, write_reply
from turnwise.shapes.part_forms import simplify_messages

CHATS = 100  # of each seed


@pytest.mark.law(6)
@pytest.mark.parametrize("seed", range(50))
@pytest.mark.parametrize("api", API_NAMES)
def test_a_conversation_that_is_written_and_read_is_the_same(api: str, seed: int) -> None:
    for number in range(CHATS):
        maker = ChatMaker(seed * CHATS + number, api)
        row = conversation({"messages": maker.chat(), "tools": maker.tools()}, "openai")
        written = write(row, api)
        back = conversation(written, api)
        assert simplify_messages(back.messages) == simplify_messages(row.messages)
        assert back.tools == row.tools
        assert not back.notes and not back.rest


def consume(value: Any) -> Any:
    """Validate what pydantic validates only when it is read."""
    if isinstance(value, dict):
        return {key: consume(item) for key, item in value.items()}
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        return value
    return [consume(item) for item in value]


def request_type(api: str) -> Any:
    from pydantic import TypeAdapter

    if api == "anthropic":
        types = pytest.importorskip("anthropic.types.message_create_params")
        return TypeAdapter(types.MessageCreateParamsNonStreaming)
    if api == "responses":
        from openai.types.responses import response_create_params

        return TypeAdapter(response_create_params.ResponseCreateParamsNonStreaming)
    types = pytest.importorskip("google.genai.types")
    return TypeAdapter(list[types.Content])


@pytest.mark.parametrize("api", API_NAMES)
def test_a_request_has_the_types_of_the_sdk(api: str) -> None:
    adapter = request_type(api)
    for number in range(60):
        maker = ChatMaker(number, api)
        written = write(conversation({"messages": maker.chat(), "tools": maker.tools()}), api)
        if api == "gemini":
            adapter.validate_python(written["contents"])
            continue
        for tool in written.get("tools", ()):
            tool.setdefault("strict", True)
        consume(adapter.validate_python({"model": "m", "max_tokens": 9, **written}))


TIDE = {"id": "c1", "type": "function", "function": {"name": "tide", "arguments": '{"at": 1}'}}
REPLIES = {
    "text": {"role": "assistant", "content": "Noon."},
    "reasoning": {"role": "assistant", "content": "Noon.", "reasoning_content": "I look."},
    "calls": {"role": "assistant", "content": None, "tool_calls": [TIDE]},
    "all": {
        "role": "assistant",
        "content": "Wait.",
        "reasoning_content": "I look.",
        "tool_calls": [TIDE],
    },
}
FIELDS: dict[str, dict[str, Any]] = {
    "openai": {"id": "x", "created": 1, "model": "m"},
    "anthropic": {"id": "x", "model": "m", "usage": {"input_tokens": 1, "output_tokens": 1}},
    "responses": {
        "id": "x",
        "created_at": 1,
        "model": "m",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    },
    "gemini": {},
}


def reply_type(api: str) -> Any:
    if api == "anthropic":
        return pytest.importorskip("anthropic.types").Message
    if api == "gemini":
        return pytest.importorskip("google.genai.types").GenerateContentResponse
    from openai.types.chat import ChatCompletion
    from openai.types.responses import Response

    return ChatCompletion if api == "openai" else Response


@pytest.mark.parametrize("kind", REPLIES)
@pytest.mark.parametrize("api", ["openai", *API_NAMES])
def test_a_reply_is_that_of_the_sdk_and_is_read_again(api: str, kind: str) -> None:
    message = REPLIES[kind]
    reply = write_reply(message, api, "tool_calls" if "calls" in kind else "stop", **FIELDS[api])
    model = reply_type(api).model_validate(reply)
    for body in (reply, model.model_dump(exclude_none=True)):
        back = conversation(body)
        assert simplify_messages(back.messages) == simplify_messages([message])


BROKEN: dict[str, tuple[str, Any, str, str]] = {
    "a block of the server": (
        "anthropic",
        [{"role": "user", "content": [{"type": "web_search_tool_result", "tool_use_id": "a"}]}],
        "messages[0].content[0].type",
        "a part of type 'web_search_tool_result' cannot be kept",
    ),
    "a source": (
        "anthropic",
        [{"role": "user", "content": [{"type": "image", "source": {"type": "tape"}}]}],
        "messages[0].content[0].source.type",
        "a source of type 'tape' cannot be kept",
    ),
    "a result without an id": (
        "anthropic",
        [{"role": "user", "content": [{"type": "tool_result", "content": "x"}]}],
        "messages[0].content[0]",
        "needs 'tool_use_id'",
    ),
    "a tool of the server": (
        "anthropic",
        {"messages": [], "tools": [{"type": "web_search_20250305", "name": "web_search"}]},
        "tools[0]",
        "a tool of type 'web_search_20250305' cannot be kept",
    ),
    "an item": (
        "responses",
        {"input": [{"type": "item_reference", "id": "x"}]},
        "input[0].type",
        "an item of type 'item_reference' cannot be kept",
    ),
    "an item without a role": (
        "responses",
        {"input": [{"content": "x"}]},
        "input[0]",
        "there is no 'role'",
    ),
    "code": (
        "gemini",
        {"contents": [{"role": "model", "parts": [{"executableCode": {"code": "1"}}]}]},
        "contents[0].parts[0].type",
        "a part of type 'executableCode' cannot be kept",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_kept_is_an_error(name: str) -> None:
    api, row, path, problem = BROKEN[name]
    with pytest.raises(MessageError) as caught:
        conversation(row, api)
    assert caught.value.path == path
    assert problem in str(caught.value)


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "a name": ("anthropic", {"role": "user", "content": "x", "name": "Ann"}, "messages[1].name"),
    "a role": ("anthropic", {"role": "developer", "content": "x"}, "messages[1].role"),
    "a signature of another API": (
        "responses",
        {"role": "assistant", "content": "x", "reasoning_details": [{"type": "thinking"}]},
        "messages[1].reasoning_details[0]",
    ),
    "a late system text": ("gemini", {"role": "system", "content": "x"}, "messages[1].role"),
    "an error": (
        "responses",
        {"role": "tool", "tool_call_id": "a", "content": "x", "is_error": True},
        "messages[1].is_error",
    ),
    "arguments that are no object": (
        "anthropic",
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{oops"}}],
        },
        "messages[1].tool_calls[0].function.arguments",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_an_api_has_no_place_for_is_not_written(name: str) -> None:
    api, message, path = REFUSED[name]
    row = conversation([{"role": "user", "content": "q"}, message], "list")
    with pytest.raises(MessageError) as caught:
        write(row, api)
    assert caught.value.path == path


def test_an_unknown_key_with_text_is_kept_and_named_once() -> None:
    parts = [
        {"type": "text", "text": "a", "mood": "calm"},
        {"type": "text", "text": "b", "mood": "x"},
    ]
    found = conversation({"system": "S", "messages": [{"role": "user", "content": parts}]})
    assert found.messages[1]["content"] == parts
    assert found.notes == (
        "messages[0].content[0].mood is no key of anthropic that is known; it was kept",
    )


def test_reasoning_that_only_its_api_reads_is_given_back() -> None:
    blocks = [
        {"type": "thinking", "thinking": "I look.", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "b3BhcXVl"},
        {"type": "text", "text": "Noon."},
    ]
    turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": blocks}]
    found = conversation(turns)
    assert found.shape == "anthropic"
    assert found.messages[1]["reasoning_content"] == "I look."
    assert found.messages[1]["reasoning_details"] == blocks[:2]
    assert write(found, "anthropic")["messages"] == turns


def test_a_message_of_a_tool_in_a_request_of_responses_is_one() -> None:
    """Its results are items of their own, but rows have messages of tools, too."""
    found = conversation({"input": [{"role": "tool", "content": "x"}]})
    assert found.shape == "responses" and found.messages == [{"role": "tool", "content": "x"}]


def test_keys_of_gemini_may_be_in_snake_case() -> None:
    schema = {"type": "OBJECT", "properties": {"at": {"type": "INTEGER"}}}
    body = {
        "system_instruction": "S",
        "contents": [
            {"role": "user", "parts": [{"inline_data": {"mime_type": "image/png", "data": "AA=="}}]},
            {"role": "model", "parts": [{"function_call": {"name": "tide", "args": {"at": 1}}}]},
            {"role": "user", "parts": [{"function_response": {"name": "tide", "response": {"output": "noon"}}}]},
        ],
        "tools": [{"function_declarations": [{"name": "tide", "parameters": schema}]}],
    }  # fmt: skip
    found = conversation(body)
    assert [message["role"] for message in found.messages] == [
        "system",
        "user",
        "assistant",
        "tool",
    ]
    assert found.messages[1]["content"][0]["image_url"] == {"url": "data:image/png;base64,AA=="}
    assert found.messages[3] == {"role": "tool", "name": "tide", "content": "noon"}
    assert found.tools is not None
    assert found.tools[0]["function"]["parameters"] == {
        "type": "object",
        "properties": {"at": {"type": "integer"}},
    }
