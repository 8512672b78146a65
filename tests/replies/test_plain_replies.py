"""A reply without markers is read by one search, and as the parser reads it."""

from __future__ import annotations

import random

import pytest

import turnwise
from loaded import load_entry
from reply_essence import TOOLS
from turnwise.replies.parser.markers import collect_texts
from turnwise.replies.parser.parser import Parser, read_plain

NAMES = sorted(turnwise.entries())
WORDS = (
    "Aye. ",
    "The tide\n",
    " ",
    "\n\n",
    "a < b",
    '{"name": "look", ',
    "[look(",
    "to=look ",
    "é",
)


@pytest.mark.law
@pytest.mark.parametrize("name", NAMES)
def test_a_reply_that_is_read_as_plain_is_so_for_the_parser(name: str) -> None:
    grammar, dice = load_entry(name).grammar, random.Random(name)
    markers = [text for text in collect_texts(grammar) if text]
    parts = [*WORDS, *WORDS, *markers, *(text[:3] for text in markers)]
    for number in range(120):
        # Every second one is only words, which few markers are a part of.
        chosen = dice.choices(parts if number % 2 else WORDS, k=dice.randrange(4))
        reply = "".join([*chosen, *dice.choices([*grammar.stops, ""])])
        found = read_plain(grammar, reply)
        for tools in (None, TOOLS):
            if found is not None:
                assert dict(found) == dict(Parser(grammar, "", tools).read(reply)), reply


def test_most_replies_in_words_are_read_as_plain() -> None:
    grammar = load_entry("qwen3").grammar
    found = read_plain(grammar, "1 < 2.\n\nAye.<|im_end|>")
    assert found == {"role": "assistant", "content": "1 < 2.\n\nAye."}
    odd = ("Aye.", "<|im_end|>", " Aye.<|im_end|>", "<think>\nAye.<|im_end|>", [1])
    assert [read_plain(grammar, reply) for reply in odd] == [None] * len(odd)
