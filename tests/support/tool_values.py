"""Values of arguments: schemas with values that fit them and values that do not, and tools with large schemas."""

from __future__ import annotations

from typing import Any

from turnwise.replies.grammar import Grammar
from turnwise.replies.write import write

NOTATIONS = ("qwen3", "lfm2", "gemma-4")
"""Entries that write values as JSON, as Python's, and with quotes of their own."""

VALUES: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "bounds": ({"type": "integer", "minimum": -12, "maximum": 105}, [-12, -3, 0, 99, 105], [-13, 106, 1.5]),
    "wide bounds": (
        {"type": "integer", "minimum": -9007199254740991, "maximum": 9007199254740991},
        [-9007199254740991, 0, 9007199254740990, 9007199254740991],
        [-9007199254740992, 9007199254740992, 10**16],
    ),
    "bounds that none reaches": ({"type": "integer", "maximum": 1e300}, [10**18], ["x"]),
    "only low": ({"type": "integer", "exclusiveMinimum": 7}, [8, 10, 123], [7, 0, -8]),
    "only high": ({"type": "integer", "maximum": -20}, [-20, -99, -100], [-19, 0, 20]),
    "a share": (
        {"type": "number", "minimum": 0, "maximum": 1},
        [0, 1, 0.5, 0.001, 1.0],
        [-0.1, 1.01, 2, "0"],
    ),
    "between fractions": (
        {"type": "number", "exclusiveMinimum": -1.25, "maximum": 12.5},
        [-1.24, -1, 0, 3.75, 12, 12.5],
        [-1.25, -2, 12.51, 13],
    ),
    "a fraction and more": ({"type": "number", "minimum": 0.5}, [0.5, 7, 123.25], [0.4, 0, -1]),
    "a pattern": ({"type": "string", "pattern": "^[a-c]+(-\\d{2})?$"}, ["abc", "a-12"], ["", "d", "a-1"]),
    "a pattern within": ({"type": "string", "pattern": "a\"b"}, ['xa"by', 'a"b'], ["ab", ""]),
    "lengths": ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab", 'a"\n'], ["a", "abcd"]),
    "no length": ({"type": "string", "maxLength": 0}, [""], ["a"]),
    "one element": ({"type": "array", "items": {"type": "integer"}, "maxItems": 1}, [[], [1]], [[1, 2]]),
    "no element": ({"type": "array", "items": {"type": "integer"}, "maxItems": 0}, [[]], [[1]]),
    "none of a character": ({"type": "string", "pattern": "^ab{0}$"}, ["a"], ["ab"]),
    "an enum": ({"enum": ["a", 1, None, True]}, ["a", 1, None, True], ["b", 2, False]),
    "a constant": ({"const": {"a": [1]}}, [{"a": [1]}], [{"a": [2]}, {}]),
    "a union": ({"type": ["integer", "null"]}, [3, None], ["3", True]),
    "nullable": ({"type": "string", "nullable": True}, ["x", None], [3]),
    "an alias": ({"type": "list[int]"}, [[], [1, 2]], [["x"], 1]),
    "a tuple": (
        {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False},
        [[], [1], [1, "x"]],
        [["x"], [1, "x", 2]],
    ),
    "counts": (
        {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2},
        [[1], [1, 2]],
        [[], [1, 2, 3]],
    ),
    "optional members": (
        {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}, "c": {}},
            "required": ["b"],
        },
        [{"b": 1}, {"a": 1, "b": 2}, {"b": 1, "c": [1]}, {"a": 1, "b": 2, "c": {"x": None}}],
        [{}, {"a": 1}, {"b": 1, "z": 1}, {"b": "1"}],
    ),
    "other members": (
        {"type": "object", "properties": {"ab": {"type": "integer"}}, "additionalProperties": {"type": "string"}},
        [{}, {"ab": 1}, {"a": "x"}, {"ab": 1, "abc": "x", "b": "y"}],
        [{"ab": "x"}, {"a": 1}],
    ),
    "all of": (
        {"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}}, {"required": ["a"]}]},
        [{"a": 1}],
        [{}, {"a": "x"}],
    ),
    "anything": ({}, [1, "x", None, [1, {"a": [True]}], {"b": {}}], []),
}  # fmt: skip
"""A schema, values that fit it, and values that do not."""


def tool_of(properties: dict[str, Any], definitions: dict[str, Any]) -> list[Any]:
    """Return the tool `tide` with these arguments."""
    parameters = {"type": "object", "properties": properties, "$defs": definitions}
    return [{"type": "function", "function": {"name": "tide", "parameters": parameters}}]


def reply_with(grammar: Grammar, arguments: dict[str, Any]) -> str:
    """Return a reply that calls `tide`."""
    function = {"name": "tide", "arguments": arguments}
    call = {"id": "a", "type": "function", "function": function}
    return write(grammar, {"role": "assistant", "content": "", "tool_calls": [call]})


# -- definitions that many values refer to


def shared_definitions(count: int) -> list[Any]:
    """Return a tool whose arguments are lists of a type that contains itself, each of another length."""
    node = {
        "type": "object",
        "properties": {
            "size": {"type": "number", "minimum": 0, "maximum": 1},
            "next": {"$ref": "#/$defs/node"},
        },
        "required": ["size"],
    }
    items = {"type": "array", "items": {"$ref": "#/$defs/node"}}
    arguments = {f"p{index}": {**items, "maxItems": index + 1} for index in range(count)}
    return tool_of(arguments, {"node": node})


LEAF = {"size": 0.5}
ACCEPTED = [{"p0": [LEAF]}, {"p0": [], "p1": [LEAF, {"size": 0, "next": LEAF}]}]
REFUSED = [{"p0": [LEAF, LEAF]}, {"p0": [{"size": 2}]}, {"p1": [{"size": 0, "next": {}}]}]
