"""Conversations with calls whose layout is known are encoded as in full, whatever their contents are."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

import corpus
import turnwise
import vocabularies
from published_templates import compile_published
from random_expressions import ExpressionMaker
from turnwise import Encoded, Template
from turnwise.engine.renderer import Renderer
from turnwise.errors import TurnwiseError, WarningLog
from turnwise.tokens.growing import GrowingPrompt

NOW = datetime(2024, 5, 17, 10, 30)
ENTRIES = ("qwen3", "qwen2.5", "llama-3.1", "hermes-3", "mistral-tekken", "kimi-k2", "glm-4.5")
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "Looks.",
            "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
        },
    }
    for name in ("look", "tide")
]
TEXTS = (
    *("Oslo", " a", "b ", "\n\nc\n", "東京", "e\u0301", "%s", "{}", '"', "\\", "\u2028", "\ufdd0"),
    *(
        "<|im_end|>",
        "<|im_",
        "end|>",
        "</tool_call>",
        "<think>",
        "</think>",
        "[TOOL_CALLS]",
        "</s>",
    ),
    *("<tool_response>x</tool_response>", "assistant", "look", "x" * 900, '{"a": 1}', "true", "0"),
)
HARMLESS = 11  # of them
SHORT = ("look", "tide", "look", "tide", "call_1", "abcdefghi", "<|im_end|>", "", " ", "a b")
VALUES = (1, 0, -2.5, 1e300, True, None, [], {}, [1, ["a"]], {"k": {"l": None}}, 10**30, "x")
ODD_VALUES = (float("nan"), "\ud800", {1: 2}, (1, 2), {"a": {3}}, b"x")
KEYS = ("place", "days", "note", "role", "content", "arguments", "</s>")
COLUMNS = ("input_ids", "labels", "weights", "owners", "offsets", "tokens", "control", "mask")
OF_TEXT = ("text", "turns", "untrained", "incomplete", "added_stop", "kept", "defused")


@pytest.fixture(autouse=True)
def learn_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for the layout of a form in its first row, so that few rows are enough."""
    monkeypatch.setattr("turnwise.batch.MIN_ROWS", 1)
    monkeypatch.setattr("turnwise.batch.ROWS_PER_MESSAGE", 0)
    monkeypatch.setattr("turnwise.batch.MAX_FAILURES", 0)
    monkeypatch.setattr("turnwise.batch.MAX_COMPLETED", 0)
    monkeypatch.setattr("turnwise.engine.renderer.LEARNT_AFTER", 1)


def make_text(dice: random.Random) -> str:
    return dice.choice(TEXTS if dice.random() < 0.15 else TEXTS[:HARMLESS])


def make_arguments(dice: random.Random) -> Any:
    arguments = {
        key: make_text(dice) if dice.random() < 0.6 else dice.choice(VALUES)
        for key in dice.sample(KEYS, 2 if dice.random() < 0.1 else 1)
    }
    odd = dice.random()
    if odd < 0.02:
        arguments["odd"] = dice.choice(ODD_VALUES)
    elif odd < 0.04:
        return {}
    elif odd < 0.06:
        return dice.choice(['{"a": 1}', "", "no JSON", "[1]", None])
    return arguments


def make_call(dice: random.Random, number: int) -> dict[str, Any]:
    name = "look" if dice.random() < 0.9 else dice.choice(SHORT)
    call: dict[str, Any] = {"id": f"call{number:05}", "type": "function"}
    if dice.random() < 0.05:
        call["id"] = dice.choice(SHORT)
    return call | {"function": {"name": name, "arguments": make_arguments(dice)}}


