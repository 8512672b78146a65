"""Markers that a template names in its instructions to the model, and never writes for the assistant.

    Start by writing <|START_THINKING|> followed by a detailed plan. When you finish, close it out with
    <|END_THINKING|>. ... Then write <|START_RESPONSE|> followed by a piece of text. ...

A pair of tags is two that differ in a slash, or in the words for the beginning and the end. What a pair is for is known
by its name. Plain tags around an answer (`<answer>`) may be a part of the answer, so only control tokens delimit
content.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from turnwise.analysis.prober import USER, Prober
from turnwise.analysis.segment import WHOLE_TAG
from turnwise.replies.grammar import Grammar, Marker, Region

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
    """Yield what precedes the text of a user."""
    for options in ({}, *prober.reasoning_options((True,))):
        rendering = prober.render([prober.user()], add_generation_prompt=True, **options)
        if rendering is not None:
            yield rendering.text[: max(rendering.text.rfind(USER), 0)]


def _find_pair(texts: Iterable[str], words: tuple[str, ...]) -> Region | None:
    """Return the first pair of tags with one of these words in its name."""
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
    """Yield the tags that may close this one."""
    if len(opener) > MAX_TAG_LENGTH or opener[1] == "/" or any(map(str.isspace, opener)):
        return
    for beginning, end in BEGINNINGS_AND_ENDS:
        if beginning in opener:
            yield opener.replace(beginning, end)
    yield f"{opener[0]}/{opener[1:]}"
