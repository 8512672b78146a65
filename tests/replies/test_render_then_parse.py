"""Reading undoes writing: what a template writes is read back by the grammar derived from it, for the whole corpus.

And the other way round, on grammars written by hand: what the writer writes for a message is read back as the message,
and a reply that the writer could have written is written again, letter for letter.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corpus
import turnwise
from corpus import needs_corpus
from parsing import parse
from published_templates import derived_grammar_of, template_of
from reply_grammars import EXAMPLES, GRAMMARS, Example
from reply_messages import (
    MESSAGES,
    TOOLS,
    UNREADABLE,
    Message,
    call,
)
from turnwise.analysis.prober import ABSENT, CallShape
from turnwise.replies.derive.calls import find_one_call
from turnwise.replies.grammar import Grammar
from turnwise.replies.write import write

ASK = {"role": "user", "content": "Q?"}
HISTORIES: dict[str, list[Message]] = {
    "alone": [ASK],
    "rounds": [ASK, {"role": "assistant", "content": "Hello."}, ASK],
    "result": [
        ASK,
        {"role": "assistant", "content": "", "tool_calls": [call("now", {}, 3)]},
        {"role": "tool", "content": "R!", "tool_call_id": "abcd00003", "name": "now"},
    ],
}


# Templates that write a header after a result in history, and none in a prompt: what a model writes is not known.
HEADED = ("trl-diffusion_gemma_training", "axolotl-deepseek_v3")


@cache
def derive_for(name: str) -> tuple[turnwise.Template, Grammar, CallShape]:
    template = template_of(name)
    _, one = find_one_call(template.facts.prober)
    return template, derived_grammar_of(name), one.shape if one is not None else CallShape()


def to_shape(message: Message, shape: CallShape) -> Message:
    """A message with calls in the form in which a template takes them."""
    if not message.get("tool_calls"):
        return message
    calls = [one["function"] for one in message["tool_calls"]]
    given = [
        {**one, "arguments": json.dumps(one["arguments"]) if shape.as_text else one["arguments"]}
        for one in calls
    ]
    content = message["content"] or (shape.content if shape.content is not ABSENT else "")
    wrapped = [
        {**one, "function": function}
        for one, function in zip(message["tool_calls"], given, strict=True)
    ]
    return {**message, "content": content, "tool_calls": given if shape.bare else wrapped}


def switches(template: turnwise.Template) -> Iterator[Message]:
    yield {}
    for name in {"enable_thinking", "thinking"} & set(template.variables):
        yield from ({name: value} for value in (True, False))


def drop_unrendered(message: Message, reply: str) -> Message | None:
    """What of a message its rendering holds; None if all calls or the reasoning are missing."""
    calls = [one for one in message.get("tool_calls", []) if one["function"]["name"] in reply]
    if (
        len(calls) < min(1, len(message.get("tool_calls", [])))
        or message.get("reasoning_content", "") not in reply
    ):
        return None
    return {
        **message,
        "content": message["content"] if message["content"] in reply else "",
        "tool_calls": calls,
    }


def read(message: Any) -> tuple[Any, ...]:
    calls = message.get("tool_calls") or ()
    functions = [one["function"] for one in calls]
    arguments = [
        one["arguments"] if isinstance(one["arguments"], dict) else json.loads(one["arguments"])
        for one in functions
    ]
    texts = (message["content"] or "").strip(), message.get("reasoning_content") or ""
    return [one["name"] for one in functions], arguments, texts


@pytest.mark.law
@needs_corpus
@pytest.mark.parametrize("name", sorted(corpus.load_published()))
def test_parse_undoes_render(name: str) -> None:
    if name in UNREADABLE:
        pytest.skip(UNREADABLE[name])
    template, grammar, _ = derive_for(name)
    for options, history, kind in product(switches(template), HISTORIES, MESSAGES):
        message = MESSAGES[kind]
        if (message.get("tool_calls") and grammar.calls is None) or (
            history == "result" and name in HEADED
        ):
            continue
        if "reasoning_content" in message and grammar.reasoning is None:
            continue
        both = write_reply(name, HISTORIES[history], message, options)
        expected = drop_unrendered(message, both[1]) if both is not None else None
        if both is None or expected is None:
            continue  # the template refuses the message, leaves the field out, or its turn does not continue the prompt
        found = parse(grammar, both[1], both[0], TOOLS)
        if "tool_calls" in message and (found.get("reasoning_content") or "").endswith(
            message["content"] or "\0"
        ):
            continue  # what is said beside a call is written as reasoning
        assert read(found) == read(expected), (history, kind, options, both[1])


def write_reply(
    name: str, history: list[Message], message: Message, options: Message
) -> tuple[str, str] | None:
    """The prompt and what the template writes after it."""
    template, _, shape = derive_for(name)
    chat = [to_shape(turn, shape) for turn in history]
    given = {
        "tools": TOOLS if any("tool_calls" in turn for turn in (*history, message)) else None,
        "now": corpus.NOW,
    }
    try:
        prompt = str(template.render(chat, add_generation_prompt=True, **given, **options))
        whole = str(
            template.render(
                [*chat, {"role": "assistant", **to_shape(message, shape)}], **given, **options
            )
        )
    except turnwise.TurnwiseError:
        return None
    return (prompt, whole.removeprefix(prompt)) if whole.startswith(prompt) else None


@pytest.mark.parametrize(
    "example", EXAMPLES, ids=[f"{one.grammar}-{at}" for at, one in enumerate(EXAMPLES)]
)
def test_a_canonical_reply_is_written_again(example: Example) -> None:
    grammar = GRAMMARS[example.grammar]
    message = parse(grammar, example.reply)
    written = write(grammar, message)
    assert dict(parse(grammar, written)) == dict(message)
    if (
        "to=functions.get_weather <|constrain|>" not in example.reply
    ):  # a header in another order is not canonical
        text = example.reply.removesuffix(
            "<|observation|>"
        )  # which of several stops is the server's to know
        assert written.startswith(text)


WORDS = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="<>[]{}|｜"),
    max_size=20,
)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(sorted(GRAMMARS)),
    WORDS.map(str.strip),
    WORDS.map(str.strip),
    st.lists(
        st.fixed_dictionaries(
            {}, optional={"text": WORDS, "days": st.integers(), "deep": st.just({"a": [1]})}
        ),
        max_size=2,
    ),
)
def test_parse_undoes_write(
    name: str, content: str, reasoning: str, calls: list[dict[str, Any]]
) -> None:
    grammar = GRAMMARS[name]
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if grammar.reasoning is not None and name != "deepseek-v3.1":  # whose opening has closed it
        message["reasoning_content"] = reasoning
    if calls:
        one_only = name in ("llama-3.1", "gpt-oss")
        message["tool_calls"] = [
            call("get_weather", each, at)
            for at, each in enumerate(calls[: 1 if one_only else None])
        ]
        if name in ("llama-3.1", "llama-4", "mistral-nemo"):  # no content beside a call
            message["content"] = ""
    assert read(parse(grammar, write(grammar, message), tools=TOOLS)) == read(message)
