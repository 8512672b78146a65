"""Defects that a person wrote into templates: how many are reported, and how many at their lines."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import corpus
from written_defects import (
    DEFECTS,
    RARE_DEFECTS,
    STRANGERS_DEFECTS,
    Defect,
    find_defect,
    load_original,
    plant,
)

NEAR = 2  # lines
FOUND, AT_LINE = 0.97, 0.90  # shares
RARE_FOUND, RARE_AT_LINE = 0.5, 0.5  # of kinds that most templates never had
STRANGERS_FOUND, STRANGERS_AT_LINE = 73 / 80, 57 / 80  # what was reached when they were added
SAMPLE_SHARE = 0.8  # of a sample, which is small


@pytest.mark.law
def test_written_defects_are_found_at_their_lines(sample) -> None:
    defects = [one for one in sample(DEFECTS) if load_original(one.template) is not None]
    missed, elsewhere = judge_defects(defects)
    is_whole = len(defects) == len(DEFECTS)
    found, at_line = (FOUND, AT_LINE) if is_whole else (SAMPLE_SHARE, SAMPLE_SHARE - 0.2)
    count = max(len(defects), 1)
    assert 1 - len(missed) / count >= found, "\n".join(missed)
    assert 1 - len(missed + elsewhere) / count >= at_line, "\n".join(missed + elsewhere)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("defects", "found", "at_line"),
    [
        (RARE_DEFECTS, RARE_FOUND, RARE_AT_LINE),
        pytest.param(
            STRANGERS_DEFECTS, STRANGERS_FOUND, STRANGERS_AT_LINE, marks=corpus.needs_corpus
        ),
    ],
    ids=["rare", "strangers"],
)
def test_other_defects_are_found_at_their_lines(
    defects: Sequence[Defect], found: float, at_line: float
) -> None:
    missed, elsewhere = judge_defects(defects)
    count = len(defects)
    assert count - len(missed) >= found * count, "\n".join(missed)
    assert count - len(missed + elsewhere) >= at_line * count, "\n".join(missed + elsewhere)


def judge_defects(defects: Sequence[Defect]) -> tuple[list[str], list[str]]:
    """Return the defects that are not found, and those that are found elsewhere."""
    missed, elsewhere = [], []
    for defect in defects:
        _, wanted = plant(defect)
        lines = [line for _, line, _ in find_defect(defect)]
        if not lines:
            missed.append(f"{defect.template} {defect.kind}: not found")
        elif not any(line is not None and abs(line - wanted) <= NEAR for line in lines):
            elsewhere.append(f"{defect.template} {defect.kind}: {lines}, not {wanted}")
    return missed, elsewhere
