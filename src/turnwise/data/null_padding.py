"""Undo what tables do to rows of different forms: they give each the keys of all, filled with null.

Arrow, and so Parquet and `datasets`, has one type for a column. Tools with different parameters are stored as one
struct with the parameters of all tools, and each tool comes back with nulls for those it does not have. The same
happens to the arguments of calls and to the keys of messages. Such nulls reach the prompt, or crash the template.

    {"properties": {"city": {"type": "string"}, "unit": null}}   comes back as   {"properties": {"city": ...}}

A null that was meant cannot always be told from padding, so the rules are these:

* messages, turns, content parts, calls, documents and template options: keys with null are dropped. `content` and
  `value` stay, since a reply may have a null content beside its calls.
* tools: keys with null are dropped, except where JSON Schema gives null a meaning: `default`, and `const` beside no
  type. The items of a list stay (`enum: [null]`).
* arguments of calls: keys with null are dropped, unless the row has the tool, and the tool requires the argument.

Only rows that come out of a table are treated so. In JSON files a null was written on purpose; there `normalise` drops
what the template cannot take.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from turnwise.messages import JsonMapping, JsonObject, Path

TURN, CALL, ARGUMENTS, VALUE = "turn", "call", "arguments", "value"
SCHEMA, NAMES, DATA = "schema", "names", "data"
LISTS = (list, tuple)
CONTAINERS = (dict, *LISTS, Mapping)
# What each column of a row is, and the types of a column that is treated so.
COLUMNS: dict[str, tuple[str, Any]] = {
    "tools": (SCHEMA, LISTS),
    **dict.fromkeys(
        ("messages", "conversations", "conversation", "prompt", "completion", "response"),
        (TURN, LISTS),
    ),
    **dict.fromkeys(("chosen", "rejected"), (TURN, LISTS)),
    **dict.fromkeys(
        ("documents", "options", "template_kwargs", "chat_template_kwargs"),
        (VALUE, CONTAINERS),
    ),
}
KEPT_IN_TURNS = frozenset(["content", "value"])
# For each part of a row, what the values of its keys are, and those of all other keys. Of JSON Schema, some keywords
# hold a table of schemas by names that are no keywords, and some hold data.
INNER_PARTS: dict[str, tuple[dict[str, str], str]] = {
    TURN: ({"tool_calls": CALL, "function_call": CALL}, VALUE),
    CALL: ({"function": CALL, "arguments": ARGUMENTS}, VALUE),
    SCHEMA: (
        dict.fromkeys(("properties", "patternProperties", "$defs", "definitions"), NAMES)
        | dict.fromkeys(("default", "const", "enum", "examples", "example"), DATA),
        SCHEMA,
    ),
    NAMES: ({}, SCHEMA),
    VALUE: ({}, VALUE),
}


class UnpaddedRow(NamedTuple):
    """A row without padding, and the paths of the nulls that were removed."""

    row: JsonObject
    removed: list[Path]


def undo_null_padding(row: JsonMapping, columns: Mapping[str, str] | None = None) -> UnpaddedRow:
    """Remove the nulls that a table added to a row; the row itself is not changed.

    Args:
        row: a row of a table, as `pyarrow.Table.to_pylist` gives it.
        columns: the names that columns have in the data, by their usual names, as in a recipe.

    Example:
        >>> row = {"messages": [{"role": "user", "content": "Hi", "name": None}]}
        >>> undo_null_padding(row)
        UnpaddedRow(row={'messages': [{'role': 'user', 'content': 'Hi'}]}, removed=[('messages', 0, 'name')])
    """
    names = columns or {}
    tools = row.get(names.get("tools", "tools"))
    cleaner = _Cleaner(tools if isinstance(tools, (list, tuple)) else ())
    clean = dict(row)
    for name, (part, kinds) in COLUMNS.items():
        column = names.get(name, name)
        if isinstance(row.get(column), kinds):
            kept = KEPT_IN_TURNS if part == TURN else frozenset[str]()
            clean[column] = cleaner.clean(row[column], (column,), part, kept)
    return UnpaddedRow(clean, cleaner.removed)


def table_row_to_json(
    row: JsonMapping, columns: Mapping[str, str] | None = None
) -> tuple[bytes, int]:
    """Return a row of a table as JSON text without padding, and how many nulls were removed.

    Columns that JSON cannot hold (images, times) are written as text: they are no part of a conversation. A number that
    is not a number becomes null.
    """
    clean, removed = undo_null_padding(row, columns)
    for name, value in clean.items():
        if isinstance(value, float) and not math.isfinite(value):
            clean[name] = None
    return json.dumps(clean, ensure_ascii=False, default=_describe).encode(
        "utf-8", "surrogatepass"
    ), len(removed)


def _describe(value: object) -> str:
    return f"<{type(value).__name__}>" if isinstance(value, bytes) else str(value)


class _Cleaner:
    """Removes nulls from the parts of one row, and notes where they were."""

    def __init__(self, tools: Any) -> None:
        from turnwise.replies.parser.tool_schema import read_function

        self.removed: list[Path] = []
        functions = filter(None, map(read_function, tools))
        self._required = {name: _list_required(schema) for name, schema in functions}

    def clean(
        self, value: Any, path: Path, part: str = VALUE, kept: frozenset[str] = frozenset()
    ) -> Any:
        """Return a value without keys that are null, at any depth; items of lists stay.

        Args:
            value: the value.
            path: where it is in the row.
            part: what it is: a key of `INNER_PARTS`.
            kept: keys of a mapping that stay.
        """
        if isinstance(value, (list, tuple)):
            part = SCHEMA if part == NAMES else part
            return [
                self.clean(item, (*path, index), part, kept) for index, item in enumerate(value)
            ]
        if not isinstance(value, Mapping) or part == DATA:
            return value
        inner_parts, other = INNER_PARTS[part]
        found = {}
        for key, item in value.items():
            inner = inner_parts.get(key, other)
            if item is None and key not in kept and not (part == SCHEMA and _is_meant(key, value)):
                self.removed.append((*path, str(key)))
            elif not isinstance(item, CONTAINERS):
                found[key] = item
            elif inner == ARGUMENTS:
                required = self._required.get(str(value.get("name")), frozenset())
                are_named = isinstance(item, Mapping)
                kept_names = required if are_named else frozenset[str]()
                found[key] = self.clean(item, (*path, key), VALUE, kept_names)
            else:
                found[key] = self.clean(item, (*path, key), inner)
        return found


def _list_required(schema: Any) -> frozenset[str]:
    required = schema.get("required") if isinstance(schema, dict) else None
    names = required if isinstance(required, list) else []
    return frozenset(name for name in names if isinstance(name, str))


def _is_meant(key: str, schema: JsonMapping) -> bool:
    """Return whether JSON Schema gives null a meaning here."""
    return key == "default" or (key == "const" and schema.get("type") is None)
