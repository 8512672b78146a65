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
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from turnwise.errors import SourceError, shown, suggestion
from turnwise.replies.grammar import Calls, Grammar, JsonCall, Marker, Pairs, RawCall, Region, Source, TaggedCall

KEYS = ("reasoning", "content", "calls", "more", "stops", "starts", "instead")
CALLS = ("section", "each", "between", "lead", "first", "parts", "pairs", "json", "raw")
REGIONS = ("string", "other", "wrap")
DECLARED = "declared"

COMPLETE: list[Callable[[Any, Grammar], Grammar]] = []
"""Who knows declarations adds itself here: a template and its derived grammar become the completed one."""


def declared(data: Mapping[str, Any], where: str = "replies") -> Grammar:
    """The parts of a grammar that a declaration states; the others are empty."""
    known(data, KEYS, where)
    ways = declared_ways(data, "calls", where)
    sources: dict[str, Source] = {key: "declared" for key in KEYS if key in data and key != "instead"}
    return Grammar(
        reasoning=region(data["reasoning"], f"{where}.reasoning") if "reasoning" in data else None,
        content=region(data.get("content", ["", ""]), f"{where}.content"),
        calls=ways[0] if ways else None,
        more=(*ways[1:], *declared_ways(data, "more", where)),
        stops=texts(data.get("stops", []), f"{where}.stops"),
        starts=texts(data.get("starts", []), f"{where}.starts"),
        sources=sources,
    )


def declared_ways(data: Mapping[str, Any], key: str, where: str) -> list[Calls]:
    """All tables under this key, one for every way in which calls are written."""
    calls = data.get(key, [])
    if isinstance(calls, Mapping):
        calls = [calls]
    if not isinstance(calls, list):
        raise SourceError(f"{where}.{key} is {shown(calls)}", hint="It must be a table, or a list of tables.")
    return [declared_calls(table, f"{where}.{key}") for table in calls]


def declared_calls(data: Any, where: str) -> Calls:
    known(data, CALLS, where)
    given: dict[str, Any] = {
        name: region(data[name], f"{where}.{name}") for name in ("section", "each") if name in data
    }
    given |= {name: marker(data[name], f"{where}.{name}") for name in ("between", "lead") if name in data}
    given |= {name: number(data[name], f"{where}.{name}") for name in ("first",) if name in data}
    return Calls(declared_call(data, where), **given)


def declared_call(data: Mapping[str, Any], where: str) -> JsonCall | TaggedCall | RawCall:
    layouts = [name for name in ("json", "parts", "raw") if name in data]
    if len(layouts) != 1:
        raise SourceError(f"{where} says {' and '.join(layouts) or 'nothing'} of how a call is written", hint=ONE_OF)
    if "json" in data:
        return with_parts(made(JsonCall, data["json"], f"{where}.json"))
    if "raw" in data:
        raw: RawCall = made(RawCall, data["raw"], f"{where}.raw")
        return raw
    given = texts(data["parts"], f"{where}.parts")
    known([part for part in given if SLOT.fullmatch(part)], SLOTTED, f"{where}.parts")
    if SLOTTED[0] not in given:
        raise SourceError(f"{where}.parts is {shown(list(given))}", hint=f"It must say where {SLOTTED[0]} stands.")
    parts = tuple(part[1:-1] if part in SLOTTED else Marker(part, DECLARED) for part in given)
    return TaggedCall(parts, declared_pairs(data["pairs"], f"{where}.pairs") if "pairs" in data else None)


def with_parts(call: JsonCall) -> JsonCall:
    """The object as it is written where nothing else is known."""
    if call.name is None:
        texts: tuple[Marker | str, ...] = ('{"', "name", '": ', "arguments", "}")
    else:
        texts = (f'{{"{call.name}": "', "name", f'", "{call.arguments}": ', "arguments", "}")
    slots = ("name", "arguments")
    return replace(call, parts=tuple(text if text in slots else Marker(str(text), DECLARED) for text in texts))


ONE_OF = "Say one of: json, parts, raw."
SLOTTED = ("{name}", "{id}", "{index}", "{arguments}")
SLOT = re.compile(r"\{\w+\}")
LANGUAGES = {
    "values": ("json", "python", "quoted", "tags"),
    "scalars": ("json", "python"),
    "strings": ("raw", "json", "python"),
}