def make_round(dice: random.Random, number: int) -> Iterator[dict[str, Any]]:
    """A question, one or two calls and their results, and an answer; odd now and then."""
    yield {"role": "user", "content": make_text(dice)}
    calls = [make_call(dice, 10 * number + one) for one in range(dice.choice((1, 1, 1, 1, 2)))]
    content = dice.choice(["", "", "", "", None, "Let me see."])
    message = {"role": "assistant", "content": content, "tool_calls": calls}
    if dice.random() < 0.1:
        message["reasoning_content"] = make_text(dice)
    yield message
    for call in dice.sample(calls, len(calls)) if dice.random() < 0.1 else calls:
        result = {"role": "tool", "tool_call_id": call["id"], "content": make_text(dice)}
        if dice.random() < 0.1:
            result["name"] = call["function"]["name"]
        yield result
    if dice.random() < 0.9:
        yield {"role": "assistant", "content": make_text(dice)}


def make_chat(dice: random.Random) -> list[dict[str, Any]]:
    chat = [{"role": "system", "content": make_text(dice)}] if dice.random() < 0.2 else []
    for number in range(dice.choice((1, 1, 1, 2))):
        chat += make_round(dice, number)
    return chat


def make_alike(dice: random.Random) -> list[dict[str, Any]]:
    """A chat of one form, with any contents."""
    texts = [make_text(dice) for _ in range(4)]
    arguments = {key: dice.choice((make_text(dice), *VALUES)) for key in dice.sample(KEYS, 2)}
    function = {"name": dice.choice(["look", "tide"]), "arguments": arguments}
    call = {"id": "abcdefghi", "type": "function", "function": function}
    return [
        {"role": "user", "content": texts[0]},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "abcdefghi", "name": "look", "content": texts[1]},
        {"role": "assistant", "content": texts[2]},
        {"role": "user", "content": texts[3]},
    ]


def encode(template: Template, chat: Any, known: Any, **more: Any) -> tuple[Any, tuple[str, ...]]:
    """What encoding gives, an error too, and what was warned of."""
    with WarningLog() as log:
        try:
            found: Any = template.encode(chat, known, now=NOW, **more)
        except TurnwiseError as error:
            found = str(error)
    return found, log.texts


def is_laid_out(encoded: Encoded) -> bool:
    return hasattr(encoded, "_encode_in_full")


def check_law(template: Template, known: Any, dice: random.Random, count: int, **more: Any) -> int:
    """Compare chats with themselves in full; return how many had a layout."""
    chats = [make_alike(dice) if dice.random() < 0.3 else make_chat(dice) for _ in range(count)]
    return sum([check_chat(template, known, chat, **more) for chat in chats])


def check_chat(template: Template, known: Any, chat: list[dict[str, Any]], **more: Any) -> bool:
    """Compare a chat with itself in full; return whether it had a layout."""
    given = copy.deepcopy(chat)
    full, expected = encode(template, chat, known, growing=GrowingPrompt(), **more)
    found, told = encode(template, chat, known, **more)
    assert bool(told) is bool(expected), chat
    if isinstance(full, str):
        assert found == full, chat
        return False
    is_found = is_laid_out(found)
    for column in (*COLUMNS, *OF_TEXT):
        assert getattr(found, column) == getattr(full, column), (column, chat)
    assert found.rendering == full.rendering and found.rendering.changes == full.rendering.changes
    assert repr(chat) == repr(given)
    return is_found


@pytest.mark.law(3)
@pytest.mark.filterwarnings("ignore::turnwise.TurnwiseWarning")
@pytest.mark.parametrize("name", ENTRIES)
def test_a_conversation_with_calls_is_encoded_as_in_full(name: str) -> None:
    template, dice = turnwise.load(name), random.Random(name)
    for more in ({}, {"tools": TOOLS}, {"tools": TOOLS, "train_on": "last"}, {"normalise": False}):
        check_law(template, "turnwise", dice, 25, **more)


