"""Calls that hold JSON, found by what they mean.

The text of a turn is searched for a value that decodes to exactly the arguments of the probe; then for the innermost
object around it that holds the name too, and for a list of such objects. So it does not matter how a template puts the
JSON together: in one `tojson`, from texts and fields, or by hand.

Some templates write a mapping as Python does (`{'a': 1}`), because nobody told them to write JSON; it counts as the
same layout, and the reader of values takes both.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from turnwise.analysis.prober import IDS, NAMES
from turnwise.analysis.segment import Stretch
from turnwise.replies.grammar import JsonCall, Spacing

DECODER = json.JSONDecoder()
INDENTS = (None, 2, 4, 1)
GAPS = ((", ", ": "), (",", ":"), (",", ": "))
TRIES = {
    "{": 60,
    "[": 60,
    '"': 400,
}  # places of a turn to begin at: four times what published templates need
DEPTH = 20  # brackets within brackets, where Python writes the value
BRACKET = re.compile(
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[\[\](){}]""", re.DOTALL
)  # or a string


class Value(NamedTuple):
    """A value written in a text: from where to where, and how."""

    start: int
    end: int
    value: Any
    syntax: str = "json"  # "json", "python"; "text": JSON inside a string


class Found(NamedTuple):
    """Where a call's arguments stand, and the object around them if there is one."""

    arguments: Value
    object: Value | None = None
    call: JsonCall | None = None


def values(text: str, opener: str, start: int = 0, end: int | None = None) -> Iterator[Value]:
    """Every value in the text that begins with this character."""
    at, tries = text.find(opener, start, end), 0
    while at >= 0 and (tries := tries + 1) <= TRIES[opener]:
        found = decoded(text, at)
        if found is not None:
            yield found
        at = text.find(opener, at + 1, end)


def decoded(text: str, at: int) -> Value | None:
    """The value that begins here, as JSON or as Python."""
    try:
        value, end = DECODER.raw_decode(text, at)
        return Value(at, end, value)
    except (ValueError, RecursionError):
        pass
    end = end_of(text, at) if text[at] in "{[" else 0
    try:
        return Value(at, end, ast.literal_eval(text[at:end]), "python") if end else None
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def end_of(text: str, at: int) -> int:
    """Where the bracket that opens here is closed; 0 if nowhere, or if too many open within it."""
    depth = 0
    for match in BRACKET.finditer(text, at):
        depth += {"{": 1, "[": 1, "(": 1, "}": -1, "]": -1, ")": -1}.get(match.group(), 0)
        if depth == 0 or depth > DEPTH:
            return match.end() if depth == 0 else 0
    return 0


def find_arguments(text: str, arguments: dict[str, Any], start: int) -> Value | None:
    """Where the text says exactly these arguments."""
    for found in values(text, "{", start):
        if found.value == arguments:
            return found
    for found in values(text, '"', start):
        if isinstance(found.value, str) and found.value.startswith("{"):
            inner = decoded(found.value, 0)
            if inner is not None and inner.value == arguments:
                return found._replace(value=found.value, syntax="text")
    return None


def find_call(text: str, number: int, arguments: dict[str, Any], start: int) -> Found | None:
    """Where the text says these arguments, and the object that says the name with them."""
    found = find_arguments(text, arguments, start)
    if found is None:
        return None
    for around in reversed(list(values(text, "{", start, found.start))):
        call = call_of(around.value, found.value, number) if around.end >= found.end else None
        if call is not None:
            return wrapped(text, number, Found(found, around, call), start)
    return Found(found)


def wrapped(text: str, number: int, found: Found, start: int) -> Found:
    """The call with the object around it, if it stands in another one: `{"id": I, "function": {"name": N, ...}}`."""
    inner, call = found.object, found.call
    if inner is None or call is None:
        return found
    for outer in reversed(list(values(text, "{", start, inner.start))):
        if outer.end < inner.end or not isinstance(outer.value, dict):
            continue
        for key, item in outer.value.items():
            if item == inner.value:
                identity = next(
                    (k for k, given in outer.value.items() if given == IDS[number]), None
                )
                return Found(
                    found.arguments, outer, replace(call, inside=key, id=call.id or identity)
                )
    return found


def call_of(value: Any, arguments: Any, number: int) -> JsonCall | None:
    """How an object says a call, if it says one."""
    if not isinstance(value, dict):
        return None
    if value == {NAMES[number]: arguments}:
        return JsonCall(name=None)
    keys: dict[str, str | None] = {"name": None, "arguments": None, "id": None}
    for key, item in value.items():
        for slot, known in (("name", NAMES[number]), ("arguments", arguments), ("id", IDS[number])):
            if item == known:
                keys[slot] = key
    if keys["name"] is None or keys["arguments"] is None:
        return None
    numbered = (
        key for key, item in value.items() if key not in keys.values() and str(item).isdigit()
    )
    return JsonCall(
        keys["name"],
        keys["arguments"],
        keys["id"] or next(numbered, None),
        as_text=isinstance(arguments, str),
    )


def find_list(text: str, calls: list[Found], start: int) -> Value | None:
    """The list whose elements are these calls."""
    objects = [call.object.value for call in calls if call.object is not None]
    for found in values(text, "[", start, calls[0].arguments.start):
        if found.value == objects:
            return found
    return None


def spacing(stretch: Stretch, found: Value) -> Spacing:
    """The white space with which the template writes JSON."""
    text, value = stretch.text[found.start : found.end], found.value
    for indent in INDENTS:
        for item, key in GAPS:
            plain = json.dumps(
                value,
                ensure_ascii=False,
                indent=indent,
                separators=(item.rstrip() if indent else item, key),
            )
            if plain == text:
                return Spacing(item, key, indent)
            if indent and (lines := text.splitlines())[1:]:
                depth = len(lines[-1]) - len(lines[-1].lstrip())
                if plain.replace("\n", "\n" + " " * depth) == text:
                    return Spacing(item, key, indent, depth)
    return Spacing()
