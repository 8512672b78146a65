"""Declarations: how replies look where the template does not show it, in a few lines of data.

    [replies]
    reasoning = ["<think>", "</think>"]          # opening and closing marker
    stops     = ["<|im_end|>"]
    instead   = ["reasoning"]                    # parts that replace what was derived from the template
    without   = ["reasoning"]                    # parts that are not parsed: their text is content

    [[replies.calls]]                            # one table for every way in which calls are written
    section = ["<|tool_call_start|>[", "]<|tool_call_end|>"]
    each    = ["", ")"]
    between = ", "
    parts   = ["{name}", "(", "{arguments}"]     # or: json = {arguments = "parameters"}, or: raw = {name = "python"}
    pairs   = { string = ["=", ""], other = ["=", ""], between = ", ", values = "python", strings = "python" }

    [[replies.more]]                             # ways besides those that the template shows, with the same keys

`parse_declaration` reads such a table into a `Grammar` whose other parts are empty. `merge_declaration` completes a
derived grammar with it: if both have a part and differ, that is an error, unless the part is named in `instead`.

The keys of `json`, `raw` and `pairs` are the fields of `JsonCall`, `RawCall` and `Pairs`; how a value is parsed depends
on the type of its field (`FIELD_PARSERS`). The rules check each value, and that values make sense together. They
cannot check that a model really writes that way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, replace
from typing import Any

from turnwise.errors import SourceError, short_repr
from turnwise.messages import JsonMapping, JsonObject
from turnwise.replies.grammar import Grammar
from turnwise.replies.grammar_parts import (
    SLOTS,
    Calls,
    JsonCall,
    Marker,
    Pairs,
    RawCall,
    Region,
    Source,
    Spacing,
    TaggedCall,
    default_json_parts,
)
from turnwise.replies.known_models import find_declaration
from turnwise.replies.parser.prefill import assistant_header
from turnwise.schema import (
    BOOLEAN,
    COUNT,
    NON_EMPTY_STRING,
    STRING,
    TABLE,
    ValueRule,
    check,
    check_keys,
    list_of,
    one_of,
)

__all__ = ["DECLARATION_KEYS", "merge_declaration", "parse_declaration"]

Table = JsonMapping


REPLACEABLE = ("reasoning", "content", "calls")
DECLARATION_KEYS = (*REPLACEABLE, "more", "stops", "starts", "instead", "without")


def complete_grammar(derived: Grammar, text: str, name: str, own: Table | None) -> Grammar:
    """Return a derived grammar, completed by what is declared for the template.

    Args:
        derived: the grammar that was derived from the template.
        text: the template's source.
        name: the template's name, or the id of its model.
        own: the declaration of the template's own registry entry. It is about this template alone, so it is used
            instead of `known_models.toml`, and contradicting the template is an error.

    Raises:
        SourceError: the declaration is not well formed, or contradicts the template.
    """
    if own:
        return merge_declaration(derived, own, name)
    return fill_gaps(derived, find_declaration(text, name) or {}, name)


def fill_gaps(
    grammar: Grammar, declaration: Table, name: str, keys: Collection[str] = DECLARATION_KEYS
) -> Grammar:
    """Return a grammar with what these keys of a declaration add to what the template itself shows."""
    shown = {part for part in ("reasoning", "calls") if grammar.sources.get(part) == "derived"}
    gaps = {key: declaration[key] for key in keys if key in declaration and key not in shown}
    return merge_declaration(grammar, gaps, name) if gaps else grammar


SEPARABLE = ("reasoning", "calls")
CALL_KEYS = ("parts", "pairs", "json", "raw")
CALLS_KEYS = ("section", "each", "between", "lead", "first", *CALL_KEYS)
DECLARED = "declared"
SLOT_TEXTS = tuple(f"{{{slot}}}" for slot in SLOTS)
SLOT = re.compile(r"\{\w+\}")
CALL_KINDS = ("json", "parts", "raw")
LANGUAGES = {
    "values": one_of(["json", "python", "quoted", "tags"]),
    "scalars": one_of(["json", "python"]),
    "strings": one_of(["raw", "json", "python"]),
}
NULLABLE = " | None"
MARKER_PAIR = list_of(STRING, "two strings: the opening and the closing marker", length=2)
LIST_TEXTS = list_of(
    STRING, "three strings: the beginning of the list, its separator and its end", length=3
)
WORDS = list_of(NON_EMPTY_STRING, "a list of strings that are not empty")
CALL_TABLES = ValueRule("a mapping, or a list of mappings", lambda value: isinstance(value, list))


def _is_call_part(value: Any) -> bool:
    is_slot = isinstance(value, str) and SLOT.fullmatch(value) is not None
    return value in SLOT_TEXTS if is_slot else NON_EMPTY_STRING.accepts(value)


CALL_PARTS = list_of(
    ValueRule(f"a text, or one of {', '.join(SLOT_TEXTS)}", _is_call_part, choices=SLOT_TEXTS),
    "a list of strings",
)


def parse_declaration(data: Table, where: str = "replies") -> Grammar:
    """Return a grammar that has the declared parts only.

    Args:
        data: a table with some of DECLARATION_KEYS.
        where: the name of the table in errors.

    Raises:
        SourceError: a key is unknown, or a value is not well formed.

    Example:
        >>> parse_declaration({"reasoning": ["<think>", "</think>"]}).reasoning.open.text
        '<think>'
    """
    _check_keys(data, DECLARATION_KEYS, where)
    formats = _parse_all_calls(data, "calls", where)
    more = _parse_all_calls(data, "more", where)
    reasoning = None
    if "reasoning" in data:
        reasoning = _parse_reasoning(data["reasoning"], f"{where}.reasoning")
    sources: dict[str, Source] = {
        key: "declared" for key in data if key not in ("instead", "without")
    }
    return Grammar(
        reasoning=reasoning,
        content=_parse_region(data.get("content", ["", ""]), f"{where}.content"),
        calls=formats[0] if formats else None,
        more=(*formats[1:], *more),
        stops=tuple(check(data.get("stops", []), WORDS, f"{where}.stops")),
        starts=tuple(check(data.get("starts", []), WORDS, f"{where}.starts")),
        sources=sources,
    )


def merge_declaration(derived: Grammar, data: Table, where: str = "replies") -> Grammar:
    """Return a derived grammar, completed by a declaration.

    Args:
        derived: the grammar that was derived from a template.
        data: a table with some of DECLARATION_KEYS.
        where: the name of the table in errors.

    Raises:
        SourceError: the declaration is not well formed, or contradicts the template.
    """
    stated = parse_declaration(data, where)
    instead = data.get("instead", [])
    check(instead, list_of(one_of(REPLACEABLE), "a list of names"), f"{where}.instead")
    merged: JsonObject = {}
    for part in REPLACEABLE:
        if part in stated.sources:
            agreed = part not in instead and derived.sources.get(part) == "derived"
            if agreed:
                _refuse_contradiction(derived, stated, part, where)
            # If both agree, the derived part is kept: it knows where each marker came from.
            merged[part] = getattr(derived if agreed else stated, part)
    if "reasoning" in instead:
        # What is written without reasoning was derived together with the markers that are replaced.
        merged["empty"] = ""
    calls = merged.get("calls") or derived.calls
    known_formats = {_describe(calls), *map(_describe, derived.more)}
    more = [other for other in stated.more if _describe(other) not in known_formats]
    if calls is None and more:
        merged["calls"] = more.pop(0)
    unreached = [note for note in derived.unreached if note.partition(":")[0] not in merged]
    sources: dict[str, Source] = {
        part: "declared" for part in stated.sources if merged.get(part) is not None
    }
    without = check(
        data.get("without", []), list_of(one_of(SEPARABLE), "a list of names"), f"{where}.without"
    )
    complete = replace(
        derived,
        **merged,
        more=(*derived.more, *more),
        stops=tuple(dict.fromkeys((*derived.stops, *stated.stops))),
        starts=tuple(dict.fromkeys((*derived.starts, *stated.starts))),
        unreached=tuple(unreached),
        sources={**derived.sources, **sources},
    )
    return _leave_in_content(complete, without)


def _leave_in_content(grammar: Grammar, parts: Collection[str]) -> Grammar:
    """Return the grammar without these parts; what the prompt opens of them is content, too."""
    if "reasoning" in parts:
        grammar = replace(grammar, opening=assistant_header(grammar), reasoning=None, empty="")
    if "calls" in parts:
        grammar = replace(grammar, calls=None, more=())
    return grammar


def _refuse_contradiction(derived: Grammar, stated: Grammar, part: str, where: str) -> None:
    declared_part = _describe(getattr(stated, part))
    derived_part = _describe(getattr(derived, part))
    if declared_part != derived_part:
        raise SourceError(
            f"{where}.{part} contradicts the template: it declares {declared_part}, and the template"
            f" writes {derived_part}",
            hint=f"To replace what the template writes, add instead = [{part!r}].",
        )


def _describe(part: Region | Calls | None) -> str:
    """Describe what two grammars must agree in: the markers of a part, without their white space."""
    if part is None:
        return "nothing"
    if isinstance(part, Region):
        return f"{part.open.core!r} ... {part.close.core!r}"
    return f"{_describe(part.section)} {_describe(part.each)} {_describe_call(part.call)}"


def _describe_call(call: JsonCall | TaggedCall | RawCall) -> str:
    if isinstance(call, JsonCall):
        return f"JSON {'list ' if call.listed else ''}with {call.name} and {call.arguments}"
    if isinstance(call, RawCall):
        return f"the text of {call.name}"
    return " ".join(part if isinstance(part, str) else repr(part.core) for part in call.parts)


# -- calls


def _parse_all_calls(data: Table, key: str, where: str) -> list[Calls]:
    where = f"{where}.{key}"
    tables = data.get(key, [])
    if isinstance(tables, Mapping):
        tables = [tables]
    check(tables, CALL_TABLES, where)
    return [_parse_calls(table, where) for table in tables]


def _parse_calls(data: Any, where: str) -> Calls:
    _check_keys(data, CALLS_KEYS, where)
    call = _parse_call(data, where)
    around = {key: value for key, value in data.items() if key not in CALL_KEYS}
    calls: Calls = _parse_fields(Calls, around, where, call=call)
    has_opener = calls.section.open.core or calls.each.open.core
    hint = "A text is a call only after a marker: declare each or section."
    _require(bool(has_opener) or not isinstance(call, RawCall), data, where, hint)
    # Nothing tells a call that starts with its name from the content before it.
    return replace(calls, excludes_content=not has_opener and isinstance(call, TaggedCall))


def _parse_call(data: Table, where: str) -> JsonCall | TaggedCall | RawCall:
    kinds = [kind for kind in CALL_KINDS if kind in data]
    if len(kinds) != 1:
        raise SourceError(
            f"{where} has {' and '.join(kinds) or 'none of json, parts and raw'}",
            hint="How a call is written is declared by one of: json, parts, raw.",
        )
    if "pairs" in data:
        _require("parts" in data, data, where, "pairs can only be used with parts.")
    if "parts" in data:
        return _parse_tagged_call(data, where)
    if "json" in data:
        return _parse_json_call(data["json"], f"{where}.json")
    raw_call: RawCall = _parse_fields(RawCall, data["raw"], f"{where}.raw")
    return raw_call


def _parse_json_call(data: Any, where: str) -> JsonCall:
    call: JsonCall = _parse_fields(JsonCall, data, where)
    keys = [key for key in (call.name, call.arguments, call.id) if key is not None]
    hint = "Name, arguments and id must have different keys."
    _require(len(keys) == len(set(keys)), data, where, hint)
    return replace(call, parts=default_json_parts(call, DECLARED))


def _parse_tagged_call(data: Table, where: str) -> TaggedCall:
    parts = check(data["parts"], CALL_PARTS, f"{where}.parts")
    slots = [part for part in parts if part in SLOT_TEXTS]
    _require("{name}" in slots, data["parts"], f"{where}.parts", "It must contain {name}.")
    hint = "Each slot may be used once."
    _require(len(slots) == len(set(slots)), data["parts"], f"{where}.parts", hint)
    pairs = None
    if "pairs" in data:
        pairs = _parse_pairs(data["pairs"], f"{where}.pairs")
    call_parts = [part[1:-1] if part in slots else Marker(part, DECLARED) for part in parts]
    return TaggedCall(tuple(call_parts), pairs)


def _parse_pairs(data: Any, where: str) -> Pairs:
    pairs: Pairs = _parse_fields(Pairs, data, where)
    for name, rule in LANGUAGES.items():
        check(getattr(pairs, name), rule, f"{where}.{name}")
    return pairs


# -- values


def _require(condition: bool, data: Any, where: str, hint: str) -> None:
    if not condition:
        raise SourceError(f"{where} is {short_repr(data)}", hint=hint)


def _check_keys(data: Any, known: Collection[str], where: str) -> None:
    check_keys(check(data, TABLE, where), known, f"{where}: unknown key")


def _parse_by_rule(rule: ValueRule) -> Callable[[Any, str], Any]:
    return lambda data, where: check(data, rule, where)


def _parse_marker(data: Any, where: str) -> Marker:
    check(data, STRING, where)
    return Marker(data, DECLARED) if data else Marker()


def _parse_region(data: Any, where: str) -> Region:
    opening, closing = check(data, MARKER_PAIR, where)
    return Region(_parse_marker(opening, where), _parse_marker(closing, where))


def _parse_reasoning(data: Any, where: str) -> Region:
    region = _parse_region(data, where)
    has_marker = bool(region.open.core or region.close.core)
    _require(has_marker, data, where, "At least one of the two must be a marker.")
    return region


def _parse_typed_regions(data: Any, where: str) -> tuple[tuple[str, Region], ...]:
    check(data, TABLE, where)
    return tuple((kind, _parse_region(data[kind], f"{where}.{kind}")) for kind in data)


def _parse_fields(kind: Any, data: Any, where: str, **known: Any) -> Any:
    """Build a part of a grammar from a table of its fields; each field is parsed by its type.

    A field whose type has no parser cannot be declared.
    """
    types = {item.name: str(item.type) for item in fields(kind)}
    parsers = {name: FIELD_PARSERS.get(type.removesuffix(NULLABLE)) for name, type in types.items()}
    _check_keys(data, [name for name, parser in parsers.items() if parser is not None], where)
    given = known
    for key, value in data.items():
        parser = parsers[key]
        is_null = value is None and types[key].endswith(NULLABLE)
        given[key] = None if is_null or parser is None else parser(value, f"{where}.{key}")
    try:
        return kind(**given)
    except TypeError as error:
        raise SourceError(f"{where} is incomplete: {short_repr(dict(data))}") from error


FIELD_PARSERS: Mapping[str, Callable[[Any, str], Any]] = {
    "str": _parse_by_rule(NON_EMPTY_STRING),
    "bool": _parse_by_rule(BOOLEAN),
    "int": _parse_by_rule(COUNT),
    "Marker": _parse_marker,
    "Region": _parse_region,
    "Spacing": lambda data, where: _parse_fields(Spacing, data, where),
    "tuple[str, str, str]": lambda data, where: tuple(check(data, LIST_TEXTS, where)),
    "tuple[tuple[str, Region], ...]": _parse_typed_regions,
}
"""How a field is parsed, by its type as it is written in the class."""
