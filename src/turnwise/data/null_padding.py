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

Only rows that come out of a table are treated so. In JSON files a null was written by somebody; there `normalise` drops
what the template cannot take.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

TURN_COLUMNS = (
    *("messages", "conversations", "conversation", "prompt", "completion", "response"),
    *("chosen", "rejected"),
)
TABLE_COLUMNS = ("documents", "options", "template_kwargs", "chat_template_kwargs")
KEPT_IN_TURNS = frozenset(["content", "value"])
NAME_TABLES = frozenset(["properties", "patternProperties", "$defs", "definitions"])
MEANT_VALUES = frozenset(["default", "const", "enum", "examples", "example"])
"""Keywords of JSON Schema whose value is data, not a schema."""


class UnpaddedRow(NamedTuple):
    """A row without padding, and how many nulls were removed."""

    row: dict[str, Any]
    removed: int


def undo_null_padding(
    row: Mapping[str, Any], columns: Mapping[str, str] | None = None
) -> UnpaddedRow:
    """Remove the nulls that a table added to a row; the row itself is not changed.

    Args:
        row: a row of a table, as `pyarrow.Table.to_pylist` gives it.
        columns: the names that columns have in the data, by their usual names, as in a recipe.

    Example:
        >>> row = {"messages": [{"role": "user", "content": "Hi", "name": None}]}
        >>> undo_null_padding(row)
        UnpaddedRow(row={'messages': [{'role': 'user', 'content': 'Hi'}]}, removed=1)
    """
    names = columns or {}
    cleaner = _Cleaner()
    clean = dict(row)
    tools = names.get("tools", "tools")
    if isinstance(row.get(tools), (list, tuple)):
        clean[tools] = [cleaner.clean_schema(tool) for tool in row[tools]]
        cleaner.note_required(clean[tools])
    for name in TURN_COLUMNS:
        column = names.get(name, name)
        if isinstance(row.get(column), (list, tuple)):
            clean[column] = [cleaner.clean_turn(turn) for turn in row[column]]
    for name in TABLE_COLUMNS:
        column = names.get(name, name)
        if isinstance(row.get(column), (list, tuple, Mapping)):
            clean[column] = cleaner.drop_nulls(row[column])
    return UnpaddedRow(clean, cleaner.removed)


def table_row_to_json(
    row: Mapping[str, Any], columns: Mapping[str, str] | None = None
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
    ), removed


def _describe(value: object) -> str:
    return f"<{type(value).__name__}>" if isinstance(value, bytes) else str(value)


class _Cleaner:
    """Removes nulls from the parts of one row, and counts them."""

    def __init__(self) -> None:
        self.removed = 0
        self._required: dict[str, frozenset[str]] = {}

    def note_required(self, tools: list[Any]) -> None:
        """Remember which arguments the tools of the row require."""
        for tool in tools:
            function = tool.get("function", tool) if isinstance(tool, dict) else None
            if not isinstance(function, dict) or not isinstance(function.get("name"), str):
                continue
            parameters = function.get("parameters")
            required = parameters.get("required") if isinstance(parameters, dict) else None
            names = required if isinstance(required, list) else []
            self._required[function["name"]] = frozenset(filter(_is_text, names))

    def clean_schema(self, value: Any, are_names: bool = False) -> Any:
        """Return a tool, or a JSON schema in it; `are_names` for a table of schemas by names that are no keywords."""
        if isinstance(value, (list, tuple)):
            return [self.clean_schema(item) for item in value]
        if not isinstance(value, Mapping):
            return value
        kept = {}
        for key, item in value.items():
            if item is None and (are_names or not _is_meant(key, value)):
                self.removed += 1
            elif not are_names and key in MEANT_VALUES:
                kept[key] = item
            else:
                kept[key] = self.clean_schema(item, not are_names and key in NAME_TABLES)
        return kept

    def clean_turn(self, turn: Any) -> Any:
        """Return a message, or a turn of another shape."""
        if not isinstance(turn, Mapping):
            return turn
        kept = {}
        for key, item in turn.items():
            if item is None and key not in KEPT_IN_TURNS:
                self.removed += 1
            elif key == "tool_calls" and isinstance(item, (list, tuple)):
                kept[key] = [self._clean_call(call) for call in item]
            elif key == "function_call":
                kept[key] = self._clean_function(item)
            elif isinstance(item, (list, tuple, Mapping)):
                kept[key] = self.drop_nulls(item)
            else:
                kept[key] = item
        return kept

    def _clean_call(self, call: Any) -> Any:
        if not isinstance(call, Mapping):
            return call
        if call.get("function") is None:
            return self._clean_function(call)
        return self._clean_items(call, "function", self._clean_function)

    def _clean_function(self, function: Any) -> Any:
        """Return the name and the arguments of a call."""
        if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), Mapping):
            return self.drop_nulls(function)
        name = function.get("name")
        required = self._required.get(name, frozenset()) if isinstance(name, str) else frozenset()
        return self._clean_items(
            function, "arguments", lambda arguments: self.drop_nulls(arguments, required)
        )

    def _clean_items(
        self, table: Mapping[str, Any], special: str, clean: Callable[[Any], Any]
    ) -> dict[str, Any]:
        """Return a table without nulls, in its order, with one value cleaned in a way of its own."""
        kept = {}
        for key, item in table.items():
            if item is None:
                self.removed += 1
            else:
                kept[key] = clean(item) if key == special else self.drop_nulls(item)
        return kept

    def drop_nulls(self, value: Any, kept_names: frozenset[str] = frozenset()) -> Any:
        """Return a value without keys that are null, at any depth; items of lists stay.

        Args:
            value: the value.
            kept_names: keys of the outermost mapping that stay.
        """
        if isinstance(value, (list, tuple)):
            return [self.drop_nulls(item) for item in value]
        if not isinstance(value, Mapping):
            return value
        kept = {}
        for key, item in value.items():
            if item is None and key not in kept_names:
                self.removed += 1
            else:
                kept[key] = self.drop_nulls(item)
        return kept


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_meant(key: str, schema: Mapping[str, Any]) -> bool:
    """Return whether JSON Schema gives null a meaning here."""
    return key == "default" or (key == "const" and schema.get("type") is None)
