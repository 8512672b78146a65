"""What no grammar may hold: a word of a probe, or more text than anybody writes.

A marker with a word of a probe in it was cut in the wrong place: the template wrote a field twice, or changed it. A
marker of thousands of characters is no marker, and whoever waits for it waits long: the texts that are watched for cost
the square of their length. Such a part is dropped, and named. The bounds are about four times (one marker: three times)
what the longest of 265 published templates needs, so a template that needs more is refused wrongly.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from turnwise.analysis.prober import ARGUMENTS, WORDS
from turnwise.replies.grammar import Grammar
from turnwise.replies.parser.marker_text import collect_texts

LONGEST = 1_000  # characters of one marker
LEAD = 70  # white space before a marker, or instead of one
ALL = 4_000  # characters of all texts of a grammar

SEVERAL = ("more", "stops", "starts")
PARTS = ("opening", "reopening", "reasoning", "content", "calls", "empty", *SEVERAL)
FIELDS = (*WORDS, *(str(word) for given in ARGUMENTS for pair in given.items() for word in pair))
HELD = "a marker holds a part of the message, so the layout was not understood"
LONG = "a marker is longer than markers are, so the layout was not understood"
REFUSED = (
    "content, reasoning, calls: the markers are longer than those of any template that is known"
)


def fault(part: Any) -> str | None:
    """Why this part of a grammar cannot be right; None if it may be."""
    texts = collect_texts(part)
    if any(word.lower() in text.lower() for text in texts for word in FIELDS):
        return HELD
    return LONG if any(len(text) > LONGEST or lead(text) > LEAD for text in texts) else None


def lead(text: str) -> int:
    return len(text) - len(text.lstrip())


def fitting(grammar: Grammar) -> Grammar:
    """The grammar without what cannot be right, which is named."""
    kept: dict[str, Any] = {}
    notes: dict[str, None] = {}
    for part in PARTS:
        value = getattr(grammar, part)
        faults = [fault(one) for one in value] if part in SEVERAL else [fault(value)]
        notes.update({f"{part}: {found}": None for found in faults if found})
        if part in SEVERAL:
            kept[part] = tuple(one for one, found in zip(value, faults, strict=True) if not found)
        elif faults[0]:
            kept[part] = getattr(Grammar(), part)
    sources = {part: source for part, source in grammar.sources.items() if part not in kept}
    found = replace(grammar, **kept, sources=sources, unreached=(*grammar.unreached, *notes))
    size = sum(len(text) for part in PARTS for text in collect_texts(getattr(found, part)))
    return found if size <= ALL else Grammar(unreached=(REFUSED,))
