"""Structural tags, with xgrammar itself: `make integrations` installs it, for it needs torch."""

from __future__ import annotations

import json
from typing import Any

import pytest

import corpus
import reply_vectors as replyvectors
from corpus import needs_corpus
from loaded import load_entry
from tool_calls import TOOLS, mutants, plain_messages, valid_messages
from tool_values import (
    ACCEPTED,
    NOTATIONS,
    REFUSED,
    VALUES,
    reply_with,
    shared_definitions,
    tool_of,
)
from turnwise.replies.export.constraint_tree import MAX_REPEATED_DEFINITIONS
from turnwise.replies.write import write

pytestmark = pytest.mark.slow


@needs_corpus
def test_structural_tags() -> None:
    xgrammar = pytest.importorskip("xgrammar")
    testing = pytest.importorskip("xgrammar.testing")
    replies = wrong = 0
    for name in corpus.load_published():
        grammar = replyvectors.grammar(name)
        if grammar.calls is None:
            continue
        for choice in ("auto", "required"):
            tag = json.dumps(grammar.to_structural_tag(TOOLS, choice))
            compiled = xgrammar.Grammar.from_structural_tag(tag)
            for label, message in valid_messages(grammar).items():
                reply = write(grammar, message)
                replies += 1
                assert testing._is_grammar_accept_string(compiled, reply), (name, label)
        for message in plain_messages(grammar).values():
            assert not testing._is_grammar_accept_string(compiled, write(grammar, message)), name
        for kind, reply in mutants(grammar):
            wrong += 1
            assert not testing._is_grammar_accept_string(compiled, reply), (name, kind)
    assert replies > 1000 and wrong > 1000


def accepts(tag: Any, reply: str) -> bool:
    xgrammar = pytest.importorskip("xgrammar")
    compiled = xgrammar.Grammar.from_structural_tag(json.dumps(tag))
    return bool(xgrammar.testing._is_grammar_accept_string(compiled, reply))


@pytest.mark.parametrize("case", VALUES)
@pytest.mark.parametrize("name", NOTATIONS)
def test_values_of_structural_tags(name: str, case: str) -> None:
    schema, good, bad = VALUES[case]
    grammar = load_entry(name).grammar
    tag = grammar.to_structural_tag(tool_of({"x": schema}, {}), "required")
    for value in (*good, *bad):
        assert accepts(tag, reply_with(grammar, {"x": value})) is (value in good), value


@pytest.mark.parametrize("name", ["glm-4.5", "qwen3-coder"])
@pytest.mark.parametrize("count", [8, MAX_REPEATED_DEFINITIONS + 8])
def test_definitions_that_are_shared(count: int, name: str) -> None:
    grammar = load_entry(name).grammar
    tag = grammar.to_structural_tag(shared_definitions(count), "required", reasoning=False)
    for arguments in (*ACCEPTED, *REFUSED):
        is_accepted = accepts(tag, reply_with(grammar, arguments))
        assert is_accepted is (arguments in ACCEPTED), arguments