@corpus.needs_corpus
@pytest.mark.filterwarnings("ignore::turnwise.TurnwiseWarning")
@pytest.mark.parametrize("name", ["qwen3", "qwen2.5", "qwen3-instruct-2507"])
def test_many_conversations_with_calls_have_a_layout(name: str) -> None:
    """Or the law above would hold without one."""
    template, dice = turnwise.load(name), random.Random(name)
    assert check_law(template, vocabularies.load("qwen3"), dice, 80, tools=TOOLS) > 8


@pytest.mark.law
@pytest.mark.once
@pytest.mark.slow
@corpus.needs_corpus
@pytest.mark.filterwarnings("ignore::turnwise.TurnwiseWarning")
def test_published_templates() -> None:
    dice, laid_out = random.Random(1), 0
    for name in corpus.load_published():
        laid_out += check_law(compile_published(name), vocabularies.load("qwen3"), dice, 20)
    assert laid_out > 20


def make_usual(word: str, **arguments: Any) -> list[dict[str, Any]]:
    call = {"function": {"name": "look", "arguments": {"place": word, **arguments}}}
    return [
        {"role": "user", "content": f"{word}?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "name": "look", "content": f"{word}!"},
        {"role": "assistant", "content": f"It is {word}."},
    ]


def test_conversations_of_one_form_are_not_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever their arguments are: the template writes them as JSON."""
    template = turnwise.compile(turnwise.load("qwen3").text, name="calls")
    for word in ("one", "two", "five", "six"):
        template.encode(make_usual(word), "turnwise", tools=TOOLS)
    monkeypatch.setattr(Renderer, "render", None)
    found = template.encode(make_usual("three", days=[3]), "turnwise", tools=TOOLS)
    trained = [one for one, label in zip(found.input_ids, found.labels, strict=True) if label >= 0]
    text = "".join(map(found.tokenizer.token, trained))
    assert "three" in text and "days" in text and "It" in text
    batch = template.encode_batch([make_usual("four")] * 3, "turnwise", tools=TOOLS)
    assert len(batch) == 3 and not batch.errors


def test_arguments_may_change_after_a_conversation_was_encoded() -> None:
    template = turnwise.compile(turnwise.load("qwen3").text, name="changed calls")
    for word in ("one", "two", "three", "four", "five"):
        chat = make_usual(word)
        encoded = template.encode(chat, "turnwise", tools=TOOLS)
        chat[1]["tool_calls"][0]["function"]["arguments"]["place"] = "another"
        assert f'{{"place": "{word}"}}' in encoded.text
    assert is_laid_out(encoded)


# A form decides about these, and the first row shows it; a content decides about those in LOOKING.
LOOP = "{% for m in messages %}<|im_start|>{{ m.role }}\n%s<|im_end|>\n{% endfor %}"
CALL = "{% for c in m.tool_calls or [] %}%s{% endfor %}{{ m.content or '' }}"
LOOKING = (
    *(
        "{{ c.function.arguments|length }}",
        "{% for k in c.function.arguments %}{{ k }}{% endfor %}",
    ),
    *(
        "{{ c.function.arguments.place }}",
        "{{ c.function.name|length }}",
        "{{ c.function.name[0] }}",
    ),
    *("{{ 'place' in c.function.arguments }}", "{{ c.function.name > 'l' }}", "{{ c|string }}"),
    *("{{ (c.function.arguments|tojson)|length }}", "{{ c.function.arguments|tojson|upper }}"),
    *("{{ c.function.arguments|string }}", "{{ c.function.arguments == {} }}", "{{ c|tojson }}"),
    *("{{ c.function.arguments|items|list }}", "{{ c.function.arguments|dictsort }}"),
)


@pytest.mark.filterwarnings("ignore::turnwise.TurnwiseWarning")
@pytest.mark.parametrize("body", LOOKING)
def test_a_template_that_looks_at_calls(body: str) -> None:
    template = turnwise.compile(LOOP.replace("%s", CALL.replace("%s", body)))
    check_law(template, "turnwise", random.Random(body), 40)


CALL_VALUES = (
    *("c", "c.id", "c.function", "c.function.name", "a", "a", "a|tojson", "a.content", "a.role"),
    *(
        "'content' in a",
        "'role' in a",
        "a|length",
        "messages[0].content",
        "messages[2].tool_call_id",
    ),
)


@pytest.mark.law
@pytest.mark.filterwarnings("ignore::turnwise.TurnwiseWarning")
@pytest.mark.parametrize("seed", range(40))
def test_random_questions_about_calls(seed: int) -> None:
    """Whatever a template asks about a call, a layout is used only where the answer is the same."""
    dice = random.Random(seed)
    maker = ExpressionMaker(dice, CALL_VALUES)
    for _ in range(4):
        question = maker.make_test(maker.make(dice.choice((0, 0, 0, 1, 2))))
        body = "{% set a = c.function.arguments %}{{ c.function.name }} {{ a|tojson }} {{ c.id }} "
        source = LOOP.replace(
            "%s", CALL.replace("%s", f"{body}{{% if {question} %}}!{{% endif %}}\n")
        )
        try:
            template = turnwise.compile(
                "{% macro f(a, b) %}<{{ a }}{{ b|trim }}{% endmacro %}" + source
            )
        except TurnwiseError:
            continue
        for _ in range(8):
            check_chat(template, "turnwise", make_alike(dice))


@pytest.mark.filterwarnings("ignore::turnwise.TurnwiseWarning")
def test_names_and_arguments_that_form_a_token_together() -> None:
    """What is between them is a part of a token, so they are encoded in full."""
    known = "turnwise"
    body = "{{ c.function.name }}<|im_{{ c.function.arguments|tojson }}"
    template = turnwise.compile(LOOP.replace("%s", CALL.replace("%s", body)))
    check_law(template, known, random.Random(0), 40)
    touching = "{{ c.function.name }}{{ c.id }}"
    template = turnwise.compile(LOOP.replace("%s", CALL.replace("%s", touching)))
    for name, id in (("a", "b"), ("c", "d"), ("<|im_", "end|>")):
        chat = make_usual("x")
        chat[1]["tool_calls"][0] |= {"id": id, "function": {"name": name, "arguments": {"a": 1}}}
        full = template.encode(chat, known, growing=GrowingPrompt())
        assert template.encode(chat, known).input_ids == full.input_ids


def test_arguments_that_are_text_and_written_as_json() -> None:
    """What is asked about them is about the text, and not about its JSON."""
    body = "{{ c.function.name }} {{ c.function.arguments.split('\n')|length }} {{ c.function.arguments|tojson }}"
    template = turnwise.compile(LOOP.replace("%s", CALL.replace("%s", body)))
    for text in ['{"a": 1}'] * 4 + ['{\n"a": 1}']:
        chat = make_usual("x")
        chat[1]["tool_calls"][0]["function"]["arguments"] = text
        full = template.encode(chat, "turnwise", growing=GrowingPrompt())
        assert template.encode(chat, "turnwise").input_ids == full.input_ids


def test_arguments_of_which_the_json_goes_over_a_budget() -> None:
    """They are encoded in full, which fails."""
    value: Any = []
    for _ in range(300):
        value = [value]
    for options, odd in (("indent=4", value), ("", [10**4000] * 50), ("", "\0" * 20_000)):
        body = f"{{{{ c.function.name }}}} {{{{ c.function.arguments|tojson({options}) }}}}"
        template = turnwise.compile(LOOP.replace("%s", CALL.replace("%s", body)))
        template = template.with_limits(turnwise.Limits(output_per_character=4, output=9000))
        for word in ("one", "two", "three", "four"):
            template.encode(make_usual(word), "turnwise")
        full, _ = encode(template, make_usual("x", odd=odd), "turnwise", growing=GrowingPrompt())
        assert "over its budget" in full
        assert encode(template, make_usual("x", odd=odd), "turnwise")[0] == full
