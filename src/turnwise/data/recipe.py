"""Recipe: everything that decides what a data set becomes, as one value.

A recipe is written in Python, as a TOML file with the same names, or as flags of `turnwise prepare`:

    inputs = ["data/*.jsonl"]
    template = "qwen3"
    tokenizer = "Qwen/Qwen3-8B"
    output = "out"
    max_length = 4096
    overlong = "split"
    packing = "best-fit"

    [options]
    enable_thinking = false

Every value is checked when the recipe is made, and a misspelt one is named with the nearest that is known. What a
recipe cannot know is found when it is first used: files that do not exist, a template that cannot be loaded.
"""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, get_args

from turnwise import shapes
from turnwise.errors import SourceError
from turnwise.local_files import error_reason
from turnwise.messages import JsonMapping, JsonObject
from turnwise.normalisation.normalised import LATE_SYSTEM, LateSystem
from turnwise.schema import (
    BOOLEAN,
    NON_EMPTY_STRING,
    TABLE,
    ValueRule,
    check,
    check_keys,
    check_table,
    one_of,
    or_null,
)
from turnwise.shapes.row import ARGUMENT_NAMES
from turnwise.tokens.loss import POLICIES, LossPolicy

PREFERENCE = "preference"
SHAPE_NAMES = ("auto", *(name for name in shapes.SHAPES), PREFERENCE)
Samples = Literal["whole", "turns"]
Overlong = Literal["drop", "truncate", "split"]
Packing = Literal["none", "best-fit"]
Preferences = Literal["chosen", "pairs", "unpaired"]
OnBadRow = Literal["quarantine", "fail"]
OnFlaw = Literal["reject", "keep"]
ShardFormat = Literal["parquet", "arrow"]
SAMPLES, OVERLONG, PACKING = get_args(Samples), get_args(Overlong), get_args(Packing)
PREFERENCES, ON_BAD_ROW = get_args(Preferences), get_args(OnBadRow)
ON_FLAW, SHARD_FORMATS = get_args(OnFlaw), get_args(ShardFormat)
TRAIN, VALIDATION = "train", "validation"
"""The splits."""
ENGINE_NAMES = ("local", "ray")
"""What may do the work; it changes no byte, so a recipe does not have it."""
RECIPE_HINT = "A recipe is a TOML file: docs/data.md."
DEFAULT_CHUNK_BYTES = 8 << 20
MIN_CHUNK_BYTES = 1 << 10

LENGTH = ValueRule("a whole number from 1 up", lambda value: type(value) is int and value > 0)
SHARE = ValueRule(
    "a share from 0 up to, but not including, 1",
    lambda value: type(value) in (int, float) and 0 <= value < 1,
)
SEED = ValueRule("a whole number", lambda value: type(value) is int)
CHUNK_BYTES = ValueRule(
    f"a whole number from {MIN_CHUNK_BYTES} up",
    lambda value: type(value) is int and value >= MIN_CHUNK_BYTES,
)
PATHS = ValueRule(
    "a list of files, folders or patterns",
    lambda value: isinstance(value, tuple) and len(value) > 0,
    NON_EMPTY_STRING,
)
NAMES = ValueRule(
    "a list of names of columns", lambda value: isinstance(value, tuple), NON_EMPTY_STRING
)
TIME = ValueRule("a date, such as 2026-11-16", lambda value: isinstance(value, datetime))
SOURCE = ValueRule("a name, a file or a folder", lambda value: value not in (None, ""))

RULES: Mapping[str, ValueRule] = {
    "inputs": PATHS,
    "template": SOURCE,
    "tokenizer": SOURCE,
    "output": or_null(NON_EMPTY_STRING),
    "shape": one_of(SHAPE_NAMES),
    "columns": TABLE,
    "carry_columns": NAMES,
    "drop_columns": NAMES,
    "train_on": one_of(POLICIES),
    "samples": one_of(SAMPLES),
    "preferences": one_of(PREFERENCES),
    "max_length": or_null(LENGTH),
    "overlong": one_of(OVERLONG),
    "packing": one_of(PACKING),
    "validation": SHARE,
    "deduplicate": BOOLEAN,
    "shuffle": or_null(SEED),
    "group_by_length": BOOLEAN,
    "on_bad_row": one_of(ON_BAD_ROW),
    "on_flaw": one_of(ON_FLAW),
    "shard_format": one_of(SHARD_FORMATS),
    "chunk_bytes": CHUNK_BYTES,
    "late_system": or_null(one_of(LATE_SYSTEM)),
    "now": or_null(TIME),
    "options": TABLE,
}
WITHOUT_EFFECT = ("inputs", "output", "on_bad_row")  # on the bytes of shards, given the same rows


