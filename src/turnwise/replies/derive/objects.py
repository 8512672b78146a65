"""Calls that hold JSON, found by their value.

The text of a turn is searched for a value that decodes to exactly the arguments of the probe; then for the innermost
object around it that holds the name too, and for a list of such objects. So it does not matter how a template puts the
JSON together: in one `tojson`, from texts and fields, or by hand.

Some templates write a mapping as Python does (`{'a': 1}`), since they do not ask for JSON; it counts as the same
layout, and the parser of values accepts both.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from turnwise.analysis.prober import IDS, NAMES
from turnwise.analysis.segment import Segment, leading_space
from turnwise.messages import JsonObject
from turnwise.replies.grammar_parts import JsonCall, Spacing

_DECODER = json.JSONDecoder()
_INDENTS = (None, 2, 4, 1)
_SEPARATORS = ((", ", ": "), (",", ":"), (",", ": "))
# How many places of a turn are tried, by the first character of the value: four times what published templates need.
MAX_TRIES = {"{": 60, "[": 60, '"': 400}
MAX_PYTHON_DEPTH = 20  # brackets within brackets
# A string that is not closed goes to the end, so that none is looked at twice.
_BRACKET_OR_STRING = re.compile(
    r"""'(?:[^'\\]++|\\.)*+(?:'|\\?\Z)|"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[\](){}]""", re.DOTALL
)


class DecodedValue(NamedTuple):
    """A value in a text: its span, and how it is written."""

    start: int
    end: int
    value: Any
    syntax: str = "json"  # "json", "python"; "text": JSON inside a string


class FoundCall(NamedTuple):
    """The arguments of a call, and the object around them if there is one."""

    arguments: DecodedValue
    object: DecodedValue | None = None
    call: JsonCall | None = None


def _find_values(
    text: str, opener: str, start: int, end: int | None = None
) -> Iterator[DecodedValue]:
    place = text.find(opener, start, end)
    for _ in range(MAX_TRIES[opener]):
        if place < 0:
            return
        value = decode_value(text, place)
        if value is not None:
            yield value
        place = text.find(opener, place + 1, end)


def decode_value(text: str, start: int) -> DecodedValue | None:
    """Decode the value that begins here, as JSON or as Python."""
    try:
        value, end = _DECODER.raw_decode(text, start)
        return DecodedValue(start, end, value)
    except (ValueError, RecursionError):
        pass
    end = _find_closing_bracket(text, start) if text[start] in "{[" else 0
    if not end:
        return None
    try:
        return DecodedValue(start, end, ast.literal_eval(text[start:end]), "python")
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _find_closing_bracket(text: str, start: int) -> int:
    """Return the end of the bracket that opens here; 0 if it has none, or too many open within it."""
    depth = 0
    for match in _BRACKET_OR_STRING.finditer(text, start):
        if match.group() in "{[(":
            depth += 1
        elif match.group() in "}])":
            depth -= 1
        if depth == 0:
            return match.end()
        if depth > MAX_PYTHON_DEPTH:
            return 0
    return 0


def find_arguments(text: str, arguments: JsonObject, start: int) -> DecodedValue | None:
    """Return the value in the text that is exactly these arguments."""
    for found in _find_values(text, "{", start):
        if found.value == arguments:
            return found
    for found in _find_values(text, '"', start):
        if isinstance(found.value, str) and found.value.startswith("{"):
            inner = decode_value(found.value, 0)
            if inner is not None and inner.value == arguments:
                return found._replace(syntax="text")
    return None


def find_call(text: str, number: int, arguments: JsonObject, start: int) -> FoundCall | None:
    """Return these arguments in the text, and the object that holds the name of the call with them."""
    found = find_arguments(text, arguments, start)
    if found is None:
        return None
    for inner in _find_objects_around(text, found, start):
        call = _describe_call(inner.value, found.value, number)
        if call is None:
            continue
        # There may be another object around it: `{"id": I, "function": {"name": N, ...}}`.
        for outer in _find_objects_around(text, inner, start):
            key = _key_of(outer.value, inner.value)
            if key is not None:
                id_key = call.id or _key_of(outer.value, IDS[number])
                return FoundCall(found, outer, replace(call, inside=key, id=id_key))
        return FoundCall(found, inner, call)
    return FoundCall(found)


def _find_objects_around(text: str, inner: DecodedValue, start: int) -> list[DecodedValue]:
    values = list(_find_values(text, "{", start, inner.start))
    around = [value for value in values if value.end >= inner.end]
    return [value for value in reversed(around) if isinstance(value.value, dict)]


def _key_of(mapping: JsonObject, value: Any) -> str | None:
    return next((key for key, item in mapping.items() if item == value), None)


def _describe_call(value: JsonObject, arguments: Any, number: int) -> JsonCall | None:
    if value == {NAMES[number]: arguments}:
        return JsonCall(name=None)
    name, arguments_key = _last_key_of(value, NAMES[number]), _last_key_of(value, arguments)
    id_key = _last_key_of(value, IDS[number])
    if name is None or arguments_key is None:
        return None
    if id_key is None:
        others = [key for key in value if key not in (name, arguments_key)]
        id_key = next((key for key in others if str(value[key]).isdigit()), None)
    return JsonCall(name, arguments_key, id_key, as_text=isinstance(arguments, str))


def _last_key_of(mapping: JsonObject, value: Any) -> str | None:
    return _key_of(dict(reversed(mapping.items())), value)


def find_list(text: str, calls: list[FoundCall]) -> DecodedValue | None:
    """Return the list whose elements are these calls."""
    objects = [call.object.value for call in calls if call.object is not None]
    for found in _find_values(text, "[", 0, calls[0].arguments.start):
        if found.value == objects:
            return found
    return None


def find_spacing(segment: Segment, found: DecodedValue) -> Spacing:
    """Return the white space with which the template writes JSON."""
    text = segment.text[found.start : found.end]
    lines = text.splitlines()
    for indent in _INDENTS:
        for item, key in _SEPARATORS:
            separators = (item.rstrip() if indent else item, key)
            dumped = json.dumps(
                found.value, ensure_ascii=False, indent=indent, separators=separators
            )
            if dumped == text:
                return Spacing(item, key, indent)
            if indent and len(lines) > 1:
                depth = leading_space(lines[-1])
                if dumped.replace("\n", "\n" + " " * depth) == text:
                    return Spacing(item, key, indent, depth)
    return Spacing()
