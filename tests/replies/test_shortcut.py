"""The short way says what the long way says.

A reply is read in chunks that are mostly known already, so that nearly all of them go the short way; it is read again
with no shortcut at all; and in one piece. All three must agree on the message, the spans, the attempts and on every
word of the events.
"""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reply_grammars import GRAMMARS
from turnwise.replies.parser.parser import Parser
from turnwise.replies.parser.shortcut import Places, Step, Value
from turnwise.replies.parser.values import Reader

ODD = (
    "1, 2",
    "12,34",
    "0",
    "-1.5e3",
    "1e",
    "07",
    "+5",
    "tru",
    "nul",
    "NaN",
    "'it''s'",
    "{1, 2}",
    "[1,,2]",
    "[1,]",
    "-",
)
SIGNS = "{}[](),:= \n\"\\'0123.-+eEtrufalsn😀\u2028"
AROUND = {
    "qwen3": ('<tool_call>\n{"name": "f", "arguments": {"x": ', "}}\n</tool_call>"),
    "deepseek-v3.1": ("<｜tool▁call▁begin｜>f<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),
    "lfm2": ("<|tool_call_start|>[f(x=", ")]<|tool_call_end|>"),
    "gemma-4": ("<|tool_call>call:f{x:", "}<tool_call|>"),
}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)  # fmt: skip
KINDS = st.sampled_from(["object", "string"])
GAPS = st.sampled_from(["", " ", "\n\t"])
TEXTS = st.one_of(
    st.builds(lambda value, gap: json.dumps(value, separators=("," + gap, ":" + gap)), VALUES, GAPS),
    VALUES.map(repr),
    st.sampled_from(ODD),
    st.text(SIGNS, max_size=30),
)  # fmt: skip


def read(name: str, chunks: list[str], short: bool = True, kind: str = "object") -> tuple[Any, ...]:
    types = {"type": "object", "properties": {"x": {"type": kind}}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": types}}]
    parser = Parser(GRAMMARS[name], tools=tools)
    events = []
    for chunk in chunks:
        if not short:
            parser.stream.shortcut, parser._place = None, type(parser._place)()
        events += parser.feed(chunk)
    message = parser.close()
    said: dict[tuple[str, int | None], str] = {}
    for event in (*events, *message.events):
        said[event.kind, event.call] = said.get((event.kind, event.call), "") + event.text
    return dict(message), message.spans, message.attempts, message.stop, said


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(sorted(AROUND)),
    TEXTS,
    st.integers(1, 5),
    KINDS,
    st.randoms(use_true_random=False),
)
@example("qwen3", "[12, 123, 1, 12, 123, 3]", 1, "array", random.Random(0))
@example("qwen3", "[12, 3456, 1, 12, 3456, 3]", 4, "array", random.Random(0))
@example("qwen3", "[1e, 2]", 1, "array", random.Random(0))
@example("qwen3", '["a\\nb\\u00e9", "\\ud83d\\ude00"]', 1, "array", random.Random(0))
@example("gemma-4", "123, y:4", 1, "string", random.Random(0))
def test_the_short_way_is_the_long_way(
    name: str, value: str, size: int, kind: str, cuts: random.Random
) -> None:
    before, behind = AROUND[name]
    reply = before + value + behind
    whole = read(name, [reply], kind=kind)
    even = [reply[at : at + size] for at in range(0, len(reply), size)]
    places = sorted(cuts.sample(range(1, len(reply)), min(len(reply) - 1, 12)))
    odd = [reply[start:end] for start, end in pairwise([0, *places, len(reply)])]
    for chunks in (even, odd):
        assert read(name, chunks, kind=kind) == read(name, chunks, False, kind) == whole


def test_most_chunks_go_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a list of numbers, nothing wakes the reading but its beginning and its end."""
    woken: list[str] = []
    push = Parser._push

    def counted(self: Parser, text: str) -> Any:
        woken.append(text)
        return push(self, text)

    monkeypatch.setattr(Parser, "_push", counted)
    before, behind = AROUND["qwen3"]
    value = json.dumps([{"n": [number, True, "a\nb"]} for number in range(2_000)])
    read("qwen3", list(before + value + behind))
    assert len(woken) < len(before) + len(behind) + 50


def test_a_number_is_remembered_by_what_ends_it() -> None:
    reader = Reader()
    reader.read("[1", 0)
    reader.take()
    said: list[str] = []
    value, places = Value(reader, 0, said.append, str), Places()
    place = value.start(places, "")
    kept: list[Step] = []
    for chunk in ("2", ", ", "34", ", ", "5", ", 6", "7, 8"):
        step = value.step(places, place, chunk, kept)
        assert step is not None, chunk
        kept.append(step)
        place = step.place
    assert "".join(step.said for step in kept) == "12, 34, 5, 67, "
    assert value.open_word(kept) == "8"


@pytest.mark.parametrize("limit", [1, 2, 7])
def test_steps_are_put_together_in_between(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwise.replies.parser.parser.KEPT", limit)
    before, behind = AROUND["qwen3"]
    reply = (
        "So <tool" + before + '[1, 22, {"a": [true, null, "x\\n"]}, 12345678901234567890]' + behind
    )
    for size in (1, 2, 3):
        assert read("qwen3", [reply[at : at + size] for at in range(0, len(reply), size)]) == read(
            "qwen3", [reply]
        )


@pytest.mark.parametrize("limit", [1, 2])
def test_places_may_be_forgotten(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Places, "LIMIT", limit)
    before, behind = AROUND["qwen3"]
    reply = before + '[1, 22, {"a": [true, null, "x\\n"]}, 333]' + behind
    assert read("qwen3", list(reply)) == read("qwen3", [reply])