def declared_pairs(data: Any, where: str) -> Pairs:
    table = mapping(data, where)
    given: dict[str, Any] = {}
    for key, value in table.items():
        if key in REGIONS:
            given[key] = region(value, f"{where}.{key}")
        elif key in ("key", "between"):
            given[key] = marker(value, f"{where}.{key}")
        elif key == "typed":
            kinds = mapping(value, f"{where}.{key}").items()
            given[key] = tuple((kind, region(around, f"{where}.{key}.{kind}")) for kind, around in kinds)
        else:
            known([value] if key in LANGUAGES else (), LANGUAGES.get(key, ()), f"{where}.{key}")
            given[key] = value
    pairs: Pairs = made(Pairs, given, where)
    return pairs


def made(kind: Any, data: Any, where: str) -> Any:
    """A part of the grammar from a table of its fields."""
    table = mapping(data, where)
    types = {item.name: str(item.type) for item in fields(kind)}
    known(table, list(types), where)
    for key, value in table.items():
        wanted = TYPES.get(types[key].removesuffix(NULL))
        if wanted is not None and type(value) is not wanted and not (value is None and types[key].endswith(NULL)):
            raise SourceError(f"{where}.{key} is {shown(value)}", hint=f"It must be {WORDS[wanted]}.")
    try:
        return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in table.items()})
    except TypeError as error:
        raise SourceError(f"{where} does not say enough: {shown(dict(table))}") from error


NULL = " | None"
TYPES = {"str": str, "bool": bool, "int": int}
WORDS = {str: "a text", bool: "true or false", int: "a number"}


def mapping(data: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise SourceError(f"{where} is {shown(data)}", hint="It must be a table.")
    return data


def known(data: Any, keys: Any, where: str) -> None:
    for key in data if isinstance(data, list | tuple) else mapping(data, where):
        if key not in keys:
            what = "unknown key " if isinstance(data, Mapping) else "there is no "
            raise SourceError(f"{where}: {what}{shown(key)}", hint=suggestion(str(key), keys, "There are"))


def texts(data: Any, where: str) -> tuple[str, ...]:
    if not isinstance(data, list) or not all(isinstance(item, str) for item in data):
        raise SourceError(f"{where} is {shown(data)}", hint="It must be a list of texts.")
    return tuple(data)


def region(data: Any, where: str) -> Region:
    pair = texts(data, where)
    if len(pair) != 2:
        raise SourceError(f"{where} is {shown(data)}", hint="It must be two texts: before and behind.")
    return Region(marker(pair[0], where), marker(pair[1], where))


def marker(data: Any, where: str) -> Marker:
    if not isinstance(data, str):
        raise SourceError(f"{where} is {shown(data)}", hint="It must be a text.")
    return Marker(data, DECLARED) if data else Marker()


def number(data: Any, where: str) -> int:
    if not isinstance(data, int):
        raise SourceError(f"{where} is {shown(data)}", hint="It must be a number.")
    return data


def merged(derived: Grammar, data: Mapping[str, Any], where: str = "replies") -> Grammar:
    """The derived grammar with what a declaration adds to it."""
    stated = declared(data, where)
    instead = texts(data.get("instead", []), f"{where}.instead")
    known(instead, KEYS[:3], f"{where}.instead")
    given: dict[str, Any] = {}
    for name in ("reasoning", "content", "calls"):
        if name not in stated.sources:
            continue
        given[name] = part = getattr(stated, name)
        own = getattr(derived, name)
        if name not in instead and derived.sources.get(name) == "derived" and said(own) != said(part):
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
    sources: dict[str, Source] = {name: "declared" for name in stated.sources if given.get(name) is not None}
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
            *(f"{around.open.core!r} ... {around.close.core!r}" for around in (part.section, part.each)),
            layout(part.call),
        ]
    )


def layout(call: JsonCall | TaggedCall | RawCall) -> str:
    if isinstance(call, JsonCall):
        return f"JSON {'list ' if call.listed else ''}with {call.name} and {call.arguments}"
    if isinstance(call, RawCall):
        return f"the text of {call.name}"
    return " ".join(part if isinstance(part, str) else repr(part.core) for part in call.parts)
