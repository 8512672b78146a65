"""The laws of replies, for every template of the corpus and made-up messages.

    parse undoes render          what stands after the prompt is read back as the message
    cuts never matter            one piece, single characters, random cuts: the same message, spans and attempts
    nothing is taken back        what is said of a beginning is the beginning of what is said of the whole
    spans tile the reply
    an end anywhere is no error  and a call that was cut says so

Texts hold no sign that a marker could begin with, except in arguments that are written as JSON: these hold anything,
the template's own markers above all.
"""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import corpus
import turnwise
from corpus import needs_corpus
from reply_essence import CALLED, TOOLS, essence, id_of
from reply_messages import UNREADABLE
from reply_vectors import template
from turnwise.replies.events import Event
from turnwise.replies.grammar import Grammar
from turnwise.replies.grammar_parts import JsonCall, TaggedCall
from turnwise.replies.parser.markers import collect_texts
from turnwise.replies.write import write

# Tools are given to templates of all kinds.
pytestmark = pytest.mark.filterwarnings("ignore:.*no calls are read")

FEW, MANY = 4, 100
ASKED = [{"role": "user", "content": "Q?"}]
SAMPLED = {"text": "content", "reasoning": "reasoning_content"}

TEXTS = (
    st.text(st.sampled_from("abcxyz ÄéΩж日本☀0189 .,;!?-\n"), min_size=1, max_size=30)
    .map(str.strip)
    .filter(bool)
)
FINITE = st.floats(-1e6, 1e6, allow_nan=False)


def values(texts: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    """Arguments of a call, by their types."""
    simple = st.none() | st.booleans() | st.integers(-9999, 9999) | texts
    nested = st.recursive(
        simple, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3)
    )
    objects, lists = st.dictionaries(KEYS, nested, max_size=3), st.lists(nested, max_size=3)
    scalars = {"city": texts, "days": st.integers(), "rate": FINITE, "sure": st.booleans()}
    return st.fixed_dictionaries({}, optional={**scalars, "deep": objects, "tags": lists})


KEYS = st.text(st.sampled_from("abcdefgh_"), min_size=1, max_size=5)


@st.composite
def messages(draw: st.DrawFn, grammar: Grammar) -> dict[str, Any]:
    """What this grammar can say."""
    contents = TEXTS.map("So: {}".format)
    message: dict[str, Any] = {"role": "assistant", "content": draw(contents)}
    if grammar.reasoning is not None and draw(st.booleans()):
        message["reasoning_content"] = "Well: " + draw(TEXTS)
    if grammar.calls is not None and draw(st.booleans()):
        texts = (
            TEXTS | st.sampled_from(collect_texts(grammar)) | st.text(max_size=20)
            if is_json(grammar)
            else TEXTS
        )
        arguments = draw(st.lists(values(texts), min_size=1, max_size=2))
        message["tool_calls"] = [
            {
                "id": id_of(grammar, name, at),
                "type": "function",
                "function": {"name": name, "arguments": given},
            }
            for at, (name, given) in enumerate(zip(CALLED, arguments, strict=False))
        ]
        message["content"] = "" if grammar.calls.excludes_content else draw(st.just("") | contents)
    return message


def is_json(grammar: Grammar) -> bool:
    """Whether arguments are written as JSON, so that a text within them may be anything."""
    call = grammar.calls.call if grammar.calls is not None else None
    return isinstance(call, JsonCall) or (isinstance(call, TaggedCall) and call.pairs is None)


def write_reply(name: str, message: dict[str, Any]) -> tuple[str, str]:
    """A prompt, and the reply: what the template writes after it, or the writer where the turn does not go on so."""
    chosen = template(name)
    tools = TOOLS if "tool_calls" in message else None
    try:
        prompt = str(chosen.render(ASKED, tools=tools, add_generation_prompt=True, now=corpus.NOW))
    except turnwise.TurnwiseError:
        prompt = chosen.grammar.opening
    try:
        whole = str(chosen.render([*ASKED, message], tools=tools, now=corpus.NOW))
    except turnwise.TurnwiseError:
        whole = ""
    return prompt, whole[len(prompt) :] if whole.startswith(prompt) else write(
        chosen.grammar, message, prompt
    )


def drop_unrendered(message: dict[str, Any], reply: str, read: Any) -> dict[str, Any]:
    """The message without what the template leaves out; what it says beside a call may be written as reasoning."""
    kept = {key: text for key, text in message.items() if key == "tool_calls" or text in reply}
    calls = [call for call in message.get("tool_calls", ()) if call["function"]["name"] in reply]
    if calls and kept.get("content") and read.get("reasoning_content") == kept["content"]:
        kept = {"reasoning_content": kept["content"]}
    return {**kept, "tool_calls": calls}


def join_deltas(events: list[Event]) -> dict[tuple[str, int | None], str]:
    joined: dict[tuple[str, int | None], str] = {}
    for event in events:
        joined[event.kind, event.call] = joined.get((event.kind, event.call), "") + event.text
    return joined


def in_cuts(name: str, prompt: str, chunks: list[str]) -> tuple[Any, list[Event], list[int]]:
    """The message, all events, and how many of them there were before the reply was closed."""
    parser = template(name).parser(prompt=prompt, tools=TOOLS)
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    open_events = len(events)
    message = parser.close()
    return message, [*events, *message.events], [open_events]


def facts(message: Any) -> tuple[Any, ...]:
    return dict(message), message.spans, message.attempts, message.stop


def hold(name: str, message: dict[str, Any], dice: random.Random) -> None:
    prompt, reply = write_reply(name, message)
    whole, events, _ = in_cuts(name, prompt, [reply])
    assert all(one.status == "complete" for one in whole.attempts), (reply, whole.attempts)
    assert essence(whole) == essence(drop_unrendered(message, reply, whole)), reply
    assert_tiled(whole, reply)
    cuts = (
        sorted(dice.sample(range(1, len(reply)), min(len(reply) - 1, 8))) if len(reply) > 1 else []
    )
    for chunks in (
        list(reply),
        [reply[start:end] for start, end in pairwise([0, *cuts, len(reply)])],
    ):
        again, streamed, _ = in_cuts(name, prompt, chunks)
        assert facts(again) == facts(whole), reply
        assert join_deltas(streamed) == join_deltas(events)
    cut = dice.randrange(len(reply) + 1)
    part, begun, (count,) = in_cuts(name, prompt, [reply[:cut]])
    assert_tiled(part, reply[:cut])
    for key, text in join_deltas(begun[:count]).items():
        assert join_deltas(events).get(key, "").startswith(text), (reply, cut)


def assert_tiled(message: Any, reply: str) -> None:
    assert "".join(reply[span.start : span.end] for span in message.spans) == reply


NAMES = sorted(name for name in corpus.load_published() if name not in UNREADABLE)


def run(name: str, examples: int) -> None:
    grammar = template(name).grammar

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(messages(grammar), st.randoms(use_true_random=False))
    def law(message: dict[str, Any], dice: random.Random) -> None:
        hold(name, message, dice)

    law()


@pytest.mark.law
@needs_corpus
@pytest.mark.parametrize("name", NAMES)
def test_laws(name: str) -> None:
    run(name, FEW)


@needs_corpus
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_laws_at_length(name: str) -> None:
    run(name, MANY)
