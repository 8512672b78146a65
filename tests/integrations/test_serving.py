"""A reply read in two halves, as servers do it, is the message that `parse` gives; nothing raises."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import turnwise
from reply_messages import TOOLS
from served_replies import (
    BROKEN_TOOLS,
    NO_SCHEMA,
    damaged_replies,
    essence,
    parse_expected,
    template,
    written_replies,
)
from turnwise.integrations.serving import (
    TEMPLATE_VARIABLE,
    ServedTemplate,
    find_template,
    to_tool_dicts,
)


class StandInTokenizer:
    """A tokenizer, as far as finding its template goes."""

    def __init__(self, chat_template: Any = None) -> None:
        self.chat_template = chat_template
        self.special_tokens_map = {"eos_token": "<|im_end|>"}
        self.eos_token = "<|im_end|>"


def read_in_halves(served: ServedTemplate, reply: str) -> Any:
    assert not served.reasoning_parser("").in_reasoning
    assert served.reasoning_parser("", is_open=True).in_reasoning == served.has_reasoning
    reasoning = served.reasoning_parser()
    reasoning.feed(reply)
    first = reasoning.close()
    calls = served.call_parser(TOOLS)
    calls.feed(first["content"])
    second = calls.close()
    return essence({**second, "reasoning_content": first.get("reasoning_content")})


@pytest.mark.parametrize("name", ["qwen3", "deepseek-r1", "gemma-4"])
def test_two_halves_are_the_whole(name: str) -> None:
    found = template(name)
    served = ServedTemplate(found)
    replies = written_replies(found.grammar)
    assert len(replies) >= 20
    for label, reply in replies.items():
        assert read_in_halves(served, reply) == parse_expected(found, reply), label
    for reply in damaged_replies(found.grammar).values():
        read_in_halves(served, reply)


def test_a_template_without_calls_has_content_only(caplog: pytest.LogCaptureFixture) -> None:
    served = find_template(StandInTokenizer(turnwise.load("chatml").text))
    assert "shows no tool calls" in caplog.text
    assert served.structural_tag(TOOLS, "required") is None
    reply = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    assert read_in_halves(served, reply) == (reply, "", [])


@pytest.mark.parametrize("tools", [*BROKEN_TOOLS, NO_SCHEMA])
def test_tools_that_cannot_be_used_are_logged(tools: Any, caplog: pytest.LogCaptureFixture) -> None:
    served = ServedTemplate(template("qwen3"))
    with caplog.at_level(logging.WARNING):
        tag = served.structural_tag(tools, "required")
        parser = served.call_parser(tools)
    assert tag is not None or "calls are not constrained" in caplog.text
    parser.feed('<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>')
    assert parser.close()["tool_calls"][0]["function"]["name"] == "now"


def test_calls_that_are_forbidden_are_content() -> None:
    served = ServedTemplate(template("qwen3"))
    reply = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    parser = served.call_parser(TOOLS, has_calls=False)
    parser.feed(reply)
    assert essence(parser.close()) == (reply, "", [])


def test_the_environment_names_a_template(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TEMPLATE_VARIABLE, "qwen3")
    assert find_template(StandInTokenizer()).template.name == "qwen3"
    monkeypatch.delenv(TEMPLATE_VARIABLE)
    with pytest.raises(turnwise.TurnwiseError, match="chat template"):
        find_template(StandInTokenizer())


def test_options_of_a_request_decide_how_the_reply_begins() -> None:
    served = ServedTemplate(template("qwen3"))
    assert served.generation_prompt({"enable_thinking": False}).endswith("</think>\n\n")
    assert not served.generation_prompt({"enable_thinking": True}).endswith("</think>\n\n")


def test_tools_of_the_responses_interface() -> None:
    flat = {"type": "function", "name": "now", "parameters": {"type": "object"}}
    others = [5, {"type": "web_search"}, {"type": "function", "function": None}]
    (found,) = to_tool_dicts([flat, *others])
    assert found["function"]["name"] == "now"
