"""The eight invariants of reply parsers (`reply_invariants.py`) hold for every template with calls or reasoning."""

from __future__ import annotations

import pytest

import corpus
import reply_invariants
import turnwise
from corpus import needs_corpus
from loaded import load_entry
from published_templates import grammar_of
from reply_invariants import EXCEPTIONS, INVARIANTS, REPLIES, judge
from turnwise.errors import TurnwiseError
from turnwise.replies.grammar import Grammar

SAMPLED = 40  # replies of each grammar in the quick run
ENTRIES = sorted(turnwise.entries().keys() - EXCEPTIONS.keys())


@pytest.fixture
def replies(request: pytest.FixtureRequest) -> int:
    return REPLIES if request.config.getoption("--laws") else SAMPLED


def hold(grammar: Grammar, count: int) -> None:
    if grammar.calls is None and grammar.reasoning is None:
        return
    verdict = judge(grammar, 1, count)
    assert verdict.broken == []
    assert {"chunk invariance", "coalescing", "recovery", "bounds"} <= set(verdict.asked)


@pytest.mark.law
@needs_corpus
@pytest.mark.parametrize("name", sorted(corpus.load_published()))
def test_templates_of_the_corpus(name: str, replies: int) -> None:
    hold(grammar_of(name), replies)


@pytest.mark.law
@pytest.mark.parametrize("name", ENTRIES)
def test_entries(name: str, replies: int) -> None:
    try:
        grammar = load_entry(name).grammar
    except TurnwiseError:
        return  # it needs what is not here
    hold(grammar, replies)


def test_each_invariant_is_asked_of_a_grammar_with_everything() -> None:
    verdict = judge(load_entry("qwen3").grammar, 1)
    assert set(verdict.asked) == set(INVARIANTS)
    kinds = [case.kind for case in reply_invariants.make_cases(load_entry("qwen3").grammar, 1)]
    assert len(reply_invariants.BREAKS) == 20 and set(kinds) == {"whole", "cut", "broken"}
