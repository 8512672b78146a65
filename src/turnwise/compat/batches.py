"""Rows of token ids truncated, padded and put into tensors, by the rules of transformers.

Truncation and padding are chosen separately, each may use the tokenizer's own maximum length, and a single conversation
stays a single list unless tensors are wanted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from operator import index as as_int
from typing import Any

from turnwise.errors import MessageError, TokenizerError, did_you_mean, short_repr
from turnwise.messages import JsonObject

NO_LIMIT = 10**20  # transformers' value for a tokenizer without a maximum length
PADDING: Mapping[Any, str] = {
    **dict.fromkeys((False, None, "do_not_pad"), ""),
    **dict.fromkeys((True, "longest"), "longest"),
    "max_length": "max_length",
}
TRUNCATION: Mapping[Any, bool] = {
    **dict.fromkeys((False, None, "do_not_truncate"), False),
    **dict.fromkeys((True, "longest_first", "only_first"), True),
}
TENSOR_LIBRARIES = {
    "np": ("numpy", "asarray"),
    "pt": ("torch", "tensor"),
    "pd": ("paddle", "to_tensor"),
}
PADDING_VALUES = {"attention_mask": 0, "token_type_ids": 0, "assistant_masks": 0}
"""What each column is padded with; `input_ids` with the pad token."""

TokenRow = dict[str, list[int]]
"""The ids of one conversation and the columns beside them."""


class AttributeDict(JsonObject):
    """A dict whose keys are attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            hint = did_you_mean(name, self, "It has") or "It is empty."
            raise AttributeError(f"no {name!r} here. {hint}") from None


class Encoding(AttributeDict):
    """The result of encoding: `input_ids`, `attention_mask`, ... as keys and as attributes."""


@dataclass(frozen=True, slots=True)
class BatchLayout:
    """How rows of ids become a batch; the fields are arguments and attributes of transformers' tokenizers."""

    padding: Any = False
    truncation: Any = False
    max_length: int | None = None
    return_tensors: Any = None
    pad_id: int | None = None
    padding_side: str = "right"
    truncation_side: str = "right"
    model_max_length: int | None = None
    pad_to_multiple_of: int | None = None

    def __post_init__(self) -> None:
        for name in ("padding_side", "truncation_side"):
            side = getattr(self, name)
            if side not in ("left", "right"):
                raise MessageError(f"it is 'left' or 'right', not {short_repr(side)}", path=name)
        for name in ("max_length", "pad_to_multiple_of"):
            if getattr(self, name) is not None:
                check_length(getattr(self, name), name)

    def make_batch(self, rows: Sequence[TokenRow], single: bool) -> Encoding:
        """Return the columns of the rows, truncated and padded; a `single` row without tensors stays one list."""
        rows = self._pad([self.truncate(row) for row in rows])
        columns: JsonObject = {name: [row[name] for row in rows] for name in rows[0]}
        if self.return_tensors is not None:
            return Encoding(_make_tensors(columns, self.return_tensors))
        if single:
            columns = {name: column[0] for name, column in columns.items()}
        return Encoding(columns)

    @property
    def limit(self) -> int | None:
        """The length to which rows are truncated, if that is wanted."""
        own = self.model_max_length
        usual = None if own is None or own >= NO_LIMIT else own
        return usual if self.max_length is None else self.max_length

    def _truncates(self) -> bool:
        return bool(_look_up(TRUNCATION, self.truncation, "truncation"))

    def truncate(self, row: TokenRow) -> TokenRow:
        """Return the columns cut to the limit, if that is wanted."""
        limit = self.limit
        if not self._truncates() or limit is None:
            return row
        if self.truncation_side == "left":
            return {name: values[max(len(values) - limit, 0) :] for name, values in row.items()}
        return {name: values[:limit] for name, values in row.items()}

    def _pad(self, rows: list[TokenRow]) -> list[TokenRow]:
        strategy = _look_up(PADDING, self.padding, "padding")
        length = max(len(row["input_ids"]) for row in rows)
        if strategy == "max_length":
            if self.limit is None:
                return rows
            length = self.limit
        if not strategy:
            return rows
        if self.pad_id is None:
            raise TokenizerError(
                "padding needs a pad token, and the tokenizer has none",
                hint="Name one, or say padding=False.",
            )
        multiple = self.pad_to_multiple_of
        if multiple:
            if self._truncates() and (self.limit or 0) % multiple:
                raise MessageError(
                    f"the length {self.limit} is not a multiple of {multiple}",
                    path="pad_to_multiple_of",
                )
            length = -(-length // multiple) * multiple  # rounded up
        return [self._pad_row(row, length, self.pad_id) for row in rows]

    def _pad_row(self, row: TokenRow, length: int, pad_id: int) -> TokenRow:
        missing = max(length - len(row["input_ids"]), 0)
        padded = {}
        for name, values in row.items():
            padding = [PADDING_VALUES.get(name, pad_id)] * missing
            padded[name] = padding + values if self.padding_side == "left" else values + padding
        return padded


def are_texts(values: Any) -> bool:
    """Return True for a list of texts."""
    return isinstance(values, list | tuple) and all(isinstance(value, str) for value in values)


def check_length(value: Any, path: str) -> int:
    """Return a length as an int; numpy's integers are accepted, negative numbers and booleans are not."""
    try:
        length = -1 if isinstance(value, bool) else as_int(value)
    except TypeError:
        length = -1
    if length < 0:
        raise MessageError(
            f"a length is a whole number from 0 up, not {short_repr(value)}", path=path
        )
    return length


def _look_up(table: Mapping[Any, Any], value: Any, path: str) -> Any:
    """Return the meaning of a setting; enumerations of transformers count by their values."""
    value = getattr(value, "value", value)
    if not isinstance(value, str | bool | None) or value not in table:
        raise MessageError(
            f"unknown value {short_repr(value)}",
            path=path,
            hint=f"Accepted: {', '.join(map(str, table))}.",
        )
    return table[value]


def _make_tensors(columns: Mapping[str, list[list[int]]], return_tensors: Any) -> JsonObject:
    name = getattr(return_tensors, "value", return_tensors)
    if not isinstance(name, str) or name not in TENSOR_LIBRARIES:
        raise MessageError(
            f"there are no tensors called {short_repr(name)}",
            path="return_tensors",
            hint=f"Accepted: {', '.join(TENSOR_LIBRARIES)}, or None for lists.",
        )
    library, function = TENSOR_LIBRARIES[name]
    try:
        module = import_module(library)
    except ImportError:
        raise TokenizerError(
            f"{library} is not installed, so it cannot make tensors",
            hint="Install it, or say return_tensors='np' or None.",
        ) from None
    if len({len(row) for row in columns["input_ids"]}) > 1:
        raise MessageError(
            "conversations of different lengths do not make one tensor",
            hint="Say padding=True, and truncation=True.",
        )
    make_tensor = getattr(module, function)
    dtype = module.int64 if library == "torch" else "int64"
    return {name: make_tensor(column, dtype=dtype) for name, column in columns.items()}
