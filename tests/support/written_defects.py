"""Defects written by hand into templates of the registry and the corpus, and what `check` reports about each."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import NamedTuple

import corpus
import turnwise

FOLDER = Path(__file__).parents[1] / "evidence" / "checks"
FILES = ("written_defects.toml", "second_defects.toml", "third_defects.toml")


class Defect(NamedTuple):
    """An edit of a template: `old`, which it has once, becomes `new`."""

    template: str
    kind: str
    old: str
    new: str


def read_defects(*names: str) -> tuple[Defect, ...]:
    return tuple(
        Defect(**row)
        for name in names
        for row in tomllib.loads((FOLDER / name).read_text(encoding="utf-8"))["defect"]
    )


DEFECTS = read_defects(*FILES)
RARE_DEFECTS = read_defects("fourth_defects.toml")
STRANGERS_DEFECTS = read_defects("fifth_defects.toml")


@cache
def load_original(name: str) -> turnwise.Template | None:
    """Return a template of the registry or of the corpus; None where there is no corpus."""
    if name in turnwise.entries():
        return turnwise.load(name)
    if corpus.folder() is None:
        return None
    published = corpus.load_published()[name]
    return turnwise.compile(published.text, "jinja", name=name, options=dict(published.options))


@cache
def list_known(name: str) -> frozenset[tuple[str, str]]:
    original = load_original(name)
    assert original is not None
    return frozenset((one.code, one.message) for one in turnwise.check(original))


def plant(defect: Defect) -> tuple[str, int]:
    """Return the text of the template with the defect, and the line of its first changed character."""
    original = load_original(defect.template)
    assert original is not None
    text = original.text
    assert text.count(defect.old) == 1, f"{text.count(defect.old)} times {defect.old!r}"
    same = next(
        (
            index
            for index, pair in enumerate(zip(defect.old, defect.new, strict=False))
            if pair[0] != pair[1]
        ),
        min(len(defect.old), len(defect.new)),
    )
    at = text.index(defect.old) + same
    return text.replace(defect.old, defect.new), text.count("\n", 0, at) + 1


def find_defect(defect: Defect) -> list[tuple[str, int | None, str]]:
    """Return the findings (code, line, message) that the original does not have."""
    original = load_original(defect.template)
    assert original is not None
    text, _ = plant(defect)
    try:
        changed = turnwise.compile(text, "jinja", name="defect", options=original.options)
    except turnwise.TemplateError as error:
        return [("compile", error.line, str(error))]
    known = list_known(defect.template)
    return [
        (one.code, one.place.line if one.place else None, one.message)
        for one in turnwise.check(changed)
        if (one.code, one.message) not in known
    ]
