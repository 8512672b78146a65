"""Sanity limits of a derived grammar: no sentinel of a probe inside a marker, and bounded lengths.

A marker with a sentinel in it was cut in the wrong place: the template wrote a field twice, or changed it. A marker of
thousands of characters is no marker, and it would make parsing slow: matching costs the square of the length. Such a
part is dropped, and noted. The bounds are about four times (one marker: three times) what the longest of 265 published
templates needs; a template that needs more is refused wrongly.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from turnwise.analysis.prober import ARGUMENTS, SENTINELS
from turnwise.analysis.segment import leading_space
from turnwise.replies.grammar import Grammar
from turnwise.replies.parser.marker_text import collect_texts

MAX_MARKER_LENGTH = 1_000
MAX_LEADING_SPACE = 70  # white space before a marker, or instead of one
MAX_GRAMMAR_LENGTH = 4_000  # characters of all texts of a grammar

LIST_PARTS = ("more", "stops", "starts")
GRAMMAR_PARTS = ("opening", "reopening", "reasoning", "content", "calls", "empty", *LIST_PARTS)
PROBE_WORDS = (
    *SENTINELS,
    *(str(word) for arguments in ARGUMENTS for pair in arguments.items() for word in pair),
)
HOLDS_FIELD = "a marker holds a part of the message, so the layout was not understood"
TOO_LONG = "a marker is longer than markers are, so the layout was not understood"
ALL_TOO_LONG = (
    "content, reasoning, calls: the markers are longer than those of any template that is known"
)


def find_problem(part: Any) -> str | None:
    """Return why this part of a grammar cannot be right; None if it may be."""
    texts = collect_texts(part)
    if any(word.lower() in text.lower() for text in texts for word in PROBE_WORDS):
        return HOLDS_FIELD
    for text in texts:
        if len(text) > MAX_MARKER_LENGTH or leading_space(text) > MAX_LEADING_SPACE:
            return TOO_LONG
    return None


def drop_invalid(grammar: Grammar) -> Grammar:
    """Return the grammar without the parts that cannot be right, which are noted."""
    changes: dict[str, Any] = {}
    notes: dict[str, None] = {}
    sources = dict(grammar.sources)
    for name in GRAMMAR_PARTS:
        part = getattr(grammar, name)
        values = part if name in LIST_PARTS else (part,)
        problems = [find_problem(value) for value in values]
        notes.update({f"{name}: {problem}": None for problem in problems if problem})
        if name in LIST_PARTS:
            pairs = zip(values, problems, strict=True)
            changes[name] = tuple(value for value, problem in pairs if not problem)
        elif problems[0]:
            changes[name] = getattr(Grammar(), name)
            sources.pop(name, None)
    unreached = (*grammar.unreached, *notes)
    valid = replace(grammar, **changes, sources=sources, unreached=unreached)
    length = sum(
        len(text) for name in GRAMMAR_PARTS for text in collect_texts(getattr(valid, name))
    )
    return valid if length <= MAX_GRAMMAR_LENGTH else Grammar(unreached=(ALL_TOO_LONG,))
