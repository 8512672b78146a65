"""tests/requirements.md: every number has a row, and every row holds.

A row names tests that are there, or a part of the project that is still to come. That a test shows what its row says
is for people to judge; the names are collected from the files without running them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import pytest

from named_tests import ROOT, expected_to_fail, names

PAGE = ROOT / "tests" / "requirements.md"
NUMBERS = [f"R{number:03}" for number in range(1, 217)]
REASONS = {  # what only a later part can show
    "needs the server": "requests over HTTP",
}
TEST = re.compile(r"`(tests/(?:\w+/)?test_\w+\.py)::(test_\w+)`")
CELL_BORDER = re.compile(r"(?<!\\)\|")
SUM = re.compile(
    r"Of 216 requirements (\d+) are shown, (\d+) (?:are|is) half shown and (\d+) needs? a later part\."
)


@dataclass(frozen=True)
class Row:
    number: str
    requirement: str
    shown_by: str
    note: str

    @property
    def tests(self) -> list[tuple[str, str]]:
        return [(found[1], found[2]) for found in TEST.finditer(self.shown_by)]


@cache
def rows() -> list[Row]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    cells = [
        [cell.strip() for cell in CELL_BORDER.split(line)[1:-1]]
        for line in lines
        if line.startswith("| R")
    ]
    return [Row(*row) for row in cells]


def test_every_number_has_a_row() -> None:
    assert [row.number for row in rows()] == NUMBERS


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.number)
def test_a_row_holds(row: Row) -> None:
    if not row.tests:
        assert row.shown_by in REASONS, (
            f"{row.shown_by!r} is neither a test nor one of {', '.join(REASONS)}"
        )
        assert not row.note
        return
    assert not TEST.sub("", row.shown_by).replace("<br>", ""), (
        "tests, with <br> between them, and nothing else"
    )
    for file, name in row.tests:
        assert name in names(file), f"there is no {file}::{name}"
        assert name not in expected_to_fail(file), f"{file}::{name} is expected to fail"
    if row.note:
        assert row.note.startswith("half: ")
        assert " needs " not in row.note or any(reason in row.note for reason in REASONS)


def test_the_numbers_add_up() -> None:
    half = sum(bool(row.note) for row in rows())
    later = sum(not row.tests for row in rows())
    found = SUM.search(" ".join(PAGE.read_text(encoding="utf-8").split()))
    assert found and [int(number) for number in found.groups()] == [
        len(rows()) - half - later,
        half,
        later,
    ]
