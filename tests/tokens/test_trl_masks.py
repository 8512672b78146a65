"""TRL's training templates: where our labels differ from theirs is a table in the documentation, made here."""

from __future__ import annotations

import pytest

import corpus
import trl_masks

PAGE = corpus.ROOT / "docs" / "training-masks.md"
HEAD = """# Labels and TRL's training templates

TRL ships variants of chat templates with `{% generation %}` blocks around what is trained; `train_on="marked"` trains
exactly those. The default, `train_on="assistant"`, needs no blocks: it trains what a served model samples, from the end
of the served prompt to the stop. This table shows every difference between the two for the 31 training templates of
TRL 1.16, in three plain chats (one turn, two turns, a tool call with its result). It is written by
`tests/tokens/test_trl_masks.py`; run that with `--accept` to renew it.

"""
NEXT_SECTION = "\n## "
COUNT = 31


@corpus.needs_corpus
@pytest.mark.skipif(not trl_masks.templates(), reason="trl is not installed")
def test_every_difference_has_a_reason_and_is_in_the_table(accept: bool) -> None:
    assert len(trl_masks.templates()) == COUNT
    written = PAGE.read_text(encoding="utf-8")
    page = HEAD + trl_masks.write_table() + written[written.index(NEXT_SECTION) :]
    if accept:
        PAGE.write_text(page, encoding="utf-8")
        written = page
    assert written == page
