"""What callers give a parser, and a writer: taken in every shape it has, or refused with an error of ours."""

from __future__ import annotations

import json
from typing import Any

import pytest

import turnwise
from replygrammars import GRAMMARS
from turnwise.errors import MessageError, TokenizerError, TurnwiseError
from turnwise.replies.events import Message
from turnwise.replies.parse import Parser, parse
from turnwise.replies.write import write


def facts(message: Message) -> tuple[Any, ...]:
    return dict(message), message.attempts, message.spans, message.stop


@pytest.mark.parametrize("reply", [None, b"bytes", 3.5, ["a"], [1.5], [True], [-1], True, {"a": 1}, {1, 2}, [None]])
@pytest.mark.parametrize("vocabulary", [None, "turnwise"])
def test_a_reply_is_text_or_ids(reply: Any, vocabulary: str | None) -> None:
    with pytest.raises(TurnwiseError, match="a reply (is text or token ids|holds)"):
        turnwise.load("qwen3").parse(reply, tokenizer=vocabulary)


@pytest.mark.parametrize(("tools", "found"), [(5, "int"), ("x", "str"), ({"a": 1}, "dict"), ([5], "int")])
def test_tools_are_a_list_of_schemas(tools: Any, found: str) -> None:
    with pytest.raises(MessageError, match=f"tools.*not {found}"):
        Parser(GRAMMARS["qwen3"], tools=tools)


@pytest.mark.parametrize("names", [["strings", "string"], "strings", 5, [5]])
def test_unknown_tolerances_are_refused(names: Any) -> None:
    with pytest.raises(TurnwiseError, match="tolerance"):
        Parser(GRAMMARS["qwen3"], tolerances=names)


@pytest.mark.parametrize("name", ["qwen3", "deepseek-r1"])
def test_a_prompt_in_any_shape(name: str) -> None:
    template = turnwise.load(name)
    messages = [{"role": "user", "content": "Hi ☀"}]
    prompt = template.render(messages, add_generation_prompt=True)
    encoded = template.encode(messages, "turnwise", add_generation_prompt=True)
    more = f"{prompt}<think>\nWell"
    ids = [*encoded.input_ids, *encoded.tokenizer.whole("<think>\nWell")]
    for shape in (more, ids, tuple(ids)):
        message = template.parse(", so</think>Yes", shape, tokenizer="turnwise")
        assert message["reasoning_content"].strip().endswith("Well, so"), shape
        assert message["content"] == "Yes"
    shapes = [prompt, str(prompt), encoded, encoded.input_ids]
    tails = {template.parser(shape, tokenizer="turnwise").tail for shape in shapes}
    assert len(tails) == 1


@pytest.mark.parametrize("prompt", [5, b"x", {"a": 1}, ["a"], [{"role": "user", "content": "Hi"}], object(), [1, 2]])
def test_a_prompt_that_is_none_is_refused(prompt: Any) -> None:
    with pytest.raises(TurnwiseError, match="a prompt"):
        Parser(GRAMMARS["qwen3"], prompt)


@pytest.mark.parametrize(
    ("message", "where"),
    [
        (None, "mapping"),
        ("hi", "mapping"),
        ({"content": 5}, "content"),
        ({"content": [5]}, r"content\[0\]"),
        ({"content": [{"text": 5}]}, r"content\[0\].text"),
        ({"content": "", "reasoning_content": 5}, "reasoning_content"),
        ({"tool_calls": 5}, "tool_calls"),
        ({"tool_calls": {"a": 1}}, "tool_calls"),
        ({"tool_calls": [5]}, r"tool_calls\[0\]"),
        ({"tool_calls": [{"function": 5}]}, r"tool_calls\[0\]"),
        ({"tool_calls": [{"function": {}}]}, "name"),
        ({"tool_calls": [{"function": {"name": 5}}]}, "name"),
        ({"tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}, "no JSON"),
        ({"tool_calls": [{"function": {"name": "f", "arguments": [1]}}]}, "an object"),
        ({"tool_calls": [{"function": {"name": "f", "arguments": {"x": object()}}}]}, "cannot be written"),
        ({"tool_calls": [{"id": 5, "function": {"name": "f"}}]}, r"tool_calls\[0\].id"),
    ],
)
def test_a_message_that_cannot_be_written(message: Any, where: str) -> None:
    for grammar in ("qwen3", "kimi-k2"):
        with pytest.raises(MessageError, match=where):
            write(GRAMMARS[grammar] if grammar != "qwen3" else turnwise.load("qwen3").grammar, message)


def test_a_reply_is_of_one_kind() -> None:
    """And a parser that was misused leaves nothing behind for the next one."""
    template = turnwise.load("qwen3")
    before = facts(template.parse("Hello"))
    text_first = template.parser(tokenizer="turnwise")
    text_first.feed([])
    text_first.feed("a")
    for chunk in ([1, 2], 1):
        with pytest.raises(TokenizerError, match="began with text"):
            text_first.feed(chunk)
    text_first.feed("b")
    assert text_first.close()["content"] == "ab"
    ids_first = template.parser(tokenizer="turnwise")
    ids_first.feed("")
    ids = template.encode([{"role": "user", "content": "Hi"}], "turnwise").tokenizer.encode("Hello")
    ids_first.feed(ids)
    for _ in range(2):
        with pytest.raises(TokenizerError, match="began with token ids"):
            ids_first.feed("a")
    assert ids_first.close()["content"] == "Hello"
    assert facts(template.parse("Hello")) == before


DEFINITIONS = {
    "Text": {"type": "string"},
    "Count": {"type": "integer"},
    "Level": {"enum": ["1", "2"]},
    "Again": {"$ref": "#/$defs/Text"},
    "a/b": {"type": "string"},
    "Round": {"anyOf": [{"$ref": "#/$defs/Round"}, {"$ref": "#/$defs/Text"}]},
}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"$ref": "#/$defs/Text"}, "1"),
        ({"$ref": "#/$defs/Count"}, 1),
        ({"$ref": "#/$defs/Level"}, "1"),
        ({"$ref": "#/$defs/Again"}, "1"),
        ({"$ref": "#/$defs/a~1b"}, "1"),
        ({"$ref": "#/$defs/Round"}, "1"),
        ({"anyOf": [{"$ref": "#/$defs/Text"}, {"type": "null"}]}, "1"),
        ({"$ref": "#/$defs/Missing"}, 1),  # nothing is known of it
        ({"$ref": "https://example.org/schema#/$defs/Text"}, 1),
    ],
)
def test_references_are_followed(schema: Any, expected: Any) -> None:
    parameters = {"type": "object", "properties": {"x": schema}, "$defs": DEFINITIONS}
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
    reply = "</think><tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>"
    message = parse(GRAMMARS["qwen3.5"], reply, tools=tools)
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"x": expected}
