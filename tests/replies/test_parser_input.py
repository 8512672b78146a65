"""What callers give a parser, and a writer: taken in every shape it has, or refused with an error of ours."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loaded import load_entry
from parsing import parse
from reply_grammars import GRAMMARS
from turnwise.errors import MessageError, SourceError, TokenizerError, TurnwiseError
from turnwise.replies.events import Message
from turnwise.replies.parser.parser import Parser
from turnwise.replies.write import write


def facts(message: Message) -> tuple[Any, ...]:
    return dict(message), message.attempts, message.spans, message.stop


@pytest.mark.parametrize(
    "reply", [None, b"bytes", 3.5, ["a"], [1.5], [True], [-1], True, {"a": 1}, {1, 2}, [None]]
)
@pytest.mark.parametrize("vocabulary", [None, "turnwise"])
def test_a_reply_is_text_or_ids(reply: Any, vocabulary: str | None) -> None:
    with pytest.raises(TurnwiseError, match="a reply must be text or token ids"):
        load_entry("qwen3").parse(reply, tokenizer=vocabulary)


@pytest.mark.parametrize(
    ("tools", "found"), [(5, "int"), ("x", "str"), ({"a": 1}, "dict"), ([5], "int")]
)
def test_tools_are_a_list_of_schemas(tools: Any, found: str) -> None:
    with pytest.raises(MessageError, match=f"tools.*not {found}"):
        Parser(GRAMMARS["qwen3"], tools=tools)


@pytest.mark.parametrize("names", [["strings", "string"], "strings", 5, [5]])
def test_unknown_tolerances_are_refused(names: Any) -> None:
    with pytest.raises(TurnwiseError, match="tolerance"):
        Parser(GRAMMARS["qwen3"], tolerances=names)


@pytest.mark.parametrize("name", ["qwen3", "deepseek-r1"])
def test_a_prompt_in_any_shape(name: str) -> None:
    template = load_entry(name)
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
    tails = {template.parser(shape, tokenizer="turnwise").prefill_text for shape in shapes}
    assert len(tails) == 1


@pytest.mark.parametrize(
    "prompt", [5, b"x", {"a": 1}, ["a"], [{"role": "user", "content": "Hi"}], object(), [1, 2]]
)
def test_a_prompt_that_is_none_is_refused(prompt: Any) -> None:
    with pytest.raises(TurnwiseError, match="a prompt"):
        Parser(GRAMMARS["qwen3"], prompt)


@pytest.mark.parametrize("kind", [list, tuple])
def test_a_conversation_is_to_be_rendered_first(kind: Any) -> None:
    chat = kind([{"role": "user", "content": "Hi"}])
    for tokenizer in (None, "turnwise"):
        with pytest.raises(
            MessageError, match=r"prompt: .*not a list of messages\n.*template\.render\("
        ) as caught:
            load_entry("qwen3").parse("x", chat, tokenizer=tokenizer)
        assert caught.value.path == "prompt"


def test_a_parser_is_made_of_a_grammar() -> None:
    template = load_entry("qwen3")
    for given in (template, "qwen3", None, {}):
        for make in (Parser, lambda grammar: parse(grammar, "x")):
            with pytest.raises(
                TurnwiseError, match=r"needs a grammar, not .*\n.*template\.parser\(\)"
            ):
                make(given)


@pytest.mark.parametrize("chunk", ["more", " ", "<|im_end|>", [5], 5, (5, 6)])
@pytest.mark.parametrize("before", ["", "Hello", "Hello<|im_end|>", "<tool_call>\n{", [5]])
def test_nothing_follows_the_end(before: Any, chunk: Any) -> None:
    """What comes after `close` is refused, not lost; nothing at all is fine, and so is closing once more."""
    parser = load_entry("qwen3").parser(tokenizer="turnwise")
    parser.feed(before)
    message = parser.close()
    known = facts(message)
    with pytest.raises(TurnwiseError, match=r"this reply was closed.*\n.*another parser"):
        parser.feed(chunk)
    assert parser.feed("") == parser.feed([]) == []
    assert parser.close() is message and facts(message) == known


def calls(**given: Any) -> dict[str, Any]:
    return {"calls": [{"each": ["<c>", "</c>"], **given}]}


SENSELESS: list[tuple[Any, str]] = [
    ([], r"declared must be a mapping, not \[\]"),
    (5, "declared must be a mapping, not 5"),
    ("more", "declared must be a mapping, not 'more'"),
    (["more"], "declared must be a mapping, not .*more"),
    ({5: []}, "unknown key 5"),
    ({"calls": [["json"]]}, r"calls must be a mapping, not \['json'\]"),
    ({"calls": [5]}, "calls must be a mapping, not 5"),
    (calls(json={"spacing": 5}), r"json\.spacing must be a mapping, not 5"),
    (calls(json={"spacing": {"item": 5}}), r"spacing\.item must be a string.*, not 5"),
    (
        calls(json={"spacing": {"indent": True}}),
        "indent must be a whole number from 0 up, not True",
    ),
    (calls(json={"parts": [1]}), "unknown key 'parts'"),
    (calls(json={"around": ["a"]}), r"around must be three strings.*, not \['a'\]"),
    (calls(json={"around": ["a", 1, "b"]}), r"around\[1\] must be a string, not 1"),
    (calls(json={"around": "[,]"}), "around must be three strings"),
    (calls(json={"name": ""}), "name must be a string that is not empty, not ''"),
    (calls(json={"name": "x", "arguments": "x"}), r"json is .*\n.*different keys"),
    (calls(json={"arguments": "name"}), r"json is .*\n.*different keys"),
    (calls(json={"id": "arguments"}), r"json is .*\n.*different keys"),
    (calls(json={}, pairs={}), r"\n.*only be used with parts"),
    (calls(json={}, first=True), "first must be a whole number from 0 up, not True"),
    (calls(json={}, first=-1), "first must be a whole number from 0 up, not -1"),
    (calls(parts=["{name}", " ", "{name}"]), r"parts is .*\n.*once"),
    (calls(parts=["{name}", "", "{arguments}"]), r"parts\[1\] must be a text.*, not ''"),
    (
        calls(parts=["{name}", "{arguments}"], pairs={"key": 5}),
        r"pairs\.key must be a string.*, not 5",
    ),
    ({"calls": {"raw": {"name": "python"}}}, r"calls is .*\n.*after a marker"),
    (calls(raw={"name": "python"}, each=["\n", "</c>"]), r"calls is .*\n.*after a marker"),
    ({"more": [{"raw": {"name": "python"}}]}, r"more is .*\n.*after a marker"),
    ({"stops": [""]}, r"stops\[0\] must be a string that is not empty"),
    ({"starts": ["<a>", ""]}, r"starts\[1\] must be a string that is not empty"),
    ({"reasoning": ["", ""]}, r"reasoning is .*\n.*a marker"),
    ({"reasoning": ["\n", " "]}, r"reasoning is .*\n.*a marker"),
]


@pytest.mark.parametrize(("data", "problem"), SENSELESS)
def test_a_declaration_that_makes_no_sense(data: Any, problem: str) -> None:
    """It is refused with the place, what stands there, and what is due."""
    with pytest.raises(SourceError, match=problem):
        load_entry("chatml").parse("x", declared=data)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"reasoning": ["", "</think>"]},
        {"stops": ["<e>"], "starts": ["<s>"]},
        calls(
            json={"name": None, "spacing": {"indent": 2}, "around": ["", ",", "]"], "listed": True}
        ),
        calls(json={"id": "id", "inside": "function"}, first=1, between=""),
        calls(
            parts=["{name}", ":", "{index}", "{arguments}"],
            pairs={"typed": {"array": ["<", ">"]}, "echoed": True},
        ),
        {"calls": [{"section": ["<code>", ""], "raw": {"name": "python", "fenced": True}}]},
    ],
)
def test_a_declaration_that_makes_sense(data: Any) -> None:
    reply = "</think>x" if "reasoning" in data else "x"
    assert load_entry("chatml").parse(reply, declared=data)["content"] == "x"


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
        ({"tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}, "a JSON object, not '{'"),
        ({"tool_calls": [{"function": {"name": "f", "arguments": [1]}}]}, "a JSON object"),
        (
            {"tool_calls": [{"function": {"name": "f", "arguments": {"x": object()}}}]},
            "cannot be written",
        ),
        ({"tool_calls": [{"id": 5, "function": {"name": "f"}}]}, r"tool_calls\[0\].id"),
    ],
)
def test_a_message_that_cannot_be_written(message: Any, where: str) -> None:
    for grammar in ("qwen3", "kimi-k2"):
        with pytest.raises(MessageError, match=where):
            write(GRAMMARS[grammar] if grammar != "qwen3" else load_entry("qwen3").grammar, message)


def test_a_reply_is_of_one_kind() -> None:
    """And a parser that was misused leaves nothing behind for the next one."""
    template = load_entry("qwen3")
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
