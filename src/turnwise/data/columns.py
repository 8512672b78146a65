"""Columns that change what a row means; `columns.toml` is the table.

A row is more than its conversation: `label: false` says that the reply is a bad one, `split: "test"` that it must not
be trained, `images` that the text is not all of it. Such a column is never dropped silently. It is

    read       by the mode that understands it: `preferences = "unpaired"` reads `label`, "pairs" reads `chosen`
    carried    written to the shard, as JSON in the column `carried`
    refused    the row is rejected, and the reason names the column and what to do

`drop_columns` and `carry_columns` of a recipe decide otherwise. A column is known by the words of its name, so that
`isGood`, `overall_score` and `sample-weight` are, too, wherever they are: in the row, inside of another column
(`meta.label`) or in a message (`messages.rating`). A name without any of these words is listed as not read.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from turnwise.errors import printable, short_repr
from turnwise.messages import JsonMapping

WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\dA-Za-z_]+")
MAX_NAME = 100  # characters of a name that are looked at
MAX_DEPTH = 4
MAX_VALUES = 500  # of one column that are looked at
PLAIN = frozenset([str, int, float, bool])
MESSAGES = "messages"
# They hold what is written, or are read.
MESSAGE_KEYS = frozenset(["content", "tool_calls", "function_call", "weight"])
ANY_VALUE = ""
TRUTH_VALUES = "true false yes no"
TRUTH_NUMBERS = "0 1 0.0 1.0"
ASSERTING = frozenset(["is", "was", "are"])


class ColumnMeaning(NamedTuple):
    """What columns of one kind say about a row.

    Attributes:
        says: ends the sentence "the column says".
        is_carried: whether they are carried; else the row is refused.
        words: a name with one of them is of this kind.
        adjectives: a name with one of them is, if it asserts something (`is_good`, `good`), or has a truth value; a
            number is one behind the noun (`answer_correct`, but not `correct_answer` and `failed_attempts`).
        names: whole names, as their words.
        harmless: the values, as JSON, that say no more than a missing column.
        advice: what else to do.
    """

    says: str
    is_carried: bool = False
    words: str = ""
    adjectives: str = ""
    names: Collection[str] = ()
    harmless: Collection[str] = ()
    advice: str = ""


MEANINGS = [
    ColumnMeaning(**kind)
    for kind in tomllib.loads(Path(__file__).with_name("columns.toml").read_text(encoding="utf-8"))[
        "kind"
    ]
]
"""The kinds, the first that fits counts."""


class MeaningfulValue(NamedTuple):
    """A value that changes what its row means: its column, its path without numbers, and its kind."""

    column: str
    path: str
    value: Any
    meaning: ColumnMeaning


class ColumnProblem(NamedTuple):
    """Why a row is refused: the path of the value, and the sentence."""

    path: str
    reason: str


class SortedColumns(NamedTuple):
    """What becomes of the columns of a row that its shape did not read.

    Attributes:
        unread: the names of those that are not carried.
        carried: those that are, as JSON; None if there are none.
        problem: why the row is refused.
    """

    unread: tuple[str, ...] = ()
    carried: str | None = None
    problem: ColumnProblem | None = None


def sort_columns(
    rest: JsonMapping,
    messages: Sequence[Any],
    drop: Collection[str],
    carry: Collection[str],
) -> SortedColumns:
    """Return what becomes of the columns that a shape did not read.

    Args:
        rest: the columns.
        messages: the messages; their keys are looked at, too, but for `weight`, which is read.
        drop: columns or paths that are dropped, whatever they mean.
        carry: columns or paths that are carried.

    Example:
        >>> sort_columns({"id": 7, "score": 0.5}, [])
        SortedColumns(unread=('id',), carried='{"score": 0.5}', problem=None)
        >>> sort_columns({"label": False}, []).problem.path
        'label'
    """
    plain = None if carry else _show_plain(rest, messages)
    if plain is not None:
        return SortedColumns(plain)
    carried = {name: value for name, value in rest.items() if name in carry}
    problem = None
    for found in _find_meaningful(rest, messages):
        if not {found.column, found.path}.isdisjoint(drop):
            continue
        if found.meaning.is_carried or not {found.column, found.path}.isdisjoint(carry):
            if found.column == MESSAGES:
                carried.setdefault(found.path, []).append(found.value)
            else:
                carried[found.column] = rest[found.column]
        elif problem is None and not _is_said_in(found, messages):
            problem = _refuse(found)
    unread = tuple(
        printable(name)[:MAX_NAME]
        for name, value in rest.items()
        if value is not None and name not in carried
    )
    text = json.dumps(carried, ensure_ascii=False, default=str) if carried else None
    return SortedColumns(unread, text, problem)


def _show_plain(rest: JsonMapping, messages: Sequence[Any]) -> tuple[str, ...] | None:
    """Fast path: return the names of columns that are plain values and mean nothing; None if there are others."""
    is_plain = PLAIN.issuperset(map(type, rest.values()))
    if not is_plain or any(len(message) > 2 for message in messages):
        return None
    return _show_plain_names(tuple(rest))


@lru_cache(maxsize=4096)
def _show_plain_names(names: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return names as they are listed; None if one of them may mean something."""
    if any(map(find_meanings, names)):
        return None
    return tuple(printable(name)[:MAX_NAME] for name in names)


