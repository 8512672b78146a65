"""FastChat's templates by name, and its way from a model path to one: the reader of `entries/fastchat.json`.

A path is looked up as FastChat does it: the patterns in its order, on the last part of the path first and on the whole
path after, the last pattern taking everything. Six short words are looked for on token boundaries (C20: `v0` is not in
`v0.9`, `mpt` not in `prompt`); `exact` looks for them anywhere, as FastChat does.

A folder with a PEFT adapter answers for its base model. A name that has `peft` in it and no such folder is an error in
FastChat, and with `exact`; otherwise the rest of the name decides.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from turnwise.errors import SourceError, shown

PEFT = "PeftModelAdapter"
PEFT_FILE = "adapter_config.json"
DEPTH = 8  # adapters upon adapters


class Pattern:
    """A regular expression for lower case, or for the case as it is where it says `(?-i:`."""

    __slots__ = ("cased", "search", "text")

    def __init__(self, text: str) -> None:
        compiled = re.compile(text)
        self.text = text
        self.cased = "(?-i:" in text
        # an anchored search would try every place
        self.search = compiled.match if text.startswith("^") and "|" not in text else compiled.search

    def finds(self, text: str, lower: str) -> bool:
        return self.search(text if self.cased else lower) is not None


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
    from importlib.resources import files as resources

    text = (resources(__package__) / "entries" / "fastchat.json").read_text(encoding="utf-8")
    found: Mapping[str, Any] = MappingProxyType(json.loads(text))
    return found


@cache
def templates() -> Mapping[str, Mapping[str, Any]]:
    """All templates by name, FastChat's own first: the fields that differ from the defaults."""
    return MappingProxyType({item["name"]: MappingProxyType(item) for item in (*data()["templates"], *data()["own"])})


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
        several = [Choice(pattern(one), one["template"], one.get("where") == "name") for one in item.get("choose", ())]
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
            raise SourceError(f"{shown(model_path)} is an adapter of an adapter, {DEPTH} times over")
    rule, text = taker(path, exact)
    name = path.rstrip("/").rpartition("/")[2]
    parts = {True: (name, name.lower()), False: (path, path.lower())}
    choice = next(one for one in rule.choices if one.pattern.finds(*parts[one.name_only]))
    if choice.template is None:
        raise SourceError(
            f"{shown(path)} is a PEFT adapter by its name, and there is no {PEFT_FILE} that names its base model",
            hint="Give the folder of the adapter, or the base model.",
        )
    said = f"{text!r} matches {rule.pattern.text!r}" if rule.pattern.text else "no pattern matches"
    if choice.pattern.text:
        said += f", and {choice.pattern.text!r} is in it"
    based = f"{model_path!r} is an adapter of {path!r}; " if seen else ""
    return Match(choice.template, rule.adapter, f"{based}{said} (FastChat's {rule.adapter})")


def taker(path: str, exact: bool) -> tuple[Rule, str]:
    """The first rule that takes the last part of a path, else the whole path."""
    base = os.path.basename(os.path.normpath(path))
    everyone = rules(exact)
    for text in (base, path):
        lower = text.lower()
        for rule in everyone:
            if rule.pattern.finds(text, lower) and rule is not everyone[-1]:
                return rule, text
    return everyone[-1], path


def peft_base(path: str) -> str | None:
    """The base model that the PEFT adapter in a folder names."""
    try:
        file = os.path.join(path, PEFT_FILE)
        if not path or not os.path.isfile(file):
            return None
        config = json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # a path the system cannot have, or no JSON
        return None
    base = config.get("base_model_name_or_path") if isinstance(config, dict) else None
    return base if isinstance(base, str) else None
