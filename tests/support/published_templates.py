"""The templates of the corpus, compiled, and their grammars: each made once for all tests of a process.

`corpus.py` reads the files; this module compiles. A template has the bos and eos of its golden rows.
"""

from __future__ import annotations

from functools import cache

import corpus
import turnwise
from turnwise.replies.derive import derive
from turnwise.replies.grammar import Grammar


def compile_published(name: str) -> turnwise.Template:
    """Compile a published template anew."""
    published = corpus.load_published()[name]
    return turnwise.compile(published.text, options=dict(published.options))


template_of = cache(compile_published)
"""Return a published template; what is derived from it is kept with it."""


def grammar_of(name: str) -> Grammar:
    """Return the grammar of a published template: derived, and completed by declarations."""
    return template_of(name).grammar


@cache
def derived_grammar_of(name: str) -> Grammar:
    """Return the grammar as it is derived from the template, without declarations."""
    return derive(template_of(name).facts)
