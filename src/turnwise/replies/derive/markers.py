"""Markers of a derived grammar: made of segments, checked, and found in a template's instructions to the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from turnwise.analysis.prober import ARGUMENTS, SENTINELS, USER, Prober
from turnwise.analysis.segment import WHOLE_TAG, Segment, leading_space
from turnwise.replies.grammar import Grammar
from turnwise.replies.grammar_parts import Marker, Region
from turnwise.replies.parser.markers import collect_texts

# ---- segment markers ----
#
# Segments of a probe become markers of a grammar.


def to_marker(segment: Segment) -> Marker:
    """Return the text as a marker; its origin is that of its first character that is not white space."""
    if not segment.text:
        return Marker()
    first = leading_space(segment.text) if segment.core else 0
    return Marker(segment.text, str(segment.origin_at(first)))


def to_region(opener: Segment, closer: Segment) -> Region:
    """Return two segments as the markers of a region."""
    return Region(to_marker(opener), to_marker(closer))


# ---- validate ----
#
# Sanity limits of a derived grammar: no sentinel of a probe inside a marker, and bounded lengths.
#
# A marker with a sentinel in it was cut in the wrong place: the template wrote a field twice, or changed it. A marker
# of thousands of characters is no marker, and it would make parsing slow: matching costs the square of the length.
# Such a part is dropped, and noted. The bounds are about four times (one marker: three times) what the longest of 265
# published templates needs; a template that needs more is refused wrongly.


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


# ---- named ----
#
# Markers that a template names in its instructions to the model, and never writes for the assistant.
#
#     Start by writing <|START_THINKING|> followed by a detailed plan. When you finish, close it out with
#     <|END_THINKING|>. ... Then write <|START_RESPONSE|> followed by a piece of text. ...
#
# A pair of tags is two that differ in a slash, or in the words for the beginning and the end. What a pair is for is
# known by its name. Plain tags around an answer (`<answer>`) may be a part of the answer, so only control tokens
# delimit content.


NAMED = "named"
MAX_TAG_LENGTH = 64
REASONING_WORDS = ("think", "thought", "reason")
CONTENT_WORDS = ("response", "answer")
OTHER_WORDS = ("tool", "function", "result")  # of pairs around something else: `<tool_response>`
BEGINNINGS_AND_ENDS = (
    ("START", "END"),
    ("start", "end"),
    ("BEGIN", "END"),
    ("begin", "end"),
    ("open", "close"),
)


def add_named_markers(grammar: Grammar, prober: Prober) -> Grammar:
    """Return the grammar with the markers of reasoning and content that only the instructions show."""
    needs_content = not grammar.content.open.core and not grammar.content.close.core
    if grammar.reasoning is not None and not needs_content:
        return grammar
    instructions = list(_instructions(prober))
    sources = dict(grammar.sources)
    if grammar.reasoning is None:
        region = _find_pair(instructions, REASONING_WORDS)
        if region is not None:
            sources["reasoning"] = "named"
            unreached = [note for note in grammar.unreached if not note.startswith("reasoning:")]
            grammar = replace(
                grammar, reasoning=region, unreached=tuple(unreached), sources=sources
            )
    if needs_content:
        region = _find_pair(instructions, CONTENT_WORDS)
        if region is not None and region.open.text.startswith("<|"):
            sources["content"] = "named"
            grammar = replace(grammar, content=region, sources=sources)
    return grammar


def _instructions(prober: Prober) -> Iterator[str]:
    for options in ({}, *prober.reasoning_options((True,))):
        rendering = prober.render([prober.user()], add_generation_prompt=True, **options)
        if rendering is not None:
            yield rendering.text[: max(rendering.text.rfind(USER), 0)]


def _find_pair(texts: Iterable[str], words: tuple[str, ...]) -> Region | None:
    for text in texts:
        for match in WHOLE_TAG.finditer(text):
            opener = match.group()
            name = opener.lower()
            is_named = any(word in name for word in words)
            if not is_named or any(word in name for word in OTHER_WORDS):
                continue
            for closer in _closers(opener):
                if text.find(closer, match.end()) > match.end():
                    return Region(Marker(opener, NAMED), Marker(closer, NAMED))
    return None


def _closers(opener: str) -> Iterator[str]:
    if len(opener) > MAX_TAG_LENGTH or opener[1] == "/" or any(map(str.isspace, opener)):
        return
    for beginning, end in BEGINNINGS_AND_ENDS:
        if beginning in opener:
            yield opener.replace(beginning, end)
    yield f"{opener[0]}/{opener[1:]}"
