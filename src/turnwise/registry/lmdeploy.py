"""LMDeploy's rules from a model path to one of its templates: a path has certain words, and lacks others.

The rules are tried in LMDeploy's order on the whole path in lower case, so the name of an organisation counts, too:
`WizardLM/WizardCoder-15B` gets `wizardlm`. They are data, in the file of the templates (`dialects/lmdeploy.json`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from turnwise.messages import JsonMapping
from turnwise.registry.store import LMDEPLOY_FILE


class WordRule(NamedTuple):
    """The words of the paths that get a template."""

    template: str
    all: Sequence[str] = ()
    any: Sequence[str] = ()
    none: Sequence[str] = ()

    def matches(self, path: str) -> bool:
        """Return True if a path in lower case has all words of `all`, one of `any` and none of `none`."""
        for word in self.all:
            if word not in path:
                return False
        for word in self.none:
            if word in path:
                return False
        return not self.any or any(word in path for word in self.any)

    @property
    def words(self) -> frozenset[str]:
        """The words of a name that the rule looks for."""
        return frozenset(part for word in (*self.all, *self.any) for part in re.split("[-_]", word))

    def describe(self) -> str:
        """Return the words that a path must have, and those that it must not have."""
        words = [repr(word) for word in self.all]
        if self.any:
            words.append(" or ".join(map(repr, self.any)))
        text = " and ".join(words)
        return f"{text}, not {', '.join(map(repr, self.none))}" if self.none else text


@cache
def _rules() -> tuple[WordRule, ...]:
    data: JsonMapping = json.loads(LMDEPLOY_FILE.read_text(encoding="utf-8"))
    rows: Sequence[JsonMapping] = data["models"]
    return tuple(WordRule(**row) for row in rows)


@cache
def all_words() -> frozenset[str]:
    """Return the words that any rule looks for."""
    return frozenset(word for rule in _rules() for word in rule.words)


def find_template(model_path: str) -> WordRule | None:
    """Return the first rule for a path; None if LMDeploy would use no chat template."""
    path = model_path.lower()
    return next((rule for rule in _rules() if rule.matches(path)), None)
