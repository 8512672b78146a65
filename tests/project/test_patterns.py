"""Every regular expression of the package takes time in proportion to the text, whatever the text is.

Patterns meet data that others wrote: rows, templates, replies, names of models. One that goes back hangs the process in
C, where nothing can interrupt it. So each is run on long runs of every class of characters, and on runs of its own
parts; twice the text may take 2.5 times as long.
"""

from __future__ import annotations

import gc
import random
import re
from collections.abc import Callable
from copy import copy
from functools import cache
from typing import Any

import pytest

import turnwise
from pattern_sites import Site, find_sites, record_patterns
from pattern_texts import CLASSES, find_slowness, list_texts
from turnwise.cli.conform import HEADER
from turnwise.cli.inputs import parse_options, split_pairs
from turnwise.cli.prepare import COLUMNS
from turnwise.compat.fastchat import get_conversation_template
from turnwise.compat.fastchat_conversation import _make_skeleton
from turnwise.languages import translate
from turnwise.registry.fastchat import ModelPattern
from turnwise.registry.match import tables
from turnwise.replies.export.constraint_tree import CharacterNode
from turnwise.replies.export.value_check import _compile_run
from turnwise.replies.grammar_parts import KEY
from turnwise.replies.parser.text_values import _tag_pattern
from turnwise.replies.parser.values import _quote_style
from turnwise.shapes.transcript import parse_transcript
from turnwise.tokens.token_matcher import TokenMatcher
from turnwise.tokens.tokenizers import tokenizer

pytestmark = pytest.mark.once

SIZE = 100_000
OWN_SIZE = 6_000  # of texts of the pattern's own parts, in the quick run: enough for what is not linear to show
SAMPLE = 2  # classes for each pattern in the quick run
OWN_SAMPLE = 8


def make_parts() -> None:
    """Make patterns of names, tokens, quotes, tags and schemas; most makers keep what they made."""
    _make_skeleton.cache_clear()
    get_conversation_template("vicuna-7b").get_prompt()
    for known in gc.get_objects():
        if isinstance(known, ModelPattern):
            ModelPattern(known.text)._compile()
    for table in tables().values():
        for letter in [*table.first_letters, ""]:
            fresh = copy(table)
            fresh.compiled = {}
            fresh._patterns_for(letter)
    TokenMatcher(tokenizer("turnwise").added)
    _quote_style.__wrapped__('"', True)
    _tag_pattern.__wrapped__("<", ">", f"</{KEY}>")
    for negated in (True, False):
        _compile_run.__wrapped__(CharacterNode((("a", "z"), ("]", "]")), negated))


def read_sources() -> None:
    for text in ("{% if %}", "{% for %}", "{{ a b }}"):
        with pytest.raises(turnwise.TurnwiseError):
            turnwise.compile(text)
    slots = {
        f"format_{role}": [f"<{role}>\n{{{{content}}}}\n</{role}>"]
        for role in ("user", "observation")
    }
    turnwise.compile(slots, dialect="llamafactory")
    call = "<|action_start|><|plugin|>\n{}<|action_end|>"
    parse_transcript(f"<|im_start|>assistant\nHi{call}<|im_end|>").messages()
    for text in ("x cannot be read: y; z", "T1 error: there is no filter 'x' (also y)"):
        translate(text, "zh")


def read_flags() -> None:
    parse_options(["key=value"])
    split_pairs(["name: value"], "name:value", HEADER, "--header")
    split_pairs(["column=name"], *COLUMNS)


def check_headers() -> None:
    turnwise.check(turnwise.load("chatml"))


SCENES: tuple[Callable[[], None], ...] = (make_parts, read_sources, read_flags, check_headers)


@cache
def list_patterns() -> tuple[list[tuple[Site, re.Pattern[Any]]], list[str]]:
    """Return the patterns of all sites, and the sites of which none is known."""
    with record_patterns() as recorded:
        for scene in SCENES:
            scene()
    patterns: list[tuple[Site, re.Pattern[Any]]] = []
    unknown = []
    for site in find_sites():
        lines = range(site.line, site.last_line + 1)
        made = {site.pattern} if site.pattern else set()
        made = made or set().union(*(recorded.get((site.path, line), ()) for line in lines))
        patterns += [(site, pattern) for pattern in made]
        if not made:
            unknown.append(site.place)
    return patterns, unknown


def test_every_pattern_is_looked_at() -> None:
    patterns, unknown = list_patterns()
    assert len(patterns) > 180
    assert not unknown, "no scene of this file reaches " + ", ".join(unknown)


def find_slow_patterns(
    choose: Callable[[re.Pattern[Any]], list[tuple[str, str, int]]],
) -> list[str]:
    """Return what is slow of each pattern, one text of each; `choose` returns openings, units and sizes."""
    slow = []
    for site, pattern in list_patterns()[0]:
        found = (find_slowness(pattern, site.methods, *text) for text in choose(pattern))
        problem = next(filter(None, found), None)
        if problem:
            slow.append(f"{site.place}: {problem}")
    return slow


def test_patterns_take_time_in_proportion_to_the_text() -> None:
    chance = random.Random(7)

    def choose(pattern: re.Pattern[Any]) -> list[tuple[str, str, int]]:
        own = list(list_texts(pattern))
        own = chance.sample(own, min(len(own), OWN_SAMPLE))
        classes = chance.sample(CLASSES, SAMPLE)
        return [*((*text, OWN_SIZE) for text in own), *(("", unit, SIZE) for unit in classes)]

    assert not find_slow_patterns(choose)


@pytest.mark.slow
def test_patterns_take_time_in_proportion_to_any_text() -> None:
    assert not find_slow_patterns(
        lambda pattern: [
            *((*text, SIZE) for text in list_texts(pattern)),
            *(("", unit, SIZE) for unit in CLASSES),
        ]
    )
