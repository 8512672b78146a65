"""Read one row of data, given as JSON text, as a conversation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from turnwise import shapes
from turnwise.data.recipe import PREFERENCE, Recipe
from turnwise.errors import MessageError, did_you_mean


class RowProblem(Exception):
    """A row that gives no sample.

    Attributes:
        kind: one of `schemas.KINDS`.
        reason: what is wrong with it, where, and what to do.
    """

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind, self.reason = kind, reason


class Record(NamedTuple):
    """A row as a conversation.

    Attributes:
        messages: the messages, in OpenAI's shape.
        arguments: the arguments of `encode` that the row gives: tools, documents and options.
    """

    messages: list[Any]
    arguments: Mapping[str, Any]


def read_record(raw: bytes, recipe: Recipe) -> Record:
    """Read a row.

    Raises:
        RowProblem: it cannot be read.
    """
    try:
        row = json.loads(raw)
    except UnicodeDecodeError as error:
        raise RowProblem("bad-encoding", f"is not UTF-8 at byte {error.start}") from None
    except (ValueError, RecursionError) as error:
        raise RowProblem("bad-json", f"is not JSON: {error}") from None
    if recipe.columns:
        row = _rename_columns(row, recipe.columns)
    shape = None if recipe.shape in ("auto", PREFERENCE) else recipe.shape
    try:
        arguments = shapes.conversation(row, shape).arguments
    except MessageError as error:
        raise RowProblem("bad-message", describe_error(error)) from None
    return Record(arguments.pop("messages"), arguments)


def _rename_columns(row: Any, columns: Mapping[str, str]) -> Any:
    if not isinstance(row, dict):
        raise RowProblem("bad-column", "is not a table with columns, and the recipe names some")
    for name, column in columns.items():
        if column not in row:
            hint = did_you_mean(column, row, "It has")
            raise RowProblem("bad-column", f"there is no column {column!r}. {hint or ''}".strip())
        row[name] = row.pop(column)
    return row


def describe_error(error: Any) -> str:
    """Return an error as one line."""
    return ". ".join(line.strip() for line in str(error).splitlines() if line.strip())
