"""Read one row of data, given as JSON text, as a conversation.

The stated outcome for everything that text may hold:

    BOM, CRLF, spaces around       ignored
    a blank line                   filtered: it is no row
    not UTF-8                      rejected, with the byte
    not JSON, cut off, NaN         rejected, with the column
    a key twice in one object      rejected: readers disagree about which of the two is meant
    a number beyond a float        rejected
    an unknown shape or column     rejected, with the columns that the row has
    no message at all              rejected: the conversation is empty
    a weight other than 0 and 1    rejected: labels cannot hold it
    a column that says more        carried or rejected, as `columns.py` says

Rows have the shapes of `turnwise.shapes`, told apart row by row, or are preferences: `chosen` and `rejected`, with or
without a `prompt`. A preference becomes the conversation that ends with the chosen reply. The messages that both have
in common are its prompt, and are not trained, as in TRL. With `preferences = "unpaired"`, a row of any shape has a
`label`: whether the completion, or else the last reply, is a good one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isinf
from typing import Any, NamedTuple

from turnwise import shapes
from turnwise.data.columns import sort_columns
from turnwise.data.recipe import PREFERENCE, Recipe
from turnwise.errors import (
    MessageError,
    TemplateError,
    TurnwiseError,
    did_you_mean,
    printable,
    short_repr,
)
from turnwise.messages import JsonMapping, JsonObject
from turnwise.shapes.row import SHARED_COLUMNS

BOM = b"\xef\xbb\xbf"
PREFERENCE_COLUMNS = ("chosen", "rejected")
NOT_PLAIN = frozenset([*SHARED_COLUMNS, *PREFERENCE_COLUMNS, "system"])
WEIGHTS = (None, 0, 1)
LABELS = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}
MAX_SHOWN_ROW = 40  # characters of a text that is no JSON


class UnusableRow(Exception):
    """A row that gives no sample.

    Attributes:
        kind: one of `reasons.KINDS`.
        reason: what is wrong with it, where, and what to do.
        path: the value that it is about, such as `messages[1].content`; "" if it is about the whole row.
        unread: the columns of the row that were not read.
    """

    def __init__(
        self, kind: str, reason: str, path: str = "", unread: tuple[str, ...] = ()
    ) -> None:
        super().__init__(reason)
        self.kind, self.reason, self.path, self.unread = kind, reason, path, unread


class Record(NamedTuple):
    """A row as a conversation.

    Attributes:
        messages: the messages, in OpenAI's shape.
        arguments: the arguments of `encode` that the row gives: tools, documents and options.
        rejected: of a preference, the conversation that ends with the rejected reply.
        label: whether the reply is a good one, of a row that says so.
        shape: the shape of the row: a name of `turnwise.shapes.SHAPES`, or "preference".
        unread: the columns that were not read.
        carried: the columns that the shard carries, as JSON.
    """

    messages: list[Any]
    arguments: JsonMapping
    rejected: list[Any] | None = None
    label: bool | None = None
    shape: str = "openai"
    unread: tuple[str, ...] = ()
    carried: str | None = None

    @property
    def row(self) -> Any:
        """The conversation as `encode_batch` takes it."""
        return self.row_of(self.messages)

    def row_of(self, messages: list[Any]) -> Any:
        """Return other messages with the arguments of this row, as `encode_batch` takes them."""
        if not self.arguments:
            return messages
        columns: JsonObject = {"messages": messages}
        options = {}
        for name, value in self.arguments.items():
            if name in SHARED_COLUMNS:
                columns[name] = value
            else:
                options[name] = value
        return {**columns, "chat_template_kwargs": options}


class RecordReader:
    """Reads rows as a recipe says.

    Args:
        recipe: the recipe.
    """

    def __init__(self, recipe: Recipe) -> None:
        self._columns = recipe.columns
        self._carry, self._drop = (
            {*names, *(name for name, column in recipe.columns.items() if column in names)}
            for names in (recipe.carry_columns, recipe.drop_columns)
        )
        self._has_labels = recipe.preferences == "unpaired"
        self._shape = None if recipe.shape == "auto" else recipe.shape
        self._can_be_plain = recipe.shape in ("auto", "openai") and not self._has_labels

    def read(self, raw: bytes) -> Record:
        """Read a row from its JSON text.

        Raises:
            UnusableRow: it cannot be read.
        """
        return self.read_value(self._parse(raw))

    def read_value(self, row: Any) -> Record:
        """Read a row whose JSON was parsed.

        Raises:
            UnusableRow: it cannot be read.
        """
        rest: JsonObject = {}
        if self._columns:
            row, rest = _rename_columns(row, self._columns)
        if self._can_be_plain and type(row) is dict and NOT_PLAIN.isdisjoint(row):
            messages = row.get("messages")
            if type(messages) is list and _are_plain(messages):
                if len(row) == 1 and not rest:
                    return Record(messages, {})
                rest |= {name: value for name, value in row.items() if name != "messages"}
                return self._sort_columns(Record(messages, {}), rest, messages)
        try:
            record, others = self._read_shape(row)
        except MessageError as error:
            kind = "bad-message" if error.path else "unknown-shape"
            raise UnusableRow(kind, describe_error(error), error.path) from None
        messages = [*record.messages, *(record.rejected or ())]
        return self._sort_columns(record, {**rest, **others}, messages)

    def _sort_columns(self, record: Record, rest: JsonMapping, messages: Sequence[Any]) -> Record:
        """Return the record with what becomes of the columns that its shape did not read."""
        found = sort_columns(rest, messages, self._drop, self._carry)
        if found.problem is not None:
            path, reason = found.problem
            raise UnusableRow("unread-column", reason, path, found.unread)
        return record._replace(unread=found.unread, carried=found.carried)

    def _parse(self, raw: bytes) -> Any:
        """Parse the JSON text of a row."""
        if raw.startswith(BOM):
            raw = raw[len(BOM) :]
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            found = raw[error.start : error.start + 4].hex(" ")
            reason = f"byte {error.start} is not UTF-8: {found}. Save the file as UTF-8"
            raise UnusableRow("bad-encoding", reason) from None
        try:
            return decode_json(text)
        except RecursionError:
            raise UnusableRow("bad-json", "the JSON is nested too deeply") from None
        except json.JSONDecodeError as error:
            if not text.strip():
                raise UnusableRow("blank", "the line is blank") from None
            if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string"):
                reason = f"the JSON ends too early, after {len(text)} characters: {error.msg}"
                raise UnusableRow("bad-json", reason) from None
            at = short_repr(text[error.pos : error.pos + MAX_SHOWN_ROW])
            reason = f"is not JSON: {error.msg}, at character {error.pos}: {at}"
            raise UnusableRow("bad-json", reason) from None
        except ValueError as error:  # of the functions below, or a number with thousands of digits
            raise UnusableRow("bad-json", printable(str(error))) from None

    def _read_shape(self, row: Any) -> tuple[Record, JsonMapping]:
        """Return the conversation of a row, and the columns that are no part of it."""
        is_preference = self._shape in (None, PREFERENCE) and _is_preference(row)
        if self._shape == PREFERENCE and not is_preference:
            found = ", ".join(map(str, row)) if isinstance(row, dict) else type(row).__name__
            raise MessageError(f"there is no 'chosen' in this row. It has: {found}")
        if is_preference:
            return _read_preference(row)
        label = None
        if self._has_labels:
            label, row = _take_label(row)
        parsed = shapes.conversation(row, self._shape)
        arguments = dict(parsed.arguments)
        messages = arguments.pop("messages")
        _check_not_empty(messages, "messages")
        _check_weights(messages)
        if label is not None and parsed.shape != "prompt":
            replies = [number for number, one in enumerate(messages) if one["role"] == "assistant"]
            messages = _without_training(messages, replies[-1] if replies else 0)
        return Record(messages, arguments, label=label, shape=parsed.shape), parsed.rest


def _are_plain(messages: list[Any]) -> bool:
    """Return whether messages are roles and texts only, which need no further checks here."""
    if not messages or set(map(type, messages)) != {dict} or set(map(len, messages)) != {2}:
        return False
    for message in messages:
        if type(message.get("role")) is not str or type(message.get("content")) is not str:
            return False
    return True


def _check_not_empty(messages: list[Any], column: str) -> None:
    if not messages:
        hint = "Leave such rows out, or fill them."
        raise MessageError("the conversation is empty", path=column, hint=hint)


def _check_weights(messages: list[Any]) -> None:
    for index, message in enumerate(messages):
        if message.get("weight") not in WEIGHTS:
            problem = (
                f"must be 0 or 1, not {short_repr(message['weight'])}; labels are trained or not"
            )
            raise MessageError(problem, path=f"messages[{index}].weight")


# -- JSON -------------------------------------------------------------------------------------------------------------


def _read_object(pairs: list[tuple[str, Any]]) -> JsonObject:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {short_repr(twice)} is twice in one object: keep one of them")
    return found


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON: write null, or a number")


def _read_float(text: str) -> float:
    value = float(text)
    if isinf(value):
        raise ValueError(f"the number {short_repr(text)} is too large")
    return value


# A key twice in one object is refused, since a filter before this program may have read the other value.
decode_json = json.JSONDecoder(
    object_pairs_hook=_read_object, parse_constant=_refuse_constant, parse_float=_read_float
).decode


# -- columns ----------------------------------------------------------------------------------------------------------


def _rename_columns(row: Any, columns: Mapping[str, str]) -> tuple[Any, JsonObject]:
    """Return the row with the usual names of columns, and the columns that had such a name before."""
    if not isinstance(row, dict):
        reason = f"the recipe names columns, and the row is no table: {short_repr(row)}"
        raise UnusableRow("bad-column", reason)
    renamed = {key: value for key, value in row.items() if key not in columns.values()}
    others = {name: renamed[name] for name in columns if name in renamed}
    for name, column in columns.items():
        if column not in row:
            hint = did_you_mean(column, row, "It has") or "It is empty."
            raise UnusableRow("bad-column", f"there is no column {column!r}. {hint}")
        renamed[name] = row[column]
    return renamed, others


def _take_label(row: Any) -> tuple[bool, JsonObject]:
    if not isinstance(row, dict) or row.get("label") is None:
        found = ", ".join(map(str, row)) if isinstance(row, dict) else type(row).__name__
        problem = "there is neither a 'label' nor 'chosen' and 'rejected', and the recipe wants unpaired preferences"
        raise UnusableRow("bad-column", f"{problem}. It has: {found}")
    value = row["label"]
    label = LABELS.get(str(value).strip().lower()) if not isinstance(value, (dict, list)) else None
    if label is None:
        raise MessageError(f"must be true or false, not {short_repr(value)}", path="label")
    return label, {name: item for name, item in row.items() if name != "label"}


# -- preferences ------------------------------------------------------------------------------------------------------


def _is_preference(row: Any) -> bool:
    return isinstance(row, dict) and row.get("chosen") is not None


def _read_preference(row: JsonObject) -> tuple[Record, JsonMapping]:
    """Read `chosen` and `rejected`, each a reply after the `prompt`, or a whole conversation."""
    chosen = _join_prompt(row.get("prompt"), row["chosen"], "chosen")
    given = row.get("rejected")
    rejected = None if given is None else _join_prompt(row.get("prompt"), given, "rejected")
    _check_not_empty(chosen, "chosen")
    if rejected is not None:
        _check_not_empty(rejected, "rejected")
    shared = _count_shared(chosen, rejected, row.get("prompt"))
    used = (*PREFERENCE_COLUMNS, "prompt", "messages")
    others = {key: value for key, value in row.items() if key not in used}
    parsed = shapes.conversation({**others, "messages": chosen}, "openai")
    arguments = dict(parsed.arguments)
    rest = {**parsed.rest, **{name: row[name] for name in ("messages",) if name in row}}
    messages = _without_training(arguments.pop("messages"), shared)
    _check_weights(messages)
    if rejected is not None:
        parsed = shapes.conversation({"messages": rejected}, "openai")
        rejected = _without_training(parsed.messages, shared)
    return Record(messages, arguments, rejected, shape=PREFERENCE), rest


def _join_prompt(prompt: Any, reply: Any, column: str) -> list[Any]:
    """Return the conversation of a prompt and a reply, each a text or messages; the reply may repeat the prompt."""
    before = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt or []
    if isinstance(reply, str):
        if not before:
            problem = "is a text, and there is no 'prompt' before it"
            raise MessageError(problem, path=column, hint="messages or a prompt are needed")
        return [*before, {"role": "assistant", "content": reply}]
    replies = [reply] if isinstance(reply, dict) else reply
    if not isinstance(replies, list) or not isinstance(before, list):
        found = replies if not isinstance(replies, list) else before
        where = column if found is replies else "prompt"
        problem = f"must be text or a list of messages, not {short_repr(found)}"
        raise MessageError(problem, path=where)
    turns = [one for one in replies if not (isinstance(one, dict) and one.get("role") == "system")]
    repeats_prompt = replies[: len(before)] == before or turns[: len(before)] == before
    return replies if repeats_prompt else [*before, *replies]


def _count_shared(chosen: list[Any], rejected: list[Any] | None, prompt: Any) -> int:
    """Return how many messages are the prompt: those that both conversations begin with."""
    if rejected is None:
        return len(prompt) if isinstance(prompt, list) else 0
    shared = 0
    for ours, theirs in zip(chosen, rejected, strict=False):
        if ours != theirs:
            break
        shared += 1
    return min(shared, len(chosen) - 1, len(rejected) - 1)


def _without_training(messages: list[Any], count: int) -> list[Any]:
    """Return messages, with weight 0 for replies among the first ones whose weight is not given."""
    found = []
    for index, message in enumerate(messages):
        is_prompt = index < count and message["role"] == "assistant"
        if is_prompt and message.get("weight") is None:
            message = {**message, "weight": 0}
        found.append(message)
    return found


# -- errors -----------------------------------------------------------------------------------------------------------


def describe_error(error: TurnwiseError) -> str:
    """Return an error as one line: what is wrong, where, and what to do."""
    parts = [error.message]
    if isinstance(error, TemplateError) and error.line:
        parts[0] += f" (template {error.name}, line {error.line})"
    if error.hint:
        parts.append(error.hint)
    return printable(". ".join(part.rstrip(".") for part in parts)).replace("\n", " ")
