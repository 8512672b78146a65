"""Conversations whose every text is a word that stands nowhere else, so each place in an output has a known source.

A probe has nine letters and digits, since some templates insist on call ids of that form. It replaces a text, or,
where a text is several runs between tags, or JSON, each run of it: templates look for `</think>` and parse arguments.
What steers a template (roles, types) is left as it is. Ids that were equal stay equal, as templates look calls up by
them; such a word then has several sources.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Path = tuple[str | int, ...]
Source = tuple[Path, bool]  # a path, and whether the word is its key

WORD = re.compile(r"zq[0-9]{5}xk", re.IGNORECASE)
RUNS = re.compile(r"(<[^<>]*>|\[/?[A-Z_]+\]|\n+)")
STEERING = frozenset({"role", "type", "weight", "loss", "prefix"})
IDS = frozenset({"id", "tool_call_id"})
NAMED = frozenset({"arguments", "properties", "$defs", "parameters"})  # dicts with free keys
SCHEMA_WORDS = frozenset(
    {"type", "properties", "required", "additionalProperties", "$defs", "items", "description"}
)


@dataclass(frozen=True, slots=True)
class Probed:
    """Arguments for `Template.render` and what each word in them stands for."""

    arguments: dict[str, Any]
    sources: Mapping[str, set[Source]]

    def value(self, path: Path) -> Any:
        found: Any = self.arguments
        for step in path:
            found = found[step]
        return found


class Probing:
    """Replaces texts by probes, and remembers where it put them."""

    def __init__(self) -> None:
        self.sources: dict[str, set[Source]] = defaultdict(set)
        self.ids: dict[str, str] = {}
        self.keys: dict[str, str] = {}
        self.count = 0

    def word(self, *sources: Source) -> str:
        self.count += 1
        word = f"Zq{self.count:05}Xk"
        self.sources[word.lower()].update(sources)
        return word

    def replace(self, value: Any, path: Path) -> Any:
        if isinstance(value, dict):
            return self.mapping(value, path)
        if isinstance(value, list):
            return [self.replace(item, (*path, index)) for index, item in enumerate(value)]
        if (
            not isinstance(value, str)
            or not value.strip()
            or path[-1] in STEERING
            or "type" in path[-2:]
        ):
            return value
        if path[-1] in IDS:
            return self.share_word(self.ids, value, (path, False))
        if "required" in path[-2:]:
            return self.share_word(self.keys, value, (path, False))
        return self.text(value, path)

    def mapping(self, value: dict[str, Any], path: Path) -> dict[str, Any]:
        renames = any(step in NAMED for step in path[-1:]) or "arguments" in path[:-1]
        renames = renames and not ("parameters" in path[-1:] and SCHEMA_WORDS & set(value))
        result = {}
        for key, item in value.items():
            name = self.rename_key(key, path) if renames else key
            result[name] = self.replace(item, (*path, name))
        return result

    def rename_key(self, key: str, path: Path) -> str:
        """A new name for a key; `required` names the keys of `properties`, so the two share their words."""
        word = self.keys.setdefault(key, self.word()) if path[-1] == "properties" else self.word()
        self.sources[word.lower()].add(((*path, word), True))
        return word

    def share_word(self, known: dict[str, str], value: str, source: Source) -> str:
        word = known.setdefault(value, "") or self.word()
        known[value] = word
        self.sources[word.lower()].add(source)
        return word

    def text(self, value: str, path: Path) -> str:
        if path[-1] == "arguments":
            return self.json_text(value, path)
        return "".join(
            run if RUNS.fullmatch(run) or not run.strip() else self.frame(run, path)
            for run in RUNS.split(value)
        )

    def frame(self, run: str, path: Path) -> str:
        """A word with the white space that was around the run."""
        start, end = len(run) - len(run.lstrip()), len(run.rstrip())
        return run[:start] + self.word((path, False)) + run[end:]

    def json_text(self, value: str, path: Path) -> str:
        """JSON inside of a text: all words in it are of that one text, its keys included."""
        try:
            inside = json.loads(value)
        except ValueError:
            return self.word((path, False))
        return json.dumps(self.inside(inside, path))

    def inside(self, value: Any, path: Path) -> Any:
        if isinstance(value, dict):
            return {self.word((path, False)): self.inside(item, path) for item in value.values()}
        if isinstance(value, list):
            return [self.inside(item, path) for item in value]
        return self.word((path, False)) if isinstance(value, str) else value


def probe_arguments(
    arguments: Mapping[str, Any], keep: Callable[[str], bool] = lambda name: False
) -> Probed:
    """The arguments with a probe for every text; `keep` says which of them stay as they are."""
    probing = Probing()
    changed = {
        name: value if keep(name) else probing.replace(value, (name,))
        for name, value in arguments.items()
    }
    return Probed(changed, dict(probing.sources))
