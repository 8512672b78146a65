"""Lists of ids as other people's code wants them: cut, padded, in tensors, in a mapping with attributes.

The rules are those of transformers: cutting and padding are asked for separately, either may take the tokenizer's own
length as the limit, and a single conversation stays a single list unless tensors are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from operator import index as as_int
from typing import Any

from turnwise.errors import MessageError, TokenizerError, did_you_mean, short_repr

ENDLESS = 10**20  # a longest length from here on means that there is none
PADDING: Mapping[Any, str] = {
    False: "",
    None: "",
    "do_not_pad": "",
    True: "longest",
    "longest": "longest",
    "max_length": "max_length",
}
CUTTING: Mapping[Any, bool] = {
    False: False,
    None: False,
    "do_not_truncate": False,
    True: True,
    "longest_first": True,
    "only_first": True,
}
TENSORS = {"np": "numpy", "pt": "torch", "pd": "paddle"}
"""Short names of the libraries that have tensors."""
FILLERS = {"attention_mask": 0, "token_type_ids": 0, "assistant_masks": 0}
"""What a row is padded with; `input_ids` with the pad token."""

Row = dict[str, list[int]]


class Encoding(dict[str, Any]):
    """What encoding gave: a dict whose entries are attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(
                f"no {name!r} here. {did_you_mean(name, self, 'It has')}"
            ) from None


@dataclass(frozen=True, slots=True)
class Layout:
    """How rows of ids become a batch."""

    padding: Any = False
    truncation: Any = False
    max_length: int | None = None
    return_tensors: Any = None
    pad_id: int | None = None
    padding_side: str = "right"
    truncation_side: str = "right"
    longest: int | None = None  # the length that the tokenizer says its model takes
    pad_to_multiple_of: int | None = None

    def __post_init__(self) -> None:
        for name in ("padding_side", "truncation_side"):
            if getattr(self, name) not in ("left", "right"):
                raise MessageError(
                    f"it is 'left' or 'right', not {short_repr(getattr(self, name))}", path=name
                )
        for name in ("max_length", "pad_to_multiple_of"):
            if getattr(self, name) is not None:
                whole(getattr(self, name), name)

    def batch(self, rows: Sequence[Row], single: bool) -> Encoding:
        """The rows, cut and padded; one list each if it is a single conversation and no tensors are wanted."""
        rows = self.padded([self.cut(row) for row in rows])
        columns: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
        if self.return_tensors is not None:
            return Encoding(tensors(columns, named(self.return_tensors)))
        return Encoding(
            {name: column[0] for name, column in columns.items()} if single else columns
        )

    def limit(self) -> int | None:
        if self.max_length is not None:
            return self.max_length
        return self.longest if self.longest is not None and self.longest < ENDLESS else None

    def cut(self, row: Row) -> Row:
        limit = self.limit()
        if not asked(CUTTING, self.truncation, "truncation") or limit is None:
            return row
        if self.truncation_side == "left":
            return {name: values[max(len(values) - limit, 0) :] for name, values in row.items()}
        return {name: values[:limit] for name, values in row.items()}

    def padded(self, rows: list[Row]) -> list[Row]:
        strategy = asked(PADDING, self.padding, "padding")
        wanted = (
            self.limit() if strategy == "max_length" else max(len(row["input_ids"]) for row in rows)
        )
        if not strategy or wanted is None:
            return rows
        if self.pad_id is None:
            raise TokenizerError(
                "padding needs a pad token, and the tokenizer has none",
                hint="Name one, or say padding=False.",
            )
        step = self.pad_to_multiple_of
        if step and asked(CUTTING, self.truncation, "truncation") and (self.limit() or 0) % step:
            raise MessageError(
                f"the length {self.limit()} is not a multiple of {step}", path="pad_to_multiple_of"
            )
        wanted = -(-wanted // step) * step if step else wanted
        return [self.filled(row, wanted) for row in rows]

    def filled(self, row: Row, wanted: int) -> Row:
        missing = max(wanted - len(row["input_ids"]), 0)
        found = {}
        for name, values in row.items():
            filler = [FILLERS.get(name, self.pad_id or 0)] * missing
            found[name] = [*filler, *values] if self.padding_side == "left" else [*values, *filler]
        return found


def whole(value: Any, path: str) -> int:
    """A length: a whole number that is not negative, numpy's included."""
    try:
        found = -1 if isinstance(value, bool) else as_int(value)
    except TypeError:
        found = -1
    if found < 0:
        raise MessageError(
            f"a length is a whole number from 0 up, not {short_repr(value)}", path=path
        )
    return found


def asked(table: Mapping[Any, Any], value: Any, path: str) -> Any:
    """What a setting means; enumerations of transformers count by their values."""
    value = getattr(value, "value", value)
    if not isinstance(value, str | bool | None) or value not in table:
        known = [str(key) for key in table]
        raise MessageError(
            f"{short_repr(value)} means nothing here",
            path=path,
            hint=f"Accepted: {', '.join(known)}.",
        )
    return table[value]


def named(return_tensors: Any) -> str:
    """The library of a short name."""
    name = getattr(return_tensors, "value", return_tensors)
    if not isinstance(name, str) or name not in TENSORS:
        hint = f"Accepted: {', '.join(TENSORS)}, or None for lists."
        raise MessageError(
            f"there are no tensors called {short_repr(name)}", path="return_tensors", hint=hint
        )
    return TENSORS[name]


def tensors(columns: Mapping[str, list[list[int]]], library: str) -> dict[str, Any]:
    try:
        module = import_module(library)
    except ImportError:
        hint = "Install it, or say return_tensors='np' or None."
        raise TokenizerError(
            f"{library} is not installed, so it cannot make tensors", hint=hint
        ) from None
    if len({len(row) for row in columns["input_ids"]}) > 1:
        raise MessageError(
            "conversations of different lengths do not make one tensor",
            hint="Say padding=True, and truncation=True.",
        )
    make = {"numpy": "asarray", "torch": "tensor", "paddle": "to_tensor"}[library]
    return {
        name: getattr(module, make)(column, dtype="int64" if library != "torch" else module.int64)
        for name, column in columns.items()
    }
