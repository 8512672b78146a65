"""Messages and tools of other APIs, given as they are: one prompt by all roads, or an error that names the place."""

from __future__ import annotations

import json
import warnings
from datetime import datetime
from typing import Any

import pytest

import turnwise
from api_chats import API_NAMES, ChatMaker
from loaded import load_entry
from turnwise.errors import MessageError
from turnwise.shapes import conversation, write

SCHEMA = {"type": "object", "properties": {"at": {"type": "string"}}}
ASKED = [{"role": "user", "content": "High water?"}]
USUAL = {
    "type": "function",
    "function": {"name": "tide", "description": "Tides.", "parameters": SCHEMA},
}
TOOLS: dict[str, Any] = {
    "anthropic": {
        "name": "tide",
        "description": "Tides.",
        "input_schema": SCHEMA,
        "cache_control": {"type": "ephemeral"},
    },
    "responses": {
        "type": "function",
        "name": "tide",
        "description": "Tides.",
        "parameters": SCHEMA,
    },
    "gemini": {
        "functionDeclarations": [
            {"name": "tide", "description": "Tides.", "parametersJsonSchema": SCHEMA}
        ]
    },
}


@pytest.mark.law(6)
@pytest.mark.parametrize("name", turnwise.entries())
def test_the_prompt_is_the_same_by_all_roads(name: str) -> None:
    template = load_entry(name)
    if "tools" not in template.variables:
        return
    for seed in range(6):
        maker = ChatMaker(seed)
        row = conversation({"messages": plain_chat(maker), "tools": maker.tools()})
        text = render(template, row.arguments)
        for api in API_NAMES:
            found = render(template, conversation(write(row, api)).arguments)
            # Responses has arguments as JSON text, which some templates refuse or write otherwise in any API.
            is_other = api == "responses" and found != text
            assert found == (render(template, with_text(row.arguments)) if is_other else text)


def with_text(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return a chat whose calls have their arguments as JSON text."""
    copied: dict[str, Any] = json.loads(json.dumps(arguments))
    for message in copied["messages"]:
        for call in message.get("tool_calls", ()):
            function = call["function"]
            function["arguments"] = json.dumps(function["arguments"], ensure_ascii=False)
    return copied


def plain_chat(maker: ChatMaker) -> list[Any]:
    """Return a conversation without media: most templates have no place for them.

    One part of text is a text, as it is read from each API.
    """
    messages = maker.chat()
    for message in messages:
        content = message["content"]
        if isinstance(content, list):
            texts = [part for part in content if part["type"] == "text"]
            message["content"] = texts if len(texts) > 1 else texts[0]["text"] if texts else "x"
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = {"harbour": maker.text()}
    return messages


def render(template: Any, arguments: dict[str, Any]) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return str(template.render(**arguments, now=datetime(2026, 1, 2)).text)
        except turnwise.TurnwiseError as error:
            return f"refused: {type(error).__name__}"


@pytest.mark.parametrize("api", TOOLS)
@pytest.mark.parametrize("name", ["qwen3", "gpt-oss", "hermes-3", "llama-3.1"])
def test_tools_of_other_apis_are_mapped(name: str, api: str) -> None:
    template = load_entry(name)
    found = template.render(ASKED, tools=[TOOLS[api]])
    assert found.text == template.render(ASKED, tools=[USUAL]).text
    assert any(change.path == "tools[0]" for change in found.changes)


@pytest.mark.parametrize("name", ["gpt-oss", "hermes-3"])
def test_what_a_template_needs_of_a_tool_is_filled_in(name: str) -> None:
    bare = {"type": "function", "function": {"name": "tide"}}
    found = load_entry(name).render(ASKED, tools=[bare])
    places = [change.path for change in found.changes]
    assert places == ["tools[0].function.description", "tools[0].function.parameters"]


def test_what_a_template_does_not_need_is_not_filled_in() -> None:
    bare = {"type": "function", "function": {"name": "tide"}}
    found = load_entry("qwen3").render(ASKED, tools=[bare])
    assert not found.changes
    assert '{"type": "function", "function": {"name": "tide"}}' in found.text


def test_an_error_names_the_place_in_the_tools() -> None:
    nameless = {"type": "function", "function": {"description": "Tides."}}
    with pytest.raises(MessageError) as caught:
        load_entry("gpt-oss").render(ASKED, tools=[nameless])
    assert caught.value.path == "tools[0].function.name"


TURNS: dict[str, list[dict[str, Any]]] = {
    "anthropic": [
        *ASKED,
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "tide", "input": {"at": "x"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "noon"}]},
    ],
    "responses": [
        *ASKED,
        {"type": "function_call", "call_id": "a", "name": "tide", "arguments": '{"at": "x"}'},
        {"type": "function_call_output", "call_id": "a", "output": "noon"},
    ],
}  # fmt: skip


@pytest.mark.parametrize("api", TURNS)
def test_turns_of_other_apis_become_messages(api: str) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "tide", "arguments": {"at": "x"}}}
    usual = [
        *ASKED,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "noon"},
    ]
    template = load_entry("qwen3")
    found = template.render(TURNS[api], tools=[USUAL], add_generation_prompt=True)
    expected = template.render(usual, tools=[USUAL], add_generation_prompt=True)
    assert found.text == expected.text
    assert found.changes[0].path == "messages"


def test_a_block_that_cannot_be_kept_is_an_error() -> None:
    block = {"type": "server_tool_use", "id": "a", "name": "web_search", "input": {}}
    with pytest.raises(MessageError) as caught:
        load_entry("qwen3").render([*ASKED, {"role": "assistant", "content": [block]}])
    assert caught.value.path == "messages[1].content[0].type"
