"""Hostile templates against every verb, and user's texts against every construct that could make them a control token.

A part of the templates runs in CI, and all of them with `-m slow`.
"""

from __future__ import annotations

from typing import Any

import pytest

import turnwise
from containment import Bounds, Step, find_problems
from hostile_kinds import CARRYING, CONTENT, HOSTILE, TOKEN
from turnwise.tokens.tokenizers import SHIPPED, tokenizer

pytestmark = [pytest.mark.once, pytest.mark.filterwarnings("ignore")]

CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "S"},
    {"role": "user", "content": "hello"},
    {"role": "assistant", "content": "ok"},
]
CHANGED = CHAT[:2] + [{"role": "assistant", "content": None}, {"role": "user", "content": ["a"]}]
BOUNDS = {
    "compile": Bounds(ms=200),  # of a template at the limits, see `test_compile_limits.py`
    **dict.fromkeys(("render", "pieces", "stops", "encode"), Bounds()),
    **dict.fromkeys(("grammar", "normalise"), Bounds(ms=500)),
    **dict.fromkeys(("convert", "diff"), Bounds(ms=1500)),
}
"""What each verb may take. Those of the last two lines ask a template dozens of questions, with one budget for all."""
OTHER = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


def verbs_of(dialect: str, source: str) -> dict[str, Step]:
    """Return what a service may do with a template, each verb with the results of those before it."""

    def compile_template(state: dict[str, Any]) -> None:
        state["template"] = turnwise.compile(source, dialect=dialect)

    def render(state: dict[str, Any]) -> str:
        state["rendering"] = state["template"].render(CHAT)
        return str(state["rendering"])

    return {
        "compile": compile_template,
        "render": render,
        "pieces": lambda state: len(state["rendering"].pieces),
        "stops": lambda state: state["template"].stops(),
        "encode": lambda state: len(state["template"].encode(CHAT, tokenizer(SHIPPED))),
        "grammar": lambda state: state["template"].grammar,
        "normalise": lambda state: turnwise.Normaliser(state["template"]).normalise(CHANGED),
        "convert": lambda state: state["template"].convert("ollama"),
        "diff": lambda state: turnwise.diff(state["template"], turnwise.compile(OTHER)),
    }


def contain(name: str) -> None:
    tokenizer(SHIPPED)  # loaded once, for all children
    turnwise.compile(OTHER)
    assert not find_problems(verbs_of(*HOSTILE[name]), BOUNDS)


@pytest.mark.parametrize("name", list(HOSTILE)[::14])
def test_some_are_contained(name: str) -> None:
    contain(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_all_are_contained(name: str) -> None:
    contain(name)


@pytest.mark.law
@pytest.mark.parametrize("construct", [line.strip() for line in CARRYING.strip().split("\n")])
def test_no_construct_makes_a_control_token(construct: str) -> None:
    template = turnwise.compile("{% set c = messages[0].content %}" + construct)
    chat = [{"role": "user", "content": CONTENT}]
    rendering = template.render(chat)
    text = str(rendering)
    assert TOKEN in text and "".join(piece.text for piece in rendering.pieces) == text
    authors = [piece.origin.kind for piece in rendering.pieces for _ in piece.text]
    start = text.find(TOKEN)
    while start >= 0:
        assert "template" not in authors[start : start + len(TOKEN)]
        start = text.find(TOKEN, start + 1)
    encoded = template.encode(chat, tokenizer(SHIPPED))
    assert tokenizer(SHIPPED).added[TOKEN].id not in encoded.input_ids[: len(encoded) - 1]
