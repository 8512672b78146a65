"""Values in chunks: however the value of an argument is cut, the parser reads the same.

The reply is read in chunks of one size, in chunks of random sizes and in one piece. All must agree on the message, the
spans, the attempts and the text of the events.
"""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from reply_grammars import GRAMMARS
from turnwise.replies.parser.parser import Parser

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


def read(name: str, chunks: list[str], kind: str = "object") -> tuple[Any, ...]:
    types = {"type": "object", "properties": {"x": {"type": kind}}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": types}}]
    parser = Parser(GRAMMARS[name], tools=tools)
    events = []
    for chunk in chunks:
        events += parser.feed(chunk)
    message = parser.close()
    joined: dict[tuple[str, int | None], str] = {}
    for event in (*events, *message.events):
        joined[event.kind, event.call] = joined.get((event.kind, event.call), "") + event.text
    return dict(message), message.spans, message.attempts, message.stop, joined


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
def test_values_do_not_depend_on_the_chunks(
    name: str, value: str, size: int, kind: str, cuts: random.Random
) -> None:
    before, after = AROUND[name]
    reply = before + value + after
    whole = read(name, [reply], kind=kind)
    even = [reply[at : at + size] for at in range(0, len(reply), size)]
    places = sorted(cuts.sample(range(1, len(reply)), min(len(reply) - 1, 12)))
    odd = [reply[start:end] for start, end in pairwise([0, *places, len(reply)])]
    for chunks in (even, odd):
        assert read(name, chunks, kind=kind) == whole
