"""Defects in entries of the registry that do not have them: found, with their line."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import turnwise
from loaded import load_entry
from single_check import run_check

pytestmark = pytest.mark.once

SEEDS: list[dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("seeds.toml").read_text(encoding="utf-8")
)["seed"]
HERE = "{# here #}"
WANTED, NEAR = 35, 2


@cache
def known_symptoms(entry: str, code: str) -> frozenset[str]:
    return frozenset(one.message for one in run_check(code, load_entry(entry)))


def plant(seed: dict[str, Any]) -> turnwise.Template:
    """Return the entry with the defect."""
    template = turnwise.load(seed["entry"])
    text = template.text
    edits = [(seed["old"], seed["new"])]
    if "edit" in seed:
        edits.append(tuple(seed["edit"]))
    for old, new in edits:
        assert text.count(old) == 1, f"{seed['entry']} has {text.count(old)} times {old!r}"
        text = text.replace(old, new)
    return turnwise.compile(text, "jinja", name="seeded", options=template.options)


def find_problem(seed: dict[str, Any]) -> str:
    """Return what is wrong with the report of a defect; empty if it is found at its line."""
    code = seed["code"]
    before = known_symptoms(seed["entry"], code)
    template = plant(seed)
    found = [one for one in run_check(code, template) if one.message not in before]
    if not found:
        return f"{seed['entry']} {code}: not found"
    wanted = seed.get("here", HERE)
    numbered = enumerate(template.text.split("\n"), 1)
    lines = [number for number, line in numbered if wanted and wanted in line] or [None]
    places = [one.place.line if one.place else None for one in found]
    is_near = any(
        line == place or (line is not None and place is not None and abs(line - place) <= NEAR)
        for line in lines
        for place in places
    )
    if not is_near:
        return f"{seed['entry']} {code}: line {places}, not {lines}"
    return ""


def test_defects_are_found_with_their_lines() -> None:
    problems = list(filter(None, map(find_problem, SEEDS)))
    assert len(SEEDS) >= 38
    assert len(SEEDS) - len(problems) >= WANTED, "\n".join(problems)
