"""Repair rows: without the nulls of tables, in the forms that a template takes.

Nothing is repaired that `prepare` and `render` would not change themselves; what they change in memory is written here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from turnwise.data.null_padding import undo_null_padding
from turnwise.data.recipe import COLUMN_NAMES
from turnwise.data.records import Record
from turnwise.errors import TurnwiseError
from turnwise.messages import Change, JsonObject, format_path
from turnwise.normalisation.normaliser import Normaliser
from turnwise.normalisation.preprocessor import OPENAI_DIALECT
from turnwise.template import Template


class RowRepairer:
    """Repairs rows for a template.

    Args:
        template: the template; None if only nulls are to be removed.
    """

    def __init__(self, template: Template | None) -> None:
        self._normaliser: Normaliser | None = None
        if template is not None and template.dialect == OPENAI_DIALECT:
            self._normaliser = Normaliser(template.codec)

    def repair(self, row: Any, record: Record) -> JsonObject | None:
        """Return a row in OpenAI's shape with its `changes`; None if there are none, or something would be lost.

        Args:
            row: the row as it was given, of which columns that were not read are kept.
            record: its conversation.
        """
        changes: list[Change] = []
        repaired = self._repair(record, changes)
        rejected = record.rejected and self._repair(
            record._replace(messages=record.rejected), changes
        )
        if not changes or repaired is None or (record.rejected and rejected is None):
            return None
        columns = _keep_columns(row, record) | repaired
        if rejected:
            columns |= {"chosen": columns.pop("messages"), "rejected": rejected["messages"]}
        if record.label is not None:
            columns["label"] = record.label
        return {**columns, "changes": [one._asdict() for one in dict.fromkeys(changes)]}

    def _repair(self, record: Record, changes: list[Change]) -> JsonObject | None:
        given = record.row_of(record.messages)
        columns = given if isinstance(given, dict) else {"messages": given}
        columns, removed = undo_null_padding(columns)
        changes += [Change(format_path(path), "null dropped", "tables add it") for path in removed]
        if self._normaliser is None:
            return columns
        try:
            found = self._normaliser.normalise(columns["messages"], columns.get("tools"))
        except TurnwiseError:
            return None  # the problem of the row says why
        changes += found.changes
        if found.tools is not None:
            columns["tools"] = found.tools
        return None if found.lost else {**columns, "messages": found.messages}


def _keep_columns(row: Any, record: Record) -> JsonObject:
    """Return the columns of a row that are no part of its conversation."""
    values = json.loads(row) if isinstance(row, bytes) else row
    paths = (*record.unread, *json.loads(record.carried or "{}"))
    names = {path.partition(".")[0] for path in paths} - {*COLUMN_NAMES}
    is_table = isinstance(values, Mapping)
    return {name: values[name] for name in values if name in names} if is_table else {}
