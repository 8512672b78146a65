"""What models write a little differently than their templates is read the same, for the whole corpus.

A reply is written with a changed grammar and read with the true one: no white space at the edges of markers, more of
it, JSON in other spacings, no section around the calls.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import pytest

import corpus
from corpus import needs_corpus
from parsing import parse
from reply_essence import CALLED, TOOLS, essence, id_of
from reply_messages import UNREADABLE
from reply_vectors import template
from turnwise.replies.grammar import Grammar
from turnwise.replies.grammar_parts import Marker, RawCall, Region, Spacing
from turnwise.replies.write import write

Change = Callable[[Any], Any]


def replace_all(value: Any, kind: type, change: Change) -> Any:
    """The same data with another one for everything of this kind."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, tuple):
        return tuple(replace_all(one, kind, change) for one in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (one.name for one in dataclasses.fields(value))
        return dataclasses.replace(
            value, **{name: replace_all(getattr(value, name), kind, change) for name in fields}
        )
    return value


def tight(marker: Marker) -> Marker:
    return Marker(marker.core) if marker.core else marker


def wide(marker: Marker) -> Marker:
    return Marker(f"\n{marker.text}\n") if "<" in marker.core else marker


def drop_section(grammar: Grammar) -> Grammar:
    assert grammar.calls is not None
    if not grammar.calls.section.open.core or not grammar.calls.each.open.core:
        return grammar
    return dataclasses.replace(grammar, calls=dataclasses.replace(grammar.calls, section=Region()))


CHANGES: dict[str, Callable[[Grammar], Grammar]] = {
    "no white space at the edges of markers": lambda grammar: replace_all(grammar, Marker, tight),
    "more of it": lambda grammar: replace_all(grammar, Marker, wide),
    "JSON without white space": lambda grammar: replace_all(
        grammar, Spacing, lambda _: Spacing(",", ":")
    ),
    "JSON in lines": lambda grammar: replace_all(
        grammar, Spacing, lambda _: Spacing(", ", ": ", 4)
    ),
    "no section": drop_section,
}


def message(grammar: Grammar, count: int, content: str = "") -> dict[str, Any]:
    arguments: tuple[dict[str, Any], ...] = (
        {"city": "Oslo or so", "days": 3, "deep": {"a": [1, 2]}},
        {},
    )
    calls = [
        {
            "id": id_of(grammar, name, at),
            "type": "function",
            "function": {"name": name, "arguments": given},
        }
        for at, (name, given) in enumerate(zip(CALLED[:count], arguments, strict=False))
    ]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def strip_texts(value: Any) -> Any:
    """White space around a text is part of it where texts have no quotes: more of it is more text."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, dict):
        return {key: strip_texts(one) for key, one in value.items()}
    return type(value)(map(strip_texts, value)) if isinstance(value, (list, tuple)) else value


def keep_calling(names: Iterable[str]) -> list[str]:
    """Keep the templates whose replies have calls that can be read."""
    calls = {name: template(name).grammar.calls for name in names if name not in UNREADABLE}
    return [
        name
        for name, found in calls.items()
        if found is not None and not isinstance(found.call, RawCall)
    ]


@needs_corpus
@pytest.mark.law
@pytest.mark.parametrize("change", CHANGES)
def test_written_a_little_differently(change: str, sample: Any) -> None:
    asked = 0
    taken = sample(sorted(corpus.load_published()), 20)
    for name in keep_calling(taken):
        grammar = template(name).grammar
        assert grammar.calls is not None
        content = "" if grammar.calls.excludes_content else "So it is."
        for meant in (message(grammar, 1), message(grammar, 2), message(grammar, 1, content)):
            expected = essence(parse(grammar, write(grammar, meant), tools=TOOLS))
            reply = write(CHANGES[change](grammar), meant)
            found = essence(parse(grammar, reply, tools=TOOLS))
            assert strip_texts(found[::2]) == strip_texts(expected[::2]), (name, reply)
            asked += 1
    assert asked > (300 if len(taken) == len(corpus.load_published()) else 3)
