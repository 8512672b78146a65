"""SGLang's own parser classes with our detectors, tags and template; `make integrations-vllm` installs its wheel."""

from __future__ import annotations

from typing import Any

import pytest

import sglang_modules
import turnwise
from reply_messages import TOOLS
from served_replies import (
    BROKEN_TOOLS,
    KINDS,
    damaged_replies,
    parse_expected,
    template,
    written_replies,
)
from turnwise.integrations.serving import TEMPLATE_VARIABLE
from turnwise.integrations.sglang import NAME

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

SIZES = (10**6, 1, 3, 7)


class Tokenizer:
    """What the detectors ask of a tokenizer."""

    def __init__(self, name: str) -> None:
        found = template(name)
        self.chat_template = found.text
        self.eos_token = found.options["eos_token"]
        self.special_tokens_map = {"eos_token": self.eos_token}


@pytest.fixture(scope="module", autouse=True)
def sglang() -> None:
    """SGLang with its plug-ins, which it finds by their entry points."""
    pytest.importorskip("msgspec")
    sglang_modules.load()
    from sglang.srt.plugins import load_plugins

    load_plugins()


def make_tools(tools: Any = TOOLS, **fields: Any) -> Any:
    from sglang.srt.entrypoints.openai.protocol import Tool

    return [Tool(type="function", function={**tool["function"], **fields}) for tool in tools]


def make_parsers(name: str, tools: Any = None) -> tuple[Any, Any]:
    """The two parsers that SGLang makes for one request."""
    from sglang.srt.function_call.function_call_parser import FunctionCallParser
    from sglang.srt.parser.reasoning_parser import ReasoningParser

    tokens = Tokenizer(name)
    calls = FunctionCallParser(make_tools() if tools is None else tools, NAME, tokenizer=tokens)
    return ReasoningParser(NAME, tokenizer=tokens, tool_call_parser_active=True), calls


def read_whole(name: str, reply: str) -> Any:
    reasoning_parser, call_parser = make_parsers(name)
    reasoning, text = reasoning_parser.parse_non_stream(reply)
    content, calls = call_parser.parse_non_stream(text)
    return content, reasoning, [(call.name, call.parameters) for call in calls]


def read_stream(name: str, reply: str, size: int) -> Any:
    reasoning_parser, call_parser = make_parsers(name)
    reasoning, content = "", ""
    calls: list[list[str]] = []

    def add(answer: tuple[str, Any]) -> None:
        nonlocal content
        content += answer[0]
        for call in answer[1]:
            if call.name:
                assert call.tool_index == len(calls)
                calls.append([call.name, ""])
            calls[call.tool_index][1] += call.parameters

    for start in range(0, len(reply), size):
        thought, text = reasoning_parser.parse_stream_chunk(reply[start : start + size])
        reasoning += thought
        add(call_parser.parse_stream_chunk(text))
    thought, text = reasoning_parser.parse_stream_end()
    reasoning += thought
    add(call_parser.parse_stream_chunk(text))
    add(call_parser.parse_stream_end())
    return content, reasoning, [(call, arguments) for call, arguments in calls]


@pytest.mark.parametrize("name", KINDS)
def test_replies(name: str) -> None:
    found = turnwise.load(Tokenizer(name))
    replies = written_replies(found.grammar)
    assert len(replies) >= 16
    for label, reply in replies.items():
        wanted = parse_expected(found, reply)
        assert read_whole(name, reply) == wanted, label
        for size in SIZES:
            assert read_stream(name, reply, size) == wanted, (label, size)
    for label, reply in damaged_replies(found.grammar).items():
        streams = [read_stream(name, reply, size) for size in SIZES]
        assert all(one == streams[0] for one in streams), label
        read_whole(name, reply)


def constraint(name: str, choice: Any, tools: Any, parallel: bool = True) -> Any:
    found = make_parsers(name, tools)[1].get_structure_constraint(choice, parallel)
    if found is None:
        return None
    kind, tag = found
    assert kind == "structural_tag"
    from xgrammar import Grammar

    return Grammar.from_structural_tag(tag)


def accepts(grammar: Any, reply: str) -> bool:
    from xgrammar.testing import _is_grammar_accept_string

    accepted: bool = _is_grammar_accept_string(grammar, reply)
    return accepted


@pytest.mark.parametrize("name", ["qwen3", "qwen3-coder", "glm-4.5", "mistral-v3", "lfm2"])
def test_required_calls_are_constrained(name: str) -> None:
    from sglang.srt.entrypoints.openai.protocol import ToolChoice

    grammar = turnwise.load(Tokenizer(name)).grammar
    replies = written_replies(grammar)
    required = constraint(name, "required", make_tools(strict=True))
    named = constraint(name, ToolChoice(function={"name": "now"}), make_tools())
    one = constraint(name, "required", make_tools(), parallel=False)
    for label in ("content", "call", "calls", "no arguments"):
        reply = replies[label].removeprefix(grammar.empty)
        assert accepts(required, reply) == (label != "content"), label
        assert accepts(named, reply) == (label == "no arguments"), label
        assert accepts(one, reply) == (label in ("call", "no arguments")), label
    assert constraint(name, "auto", make_tools()) is None


@pytest.mark.parametrize("tools", BROKEN_TOOLS)
def test_broken_tools_do_not_break_a_request(tools: Any) -> None:
    grammar = constraint("qwen3", "required", make_tools(tools))
    assert grammar is None or not accepts(grammar, "No call.")


def test_the_chat_template(monkeypatch: pytest.MonkeyPatch) -> None:
    from sglang.srt.parser.python_chat_template import get_python_chat_template

    found = get_python_chat_template(NAME)
    chat = [{"role": "user", "content": "Hi"}, {"role": "system", "content": "Be brief."}]
    with pytest.raises(turnwise.TurnwiseError, match="does not say which template"):
        found.render_segments(messages=chat)
    monkeypatch.setenv(TEMPLATE_VARIABLE, "qwen3")
    options = {"add_generation_prompt": True, "tools": TOOLS, "enable_thinking": False}
    segments = found.render_segments(messages=chat, eos_token="<|im_end|>", **options)
    assert "".join(segments) == turnwise.load("qwen3").render(chat, **options).text
