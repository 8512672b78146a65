"""What a template writes for a message with calls is accepted by the grammar of its replies."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import corpus
import turnwise
from lazy_modules import LazyModule
from loaded import load_entry
from published_templates import template_of
from tool_calls import TOOLS, valid_messages

llguidance = LazyModule("llguidance")

BYTES = llguidance.LLTokenizer("byte")
HELLO = [{"role": "user", "content": "Hi"}]
HTML = "&#34;"  # how a template garbles its own quotes; models write the quotes
UNESCAPED = "texts: their quotes are not escaped"
LISTED = "one call is written as an object, several as a list"
EXCEPTIONS = {
    "gpt-oss-harmony": "what is said beside a call has a channel that content alone does not have",
    "hunyuan": "models write content between markers that the template does not have",
    "hunyuan-a13b-tools": "models write content between markers that the template does not have",
    "vllm-tool_chat_template_hunyuan_a13b": "models write content between markers, as above",
    "llamafactory:deepseekcoder": "two calls are separated by a line break that content begins with",
    "llamafactory:seed_oss": "a line break before reasoning belongs to content",
    "llamafactory:llama3": LISTED,
    "llamafactory:llama4": LISTED,
    "llamafactory:llava_next_llama3": LISTED,
    "llamafactory:mllama": LISTED,
}
NAMES = sorted({*corpus.load_published(), *turnwise.entries()} - EXCEPTIONS.keys())


def render(template: turnwise.Template, *messages: Any, **arguments: Any) -> str | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rendered = template.render(
                [*HELLO, *messages], tools=TOOLS, now=corpus.NOW, **arguments
            )
    except turnwise.TurnwiseError:
        return None
    return str(rendered)


def own_replies(template: turnwise.Template, prompt: str) -> Iterator[str]:
    """What the template writes after its prompt, up to its stop, for messages that fit the tools."""
    for message in valid_messages(template.grammar).values():
        functions = [call["function"] for call in message["tool_calls"]]
        as_text = [
            {**call, "function": {**function, "arguments": json.dumps(function["arguments"])}}
            for call, function in zip(message["tool_calls"], functions, strict=True)
        ]
        for calls in (message["tool_calls"], as_text):
            text = render(template, {**message, "tool_calls": calls})
            if text is None or not text.startswith(prompt) or HTML in text:
                continue
            reply = text.removeprefix(prompt)
            if all(function["name"] in reply for function in functions):
                parsed = template.parse(reply, prompt, TOOLS)
                yield reply[: max(span.end for span in parsed.spans if span.kind != "rest")]
                break


def accepts(matcher: Any, reply: str) -> bool:
    ids, trial = list(reply.encode()), matcher.deep_copy()
    return bool(trial.try_consume_tokens(ids) == len(ids) and trial.is_accepting())


@pytest.mark.law(5)
@pytest.mark.parametrize("name", NAMES)
def test_the_reply_that_a_template_writes_is_accepted(name: str) -> None:
    is_entry = name in turnwise.entries()
    try:
        template = load_entry(name) if is_entry else template_of(name)
        prompt = render(template, add_generation_prompt=True)
        if template.grammar.calls is None or prompt is None:
            return
        lark = template.grammar.to_lark(TOOLS, prompt=prompt)
    except turnwise.TurnwiseError:
        return  # it has no export
    is_plain = any(UNESCAPED in note for note in template.grammar.unreached)
    matcher = llguidance.LLMatcher(BYTES, llguidance.LLMatcher.grammar_from_lark(lark))
    for reply in own_replies(template, prompt):
        if is_plain and ("'" in reply or "\n" in reply or '"' in reply):
            continue
        # Without a stop, white space at the end may be what separates turns.
        assert accepts(matcher, reply) or accepts(matcher, reply.rstrip()), reply
