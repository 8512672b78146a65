"""The Go types of what Ollama gives to a template, and where a conversation has the same.

Go prints a value by its type: a text as it is, a number of the conversation as float64, a tool as
JSON, its function as a struct. A template does not name types, but those of the data are known, so
the type of every expression is known before anything is rendered:

    .Tools                 template.templateTools, a list of tools
    (index .Tools 0)       template.templateTool
    $call.Function.Name    string
    $call.Function.Arguments.city    any: whatever the JSON has there

A struct lists its fields in Go's order, in which they print. Where a value is missing, Go has the
zero of its type. The types are those of Ollama's packages `template` and `api`; they are
listed in `ollama_types.json`, with the fields of the root.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, slots=True)
class GoField:
    """A field of a struct."""

    name: str  # in Go
    key: str  # in the conversation
    type: str  # a key of TYPES
    json: str = ""  # its name in JSON; empty: as in Go
    omits_empty: bool = False  # JSON leaves it out if it has no value


@dataclass(frozen=True, slots=True)
class GoType:
    """A type, as far as printing, comparing and looping depend on it."""

    name: str  # a key of TYPES
    go_name: str
    kind: str  # string, int, float, bool, nil, any, list, map, struct, bytes, root
    element: str = ""  # of a list or a map: a key of TYPES
    fields: tuple[GoField, ...] = ()
    prints_json: bool = False  # its method String writes JSON
    is_made: bool = False  # a list that Ollama makes, nil if there is nothing in it
    is_ordered: bool = False  # a map whose JSON has the keys in the given order

    def get_field(self, name: str) -> GoField | None:
        """Return the field of this name in Go, if there is one."""
        return next((field for field in self.fields if field.name == name), None)


def _read_type(name: str, row: dict[str, Any]) -> GoType:
    fields = tuple(GoField(**field) for field in row.pop("fields", ()))
    return GoType(name, fields=fields, **row)


_DATA = json.loads(
    files("turnwise.dialects").joinpath("ollama_types.json").read_text(encoding="utf-8")
)
TYPES: dict[str, GoType] = {name: _read_type(name, row) for name, row in _DATA["types"].items()}

RootFields = dict[str, tuple[str, str]]
"""Fields of the root: the Jinja of each, and its type."""
CHAT_FIELDS: RootFields = _DATA["chat"] | _DATA["thinking"]
"""Those of a template that sees the whole conversation."""
ROUND_FIELDS: RootFields = _DATA["round"] | _DATA["thinking"]
"""The same where it sees one round."""
SUFFIX_FIELDS: RootFields = _DATA["suffix"]
"""More of them, if the template asks for a suffix."""

ROOT_FIELDS = {**CHAT_FIELDS, **ROUND_FIELDS, **SUFFIX_FIELDS}
KNOWN_NAMES = {
    *ROOT_FIELDS,
    "First",  # older templates ask for it; Ollama has no such value any more
    *(field.name for type_ in TYPES.values() for field in type_.fields),
}
"""Every name that is a field somewhere."""


def join_types(first: GoType, second: GoType) -> GoType:
    """Return the type of a value that is of one or the other type."""
    return first if first == second else TYPES["any"]
