"""Whatever way a template takes to write a message, its grammar reads the message back.

The law first: each template of `ODD` writes messages after its own prompt, after several histories, and what was
derived from it alone reads them back. Which kinds of messages it writes is listed, so nothing is left out silently.
Then single replies, and what cannot be read: it must be named.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

import turnwise
from odd_templates import (
    BEYOND,
    ENDED,
    HISTORIES,
    KINDS,
    ODD,
    REPLIES,
    TOOLS,
    Message,
    Odd,
    calls,
    reasoning_block,
    single,
    turns,
)
from turnwise.replies.derive import derive
from turnwise.replies.derive.markers import GRAMMAR_PARTS, MAX_GRAMMAR_LENGTH, PROBE_WORDS
from turnwise.replies.grammar import Grammar
from turnwise.replies.parser.markers import collect_texts

# Tools are given to templates of all kinds.
pytestmark = pytest.mark.filterwarnings("ignore:.*no calls are read")


def compile_odd(odd: Odd) -> tuple[turnwise.Template, Grammar]:
    template = turnwise.compile(odd.text, dialect="jinja", options=odd.options)
    return template, derive(template.facts)


def to_comparable(message: Any) -> tuple[Any, ...]:
    """What a message says, whatever its form."""
    functions = [one["function"] for one in message.get("tool_calls") or ()]
    arguments = [
        one["arguments"] if isinstance(one["arguments"], dict) else json.loads(one["arguments"])
        for one in functions
    ]
    texts = (message["content"] or "").strip(), message.get("reasoning_content") or ""
    return [one["name"] for one in functions], arguments, texts


def write_reply(
    template: turnwise.Template, odd: Odd, history: list[Message], message: Message
) -> tuple[str, str] | None:
    """The prompt and the reply after it; None if the template does not write all of the message there."""
    chat = [odd.form(turn) for turn in history]
    try:
        prompt = str(template.render(chat, tools=TOOLS, add_generation_prompt=True))
        whole = str(
            template.render([*chat, {"role": "assistant", **odd.form(message)}], tools=TOOLS)
        )
    except turnwise.TurnwiseError:
        return None
    reply = whole.removeprefix(prompt)
    words = [message["content"], message.get("reasoning_content", "")]
    words += [one["function"]["name"] for one in message.get("tool_calls", ())]
    return (prompt, reply) if reply != whole and all(word in reply for word in words) else None


@pytest.mark.law
@pytest.mark.parametrize("name", ODD)
def test_parse_undoes_render(name: str) -> None:
    odd = ODD[name]
    template, _ = compile_odd(odd)
    found = set()
    for title in odd.histories:
        for kind, message in KINDS.items():
            both = write_reply(template, odd, HISTORIES[title], message)
            if both is not None:
                found.add(kind)
                assert to_comparable(
                    template.parse(both[1], both[0], tools=TOOLS)
                ) == to_comparable(message), (
                    title,
                    kind,
                    both,
                )
    assert found == set(odd.kinds)


@pytest.mark.law
@pytest.mark.parametrize("name", ODD)
def test_the_grammar_says_what_it_reads(name: str) -> None:
    """Nothing that is read is reported as out of reach."""
    odd = ODD[name]
    unread = [
        note
        for note in compile_odd(odd)[1].unreached
        if not note.startswith("reasoning: no rendering")
    ]
    single_only = odd.form is single
    assert unread == (["calls: the template does not write two calls"] if single_only else [])


# Replies


@pytest.mark.parametrize("name", REPLIES)
def test_a_reply_is_read(name: str) -> None:
    text, replies = REPLIES[name]
    template = turnwise.compile(text, dialect="jinja")
    for reply in replies:
        history = HISTORIES[reply.history]
        prompt = template.render(history, tools=TOOLS, add_generation_prompt=True, **reply.options)
        assert to_comparable(template.parse(reply.text, prompt, tools=TOOLS)) == reply.expected, (
            reply,
            template.grammar,
        )


def test_what_ends_a_turn_is_no_part_of_the_opening() -> None:
    grammar = derive(turnwise.compile(ENDED, dialect="jinja").facts)
    assert (grammar.opening, grammar.stops, grammar.content.close.text) == (
        "<|assistant|>\n",
        ("<|end|>",),
        "",
    )


def test_an_opening_may_stand_after_every_conversation() -> None:
    text = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}<|assistant|>"
    template = turnwise.compile(text, dialect="jinja")
    assert derive(template.facts).opening == "<|assistant|>"
    prompt = template.render(HISTORIES["rounds"])
    assert to_comparable(template.parse("Fine.<|end|>", prompt)) == ([], [], ("Fine.", ""))


def test_a_part_of_the_users_turn_is_no_opening() -> None:
    assert (
        derive(
            turnwise.compile(
                ODD["the opening is a part of the user's turn"].text, dialect="jinja"
            ).facts
        ).opening
        == ""
    )


def test_what_a_role_for_calls_holds_is_declared() -> None:
    grammar = turnwise.compile(REPLIES["a role for calls"][0], dialect="jinja").grammar
    assert grammar.sources["calls"] == "declared"
    assert grammar.calls is not None and grammar.calls.section.open.text == "<|tool_call|>"


@pytest.mark.parametrize(
    ("end", "stop"),
    [
        ("<|end|>", "<|end|>"),
        ("</s>\n", "</s>"),
        ("|<end>|## ", "|<end>|"),
        ("\n### Human: ", "### Human:"),
        ("\n", None),  # the role word of the next turn is no stop: a reply may contain it
    ],
)
def test_a_stop_is_a_tag_or_a_line(end: str, stop: str | None) -> None:
    template = "{% for m in messages %}{% if m.role == 'user' %}USER: {{ m.content }}\n{% else %}AIDE: {{ m.content }}"
    text = (
        template
        + "{{ "
        + repr(end)
        + " }}{% endif %}{% endfor %}{% if add_generation_prompt %}AIDE: {% endif %}"
    )
    assert derive(turnwise.compile(text, dialect="jinja").facts).stops == ((stop,) if stop else ())


# Beyond


@pytest.mark.parametrize("name", BEYOND)
def test_what_is_not_read_is_named(name: str) -> None:
    text, note = BEYOND[name]
    notes = derive(turnwise.compile(text, dialect="jinja").facts).unreached
    assert any(one.startswith(note) for one in notes), notes


def texts_of(grammar: Grammar) -> list[str]:
    return [text for part in GRAMMAR_PARTS for text in collect_texts(getattr(grammar, part))]


@pytest.mark.parametrize("name", BEYOND)
def test_no_part_holds_a_word_of_a_probe(name: str) -> None:
    texts = texts_of(derive(turnwise.compile(BEYOND[name][0], dialect="jinja").facts))
    assert not [text for text in texts for word in PROBE_WORDS if word.lower() in text.lower()]


# Too much

SECONDS = 4.0  # of processor time; each took from 3 seconds to more than a minute before there were bounds
JSON_CALL = "{{ c.function.name }} {{ c.function.arguments | tojson }}"
TOO_LONG = "the rendering of a message is too long to analyse"
HUGE = {
    "a marker": (turns("{{ m.content }}<|" + "x" * 2_000 + "|>"), "content: a marker is longer"),
    "a turn": (
        turns("{{ m.content }}<|" + "x" * 8_000 + "|>"),
        f"content, reasoning, calls: {TOO_LONG}",
    ),
    "a conversation": (
        turns("{{ m.content }}<|" + "x" * 140_000 + "|>"),
        "content, reasoning, calls: the template",
    ),
    "content many times": (
        turns("{{ m.content * 100000 }}"),
        "content, reasoning, calls: the template refuses",
    ),
    "white space": (turns("{{ m.content }}" + " " * 990), "content: a marker is longer"),
    "signs before reasoning": (
        turns(reasoning_block("|" * 2_000, "|/" * 900) + "{{ m.content }}"),
        "reasoning: a marker is",
    ),
    "brackets": (
        calls("{{ '{' * 2000 }}" + JSON_CALL + "{{ '}' * 2000 }}"),
        "calls: a marker is longer",
    ),
    "brackets and keys": (calls("{{ '{0:' * 600 }}" + JSON_CALL + "{{ '}' * 600 }}"), "calls: "),
    "lists": (
        calls("{{ '[' * 1800 }}" + JSON_CALL + "{{ ']' * 1800 }}"),
        "calls: a marker is longer",
    ),
}


@pytest.mark.parametrize("name", HUGE)
def test_a_template_that_writes_too_much_is_refused_soon(name: str) -> None:
    text, note = HUGE[name]
    begun = time.process_time()
    template = turnwise.compile(text, dialect="jinja")
    assert template.parse("hi")["content"] == "hi"
    assert time.process_time() - begun < SECONDS
    notes = template.grammar.unreached
    assert any(one.startswith(note) for one in notes), notes
    assert sum(map(len, texts_of(template.grammar))) <= MAX_GRAMMAR_LENGTH


def test_a_marker_may_be_long() -> None:
    """Three times as long as the longest of the corpus."""
    end = "<|" + "x" * 900 + "|>"
    template = turnwise.compile(turns("{{ m.content }}" + end), dialect="jinja")
    assert template.parse(f"hi{end}<|end|>")["content"] == "hi"


def test_a_template_may_say_much_before_the_conversation() -> None:
    template = turnwise.compile("a word " * 4_000 + ODD["calls by a macro"].text, dialect="jinja")
    assert [note for note in template.grammar.unreached if not note.startswith("reasoning")] == []
