"""Structural tags, with xgrammar itself: `make integrations` installs it, for it needs torch."""

from __future__ import annotations

import json

import pytest

import corpus
import reply_vectors as replyvectors
from corpus import needs_corpus
from tool_calls import TOOLS, mutants, plain_messages, valid_messages
from turnwise.replies.write import write

pytestmark = [needs_corpus, pytest.mark.slow]


def test_structural_tags() -> None:
    xgrammar = pytest.importorskip("xgrammar")
    testing = pytest.importorskip("xgrammar.testing")
    replies = wrong = 0
    for name in corpus.published():
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
