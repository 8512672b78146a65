"""The parser takes time in proportion to the reply, whatever it holds. For figures: `benchmarks/parse.py`."""

from __future__ import annotations

import pytest

from reply_grammars import GRAMMARS
from timing import assert_linear, assert_quick
from turnwise.replies.parser import Parser
from turnwise.replies.write import write

SIZE = 5_000
SECONDS_PER_MB = 20  # about ten times what it takes


def call(arguments):
    return {"id": "abcdefghi", "function": {"name": "tide", "arguments": arguments}}


def small_calls(grammar, size):
    return write(grammar, {"role": "assistant", "tool_calls": [call({"day": 3})] * (size // 50)})


def numbers(grammar, size):
    return write(grammar, {"role": "assistant", "tool_calls": [call({"x": [12] * (size // 4)})]})


def braces(grammar, size):
    return "{" * size


def stream(grammar, reply):
    parser = Parser(grammar)
    for character in reply:
        parser.feed(character)
    parser.close()


@pytest.mark.law(5)
@pytest.mark.parametrize("make", [small_calls, numbers, braces])
@pytest.mark.parametrize("name", GRAMMARS)
def test_time_grows_with_the_reply(name, make):
    grammar = GRAMMARS[name]
    replies = {size: make(grammar, size) for size in (SIZE, 4 * SIZE)}
    assert_linear(lambda size: stream(grammar, replies[size]), SIZE)
    seconds = SECONDS_PER_MB * len(replies[SIZE]) / 1e6
    assert_quick(lambda: stream(grammar, replies[SIZE]), seconds)
