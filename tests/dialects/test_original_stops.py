"""The stops of other software's templates: with `exact` the original's, otherwise with what the text shows besides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import corpus
from turnwise.registry import entries, load

ROWS = Path(__file__).with_name("more_stops.txt")
NAMES = [name for dialect in ("fastchat", "lmdeploy", "xtuner") for name in entries(dialect)]
KEYS = ("stop_str", "stop_words", "STOP_WORDS")


def original_stops(name: str) -> list[str]:
    source = entries()[name].source
    found: Any = next((source[key] for key in KEYS if source.get(key)), [])
    return [found] if isinstance(found, str) else list(dict.fromkeys(found))


def read_rows() -> dict[str, list[str]]:
    lines = ROWS.read_text(encoding="utf-8").splitlines()
    rows = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    return {name: stops.split(" , ") for name, stops in rows}


def test_all_templates_are_here() -> None:
    counts = [len(entries(dialect)) for dialect in ("lmdeploy", "fastchat", "xtuner")]
    assert counts == [59, 102, 27]


@pytest.mark.law
@pytest.mark.parametrize("name", NAMES)
def test_with_exact_they_are_the_originals(name: str) -> None:
    assert list(load(name, exact=True).stops()) == original_stops(name)


@pytest.mark.law
@pytest.mark.parametrize("name", NAMES)
def test_what_is_added_has_a_row(name: str) -> None:
    stops, original = load(name).stops(), original_stops(name)
    assert set(original) <= set(stops)
    added = [stop for stop in stops if stop not in original]
    assert added == read_rows().get(name, [])
    assert not {"<s>", "<think>"} & set(added)


def test_fastchat_has_these_stops() -> None:
    conversation = pytest.importorskip("fastchat.conversation")
    for name, template in conversation.conv_templates.items():
        if f"fastchat:{name}" in entries():
            given = template.stop_str or []
            assert original_stops(f"fastchat:{name}") == (
                [given] if isinstance(given, str) else given
            )


def test_a_converted_dict_loads_in_the_released_package() -> None:
    conversation = pytest.importorskip("fastchat.conversation")
    source = load("gemma").convert(
        "fastchat", without=["system text", "empty messages", "white space"]
    )
    style = conversation.SeparatorStyle[source.pop("sep_style")]
    made = conversation.Conversation(**source, sep_style=style)
    assert made.name == "template"


@corpus.needs_corpus
def test_lmdeploy_has_these_stops() -> None:
    rows = [row for row in corpus.lines("golden/lmdeploy.jsonl") if row["kind"] == "template"]
    assert rows
    for row in rows:
        if (name := f"lmdeploy:{row['t']}") in entries():
            assert original_stops(name) == list(row["fields"].get("stop_words") or ())
