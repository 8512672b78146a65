"""Requests for llama.cpp's server: ids, stops, and a grammar that llguidance can translate."""

from __future__ import annotations

from typing import Any

import llguidance
import pytest
from llguidance.gbnf_to_lark import gbnf_to_lark

import turnwise
from gbnf_reader import read_gbnf
from reply_messages import TOOLS
from served_replies import BROKEN_TOOLS, template, written_replies
from turnwise.integrations.llamacpp import completion_request

QUESTION = [{"role": "user", "content": "High water?<|im_end|>"}]


def accepts(grammar: str, reply: str) -> bool:
    """Whether a grammar accepts a reply; llguidance must be able to translate it too.

    The translation makes terminals of whole rules, and takes the longest: it accepts less than the grammar.
    """
    lark = llguidance.grammar_from("lark", gbnf_to_lark(grammar))
    matcher = llguidance.LLMatcher(llguidance.LLTokenizer("byte"), lark)
    assert not matcher.is_error(), matcher.get_error()
    return read_gbnf(grammar).accepts(reply)


@pytest.mark.parametrize("name", ["qwen3", "qwen3-coder"])
def test_required_calls(name: str) -> None:
    found = template(name)
    replies = written_replies(found.grammar)
    request = completion_request(found, QUESTION, "turnwise", TOOLS, "required")
    assert request["grammar_lazy"] is False and request["grammar_triggers"] == []
    for label in ("call", "calls", "content and call", "no arguments"):
        assert accepts(request["grammar"], replies[label]), label
    assert not accepts(request["grammar"], replies["content"])
    assert not accepts(request["grammar"], replies["unknown tool"])


def test_a_lazy_grammar_begins_with_its_trigger() -> None:
    found = template("qwen3")
    request = completion_request(found, QUESTION, "turnwise", TOOLS)
    (trigger,) = request["grammar_triggers"]
    assert trigger == {"type": 1, "value": "<tool_call>"} and request["grammar_lazy"]
    assert trigger["value"] in request["preserved_tokens"]
    reply = written_replies(found.grammar)["calls"]
    assert accepts(request["grammar"], reply[reply.index(trigger["value"]) :])


def test_the_prompt_is_safe() -> None:
    found = template("qwen3")
    request = completion_request(found, QUESTION, "turnwise")
    prompt = found.encode(QUESTION, "turnwise", add_generation_prompt=True)
    assert request["prompt"] == list(prompt.input_ids) and "grammar" not in request
    assert "<|im_end|>" in request["stop"]


@pytest.mark.parametrize("tools", BROKEN_TOOLS)
def test_broken_tools_are_logged(tools: Any, caplog: pytest.LogCaptureFixture) -> None:
    request = completion_request(template("qwen3"), QUESTION, "turnwise", tools)
    assert "grammar" in request or "calls are not constrained" in caplog.text


def test_a_template_without_calls(caplog: pytest.LogCaptureFixture) -> None:
    request = completion_request(turnwise.load("chatml"), QUESTION, "turnwise", TOOLS)
    assert "grammar" not in request and "calls are not constrained" in caplog.text
