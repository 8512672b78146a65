"""FastChat's templates by name, and its rules from a model path to a template: the reader of `entries/fastchat.json`.

A path is matched as FastChat does it: its patterns in their order, first on the last part of the path and then on the
whole path; the last pattern matches everything. Six short words are matched on token boundaries (`v0` is not in `v0.9`,
`mpt` not in `prompt`); with `exact` they are matched anywhere, as in FastChat.

A folder with a PEFT adapter gets the template of its base model. A name that contains `peft` without such a folder is
an error in FastChat, and with `exact`; otherwise the rest of the name decides.

All files about FastChat are listed in `dialects/fastchat_styles.py`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from turnwise.errors import SourceError, short_repr
from turnwise.local_files import read_table
from turnwise.messages import JsonMapping
from turnwise.registry.entry import ENTRIES

PEFT = "PeftModelAdapter"
PEFT_FILE = "adapter_config.json"
MAX_ADAPTER_DEPTH = 8  # adapters of adapters
MAX_ADAPTER_CONFIG = 2**20  # bytes
ANY_MODEL = ("one_shot", "zero_shot")
"""FastChat's templates for models of which it knows nothing."""
API_STYLE = "DEFAULT"
FIRST_WORD = re.compile(r"(?:\^\(\?=\.\*)?(?:\(\?<!\[a-z\]\))?([a-z\d-]+)(?=\)|\\\.|$)")
"""The word with which a pattern begins, also in `^(?=.*word)` or after `(?<![a-z])`, and which nothing repeats."""


class ModelPattern:
    """A regular expression, compiled when it is first used; it sees lower case unless it has `(?-i:`."""

    __slots__ = ("_search", "case_sensitive", "text", "word")

    def __init__(self, text: str) -> None:
        self.text = text
        self.case_sensitive = "(?-i:" in text
        needed = None if "|" in text else FIRST_WORD.match(text)
        self.word = needed[1] if needed else ""  # every match has it; `in` is quicker than a search
        self._search: Callable[[str], Any] | None = None

    def matches(self, text: str, lower: str) -> bool:
        """Return True if the pattern is found in `text`, of which `lower` is the lower-case form."""
        search = self._search or self._compile()
        return search(text if self.case_sensitive else lower) is not None

    def _compile(self) -> Callable[[str], Any]:
        expression = re.compile(self.text)
        anchored = self.text.startswith("^") and "|" not in self.text
        if anchored or self.text.startswith("(?-i:^(?:"):
            self._search = expression.match  # `search` would try every position
        else:
            self._search = expression.search
        return self._search


class TemplateChoice(NamedTuple):
    """A pattern and the template of the paths that it matches."""

    pattern: ModelPattern
    template: str | None
    name_only: bool = False  # the pattern sees the last part of the path only


class AdapterRule(NamedTuple):
    """One of FastChat's adapters: the paths that it takes, and their templates; the last choice takes the rest."""

    adapter: str
    pattern: ModelPattern
    choices: tuple[TemplateChoice, ...]


class FastChatMatch(NamedTuple):
    """The template of a model path, with the reason."""

    template: str
    adapter: str
    reason: str
    searched: str  # the patterns

    @property
    def words(self) -> frozenset[str]:
        """The words of a name that the patterns look for."""
        return _words_of(self.searched)

    @property
    def is_specific(self) -> bool:
        """True if it is a format of some models: not the answer to any name, nor that of a service without a text."""
        style = templates()[self.template].get("sep_style", API_STYLE)
        return self.template not in ANY_MODEL and style != API_STYLE


@cache
def _data() -> JsonMapping:
    found: JsonMapping = json.loads((ENTRIES / "fastchat.json").read_text(encoding="utf-8"))
    return found


@cache
def templates() -> Mapping[str, JsonMapping]:
    """Return all templates by name: the fields that differ from FastChat's defaults."""
    items = (*_data()["templates"], *_data()["own"])
    return MappingProxyType({item["name"]: MappingProxyType(item) for item in items})


