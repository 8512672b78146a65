"""What Ollama's own template package wrote for our conversations; `scripts/ollama_goldens.py` made the texts.

All templates that Ollama ships, and some of ours for everything in Go's language that has a meaning of its own. A text
that is missing is one where Ollama fails while it renders, which we do not follow.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import oracle
import turnwise
from turnwise.dialects import ollama

pytestmark = pytest.mark.once

GOLDENS = Path(__file__).parent / "ollama_goldens"


def read_lines(name: str) -> list[Any]:
    return [json.loads(line) for line in (GOLDENS / name).read_text("utf-8").split("\n") if line]


BUNDLED = {path.stem: path.read_text("utf-8") for path in sorted(GOLDENS.glob("bundled/*.gotmpl"))}
TEMPLATES = BUNDLED | {row["name"]: row["template"] for row in read_lines("templates.jsonl")}
CONVERSATIONS = {row["name"]: row for row in read_lines("conversations.jsonl")}
VERSIONS, *ROWS = read_lines("texts.jsonl")
NOW = datetime.fromisoformat(VERSIONS["day"])


def options_of(conversation: dict[str, Any]) -> dict[str, Any]:
    options = {"tools": conversation.get("tools")}
    think = conversation.get("think")
    if think is not None:
        options["enable_thinking"] = bool(think)
    if isinstance(think, str):
        options["reasoning_effort"] = think
    if "suffix" in conversation:
        options["suffix"] = conversation["suffix"]
    return options


def test_there_is_a_text_for_every_pair() -> None:
    assert len(BUNDLED) == 20 and [row["template"] for row in ROWS] == list(TEMPLATES)
    count = sum(len(row["texts"]) for row in ROWS)
    assert count == len(TEMPLATES) * (len(CONVERSATIONS) - 1) + sum(
        ".Suffix" in source for source in TEMPLATES.values()
    )


@pytest.mark.law
@pytest.mark.once
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["template"].replace(" ", "-"))
def test_exact_is_exact(row: dict[str, Any]) -> None:
    source = TEMPLATES[row["template"]]
    if not any(row["texts"].values()):
        pytest.skip("Ollama fails with every conversation")
    template = turnwise.compile(ollama.read(source, exact=True).jinja)
    for name, expected in row["texts"].items():
        if expected is None:
            continue
        conversation = CONVERSATIONS[name]
        options = options_of(conversation)
        rendering = template.render(conversation["messages"], now=NOW, normalise=False, **options)
        assert rendering.text == expected, name


@pytest.mark.law
@pytest.mark.once
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["template"].replace(" ", "-"))
def test_transformers_prints_the_same(row: dict[str, Any]) -> None:
    """The Jinja is Jinja: transformers renders it like we do. It knows `thinking` by its other name only."""
    jinja = ollama.read(TEMPLATES[row["template"]], exact=True).jinja
    for name in ("letters", "call last", "tools"):
        if row["texts"][name] is not None:
            conversation = CONVERSATIONS[name]
            text = oracle.render(
                jinja, conversation["messages"], now=NOW, **options_of(conversation)
            )
            assert text == row["texts"][name], name


@pytest.mark.parametrize("name", BUNDLED)
def test_plain_chats_read_the_same_without_exact(name: str) -> None:
    """The default reading differs where the exact one is of no use to a person; a chat that asks is no such case."""
    texts = next(row["texts"] for row in ROWS if row["template"] == name)
    template = turnwise.compile(BUNDLED[name], "ollama")
    for talk in ("plain", "system", "late system", "two systems", "joined", "letters"):
        assert template.render(CONVERSATIONS[talk]["messages"]).text == texts[talk], talk
