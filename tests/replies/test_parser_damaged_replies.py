"""Damaged replies: whatever was done to a reply, reading it never raises, never depends on the cuts, and loses nothing.

Replies are those that the grammars of real templates write, and those of invented ones; damage is drawn from a seed.
"""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

import pytest

import corpus
import invented_templates as invented
import turnwise
from corpus import needs_corpus
from loaded import load_entry
from published_templates import grammar_of
from reply_damage import damage, find_lost, insert_text, places, tiles
from reply_grammars import EXAMPLES, GRAMMARS
from turnwise.errors import TurnwiseError
from turnwise.replies.derive import derive
from turnwise.replies.events import Message
from turnwise.replies.grammar import Grammar
from turnwise.replies.parser.parser import Parser
from turnwise.replies.write import write

TEMPLATES = 30
MANY = 100_000
TOOLS = [
    {
        "type": "function",
        "function": {"name": name, "parameters": {"type": "object", "properties": properties}},
    }
    for name, properties in (
        (
            "look",
            {"city": {"type": "string"}, "days": {"type": "integer"}, "where": {"type": "object"}},
        ),
        ("now", {}),
    )
]
MESSAGE: dict[str, Any] = {
    "role": "assistant",
    "content": "I look it up.",
    "reasoning_content": "Which city?\nOslo.",
    "tool_calls": [
        {
            "id": "abcd00001",
            "function": {
                "name": "look",
                "arguments": {"city": 'São "P"', "days": 3, "where": {"a": 1}},
            },
        },
        {"id": "abcd00002", "function": {"name": "now", "arguments": {}}},
    ],
}


# -- the law


def read(grammar: Grammar, chunks: Any, tools: Any) -> Message:
    parser = Parser(grammar, tools=tools)
    for chunk in chunks:
        parser.feed(chunk)
    return parser.close()


def facts(message: Message) -> tuple[Any, ...]:
    return dict(message), message.attempts, message.spans, message.stop


def check(grammar: Grammar, text: str, tools: Any, seed: int = 0) -> None:
    whole = read(grammar, [text], tools)
    tiles(whole, text)
    assert find_lost(grammar, whole, text) == []
    assert facts(read(grammar, text, tools)) == facts(whole), "one by one"
    cuts = [0, *places(Random(seed), text, 6), len(text)]
    assert facts(
        read(grammar, [text[a:b] for a, b in zip(cuts, cuts[1:], strict=False)], tools)
    ) == facts(whole), cuts


# -- the tests


@cache
def calling() -> tuple[str, ...]:
    """Templates of the corpus that write calls, spread over all of them."""
    found = [name for name in sorted(corpus.load_published()) if writes(name)]
    return tuple(found[:: max(1, len(found) // TEMPLATES)][:TEMPLATES])


@cache
def writes(name: str) -> bool:
    return "tool_calls" in corpus.load_published()[name].text


def canonical(grammar: Grammar) -> str:
    try:
        return write(grammar, MESSAGE)
    except TurnwiseError:
        return write(grammar, {**MESSAGE, "tool_calls": []})


@pytest.mark.law(5)
@pytest.mark.parametrize("name", sorted(GRAMMARS))
def test_damage_to_replies_of_handwritten_grammars(name: str) -> None:
    for example in EXAMPLES:
        if example.grammar == name:
            for seed in range(40):
                check(
                    GRAMMARS[name], damage(seed, example.reply), TOOLS if seed % 2 else None, seed
                )


@needs_corpus
@pytest.mark.parametrize("name", calling())
def test_damage_to_replies_of_real_templates(name: str) -> None:
    grammar = grammar_of(name)
    reply = canonical(grammar)
    for seed in range(20):
        check(grammar, damage(seed, reply), TOOLS if seed % 2 else None, seed)


def invented_replies(seed: int) -> tuple[Grammar, list[str]]:
    made = invented.invent(seed)
    template = turnwise.compile(made.text, dialect="jinja")
    ask = [{"role": "user", "content": "Ask"}]
    prompt = str(template.render(ask, add_generation_prompt=True))
    turns = [str(template.render([*ask, message])) for message in invented.messages(made, 4)]
    return derive(template.facts), [turn.removeprefix(prompt) for turn in turns]


@pytest.mark.law
@pytest.mark.parametrize(
    "seeds", [range(25), pytest.param(range(25, 400), marks=pytest.mark.slow)], ids=str
)
def test_damage_to_replies_of_invented_templates(seeds: range, sample: Any) -> None:
    for number in sample(seeds, 6):
        grammar, replies = invented_replies(number)
        for seed in range(12):
            check(
                grammar,
                damage(number + seed, replies[seed % 4]),
                invented.TOOLS if seed % 2 else None,
                seed,
            )


@pytest.mark.slow
@needs_corpus
@pytest.mark.parametrize("name", calling())
def test_much_damage(name: str) -> None:
    grammar = grammar_of(name)
    reply = canonical(grammar)
    for seed in range(1000, 1200):
        check(grammar, damage(seed, reply), TOOLS if seed % 2 else None, seed)
    for seed, bracket in enumerate("[{(<"):
        text = insert_text(Random(seed), reply, bracket * MANY)
        message = read(grammar, [text], TOOLS)
        tiles(message, text)
        assert facts(read(grammar, [text[:5000], text[5000:]], TOOLS)) == facts(message)


NO_JSON = (
    "{invalid json}",
    "{'city': Oslo}",
    "{'city': 'Oslo', days}",
    '{"city": "Oslo", days}',
    '{"city": }',
    '{"city": [1, 2, oops]}',
    "{city: True, 'days': None, \"rest\" }",
    '{"a": {"b": tru}}',
    "{,}",
)


@pytest.mark.parametrize("arguments", NO_JSON)
@pytest.mark.parametrize(
    ("name", "around"),
    [
        ("qwen3", ('<tool_call>\n{"name": "look", "arguments": ', "}\n</tool_call>")),
        ("mistral", ("[TOOL_CALLS]look[ARGS]", "")),
    ],
)
def test_arguments_that_are_no_json_are_kept_byte_for_byte(
    name: str, around: tuple[str, str], arguments: str
) -> None:
    reply = around[0] + arguments + around[1]
    grammar = {
        "qwen3": GRAMMARS["qwen3"],
        "mistral": load_entry("mistral-tekken").grammar,
    }[name]
    for chunks in ([reply], list(reply), [reply[:40], reply[40:]]):
        parser = Parser(grammar, tools=TOOLS)
        for chunk in chunks:
            parser.feed(chunk)
        message = parser.close()
        (call,) = message["tool_calls"]
        assert call["function"]["arguments"] == arguments
        assert [attempt.status for attempt in message.attempts] == ["malformed"]
