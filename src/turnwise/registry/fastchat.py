"""FastChat's templates by name, and its way from a model path to one: the reader of `entries/fastchat.json`.

A path is looked up as FastChat does it: the patterns in its order, on the last part of the path first and on the whole
path after, the last pattern taking everything. A hundred patterns are too many for each path, so there is an index: a
pattern is tried only on a path in which a word begins that the pattern cannot do without. Six short words are looked
for on token boundaries (C20: `v0` is not in `v0.9`, `mpt` not in `prompt`); `exact` looks for them anywhere, as
FastChat does.

A folder with a PEFT adapter answers for its base model. A name that has `peft` in it and no such folder is an error in
FastChat, and with `exact`; otherwise the rest of the name decides.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from turnwise.errors import SourceError, short_repr
from turnwise.registry.entry import ENTRIES

PEFT = "PeftModelAdapter"
PEFT_FILE = "adapter_config.json"
DEPTH = 8  # adapters upon adapters

START = 3  # letters of a word by which the index knows it

# what `words` knows of an expression
CASED = r"\(\?-i:(?:\^\(\?:(.*)\)\$|([^()]*))\)"
FORBIDDEN = r"\(\?<?![^()]*\)"
WANTED = r"\(\?=\.\*([^()]*)\)"
EDGES = r"\.\*|[$^]"
OTHERWISE = r"[][(){}?*+]|(?<!\\)\."
RUN = r"(?:[\w-]|\\\.)+"


class Pattern:
    """A regular expression for lower case, or for the case as it is where it says `(?-i:`."""

    __slots__ = ("_search", "cased", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.cased = "(?-i:" in text
        self._search: Callable[[str], Any] | None = None

    def finds(self, text: str, lower: str) -> bool:
        search = self._search or self.compiled()
        return search(text if self.cased else lower) is not None

    def compiled(self) -> Callable[[str], Any]:
        """Most are never asked, so none is compiled before."""
        expression = re.compile(self.text)
        # an anchored search would try every place
        anchored = self.text.startswith("(?-i:^(?:") or (
            self.text.startswith("^") and "|" not in self.text
        )
        self._search = expression.match if anchored else expression.search
        return self._search


def words(pattern: str) -> tuple[str, ...]:
    """Texts of which at least one stands in whatever the pattern finds; the empty one where that is not easily told."""
    if cased := re.fullmatch(CASED, pattern):
        pattern = (cased[1] or cased[2]).lower()
    plain = re.sub(EDGES, " ", re.sub(WANTED, r" \1 ", re.sub(FORBIDDEN, " ", pattern)))
    runs = [re.findall(RUN, alternative) for alternative in plain.split("|")]
    if re.search(OTHERWISE, plain) or not all(runs):
        return ("",)
    return tuple(max(run, key=len).replace("\\", "") for run in runs)


@dataclass(frozen=True, slots=True)
class Choice:
    """A pattern, and the template of what it finds."""

    pattern: Pattern
    template: str | None
    name_only: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """One of FastChat's adapters: whom it takes, and which template they get; the last choice takes the rest."""

    adapter: str
    pattern: Pattern
    choices: tuple[Choice, ...]


@dataclass(frozen=True, slots=True)
class Match:
    """The template of a model path, with the reason."""

    template: str
    adapter: str
    reason: str


@cache
def data() -> Mapping[str, Any]:
    """The file."""
    found: Mapping[str, Any] = MappingProxyType(
        json.loads((ENTRIES / "fastchat.json").read_text(encoding="utf-8"))
    )
    return found


@cache
def templates() -> Mapping[str, Mapping[str, Any]]:
    """All templates by name, FastChat's own first: the fields that differ from the defaults."""
    return MappingProxyType(
        {item["name"]: MappingProxyType(item) for item in (*data()["templates"], *data()["own"])}
    )


@cache
def lower_names() -> Mapping[str, str]:
    return MappingProxyType({name.lower(): name for name in templates()})