@dataclass(frozen=True)
class Recipe:
    """What is read, how it is encoded, and what is written.

    Attributes:
        inputs: files, folders and patterns with `*`; one may be given as a text.
        template: what `turnwise.load` takes, or a Template.
        tokenizer: what `Template.encode` takes.
        output: the folder of the shards; None if nothing is written.
        shape: the shape of the rows: a name of `turnwise.shapes.SHAPES`, "preference" (chosen and rejected), or "auto".
        columns: the names that columns have in the data, by their usual names: `{"messages": "dialogue"}`.
        carry_columns: columns that are not read, and are written to the shard, as JSON in `carried`.
        drop_columns: columns that are left out although they change what a row means, such as `label` (`columns.py`).
        train_on: the loss policy, as for `Template.encode`.
        samples: "whole" makes one sample of a row, "turns" as many as `Template.examples` needs for every turn to
            follow what serving would have sent.
        preferences: what rows with `chosen` and `rejected` become: "chosen" trains the chosen reply, "pairs" keeps
            both, for DPO; then all rows must be preferences. "unpaired" is for KTO: rows have a `label`, true or false,
            or `chosen` and `rejected`, which become two samples.
        max_length: the most tokens of a sample, and of a packed row.
        overlong: what becomes of longer conversations: "drop" leaves them out, "truncate" keeps the first messages, up
            to the last reply that fits, "split" makes several samples of whole rounds, each after the system messages.
        packing: "best-fit" puts several samples into one row of at most `max_length` tokens; no sample is cut.
        validation: the share of rows that goes to the validation split, chosen by a hash of the conversation.
        deduplicate: keep one of several samples with the same ids and labels.
        shuffle: a seed; None keeps the order of the inputs.
        group_by_length: sort the rows of each shard by their length.
        on_bad_row: "quarantine" writes bad rows to a file of their own, "fail" ends the run at the first.
        on_flaw: "reject" rows of which the template would not write or train everything, or "keep" them.
        shard_format: "parquet" or "arrow".
        chunk_bytes: the bytes of input for one shard, about.
        late_system: where system texts after other messages are put, as for `Template.render`.
        now: the time that the template's `strftime_now` returns; needed by templates that write the date.
        options: values of the template's own variables, for all rows.

    Example:
        >>> recipe = Recipe(inputs="data.jsonl", template="chatml", tokenizer="turnwise", max_length=2048)
        >>> recipe.overlong
        'drop'
    """

    inputs: tuple[str, ...]
    template: Any
    tokenizer: Any
    output: str | None = None
    shape: str = "auto"
    columns: Mapping[str, str] = field(default_factory=dict)
    carry_columns: tuple[str, ...] = ()
    drop_columns: tuple[str, ...] = ()
    train_on: LossPolicy = "assistant"
    samples: Samples = "whole"
    preferences: Preferences = "chosen"
    max_length: int | None = None
    overlong: Overlong = "drop"
    packing: Packing = "none"
    validation: float = 0.0
    deduplicate: bool = False
    shuffle: int | None = None
    group_by_length: bool = False
    on_bad_row: OnBadRow = "quarantine"
    on_flaw: OnFlaw = "reject"
    shard_format: ShardFormat = "parquet"
    chunk_bytes: int = DEFAULT_CHUNK_BYTES
    late_system: LateSystem | None = None
    now: datetime | None = None
    options: JsonMapping = field(default_factory=dict)

    def __post_init__(self) -> None:
        lists = ("inputs", "carry_columns", "drop_columns")
        converters = {**dict.fromkeys(lists, _as_paths), "output": _as_path, "now": _as_time}
        for name, convert in converters.items():
            object.__setattr__(self, name, convert(getattr(self, name)))
        check_table({one.name: getattr(self, one.name) for one in fields(self)}, RULES)
        check_keys(self.columns, COLUMN_NAMES, "columns: unknown key")
        for name, column in self.columns.items():
            check(column, NON_EMPTY_STRING, f"columns.{name}")
        if wrong := sorted(ARGUMENT_NAMES & self.options.keys()):
            problem = f"options: {wrong[0]!r} is not a variable of a template"
            raise SourceError(problem, hint="tools and messages are columns of the rows")
        if self.max_length is None and self.packing != "none":
            raise SourceError("packing needs max_length: the most tokens of a packed row")
        if self.max_length is None and self.overlong != "drop":
            raise SourceError(f"overlong={self.overlong!r} needs max_length")
        if self.preferences != "chosen":
            self._check_preferences()

    def _check_preferences(self) -> None:
        """Refuse values that have no meaning for pairs, and for replies with a label."""
        for name in ("samples", "overlong", "packing", "train_on"):
            value = getattr(Recipe, name)  # the default
            if getattr(self, name) != value:
                kept = "kept as pairs" if self.preferences == "pairs" else self.preferences
                problem = f"{name} must be {value!r} if preferences are {kept}"
                raise SourceError(problem, hint='preferences = "chosen" trains the chosen reply')

    @classmethod
    def from_mapping(cls, values: JsonMapping) -> Recipe:
        """Make a recipe of plain values, as a TOML or JSON file holds them.

        Raises:
            SourceError: a key is unknown or missing, or a value is wrong.

        Example:
            >>> values = {"inputs": ["a.jsonl"], "template": "chatml", "tokenizer": "turnwise"}
            >>> Recipe.from_mapping(values).inputs
            ('a.jsonl',)
        """
        check(values, TABLE, "a recipe")
        check_keys(values, RULES)
        for name in ("inputs", "template", "tokenizer"):
            if name not in values:
                raise SourceError(f"the recipe has no {name!r}", hint=f"Keys: {', '.join(RULES)}.")
        return cls(**values)

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str], **overrides: Any) -> Recipe:
        """Read a recipe from a TOML file.

        Args:
            path: the file.
            overrides: values that replace those of the file.

        Raises:
            SourceError: the file cannot be read, or a value in it is wrong.
        """
        try:
            values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
            return cls.from_mapping({**values, **overrides})
        except OSError as error:
            problem = f"{path}: cannot be read: {error_reason(error)}"
            raise SourceError(problem, hint=RECIPE_HINT) from None
        except ValueError as error:  # not TOML, or not UTF-8
            raise SourceError(f"{path}: is not TOML: {error}", hint=RECIPE_HINT) from None
        except SourceError as error:
            raise error.within(str(path)) from None

    def to_mapping(self) -> JsonObject:
        """Return the values as JSON takes them; objects appear by their names."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        for name in ("inputs", "carry_columns", "drop_columns"):
            values[name] = list(values[name])
        values["now"] = self.now and self.now.isoformat()
        for name in ("template", "tokenizer"):
            given = values[name]
            if not isinstance(given, str):
                values[name] = getattr(given, "name", None) or type(given).__name__
        return {**values, "columns": dict(self.columns), "options": dict(self.options)}

    @property
    def digest(self) -> str:
        """A hash of all values that decide about the bytes of a shard, given the same rows."""
        values = {
            name: value for name, value in self.to_mapping().items() if name not in WITHOUT_EFFECT
        }
        text = json.dumps(values, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()


COLUMN_NAMES = (
    *("messages", "conversations", "conversation", "prompt", "completion", "chosen", "rejected"),
    *("label", "instruction", "input", "output", "system", "history", "src", "tgt", "context"),
    *("tools", "documents", "chat_template_kwargs"),
)
"""The usual names of columns, which `columns` maps to those of the data."""


def _as_paths(value: Any) -> Any:
    if isinstance(value, (str, os.PathLike)):
        return (os.fspath(value),)
    return tuple(map(_as_path, value)) if isinstance(value, (list, tuple)) else value


def _as_path(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _as_time(value: Any) -> Any:
    """Return a time for a date or a text that is one; other values as they are."""
    if not isinstance(value, datetime) and hasattr(value, "isoformat"):  # a date of TOML
        value = value.isoformat()
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            return value
    return value
