"""`diff` finds edits: every kind that templates can look at, and random ones of syntax.

Whether an edit changes anything is decided without `diff`: by a large number of random conversations that other code
makes (`random_chats.py`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

import corpus
import turnwise
from edit_kinds import edited_pairs
from random_chats import find_difference
from template_edits import edit_at_random
from turnwise.evidence import diff

FOUND = 0.99
KINDS = 79
SAMPLE, ALL = 5, 500  # edits that change something
CHATS = 300  # random conversations, to know whether an edit changes something
SEED = 20261115


@pytest.mark.law
@pytest.mark.once
def test_every_kind_of_edit_is_found() -> None:
    pairs = edited_pairs()
    missed = []
    for name, (before, after) in pairs.items():
        a, b = turnwise.compile(before, "jinja"), turnwise.compile(after, "jinja")
        if diff(a, b).equal:
            missed.append(name)
    assert len(pairs) >= KINDS and not missed, missed


def choose_source(dice: random.Random) -> tuple[str, str]:
    """The name and text of a template of the corpus or of an entry."""
    published = corpus.load_published()
    name = dice.choice([*published, *turnwise.entries()])
    return name, published[name].text if name in published else turnwise.load(name).text


def edits_that_change_something(
    count: int, dice: random.Random
) -> Iterator[tuple[str, turnwise.Template, turnwise.Template]]:
    while count:
        name, text = choose_source(dice)
        changed = edit_at_random(text, dice)
        try:
            a, b = turnwise.compile(text, "jinja"), turnwise.compile(changed, "jinja")
        except turnwise.TurnwiseError:
            continue
        if changed != text and find_difference(a, b, [text, changed], CHATS) is not None:
            count -= 1
            yield name, a, b


def missed_edits(count: int, seed: int) -> list[str]:
    missed = []
    for name, a, b in edits_that_change_something(count, random.Random(seed)):
        if diff(a, b).equal:
            at = next(
                i for i, pair in enumerate(zip(a.text, b.text, strict=False)) if len({*pair}) > 1
            )
            missed.append(f"{name}: {a.text[at - 30 : at + 30]!r} -> {b.text[at - 30 : at + 30]!r}")
    return missed


@pytest.mark.law
def test_random_edits_are_found(sample: Any) -> None:
    assert not missed_edits(len(sample(range(SAMPLE), 2)), SEED)


@pytest.mark.slow
def test_many_random_edits_are_found() -> None:
    missed = missed_edits(ALL, SEED + 1)
    assert len(missed) <= ALL * (1 - FOUND), "\n".join(missed)
