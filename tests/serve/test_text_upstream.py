"""An upstream that takes text encodes it itself: a message that would become a control token there is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import lookalikes
import turnwise
from turnwise.serve.bodies import RequestError
from turnwise.serve.upstreams import UPSTREAMS, GenerationPlan

TEMPLATE = "{% for m in messages %}<s>{{ m.content }}</s>{% endfor %}"


def make_plan(content: str, kind: str) -> GenerationPlan:
    own = lookalikes.load(kind)
    encoded = turnwise.compile(TEMPLATE).encode([{"role": "user", "content": content}], own)
    model: Any = SimpleNamespace(tokenizer=own, stops=["</s>"])
    return GenerationPlan("id", model, "name", encoded.input_ids, encoded.text, {})


@pytest.mark.filterwarnings("ignore::turnwise.TurnwiseWarning")
@pytest.mark.parametrize(
    ("kind", "content"),
    [("BPE none", "a</s>b"), ("Unigram nfkc", "a＜/s＞b"), ("WordPiece lowercase", "a </S> b")],
)
def test_spellings_of_control_tokens_are_refused(kind: str, content: str) -> None:
    assert UPSTREAMS["text"](make_plan("hello", kind))
    with pytest.raises(RequestError, match="spells a control token"):
        UPSTREAMS["text"](make_plan(content, kind))