@lru_cache(maxsize=4096)
def find_meanings(name: str) -> tuple[tuple[ColumnMeaning, str], ...]:
    """Return the kinds that a name may be of, each with the values that it needs for that."""
    words = [word.lower() for word in WORDS.findall(name[:MAX_NAME])]
    singular = [word[:-1] if word.endswith("s") and word[:-1] else word for word in words]
    known = {*words, *singular}
    found = []
    for meaning in MEANINGS:
        wholes = (" ".join(words), " ".join(singular))
        if not known.isdisjoint(meaning.words.split()) or not {*wholes}.isdisjoint(meaning.names):
            found.append((meaning, ANY_VALUE))
        elif not known.isdisjoint(adjectives := meaning.adjectives.split()):
            asserts = len(words) == 1 or not ASSERTING.isdisjoint(words)
            is_last = words[-1] in adjectives
            numbers = f" {TRUTH_NUMBERS}" if is_last else ""
            found.append((meaning, ANY_VALUE if asserts else TRUTH_VALUES + numbers))
    return tuple(found)


def _find_meaningful(rest: JsonMapping, messages: Sequence[Any]) -> Iterator[MeaningfulValue]:
    columns = list(rest.items())
    for message in messages:
        if len(message) > 2:
            others = {key: item for key, item in message.items() if key not in MESSAGE_KEYS}
            columns.append((MESSAGES, others))
    for name, value in columns:
        for path, item in _walk(name, value, MAX_DEPTH, [MAX_VALUES]):
            meaning = _choose_meaning(path.rpartition(".")[2], item)
            if meaning is not None:
                yield MeaningfulValue(name, path, item, meaning)


def _choose_meaning(name: str, value: Any) -> ColumnMeaning | None:
    """Return the kind of a value; None for one that says nothing."""
    if value is None or value in ("", [], {}):
        return None
    for meaning, values in find_meanings(name):
        if values and str(value).strip().lower() not in values.split():
            continue
        text = value.strip() if isinstance(value, str) else value
        is_harmless = json.dumps(text, default=str).lower() in meaning.harmless
        return None if is_harmless else meaning
    return None


def _walk(path: str, value: Any, depth: int, budget: list[int]) -> Iterator[tuple[str, Any]]:
    """Yield a value and those inside of it, with their paths; items of lists have the path of their list."""
    budget[0] -= 1
    if budget[0] < 0:
        return
    yield path, value
    if depth and isinstance(value, Mapping):
        for key, item in value.items():
            yield from _walk(f"{path}.{key}", item, depth - 1, budget)
    elif depth and isinstance(value, list):
        for item in value:
            if isinstance(item, (Mapping, list)):
                yield from _walk(path, item, depth - 1, budget)


def _is_said_in(found: MeaningfulValue, messages: Sequence[Any]) -> bool:
    """Return whether a column repeats the text of a message, as a `system` column may."""
    return any(message.get("content") == found.value for message in messages)


def _refuse(found: MeaningfulValue) -> ColumnProblem:
    path = printable(found.path)[:MAX_NAME]
    also = f"; {found.meaning.advice}" if found.meaning.advice else ""
    reason = (
        f"the column {path!r} ({short_repr(found.value)}) says {found.meaning.says}, and is not read here. "
        f"--carry-columns {path} writes it to the shards, --drop-columns {path} leaves it out{also}"
    )
    return ColumnProblem(path, reason)
