"""Pieces know the expression that wrote them, and asking for it changes nothing."""

from __future__ import annotations

import pickle

import pytest

import turnwise
from turnwise.analysis.conversations import conversations
from turnwise.analysis.counterexample import try_render
from turnwise.engine.provenance.rendering import Rendering

CHAT = [{"role": "user", "content": " Hi "}, {"role": "assistant", "content": "Yes"}]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("<{{ m.content }}>", "m.content }}>"),
        ("{{ '<' + m.content }}", "m.content }}"),
        ("{{ ('<' ~ m.content) | trim }}", "'<' ~ m.content"),
        ("{{ 'no' if m.role == 'x' else m.content }}", "m.content }}"),
        ("{{ '<' + (m.role if not m else m.content) }}", "m.content) }}"),
        ("{{ 'a' if not m else 'b' if not m else m.content }}", "m.content }}"),
        ("{% set text = m.content %}<{{ text }}", "m.content %}"),
        ("{% set text %}<{{ m.content }}>{% endset %}{{ text }}", "m.content }}>"),
        ("{{ show(m.content) }}", "content }}]"),
        ("{{ '<' + show(m.content) }}", "content }}]"),
    ],
)
def test_the_expression_of_a_field(source: str, expected: str) -> None:
    macro = "{% macro show(content) %}[{{ content }}]{% endmacro %}"
    text = f"{macro}{{% for m in messages %}}{source}{{% endfor %}}"
    pieces = turnwise.compile(text).render(CHAT[1:], normalise=False).pieces
    (found,) = [piece.expression for piece in pieces if piece.origin.field]
    assert found is not None and found[0] == 1
    assert text[found[1] - 1 :].startswith(expected)


def test_text_of_the_template_has_its_own_place() -> None:
    piece, *_ = turnwise.compile("{# one #}\n <|{{ messages[0].role }}").render(CHAT).pieces
    assert piece.expression == (piece.origin.line, piece.origin.column) == (2, 1)
    assert pickle.loads(pickle.dumps(piece)) == piece


@pytest.mark.parametrize("name", ["qwen3", "gpt-oss", "gemma-3", "llama-3.1", "mistral-small-3.2"])
def test_writers_cover_the_text(name: str) -> None:
    renderer = turnwise.load(name).renderer
    for probe in conversations()[::3]:
        rendering = try_render(renderer, probe)
        if isinstance(rendering, Rendering) and rendering.text:
            starts = [span.start for span in rendering.writers]
            ends = [span.end for span in rendering.writers]
            assert [*starts, len(rendering.text)] == [0, *ends]
            assert all(span.expression for span in rendering.writers)
