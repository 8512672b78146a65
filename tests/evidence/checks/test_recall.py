"""How many defects that a script plants in published templates are found, and how many at their lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import corpus
from seeded_defects import Seed, find_seed, list_seeds

pytestmark = [corpus.needs_corpus, pytest.mark.once]
SAMPLE, ALL = 12, 120
FOUND, AT_LINE = 0.9, 0.85  # shares
NEAR = 2  # lines


def measure(seeds: Sequence[Seed]) -> tuple[float, float, str]:
    found = at_line = 0
    missed = []
    for seed in seeds:
        lines = find_seed(seed)
        is_near = any(line is not None and abs(line - seed.line) <= NEAR for line in lines)
        found += bool(lines)
        at_line += is_near
        if not is_near:
            missed.append(f"{seed.template}:{seed.line} {seed.kind}: {lines}")
    return found / len(seeds), at_line / len(seeds), "\n".join(missed)


@pytest.mark.law
def test_a_sample_of_seeded_defects_is_found(sample: Any) -> None:
    seeds = sample(list_seeds(SAMPLE), 3)
    found, _, missed = measure(seeds)
    assert found >= FOUND - 1 / len(seeds), missed


@pytest.mark.slow
def test_seeded_defects_are_found_at_their_lines() -> None:
    found, at_line, missed = measure(list_seeds(ALL))
    assert found >= FOUND and at_line >= AT_LINE, f"{found} {at_line}\n{missed}"
