"""Declarations: what a template never shows, in a few lines of data.

    [replies]
    reasoning = ["<think>", "</think>"]          # before and behind
    stops     = ["<|im_end|>"]
    instead   = ["reasoning"]                    # parts that knowingly replace what was derived

    [[replies.calls]]                            # once for every way in which calls are written
    section = ["<|tool_call_start|>[", "]<|tool_call_end|>"]
    each    = ["", ")"]
    between = ", "
    parts   = ["{name}", "(", "{arguments}"]     # or: json = {arguments = "parameters"}, or: raw = {name = "python"}
    pairs   = { string = ["=", ""], other = ["=", ""], between = ", ", values = "python", strings = "python" }

    [[replies.more]]                             # ways besides those that the template shows, in the same words

A declaration is checked against what was derived from the template: where both speak of a part and disagree, that is
an error, unless the part is named in `instead`.

The rules are a table (`RULES`): the type of each value, and which values make sense together. They cannot know
whether a model really writes that way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from typing import Any

from turnwise.errors import SourceError, did_you_mean, short_repr
from turnwise.replies.grammar import (
    Calls,
    Grammar,
    JsonCall,
    Marker,
    Pairs,
    RawCall,
    Region,
    Source,
    Spacing,
    TaggedCall,
)

DECLARATION_KEYS = ("reasoning", "content", "calls", "more", "stops", "starts", "instead")
CALLS = ("section", "each", "between", "lead", "first", "parts", "pairs", "json", "raw")
DECLARED = "declared"


def parse_declaration(data: Mapping[str, Any], where: str = "replies") -> Grammar:
    """The parts of a grammar that a declaration states; the others are empty."""
    known(mapping(data, where), DECLARATION_KEYS, where)
    ways = declared_ways(data, "calls", where)
    sources: dict[str, Source] = {
        key: "declared" for key in DECLARATION_KEYS if key in data and key != "instead"
    }
    return Grammar(
        reasoning=thoughts(data["reasoning"], f"{where}.reasoning")
        if "reasoning" in data
        else None,
        content=region(data.get("content", ["", ""]), f"{where}.content"),
        calls=ways[0] if ways else None,
        more=(*ways[1:], *declared_ways(data, "more", where)),
        stops=words(data.get("stops", []), f"{where}.stops"),
        starts=words(data.get("starts", []), f"{where}.starts"),
        sources=sources,
    )


def declared_ways(data: Mapping[str, Any], key: str, where: str) -> list[Calls]:
    """All tables under this key, one for every way in which calls are written."""
    calls = data.get(key, [])
    if isinstance(calls, Mapping):
        calls = [calls]
    return [
        declared_calls(table, f"{where}.{key}")
        for table in validate("tables", calls, f"{where}.{key}")
    ]


def declared_calls(data: Any, where: str) -> Calls:
    known(mapping(data, where), CALLS, where)
    readers = {
        "section": region,
        "each": region,
        "between": marker,
        "lead": marker,
        "first": number,
    }
    given: dict[str, Any] = {
        name: reader(data[name], f"{where}.{name}")
        for name, reader in readers.items()
        if name in data
    }
    calls = Calls(declared_call(data, where), **given)
    validate("calls", data, where, calls)
    return calls


def declared_call(data: Mapping[str, Any], where: str) -> JsonCall | TaggedCall | RawCall:
    layouts = [name for name in LAYOUTS if name in data]
    if len(layouts) != 1:
        raise SourceError(
            f"{where} says {' and '.join(layouts) or 'nothing'} of how a call is written",
            hint=ONE_OF,
        )
    validate("layout", data, where)
    return LAYOUTS[layouts[0]](data, where)


def declared_json(data: Mapping[str, Any], where: str) -> JsonCall:
    call: JsonCall = made(JsonCall, data["json"], f"{where}.json")
    validate("json", data["json"], f"{where}.json", call)
    return with_parts(call)


def declared_raw(data: Mapping[str, Any], where: str) -> RawCall:
    call: RawCall = made(RawCall, data["raw"], f"{where}.raw")
    return call


def declared_parts(data: Mapping[str, Any], where: str) -> TaggedCall:
    given = words(data["parts"], f"{where}.parts")
    known([part for part in given if SLOT.fullmatch(part)], SLOTTED, f"{where}.parts")
    validate("name", data["parts"], f"{where}.parts")
    validate("slots", data["parts"], f"{where}.parts")
    parts = tuple(part[1:-1] if part in SLOTTED else Marker(part, DECLARED) for part in given)
    return TaggedCall(
        parts, declared_pairs(data["pairs"], f"{where}.pairs") if "pairs" in data else None
    )


LAYOUTS: Mapping[str, Callable[[Mapping[str, Any], str], JsonCall | TaggedCall | RawCall]] = {
    "json": declared_json,
    "parts": declared_parts,
    "raw": declared_raw,
}


def with_parts(call: JsonCall) -> JsonCall:
    """The object as it is written where nothing else is known."""
    if call.name is None:
        texts: tuple[Marker | str, ...] = ('{"', "name", '": ', "arguments", "}")
    else:
        texts = (f'{{"{call.name}": "', "name", f'", "{call.arguments}": ', "arguments", "}")
    slots = ("name", "arguments")
    return replace(
        call, parts=tuple(text if text in slots else Marker(str(text), DECLARED) for text in texts)
    )


ONE_OF = "Say one of: json, parts, raw."
SLOTTED = ("{name}", "{id}", "{index}", "{arguments}")
SLOT = re.compile(r"\{\w+\}")
LANGUAGES = {
    "values": ("json", "python", "quoted", "tags"),
    "scalars": ("json", "python"),
    "strings": ("raw", "json", "python"),
}


def declared_pairs(data: Any, where: str) -> Pairs:
    pairs: Pairs = made(Pairs, data, where)
    for name, languages in LANGUAGES.items():
        known([getattr(pairs, name)], languages, f"{where}.{name}")
    return pairs


def made(kind: Any, data: Any, where: str) -> Any:
    """A part of the grammar from a table of its fields; a field of a type that nobody can declare is unknown."""
    table = mapping(data, where)
    types = {item.name: str(item.type) for item in fields(kind)}
    readers = {
        name: READERS[type.removesuffix(NULL)]
        for name, type in types.items()
        if type.removesuffix(NULL) in READERS
    }
    known(table, list(readers), where)
    given = {
        key: None
        if value is None and types[key].endswith(NULL)
        else readers[key](value, f"{where}.{key}")
        for key, value in table.items()
    }
    try:
        return kind(**given)
    except TypeError as error:
        raise SourceError(f"{where} does not say enough: {short_repr(dict(table))}") from error


NULL = " | None"


# What is due


def are_texts(data: Any) -> bool:
    return isinstance(data, list) and all(isinstance(item, str) for item in data)


def slots(parts: list[str]) -> list[str]:
    return [part for part in parts if part in SLOTTED]


def keys(call: JsonCall) -> list[str]:
    return [key for key in (call.name, call.arguments, call.id) if key is not None]


def opened(calls: Calls) -> bool:
    return bool(calls.section.open.core or calls.each.open.core)


RULES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "table": (lambda data: isinstance(data, Mapping), "It must be a table."),
    "tables": (lambda data: isinstance(data, list), "It must be a table, or a list of tables."),
    "text": (lambda data: isinstance(data, str), "It must be a text."),
    "word": (
        lambda data: isinstance(data, str) and data != "",
        "It must be a text that is not empty.",
    ),
    "truth": (lambda data: isinstance(data, bool), "It must be true or false."),
    "number": (lambda data: type(data) is int and data >= 0, "It must be a number from 0 on."),
    "texts": (are_texts, "It must be a list of texts."),
    "words": (lambda data: "" not in data, "None of the texts may be empty."),
    "pair": (lambda data: len(data) == 2, "It must be two texts: before and behind."),
    "triple": (lambda data: len(data) == 3, "It must be three texts: before, between and behind."),
    "marked": (
        lambda data: any(text.strip() for text in data),
        "At least one of the two must be a marker.",
    ),
    "name": (lambda parts: "{name}" in parts, "It must say where {name} stands."),
    "slots": (
        lambda parts: len(slots(parts)) == len(set(slots(parts))),
        "Each slot must stand there once.",
    ),
    "json": (
        lambda call: len(keys(call)) == len(set(keys(call))),
        "Name, arguments and id must have different keys.",
    ),
    "layout": (
        lambda data: "parts" in data or "pairs" not in data,
        "There are pairs only beside parts.",
    ),
    "calls": (
        lambda calls: opened(calls) or not isinstance(calls.call, RawCall),
        "A text is a call only behind a marker: say each or section.",
    ),
}
"""What holds of each value, and what is said where it does not."""


def validate(what: str, data: Any, where: str, read: Any = None) -> Any:
    """The data, if what is due holds of it, or of what was read from it."""
    holds, hint = RULES[what]
    if not holds(data if read is None else read):
        raise SourceError(f"{where} is {short_repr(data)}", hint=hint)
    return data


def mapping(data: Any, where: str) -> Mapping[str, Any]:
    table: Mapping[str, Any] = validate("table", data, where)
    return table


def known(data: Any, keys: Any, where: str) -> None:
    for key in data if isinstance(data, list | tuple) else mapping(data, where):
        if key not in keys:
            what = "unknown key " if isinstance(data, Mapping) else "there is no "
            raise SourceError(
                f"{where}: {what}{short_repr(key)}", hint=did_you_mean(str(key), keys, "There are")
            )


def texts(data: Any, where: str) -> tuple[str, ...]:
    return tuple(validate("texts", data, where))


def words(data: Any, where: str) -> tuple[str, ...]:
    found = texts(data, where)
    validate("words", data, where)
    return found


def triple(data: Any, where: str) -> tuple[str, ...]:
    found = texts(data, where)
    validate("triple", data, where)
    return found


def region(data: Any, where: str) -> Region:
    pair = texts(data, where)
    validate("pair", data, where)
    return Region(marker(pair[0], where), marker(pair[1], where))


def thoughts(data: Any, where: str) -> Region:
    found = region(data, where)
    validate("marked", data, where)
    return found


def marker(data: Any, where: str) -> Marker:
    text = validate("text", data, where)
    return Marker(text, DECLARED) if text else Marker()


def number(data: Any, where: str) -> int:
    found: int = validate("number", data, where)
    return found


def typed(data: Any, where: str) -> tuple[tuple[str, Region], ...]:
    return tuple(
        (kind, region(around, f"{where}.{kind}")) for kind, around in mapping(data, where).items()
    )


READERS: Mapping[str, Callable[[Any, str], Any]] = {
    "str": partial(validate, "word"),
    "bool": partial(validate, "truth"),
    "int": number,
    "Marker": marker,
    "Region": region,
    "Spacing": lambda data, where: made(Spacing, data, where),
    "tuple[str, str, str]": triple,
    "tuple[tuple[str, Region], ...]": typed,
}
"""How a field of a part is read, by its type."""


def merge_declaration(derived: Grammar, data: Mapping[str, Any], where: str = "replies") -> Grammar:
    """The derived grammar with what a declaration adds to it."""
    stated = parse_declaration(data, where)
    instead = texts(data.get("instead", []), f"{where}.instead")
    known(instead, DECLARATION_KEYS[:3], f"{where}.instead")
    given: dict[str, Any] = {}
    for name in ("reasoning", "content", "calls"):
        if name not in stated.sources:
            continue
        given[name] = part = getattr(stated, name)
        own = getattr(derived, name)
        if (
            name not in instead
            and derived.sources.get(name) == "derived"
            and said(own) != said(part)
        ):
            raise SourceError(
                f"{where}.{name} contradicts the template: it says {said(part)}, and the template writes {said(own)}",
                hint=f"To replace what the template writes, say instead = [{name!r}].",
            )
        if name not in instead and derived.sources.get(name) == "derived":
            given[name] = own  # it knows more: where each marker came from
    ways = given.get("calls") or derived.calls
    known_ways = {said(way) for way in (ways, *derived.more)}
    more = tuple(way for way in stated.more if said(way) not in known_ways)
    if ways is None and more:  # the first of them is the way
        given["calls"], more = more[0], more[1:]
    resolved = tuple(what for what in derived.unreached if what.partition(":")[0] not in given)
    sources: dict[str, Source] = {
        name: "declared" for name in stated.sources if given.get(name) is not None
    }
    return replace(
        derived,
        **given,
        more=(*derived.more, *more),
        stops=tuple(dict.fromkeys((*derived.stops, *stated.stops))),
        starts=tuple(dict.fromkeys((*derived.starts, *stated.starts))),
        unreached=resolved,
        sources={**derived.sources, **sources},
    )


def said(part: Region | Calls | None) -> str:
    """What a part says, in the words that two grammars must agree in: its markers without their white space."""
    if part is None:
        return "nothing"
    if isinstance(part, Region):
        return f"{part.open.core!r} ... {part.close.core!r}"
    return " ".join(
        [
            *(
                f"{around.open.core!r} ... {around.close.core!r}"
                for around in (part.section, part.each)
            ),
            layout(part.call),
        ]
    )


def layout(call: JsonCall | TaggedCall | RawCall) -> str:
    if isinstance(call, JsonCall):
        return f"JSON {'list ' if call.listed else ''}with {call.name} and {call.arguments}"
    if isinstance(call, RawCall):
        return f"the text of {call.name}"
    return " ".join(part if isinstance(part, str) else repr(part.core) for part in call.parts)