@cache
def rules(exact: bool) -> tuple[AdapterRule, ...]:
    """Return FastChat's rules in its order; `exact` includes the one for PEFT adapters."""
    found = []
    for item in _data()["models"]:
        if item["adapter"] == PEFT and not exact:
            continue
        choices = [
            TemplateChoice(_pattern(choice, exact), choice["template"], "where" in choice)
            for choice in item.get("choose", ())
        ]
        choices.append(TemplateChoice(ModelPattern(""), item["template"]))
        found.append(AdapterRule(item["adapter"], _pattern(item, exact), tuple(choices)))
    return tuple(found)


def _pattern(item: JsonMapping, exact: bool) -> ModelPattern:
    return ModelPattern(item["match"] if exact else item.get("token", item["match"]))


def match_path(model_path: str, exact: bool = False) -> FastChatMatch:
    """Return the template that FastChat uses for a model path."""
    if not isinstance(model_path, str):
        raise SourceError(f"a model path is text, not {type(model_path).__name__}")
    path = find_base_model(model_path)
    rule, text = find_rule(path, exact)
    choice, template = choose_template(rule, path)
    reason = "no pattern matches"
    if rule.pattern.text:
        reason = f"{text!r} matches {rule.pattern.text!r}"
    if choice.pattern.text:
        reason += f", and {choice.pattern.text!r} is in it"
    if path != model_path:
        reason = f"{model_path!r} is an adapter of {path!r}; {reason}"
    reason = f"{reason} (FastChat's {rule.adapter})"
    searched = f"{rule.pattern.text} {choice.pattern.text}"
    return FastChatMatch(template, rule.adapter, reason, searched)


def _words_of(patterns: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z\d.]+", patterns.lower().replace("\\", "")))


@cache
def all_words() -> frozenset[str]:
    """Return the words that any pattern looks for."""
    patterns = (
        pattern.text
        for rule in rules(False)
        for pattern in (rule.pattern, *(choice.pattern for choice in rule.choices))
    )
    return _words_of(" ".join(patterns))


def choose_template(rule: AdapterRule, path: str) -> tuple[TemplateChoice, str]:
    """Return the first choice of a rule that matches a path, of which the last always does, and its template."""
    name = path.rstrip("/").rpartition("/")[2]
    found = rule.choices[-1]
    for choice in rule.choices[:-1]:
        text = name if choice.name_only else path
        if choice.pattern.matches(text, text.lower()):
            found = choice
            break
    if found.template is None:
        raise SourceError(
            f"{short_repr(path)} is a PEFT adapter by its name, and there is no {PEFT_FILE} that names its base model",
            hint="Give the folder of the adapter, or the base model.",
        )
    return found, found.template


def find_rule(path: str, exact: bool) -> tuple[AdapterRule, str]:
    """Return the first rule that matches the last part of a path, else the whole path, and the part it matched."""
    *candidates, fallback = rules(exact)
    base = os.path.basename(os.path.normpath(path))
    for text in (base, path) if base != path else (path,):
        lower = text.lower()
        for rule in candidates:
            if rule.pattern.word in lower and rule.pattern.matches(text, lower):
                return rule, text
    return fallback, path


def find_base_model(path: str) -> str:
    """Follow PEFT adapters to their base model; other paths are returned as they are."""
    base = path
    for _ in range(MAX_ADAPTER_DEPTH + 1):
        following = _adapter_base(base)
        if not following:
            return base
        base = following
    problem = f"is an adapter of an adapter, {MAX_ADAPTER_DEPTH} times over"
    raise SourceError(f"{short_repr(path)} {problem}")


def _adapter_base(path: str) -> str | None:
    """Return the base model that the PEFT adapter in a folder names."""
    try:
        file = f"{path}/{PEFT_FILE}"
        if not path or not os.path.isfile(file):
            return None
        config = read_table(Path(file), MAX_ADAPTER_CONFIG, Path(path))
    except (OSError, ValueError):  # not a valid path, or not JSON
        return None
    base = config.get("base_model_name_or_path")
    return base if isinstance(base, str) else None
