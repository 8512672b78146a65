"""Damaged replies: whatever was done to a reply, reading it never raises, never depends on the cuts, and loses nothing.

The law of loss: every character of a reply is in the content, the reasoning, the name, the id or the arguments of a
call; or it is a marker, or white space; or it is within an attempt that is not `complete`, which keeps its text. A
member of a JSON call that calls do not have is the one exception: it is `raw` and does no harm. A marker is one if the
grammar has its words; the words of a header count as markers whatever they are.

Replies are those that the grammars of real templates write, and those of invented ones; damage is drawn from a seed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any

import pytest

import corpus
import invented_templates as invented
import turnwise
from corpus import needs_corpus
from published_templates import grammar_of
from reply_grammars import EXAMPLES, GRAMMARS
from turnwise.errors import TurnwiseError
from turnwise.replies.derive import derive
from turnwise.replies.events import SPANS, STATUSES, Message
from turnwise.replies.grammar import Grammar, JsonCall
from turnwise.replies.parser.compiled_grammar import ARGUMENT_KEYS, NAME_KEYS, CompiledGrammar
from turnwise.replies.parser.markers import collect_texts
from turnwise.replies.parser.parser import Parser
from turnwise.replies.write import write

TEMPLATES = 30
MANY = 100_000
WORD = re.compile(r"\w+")
MARKERS = sorted(
    {piece for one in EXAMPLES for piece in re.findall(r"<[^<>\s]+>|\[[A-Z/_]+\]", one.reply)}
)
STRAY = ("stray", "{", "}", '"', "\n\n", "[", "))", "null", "\\", ",", "é☀", "</", "<|")
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


# -- damage


def delete_run(random: Random, text: str) -> str:
    start, end = places(random, text, 2)
    return text[:start] + text[end:]


def double_run(random: Random, text: str) -> str:
    start, end = places(random, text, 2)
    return text[:end] + text[start:]


def swap_runs(random: Random, text: str) -> str:
    a, b, c = places(random, text, 3)
    return text[:a] + text[b:c] + text[a:b] + text[c:]


def cut_off(random: Random, text: str) -> str:
    return text[: places(random, text, 1)[0]]


def foreign(random: Random, text: str) -> str:
    return insert_text(random, text, random.choice(MARKERS))


def insert_stray(random: Random, text: str) -> str:
    return insert_text(random, text, random.choice(STRAY))


def insert_brackets(random: Random, text: str) -> str:
    return insert_text(random, text, random.choice("[{(<") * 300)


def insert_text(random: Random, text: str, more: str) -> str:
    (at,) = places(random, text, 1)
    return text[:at] + more + text[at:]


def places(random: Random, text: str, count: int) -> list[int]:
    return sorted(random.randint(0, len(text)) for _ in range(count))


DAMAGE = (
    delete_run,
    double_run,
    swap_runs,
    cut_off,
    foreign,
    foreign,
    insert_stray,
    insert_stray,
    insert_brackets,
)


def damage(seed: int, text: str) -> str:
    random = Random(seed)
    for _ in range(random.choice((1, 1, 2, 3))):
        text = random.choice(DAMAGE)(random, text)
    return text


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


def tiles(message: Message, text: str) -> None:
    assert "".join(text[span.start : span.end] for span in message.spans) == text
    assert {span.kind for span in message.spans} <= set(SPANS)
    for attempt in message.attempts:
        assert attempt.raw == text[attempt.start : attempt.end]
        assert attempt.status in STATUSES


def find_lost(grammar: Grammar, message: Message, text: str) -> list[str]:
    """What of a reply is nowhere."""
    excused = [
        range(one.start, one.end)
        for one in message.attempts
        if one.status not in ("complete", "unknown")
    ]
    found: list[str] = []
    for span in message.spans:
        for at in range(span.start, span.end):
            if any(at in place for place in excused):
                continue
            if span.kind == "space" and not text[at].isspace():
                found.append(f"space {text[span.start : span.end]!r}")
                break
            if span.kind == "raw" and not json_calls(grammar):
                found.append(f"raw {text[span.start : span.end]!r}")
                break
    kept = [
        span
        for span in message.spans
        if span.kind == "marker" and not any(span.start in one for one in excused)
    ]
    return found + strange(grammar, message, [text[span.start : span.end] for span in kept])


def json_calls(grammar: Grammar) -> bool:
    return any(
        isinstance(calls.call, JsonCall)
        for calls in (grammar.calls, *grammar.more)
        if calls is not None
    )


def strange(grammar: Grammar, message: Message, texts: list[str]) -> list[str]:
    """Words within markers that no marker has."""
    keys = [call["function"]["arguments"] for call in message.get("tool_calls", ())]
    known = "".join("\0".join([*words(grammar), *keys]).split())
    if CompiledGrammar(grammar).channel_header_format is not None:
        return []
    found = [word for text in texts for word in WORD.findall(text)]
    return [f"marker {word!r}" for word in found if not any(halves(known, word))]


def halves(known: str, word: str) -> Iterator[bool]:
    """Whether a word is known, or made of two that are, where one marker stands after another."""
    return (word[:at] in known and word[at:] in known for at in range(len(word)))


@cache
def words_of(texts: tuple[str, ...]) -> list[str]:
    return [*texts, *NAME_KEYS, *ARGUMENT_KEYS, "type", "function", "id", "true", "null"]


def words(grammar: Grammar) -> list[str]:
    return words_of(tuple(collect_texts(grammar)))


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


@pytest.mark.parametrize(
    "seeds", [range(25), pytest.param(range(25, 400), marks=pytest.mark.slow)], ids=str
)
def test_damage_to_replies_of_invented_templates(seeds: range) -> None:
    for number in seeds:
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
        "mistral": turnwise.load("mistral-tekken").grammar,
    }[name]
    for chunks in ([reply], list(reply), [reply[:40], reply[40:]]):
        parser = Parser(grammar, tools=TOOLS)
        for chunk in chunks:
            parser.feed(chunk)
        message = parser.close()
        (call,) = message["tool_calls"]
        assert call["function"]["arguments"] == arguments
        assert [attempt.status for attempt in message.attempts] == ["malformed"]
