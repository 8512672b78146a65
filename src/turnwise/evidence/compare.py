"""`diff(a, b)`: do two templates write the same? If not, the smallest conversation on which they differ.

Both render a fixed, wide set of conversations: `probes.variations`, for all options that either of them reads. "No
difference" is evidence, not proof: it says how many conversations were tried and what they cover.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from turnwise.analysis.conversations import SPECIAL_TOKENS, option_names, variations
from turnwise.analysis.counterexample import Counterexample, find_counterexample
from turnwise.errors import SourceError
from turnwise.registry import load
from turnwise.template import Template
from turnwise.tokens import tokenizers


@dataclass(frozen=True)
class Comparison:
    """What `diff` found. True when no difference was."""

    witness: Counterexample | None
    tried: int
    covers: tuple[str, ...]
    about: tuple[str, ...] = ()  # the same in a few words: turns, contents, ...
    options: tuple[str, ...] = ()  # those that were asked for

    @property
    def equal(self) -> bool:
        return self.witness is None

    def __bool__(self) -> bool:
        return self.equal

    def __str__(self) -> str:
        if self.witness is not None:
            return str(self.witness)
        options = [f"options ({', '.join(self.options)})"] if self.options else []
        return f"no difference in {self.tried} conversations: {', '.join([*self.about, *options])}"


def diff(a: Template | str, b: Template | str, tokenizer: Any = None) -> Comparison:
    """Compare two templates, or what `load` takes, on conversations made up for it.

    The special tokens are those of the tokenizer, where one is given.
    """
    a, b = template_of(a), template_of(b)
    named = {} if tokenizer is None else tokenizers.tokenizer(tokenizer).named
    tokens = SPECIAL_TOKENS | {
        name: text for name, text in named.items() if name in SPECIAL_TOKENS and text
    }
    variables = list(dict.fromkeys((*a.variables, *b.variables)))
    covers: dict[str, None] = {}
    about: dict[str, None] = {}
    options = tuple(option_names(variables))
    for tried, probe in enumerate(variations(variables, tokens), 1):
        covers[probe.covers] = None
        if not probe.about.startswith("option "):
            about[probe.about] = None
        found = find_counterexample(a, b, probe)
        if found is not None:
            return Comparison(found, tried, tuple(covers), tuple(about), options)
    return Comparison(None, tried, tuple(covers), tuple(about), options)


def template_of(given: Any) -> Template:
    if isinstance(given, str):
        return load(given)
    if not isinstance(given, Template):
        raise SourceError(
            f"diff compares templates, not {type(given).__name__}",
            hint="Give what `compile` or `load` made, or a name that `load` knows.",
        )
    return given
