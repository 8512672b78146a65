"""A message written with nothing but the markers of a grammar: what `derive` must have understood to be right.

It is kept apart from the package's own writer, so that one can be held against the other. Where there is no reasoning
or no content beside calls, a template may write their empty markers or leave them out; both are tried.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

from turnwise.replies.grammar import (
    KEY,
    Calls,
    Grammar,
    JsonCall,
    Pairs,
    Region,
    Spacing,
    TaggedCall,
)

Call = tuple[str, dict[str, Any], str]  # name, arguments, id


def rewritten(
    grammar: Grammar,
    content: str | None = None,
    reasoning: str | None = None,
    calls: tuple[Call, ...] = (),
) -> Iterator[str]:
    """The ways in which the grammar writes this message."""
    first = ["", grammar.empty] if reasoning is None else [around(thinking(grammar), reasoning)]
    empty = grammar.content.open.text + grammar.content.close.text
    second = [around(grammar.content, content)] if content is not None else ["", empty]
    third = [section(grammar, calls)] if calls else [""]
    for thought, text_part, called in itertools.product(
        dict.fromkeys(first), dict.fromkeys(second), third
    ):
        lead = grammar.calls.lead.text if grammar.calls and content and called else ""
        order = (
            [thought, called, text_part]
            if grammar.calls and grammar.calls.content_after
            else [thought, text_part + lead, called]
        )
        yield starts(grammar).join(region for region in order if region)


def thinking(grammar: Grammar) -> Region:
    assert grammar.reasoning is not None
    return grammar.reasoning


def starts(grammar: Grammar) -> str:
    return grammar.starts[0] if grammar.starts else ""


def around(region: Region, text: str) -> str:
    return region.open.text + text + region.close.text


def section(grammar: Grammar, calls: tuple[Call, ...]) -> str:
    layout = grammar.calls
    assert layout is not None
    written = [one(layout, call, number) for number, call in enumerate(calls, layout.first)]
    if isinstance(layout.call, JsonCall) and layout.call.listed:
        opens, between, closes = layout.call.around
        return around(layout.section, opens + between.join(written) + closes)
    separator = layout.between.text + starts(grammar)
    return around(layout.section, separator.join(around(layout.each, call) for call in written))


def one(layout: Calls, call: Call, number: int) -> str:
    name, arguments, identity = call
    slots = {
        "name": name,
        "id": identity,
        "index": str(number),
        "arguments": written_arguments(layout.call, arguments),
    }
    return "".join(
        slots[part] if isinstance(part, str) else part.text for part in layout.call.parts
    )


def written_arguments(call: JsonCall | TaggedCall, arguments: dict[str, Any]) -> str:
    if isinstance(call, TaggedCall) and call.pairs is not None:
        return call.pairs.between.text.join(
            pair(call.pairs, key, value) for key, value in arguments.items()
        )
    text = dump(arguments, call.spacing)
    return (
        json.dumps(text, ensure_ascii=False)
        if isinstance(call, JsonCall) and call.as_text
        else text
    )


def dump(value: Any, spacing: Spacing) -> str:
    item = spacing.item.rstrip() if spacing.indent else spacing.item
    text = json.dumps(
        value, ensure_ascii=False, indent=spacing.indent, separators=(item, spacing.key)
    )
    return text.replace("\n", "\n" + " " * spacing.depth)


KINDS = {
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
    list: "array",
    dict: "object",
}


def pair(pairs: Pairs, key: str, value: Any) -> str:
    if isinstance(value, str):
        region, text = pairs.string, literal(value, pairs.strings)
    else:
        region = dict(pairs.typed).get(KINDS[type(value)], pairs.other)
        scalar = isinstance(value, bool) or value is None
        text = other(value, pairs, pairs.scalars if scalar else pairs.values)
    return pairs.key.text + key + around(region, text).replace(KEY, key)


def literal(text: str, language: str) -> str:
    return {"raw": str, "json": lambda text: json.dumps(text, ensure_ascii=False), "python": repr}[
        language
    ](text)


def other(value: Any, pairs: Pairs, language: str) -> str:
    if language == "quoted":
        return quote(value, pairs.string.close.text)
    return repr(value) if language == "python" else json.dumps(value, ensure_ascii=False)


def quote(value: Any, mark: str) -> str:
    """Gemma's way: bare keys, texts between marks."""
    if isinstance(value, str):
        return mark + value + mark
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{quote(item, mark)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(quote(item, mark) for item in value) + "]"
    return json.dumps(value)
