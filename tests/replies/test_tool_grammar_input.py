"""Grammars of tool calls: bad input has named errors, options mean what they say, and schemas become what they say."""

from __future__ import annotations

import json
from typing import Any

import pytest

import turnwise
from cli_runner import run
from gbnf_reader import read_gbnf
from loaded import load_entry
from tool_values import NOTATIONS, VALUES, reply_with
from turnwise.replies.grammar import Grammar

METHODS = ("to_structural_tag", "to_lark", "to_gbnf")
LOOP = {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}


def tool(name: str, parameters: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def argument(schema: Any) -> list[dict[str, Any]]:
    """One tool with one argument."""
    return [tool("tide", {"type": "object", "properties": {"x": schema}, "required": ["x"]})]


def qwen() -> Grammar:
    return load_entry("qwen3").grammar


TIDE = argument({"type": "string"})
CYCLE: dict[str, Any] = {"type": "object"}
CYCLE["properties"] = {"x": CYCLE}

BAD_TOOLS = {
    "no list": (5, "must be a list of tools"),
    "a text": ("tools", "must be a list of tools"),
    "no tools": ([], "has no tool"),
    "no tool": ([7], "is no tool"),
    "no name": ([{"type": "function", "function": {"parameters": {}}}], "is no tool"),
    "one name twice": ([*TIDE, *TIDE], "as another tool has"),
    "no schema": ([tool("tide", ["x"])], "is no JSON schema"),
    "no object": ([tool("tide", {"type": "string"})], "must describe an object"),
    "no schema within": (argument(3), "is no JSON schema"),
    "an unknown type": (argument({"type": "strng"}), "unknown type 'strng'"),
    "an unknown keyword": (argument({"not": {}}), "the keyword 'not'"),
    "without end": ([tool("tide", LOOP)], "recurses without end"),
    "a value that holds itself": ([tool("tide", CYCLE)], "nested too deeply"),
    "a reference to itself": (argument({"$ref": "#/properties/x"}), "recurses without end"),
    "a reference to nothing": (argument({"$ref": "#/nowhere"}), "not in the schema"),
    "a quote in a name": ([tool('ti"de', {})], "cannot be written in a call"),
    "a marker in a name": ([tool("<tool_call>", {})], "cannot be written in a call"),
    "a lookahead": (argument({"type": "string", "pattern": "(?=a)b"}), "a lookaround"),
    "an open group": (argument({"type": "string", "pattern": "(a"}), "unterminated subpattern"),
    "bounds upside down": (argument({"type": "array", "minItems": 3, "maxItems": 1}), "below"),
    "an empty enum": (argument({"enum": []}), "no value that fits"),
    "no number": (argument({"type": "integer", "minimum": "1"}), "must be a number"),
    "not a number": (argument({"type": "integer", "minimum": float("nan")}), "must be a number"),
    "infinite": (argument({"type": "integer", "minimum": float("inf")}), "must be a number"),
    "a huge bound": (argument({"type": "integer", "minimum": 10**5000}), "beyond 1e+30"),
    "a huge number": (argument({"type": "number", "minimum": 1e300}), "beyond 1e+15"),
    "a tiny number": (argument({"type": "number", "minimum": 1e-300}), "nearer to 0"),
    "nothing between": (
        argument({"type": "integer", "minimum": 9, "maximum": 1}),
        "no number between",
    ),
    "no whole one": (
        argument({"type": "integer", "minimum": 1.2, "maximum": 1.8}),
        "no number between",
    ),
    "a type that is none": (argument({"type": 5}), "must be the name of a type"),
    "types that exclude each other": (
        argument({"allOf": [{"type": "string"}, {"type": "integer"}]}),
        "must be the name of a type",
    ),
    "parts of other types": (
        argument({"allOf": [{"minimum": 1}, {"minimum": "a"}]}),
        "put together",
    ),
    "a back reference": (argument({"type": "string", "pattern": r"(a)\1"}), "a back reference"),
    "a word boundary": (argument({"type": "string", "pattern": r"\d+\b"}), "an anchor"),
    "a huge count": (argument({"type": "string", "pattern": "a{" + "9" * 5000 + "}"}), "too large"),
    "an optional reference to itself": (
        [tool("tide", {"type": "object", "properties": {"x": {"$ref": "#/properties/x"}}})],
        "recurses without end",
    ),
    "a long name": ([tool("tide", {"properties": {"a" * 3000: {}}})], "more than 200 characters"),
    "a union with itself": (
        argument({"anyOf": [{"$ref": "#/properties/x"}, {"type": "string"}]}),
        "recurses without end",
    ),
}


@pytest.mark.parametrize("case", BAD_TOOLS)
def test_bad_tools(case: str) -> None:
    tools, expected = BAD_TOOLS[case]
    for method in METHODS:
        with pytest.raises(turnwise.MessageError) as caught:
            getattr(qwen(), method)(tools)
        assert expected in caught.value.message


def test_bad_options() -> None:
    with pytest.raises(turnwise.MessageError, match="reasoning is 'x'"):
        qwen().to_lark(TIDE, reasoning="x")  # type: ignore[arg-type]
    for tokens in (5, {"a": "b"}, {"": 1}):
        with pytest.raises(turnwise.MessageError, match="special_tokens is"):
            qwen().to_lark(TIDE, special_tokens=tokens)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", METHODS)
def test_a_template_without_calls(method: str) -> None:
    with pytest.raises(turnwise.TurnwiseError, match="shows no tool calls"):
        getattr(load_entry("chatml").grammar, method)(TIDE)


def test_a_choice_that_is_none() -> None:
    with pytest.raises(turnwise.MessageError) as caught:
        qwen().to_lark(TIDE, "tid")
    assert "tide" in (caught.value.hint or "")


# What begins like a closing tag is counted as one character: too long is accepted, but never refused what fits.
LENGTHS = {"": False, "a": True, "<": True, "abcde": True, "</p\n<": True, "abcdef": False}


@pytest.mark.parametrize("text", LENGTHS)
def test_the_length_of_a_text_between_tags(text: str) -> None:
    grammar = load_entry("qwen3.6").grammar
    tools = argument({"type": "string", "minLength": 1, "maxLength": 5})
    start = "<tool_call>\n<function=tide>\n<parameter=x>\n"
    reply = f"{start}{text}\n</parameter>\n</function>\n</tool_call>"
    written = grammar.to_gbnf(tools, "required", reasoning=False).grammar
    assert read_gbnf(written).accepts(reply) is LENGTHS[text]


@pytest.mark.parametrize(
    "bounds", [{"maxLength": 1000}, {"minLength": 1000}, {"minLength": 3, "maxLength": 900}]
)
def test_lengths_do_not_make_a_grammar_long(bounds: dict[str, int]) -> None:
    written = load_entry("qwen3.6").grammar.to_gbnf(
        argument({"type": "string", **bounds}), "required"
    )
    assert len(written.grammar) < 50_000


# -- values


@pytest.mark.once
@pytest.mark.parametrize("case", VALUES)
@pytest.mark.parametrize("name", NOTATIONS)
def test_values(name: str, case: str) -> None:
    llguidance = pytest.importorskip("llguidance")
    schema, good, bad = VALUES[case]
    tools, grammar = argument(schema), load_entry(name).grammar
    gbnf = read_gbnf(grammar.to_gbnf(tools, "required").grammar)
    lark = llguidance.LLMatcher.grammar_from_lark(grammar.to_lark(tools, "required"))
    matcher = llguidance.LLMatcher(llguidance.LLTokenizer("byte"), lark)
    assert not matcher.is_error(), matcher.get_error()
    for value, expected in [*((one, True) for one in good), *((one, False) for one in bad)]:
        reply = reply_with(grammar, {"x": value})
        ids = list(reply.encode())
        copy = matcher.deep_copy()
        assert (copy.try_consume_tokens(ids) == len(ids) and copy.is_accepting()) is expected, value
        assert gbnf.accepts(reply) is expected, value


# -- options


def accepts(reply: str, *arguments: Any, **options: Any) -> bool:
    grammar = qwen().to_gbnf(*arguments, **options).grammar
    return read_gbnf(grammar).accepts(reply)


CALL = '<tool_call>\n{"name": "tide", "arguments": {"x": "Oslo"}}\n</tool_call>'


def test_one_call_only() -> None:
    assert accepts(f"{CALL}\n{CALL}", TIDE, "required")
    assert not accepts(f"{CALL}\n{CALL}", TIDE, "required", parallel=False)
    assert accepts(CALL, TIDE, "required", parallel=False)


def test_one_tool_only() -> None:
    tools = [*TIDE, tool("now", {})]
    now = CALL.replace("tide", "now").replace('{"x": "Oslo"}', "{}")
    assert accepts(now, tools, "required") and not accepts(now, tools, "tide")


def test_reasoning() -> None:
    thought = f"<think>\nHm.\n</think>\n\n{CALL}"
    assert accepts(thought, TIDE, "required") and accepts(CALL, TIDE, "required")
    assert accepts(thought, TIDE, "required", reasoning=True)
    assert not accepts(CALL, TIDE, "required", reasoning=True)
    assert not accepts(
        f"{thought}", TIDE, "required", prompt="<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )
    opened = "<|im_start|>assistant\n<think>\n"
    assert accepts(f"Hm.\n</think>\n\n{CALL}", TIDE, "required", prompt=opened)
    assert not accepts(CALL, TIDE, "required", prompt=opened)


def test_content_of_a_schema() -> None:
    schema = {"type": "object", "properties": {"at": {"type": "integer"}}, "required": ["at"]}
    for reply, expected in (('{"at": 3}', True), (CALL, True), ("At 3.", False), ("{}", False)):
        assert accepts(reply, TIDE, content=schema) is expected
    with pytest.raises(turnwise.MessageError, match="is no JSON schema"):
        qwen().to_lark(TIDE, content=[1])  # type: ignore[arg-type]


def test_it_is_plain_data_and_the_same_again() -> None:
    first = qwen().to_structural_tag(TIDE)
    assert json.loads(json.dumps(first)) == first == qwen().to_structural_tag(TIDE)


def test_a_profile_that_is_none() -> None:
    with pytest.raises(turnwise.TurnwiseError, match="unknown profile 'serve'") as caught:
        qwen().to_response_template(profile="serve")
    assert "serving" in (caught.value.hint or "")


def test_command(tmp_path: Any) -> None:
    (tmp_path / "tools.json").write_text(json.dumps(TIDE), encoding="utf-8")
    place = str(tmp_path / "tools.json")
    tag = run("grammar", "qwen3", "--tools", place)
    assert json.loads(tag.stdout) == qwen().to_structural_tag(TIDE)
    lark = run("grammar", "qwen3", "--tools", place, "--to", "lark", "--choice", "required")
    assert lark.stdout == qwen().to_lark(TIDE, "required")
    served = run("grammar", "qwen3", "--to", "response-template", "--profile", "serving")
    assert json.loads(served.stdout) == qwen().to_response_template(profile="serving")
    assert run("grammar", "qwen3").exit_code == 2
    assert run("grammar", "qwen3", "--tools", place, "--to", "regex").exit_code == 2
    assert run("grammar", "chatml", "--tools", place).exit_code == 2


def tagged_schema(kind: Any, **members: Any) -> dict[str, Any]:
    properties = {"kind": {"const": kind}, **members}
    return {"type": "object", "properties": properties, "required": ["kind"]}


INTEGER, TEXT = {"type": "integer"}, {"type": "string"}
DISJOINT = {
    "types": [INTEGER, TEXT, {"type": "null"}],
    "constants": [{"const": 1}, {"const": 2}, {"enum": ["a", "b"]}, {"const": True}],
    "a constant outside the bounds": [{"const": 1}, {"type": "integer", "minimum": 2}],
    "bounds": [{"type": "number", "maximum": 3}, {"type": "number", "exclusiveMinimum": 3}],
    "lengths": [{"type": "string", "maxLength": 2}, {"type": "string", "minLength": 3}],
    "tags": [tagged_schema("a", x=INTEGER), tagged_schema("b", x=TEXT)],
    "required members": [
        {"type": "object", "properties": {"a": INTEGER}, "required": ["a"]},
        {"type": "object", "properties": {"b": INTEGER}, "required": ["b"]},
    ],
}
OVERLAPPING = {
    "bounds": [INTEGER, {"type": "integer", "minimum": 3}],
    "a whole number": [INTEGER, {"type": "number"}],
    "anything": [INTEGER, {}],
    "a constant": [{"const": 1.0}, INTEGER],
    "constants": [{"enum": ["a", "b"]}, {"enum": ["b", "c"]}],
    "nullable": [{"type": "string", "nullable": True}, {"type": ["integer", "null"]}],
    "an open object": [
        {"type": "object", "properties": {"a": INTEGER}},
        {"type": "object", "properties": {"b": INTEGER}, "required": ["b"]},
    ],
    "the same tag": [tagged_schema("a"), tagged_schema("a", x=INTEGER)],
    "patterns": [{"type": "string", "pattern": "a"}, {"type": "string", "pattern": "b"}],
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", DISJOINT)
def test_one_of_disjoint_options_is_a_choice(name: str, method: str) -> None:
    make = getattr(qwen(), method)
    assert make(argument({"oneOf": DISJOINT[name]})) == make(argument({"anyOf": DISJOINT[name]}))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", OVERLAPPING)
def test_one_of_options_that_overlap_is_refused(name: str, method: str) -> None:
    for options in (OVERLAPPING[name], OVERLAPPING[name][::-1]):
        with pytest.raises(turnwise.MessageError, match="one value may fit both"):
            getattr(qwen(), method)(argument({"oneOf": options}))
        getattr(qwen(), method)(argument({"anyOf": options}))