def find(name: str) -> Mapping[str, Any] | None:
    """The fields of a template; its name may be written in any case (C5)."""
    exact_name = lower_names().get(name.lower())
    return templates().get(name) or (templates()[exact_name] if exact_name else None)


@cache
def rules(exact: bool) -> tuple[Rule, ...]:
    def pattern(item: Mapping[str, Any]) -> Pattern:
        return Pattern(item["match"] if exact else item.get("token", item["match"]))

    def choices(item: Mapping[str, Any]) -> tuple[Choice, ...]:
        several = [
            Choice(pattern(one), one["template"], one.get("where") == "name")
            for one in item.get("choose", ())
        ]
        return (*several, Choice(Pattern(""), item["template"]))

    found = [item for item in data()["models"] if exact or item["adapter"] != PEFT]
    return tuple(Rule(item["adapter"], pattern(item), choices(item)) for item in found)


def match(model_path: str, exact: bool = False) -> Match:
    """The template that FastChat takes for a model."""
    if not isinstance(model_path, str):
        raise SourceError(f"a model path is text, not {type(model_path).__name__}")
    path, seen = model_path, 0
    while base := peft_base(path):
        path, seen = base, seen + 1
        if seen > DEPTH:
            raise SourceError(
                f"{short_repr(model_path)} is an adapter of an adapter, {DEPTH} times over"
            )
    rule, text = taker(path, exact)
    choice = chosen(rule, path)
    if choice.template is None:
        raise SourceError(
            f"{short_repr(path)} is a PEFT adapter by its name, and there is no {PEFT_FILE} that names its base model",
            hint="Give the folder of the adapter, or the base model.",
        )
    said = f"{text!r} matches {rule.pattern.text!r}" if rule.pattern.text else "no pattern matches"
    if choice.pattern.text:
        said += f", and {choice.pattern.text!r} is in it"
    based = f"{model_path!r} is an adapter of {path!r}; " if seen else ""
    return Match(choice.template, rule.adapter, f"{based}{said} (FastChat's {rule.adapter})")


def chosen(rule: Rule, path: str) -> Choice:
    """The first choice that fits the path, or its last part; the last choice fits everything."""
    if len(rule.choices) == 1:
        return rule.choices[0]
    name = path.rstrip("/").rpartition("/")[2]
    parts = {True: (name, name.lower()), False: (path, path.lower())}
    return next(one for one in rule.choices if one.pattern.finds(*parts[one.name_only]))


@cache
def index(exact: bool) -> dict[str, frozenset[int]]:
    """How words begin, and the numbers of the rules worth trying where one does; without the last rule."""
    found: dict[str, set[int]] = {}
    for number, rule in enumerate(rules(exact)[:-1]):
        for word in words(rule.pattern.text):
            found.setdefault(word[:START], set()).add(number)
    return {start: frozenset(numbers) for start, numbers in found.items()}


def taker(path: str, exact: bool) -> tuple[Rule, str]:
    """The first rule that takes the last part of a path, else the whole path."""
    everyone = rules(exact)
    likely = [everyone[number] for number in candidates(path.lower(), index(exact))]
    base = os.path.basename(os.path.normpath(path))
    for text in (base, path) if base != path else (path,):
        lower = text.lower()
        for rule in likely:
            if rule.pattern.finds(text, lower):
                return rule, text
    return everyone[-1], path


def candidates(lower: str, known: Mapping[str, frozenset[int]]) -> list[int]:
    starts = {lower[at : at + START] for at in range(len(lower))} & known.keys()
    return sorted(known.get("", frozenset()).union(*map(known.__getitem__, starts)))


def peft_base(path: str) -> str | None:
    """The base model that the PEFT adapter in a folder names."""
    try:
        file = f"{path}/{PEFT_FILE}"
        if not path or not os.path.isfile(file):
            return None
        config = json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # a path the system cannot have, or no JSON
        return None
    base = config.get("base_model_name_or_path") if isinstance(config, dict) else None
    return base if isinstance(base, str) else None
