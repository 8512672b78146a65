"""Reading undoes writing: what a template writes is read back by the grammar derived from it, for the whole corpus.

And the other way round, on grammars written by hand: what the writer writes for a message is read back as the message,
and a reply that the writer could have written is written again, letter for letter.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corpus
import turnwise
from corpus import needs_corpus
from replygrammars import EXAMPLES, GRAMMARS, Example
from turnwise.replies.derive import derive
from turnwise.replies.grammar import Grammar
from turnwise.replies.parse import parse
from turnwise.replies.write import write

ARGUMENTS = {"city": 'São <b> "P"', "days": 3, "note": "12", "deep": {"a": [1, True, None], "b": "x"}}
TYPES = {"city": "string", "days": "integer", "note": "string", "deep": "object", "text": "string"}


def tool(name: str, **types: str) -> dict[str, Any]:
    properties = {key: {"type": kind} for key, kind in types.items()}
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "description": "d", "parameters": parameters}}


TOOLS = [tool("get_weather", **TYPES), tool("now")]


def call(name: str, arguments: Any, number: int) -> dict[str, Any]:
    return {"id": f"abcd0000{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


FIRST, SECOND = call("get_weather", ARGUMENTS, 1), call("now", {}, 2)
MESSAGES: dict[str, dict[str, Any]] = {
    "content": {"content": "It is fine.\n\nSo."},
    "reasoning": {"content": "It is fine.", "reasoning_content": "Let me see:\n1 < 2."},
    "call": {"content": "", "tool_calls": [FIRST]},
    "calls": {"content": "", "tool_calls": [FIRST, SECOND]},
    "content and call": {"content": "I look.", "tool_calls": [FIRST]},
    "reasoning and call": {"content": "", "reasoning_content": "Hm.", "tool_calls": [FIRST]},
}

# Templates that write what cannot be read back, and why.
UNREADABLE = {
    "mistralcommon-v2": "quotes are written as HTML: &#34;",
    "mistralcommon-v3_image": "quotes are written as HTML: &#34;",
    "mistralcommon-v3_spm": "quotes are written as HTML: &#34;",
    "mistralcommon-v7_audio": "quotes are written as HTML: &#34;",
    "mistralcommon-v7_spm": "quotes are written as HTML: &#34;",
    "vllm-tool_chat_template_llama3.2_pythonic": "texts are written without quotes",
    "vllm-tool_chat_template_toolace": "texts are written without quotes",
    "hfjs-LiquidAI--LFM2.5-VL-450M": "quotes within quotes are not escaped",
    "chujie-falcon-instruct": "white space within the content is changed",
    "ollama-llama4-latest": "the content before a call stands between markers that content alone does not have",
}


@cache
def derived(name: str) -> tuple[turnwise.Template, Grammar]:
    published = corpus.published()[name]
    template = turnwise.compile(published.text, options=dict(published.options))
    return template, derive(template)


def shown(message: dict[str, Any], reply: str) -> dict[str, Any] | None:
    """What of a message its rendering holds; None if a call or the reasoning is missing."""
    names = reply.count("get_weather") > 0, reply.count("now") > 0
    calls = [one for one, there in zip(message.get("tool_calls", []), names, strict=False) if there]
    thought = message.get("reasoning_content", "")
    if len(calls) < min(1, len(message.get("tool_calls", []))) or thought not in reply:
        return None
    return {**message, "content": message["content"] if message["content"] in reply else "", "tool_calls": calls}


def read(message: Any) -> tuple[Any, ...]:
    calls = message.get("tool_calls") or ()
    functions = [one["function"] for one in calls]
    arguments = [
        one["arguments"] if isinstance(one["arguments"], dict) else json.loads(one["arguments"]) for one in functions
    ]
    texts = (message["content"] or "").strip(), message.get("reasoning_content") or ""
    return [one["name"] for one in functions], arguments, texts


@needs_corpus
@pytest.mark.parametrize("name", sorted(corpus.published()))
def test_parse_undoes_render(name: str) -> None:
    if name in UNREADABLE:
        pytest.skip(UNREADABLE[name])
    template, grammar = derived(name)
    for kind, fields in MESSAGES.items():
        tools = TOOLS if "tool_calls" in fields else None
        if (tools and grammar.calls is None) or ("reasoning_content" in fields and grammar.reasoning is None):
            continue
        history = [{"role": "user", "content": "Q?"}]
        try:
            prompt = str(template.render(history, tools=tools, add_generation_prompt=True, now=corpus.NOW))
            whole = str(template.render([*history, {"role": "assistant", **fields}], tools=tools, now=corpus.NOW))
        except turnwise.TurnwiseError:
            continue  # the template does not take it
        reply = whole.removeprefix(prompt)
        expected = shown(fields, reply)
        if reply == whole or expected is None:
            continue  # the turn does not continue its opening, or the template leaves the field out
        message = parse(grammar, reply, prompt, TOOLS)
        if kind == "content and call" and message.get("reasoning_content") == fields["content"]:
            continue  # what is said beside a call is written as reasoning
        assert read(message) == read(expected), (kind, reply)


@pytest.mark.parametrize("example", EXAMPLES, ids=[f"{one.grammar}-{at}" for at, one in enumerate(EXAMPLES)])
def test_a_canonical_reply_is_written_again(example: Example) -> None:
    grammar = GRAMMARS[example.grammar]
    message = parse(grammar, example.reply)
    written = write(grammar, message)
    assert dict(parse(grammar, written)) == dict(message)
    if "to=functions.get_weather <|constrain|>" not in example.reply:  # a header in another order is not canonical
        text = example.reply.removesuffix("<|observation|>")  # which of several stops is the server's to know
        assert written.startswith(text)


WORDS = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="<>[]{}|｜"), max_size=20
)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(sorted(GRAMMARS)),
    WORDS.map(str.strip),
    WORDS.map(str.strip),
    st.lists(
        st.fixed_dictionaries({}, optional={"text": WORDS, "days": st.integers(), "deep": st.just({"a": [1]})}),
        max_size=2,
    ),
)
def test_parse_undoes_write(name: str, content: str, reasoning: str, calls: list[dict[str, Any]]) -> None:
    grammar = GRAMMARS[name]
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if grammar.reasoning is not None and name != "deepseek-v3.1":  # whose opening has closed it
        message["reasoning_content"] = reasoning
    if calls:
        one_only = name in ("llama-3.1", "gpt-oss")
        message["tool_calls"] = [
            call("get_weather", each, at) for at, each in enumerate(calls[: 1 if one_only else None])
        ]
        if name in ("llama-3.1", "llama-4", "mistral-nemo"):  # no content beside a call
            message["content"] = ""
    assert read(parse(grammar, write(grammar, message), tools=TOOLS)) == read(message)
