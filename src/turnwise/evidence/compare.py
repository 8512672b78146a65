"""`diff(a, b)`: do two templates write the same? If not, the smallest conversation on which they differ.

Both render a fixed, wide set of conversations: `probes.variations`, for all options that either of them reads. "No
difference" is evidence, not proof: it says how many conversations were tried and what they cover.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from turnwise.probes import variations
from turnwise.template import Template
from turnwise.witness import Witness, witness


@dataclass(frozen=True)
class Comparison:
    """What `diff` found. True when no difference was."""

    witness: Witness | None
    tried: int
    covers: tuple[str, ...]

    @property
    def equal(self) -> bool:
        return self.witness is None

    def __bool__(self) -> bool:
        return self.equal

    def __str__(self) -> str:
        if self.witness is not None:
            return str(self.witness)
        return f"no difference in {self.tried} conversations, which cover {len(self.covers)} things"


def diff(a: Template, b: Template, tokenizer: Any = None) -> Comparison:
    """Compare two templates on conversations made up for it."""
    covers: dict[str, None] = {}
    for tried, probe in enumerate(variations(dict.fromkeys((*a.variables, *b.variables))), 1):
        covers[probe.covers] = None
        found = witness(a, b, probe)
        if found is not None:
            return Comparison(found, tried, tuple(covers))
    return Comparison(None, tried, tuple(covers))
