"""Which template a model has: the tables to the letter, the order of evidence, and what is reported about it.

The rows of XTuner's table and FastChat's answers to them are read from the table of XTuner's documents where that is at
hand (it lies beside the corpus), so that a row is checked against the document and not against a copy of it.
"""

from __future__ import annotations

import pickle
import random
import re
import string
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache

import pytest

import corpus as corpus_files
from corpus import needs_corpus
from timing import assert_quick
from turnwise import registry
from turnwise.errors import SourceError
from turnwise.registry import entries, load, match, register, unregister
from turnwise.registry.fastchat import all_words, rules
from turnwise.registry.match import (
    FASTCHAT,
    MAX_ID_LENGTH,
    OFFICIAL,
    SOURCES,
    XTUNER,
    tables,
)
from turnwise.registry.model_table import normal_form, specificity

ROW = re.compile(r"\| \w+ \| `([^`]+)` \| `([^`]+)` \| `([^`]+)` \|")
CHAT_BASES = ["meta-llama/Llama-2-7b-hf", "mistralai/Mistral-7B-v0.1", "THUDM/chatglm3-6b-base"]
XTUNER_NAMES = """
    default baichuan_chat baichuan2_chat chatglm2 chatglm3 deepseek_coder internlm_chat internlm2_chat llama2_chat
    vicuna mistral mixtral qwen_chat zephyr deepseek_moe gemma minicpm
"""


@cache
def read_printed_matches() -> tuple[tuple[str, ...], ...]:
    """Model, XTuner's answer, FastChat's answer."""
    folder = corpus_files.folder()
    if folder is None or not (folder.parent / "requirements.md").is_file():
        return ()
    text = (folder.parent / "requirements.md").read_text(encoding="utf-8")
    return tuple(found.groups() for found in map(ROW.match, text.splitlines()) if found)


# The tables


def test_the_table_has_all_rows() -> None:
    assert len(tables()[XTUNER].by_id) == 59 + 1  # and one of its configs
    assert len(read_printed_matches()) in (0, 59)


@pytest.mark.parametrize(("model", "answer", "other"), read_printed_matches())
def test_a_row_of_the_table(model: str, answer: str, other: str) -> None:
    found = match(model, "xtuner")
    assert (
        found.entry + "*" * found.star == answer and found.source == "xtuner" and found.by == "id"
    )
    assert found.reason and (found.warning is not None) == (found.star or found.kind == "base")
    assert match(model, "fastchat").entry == other
    assert match(model).source == OFFICIAL and match(model).kind == found.kind


def test_the_names_of_the_table_are_entries() -> None:
    given = {row.entry for row in tables()[XTUNER].by_id.values()}
    assert given == set(XTUNER_NAMES.split())
    assert {f"xtuner:{name}" for name in given} <= entries(dialect="xtuner").keys()
    three = [{"role": role, "content": text} for text in "abc" for role in ("user", "assistant")]
    for name in given - {"minicpm"}:  # which has no system text
        text = load(f"xtuner:{name}").render([{"role": "system", "content": "s"}, *three]).text
        assert all(word in text for word in "abc"), name


@needs_corpus
def test_fastchat_is_asked_separately() -> None:
    """Its own answers disagree with the others, and are kept."""
    rows = [row for row in corpus_files.lines("golden/fastchat_models.jsonl") if "template" in row]
    same = [row for row in rows if match(row["model_path"], "fastchat").entry == row["template"]]
    assert (
        len(rows) > 100 and len(rows) - len(same) < 4
    )  # words are found on token boundaries here, anywhere there
    assert match("internlm/internlm2-chat-7b", "fastchat").entry == "internlm-chat"
    assert match("internlm/internlm2-chat-7b").entry == "internlm2"


# Base models


def test_a_base_model_gets_default_and_a_warning() -> None:
    found = match("Qwen/Qwen-7B")
    assert (found.entry, found.kind, found.star) == ("default", "base", True)
    assert "base model" in found.reason and "special tokens" in str(found.warning)
    plain = match("meta-llama/Llama-2-7b-hf")
    assert (plain.entry, plain.kind, plain.star) == ("default", "base", False)
    assert "special tokens" not in str(plain.warning) and "base model" in str(plain.warning)


@pytest.mark.parametrize("model", CHAT_BASES)
def test_a_base_model_with_a_chat_template_has_a_reason(model: str) -> None:
    """XTuner's table gives some base models a chat template; the row says why, and the warning stays."""
    found = match(model, "xtuner")
    assert found.kind == "base" and found.entry != "default" and found.warning
    assert "plain text" in found.reason or "known to it" in found.reason


def test_a_star_is_not_a_choice() -> None:
    found = match("google/gemma-2b-it", "xtuner")
    assert (found.entry, found.kind, found.star) == ("gemma", "chat", True) and found.warning


# The order of evidence


@pytest.mark.parametrize(
    ("model", "entry", "kind", "by"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5", "chat", "id"),
        ("qwen/qwen2.5-7b-instruct", "qwen2.5", "chat", "normal form"),
        ("unsloth/Qwen2.5-7B-Instruct-bnb-4bit", "qwen2.5", "chat", "normal form"),
        ("/models/Qwen2.5-7B-Instruct/", "qwen2.5", "chat", "normal form"),
        ("C:\\models\\Qwen2.5_7B_Instruct", "qwen2.5", "chat", "normal form"),
        ("bartowski/Qwen2.5-72B-Instruct-GGUF", "qwen2.5", "chat", "pattern"),
        ("qwen2.5-72b-instruct-q4_k_m.gguf", "qwen2.5", "chat", "pattern"),
        ("Qwen/Qwen2.5-72B", "default", "base", "pattern"),
        ("Qwen/Qwen3-32B", "qwen3", "chat", "pattern"),
        ("Qwen/Qwen3-30B-A3B", "qwen3", "chat", "pattern"),
        ("Qwen/Qwen3-14B-Base", "default", "base", "pattern"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", "qwen3-instruct", "chat", "pattern"),
        ("Qwen/Qwen3-30B-A3B-Thinking-2507", "qwen3-thinking", "chat", "pattern"),
        ("Qwen/Qwen2.5-VL-72B-Instruct-AWQ", "qwen2.5-vl", "chat", "pattern"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "deepseek-r1-distill", "chat", "pattern"),
        ("google/gemma-2-27b-it", "gemma-2", "chat", "pattern"),
        ("google/gemma-1.1-7b-it", "gemma", "chat", "pattern"),
        ("google/gemma-3-27b-it", "gemma-3", "chat", "pattern"),
        ("meta-llama/Meta-Llama-3.1-405B-Instruct-FP8", "llama-3.1", "chat", "pattern"),
        ("meta-llama/Llama-3.2-1B-Instruct", "llama-3.2", "chat", "pattern"),
        ("deepseek-ai/DeepSeek-Coder-V2-Lite-Instruct", "deepseek", "chat", "pattern"),
        ("deepseek-ai/deepseek-coder-1.3b-instruct", "deepseek-coder", "chat", "pattern"),
        ("internlm/internlm2_5-20b-chat", "internlm2", "chat", "pattern"),
        ("internlm/internlm2-base-7b", "default", "base", "pattern"),
        ("TheBloke/Mistral-7B-Instruct-v0.1-GPTQ", "mistral", "chat", "text"),
        ("NousResearch/Hermes-3-Llama-3.1-8B", "hermes-3", "chat", "id"),
        ("bigcode/starcoder2-15b", "default", "base", "pattern"),
        ("somebody/new-thing-base", "default", "base", "pattern"),
        ("openai/gpt-oss-120b", "gpt-oss", "chat", "id"),
    ],
)
def test_official(model: str, entry: str, kind: str, by: str) -> None:
    found = match(model)
    assert (found.entry, found.kind, found.by, found.source) == (entry, kind, by, "official")
    if by != "id":
        assert repr(model) in found.reason  # what was taken for what
    assert registry.find_source(found.name).text


OTHERS = """
    Qwen/Qwen2.5-Omni-7B Qwen/Qwen3Guard-Gen-4B Qwen/Qwen3-VL-Embedding-8B
    Qwen/Qwen3-Reranker-4B me/Qwen3-Coder-30B-A3B-Instruct-poet
    me/Qwen2.5-7B-poet me/Qwen2.5-7B-Instruct-poet me/Llama-2-7b-chef me/Llama-3.1-Chef-8B me/Llama-3.1-8B-Chef-Instruct
    me/Mistral-7B-Instruct-v0.2-finetuned me/gemma-2-9b-it-SimPO me/Qwen3-8B-base-sft
    me/Meta-Llama-3-8B-Instruct-abliterated
"""


@pytest.mark.parametrize("model", OTHERS.split())
def test_a_fine_tune_is_not_taken_for_its_family(model: str) -> None:
    """Neither for a chat model nor for a base model of it: its makers may have changed the template."""
    with pytest.raises(SourceError):
        match(model, "official")


def test_every_id_of_an_entry_finds_it() -> None:
    for entry in entries(dialect="jinja").values():
        for model in (name for name in entry.models if "/" in name):
            assert match(model).entry == entry.name and match(model).kind == "chat", model
        for model in (name for name in entry.base if "/" in name):
            assert match(model).entry == "default" and match(model).kind == "base", model


def test_patterns_are_tried_by_what_they_fix() -> None:
    rows = [row.pattern for row in tables()[OFFICIAL].name_patterns]
    assert [specificity(pattern) for pattern in rows] == sorted(
        map(specificity, rows), reverse=True
    )
    assert rows.index("deepseek-coder-v2-*instruct*") < rows.index(
        "deepseek-coder-[0-9]*-instruct*"
    )


def test_the_first_letter_passes_over_no_pattern() -> None:
    """The first of all rows that fits is found, although only those of a name's first letter are tried."""
    for table in tables().values():
        for model in ["-base", "é-base", "*", "[x]", *many()[:3000]]:
            plain = normal_form(model)
            fits = (
                row
                for row in table.name_patterns
                if fnmatchcase(plain, row.pattern.lower()) and row.allows(plain)
            )
            expected = next(fits, None)
            found = table.find(model)
            if found is None or found[1] == "pattern":
                assert (found and found[0]) == expected, model


def test_normal_form() -> None:
    assert normal_form("Org/Model_7B-Instruct-GPTQ-Int4") == "model-7b-instruct"
    assert normal_form("gguf") == "gguf" and normal_form("-gguf") == "-gguf"


# Loading by id


def test_load_takes_an_id() -> None:
    assert load("Qwen/Qwen3-8B").text == load("qwen3").text
    assert registry.find_source("Qwen/Qwen3-8B").warning is None
    assert "base model" in str(registry.find_source("Qwen/Qwen3-8B-Base").warning)


# Unknown models


@pytest.mark.parametrize("model", ["Qwen/Qwne2.5-7B-Instrct", "completely/different"])
def test_unknown_models_ask_for_the_folder(model: str) -> None:
    """A model of a similar name may have another template, so none is suggested."""
    for ask in (match, load):
        with pytest.raises(SourceError) as caught:
            ask(model)
        assert "give the model's folder or its tokenizer_config.json" in str(caught.value.hint)
        assert "Did you mean" not in str(caught.value)
        again = pickle.loads(pickle.dumps(caught.value))
        assert isinstance(again, SourceError) and again.message == caught.value.message
    with pytest.raises(SourceError, match="no template of xtuner"):
        match("Qwen/Qwen-7B-chatt", "xtuner")


@pytest.mark.parametrize("model", ["", "  ", "x" * 500, 5, None, b"x"])
def test_bad_ids(model: object) -> None:
    with pytest.raises(SourceError, match="a model is named by an id"):
        match(model)  # type: ignore[arg-type]


def test_bad_source() -> None:
    with pytest.raises(SourceError, match="Sources: official, xtuner, fastchat"):
        match("Qwen/Qwen-7B", "modelscope")


# Speed


def many() -> list[str]:
    """Ten thousand ids: known, spelled otherwise, fitting a pattern, and unknown."""
    draw = random.Random(1)
    known = [row.pattern for table in tables().values() for row in table.by_id.values()]
    known += ["llama3.1:8b", "qwen3", "deepseek-r1:70b", "hf.co/Qwen/Qwen2.5-7B-Instruct:Q4_K_M"]
    found = []
    for _ in range(10_000):
        model = draw.choice(known)
        word = "".join(draw.choices(string.ascii_lowercase + "-", k=draw.randint(1, 40)))
        found.append(
            draw.choice(
                [model, model.upper(), f"me/{model.rpartition('/')[2]}-{word}", f"me/{word}"]
            )
        )
    return found


@pytest.mark.law(3)
@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("source", [None, *SOURCES])
def test_ten_thousand_ids_in_a_second(source: str | None, long: bool) -> None:
    """Long ids are a tenth as many."""
    models = many()
    if long:
        models = [f"{model}-{model}-{model * 20}"[:MAX_ID_LENGTH] for model in models[::10]]
    unknown = 0

    def match_all() -> None:
        nonlocal unknown
        unknown = 0
        for model in models:
            try:
                match(model, source)
            except SourceError:
                unknown += 1

    assert_quick(match_all, 1)
    assert (unknown > 0) == (source != FASTCHAT)  # which has an answer to everything
    assert long or unknown < len(models)


@pytest.mark.parametrize("exact", [False, True])
def test_words_leave_out_no_rule_of_fastchat(exact: bool) -> None:
    """A pattern is only tried on names that have its word: that is never one which it would have matched."""
    draw = random.Random(2)
    words = sorted(all_words())
    names = ["-".join(draw.choices(words, k=draw.randint(1, 3))) for _ in range(2000)]
    patterns = [rule.pattern for rule in rules(exact)]
    assert sum(bool(pattern.word) for pattern in patterns) > len(patterns) / 2
    for name in [*names, *map(str.upper, names)]:
        lower = name.lower()
        for pattern in patterns:
            assert pattern.word in lower or not pattern.matches(name, lower), (name, pattern.text)


def test_an_id_is_not_a_text() -> None:
    assert match("x" * MAX_ID_LENGTH, FASTCHAT).entry
    for source in (None, *SOURCES):
        with pytest.raises(SourceError, match="a model is named by an id"):
            match("x" * (MAX_ID_LENGTH + 1), source)


@pytest.fixture
def house() -> Iterator[None]:
    register("house", "{{ 1 }}", models=["me/*", "our-Team/Chat_*", "me/special-*-it"])
    register("special", "{{ 2 }}", models=["me/special-*"])
    yield
    unregister("special")
    unregister("house")


@pytest.mark.usefixtures("house")
def test_a_pattern_may_name_the_organisation() -> None:
    assert match("me/anything").entry == match("ME/Anything-GGUF").entry == "house"
    assert match("me/Qwen2.5-7B-Instruct").entry == "house"  # what its owner says of it
    assert match("me/special-7b").entry == "special" and match("me/special-7b-it").entry == "house"
    assert match("our-team/chat_1").entry == match("our-team/Chat_7b-GGUF").entry == "house"
    assert (
        match("you/Qwen2.5-7B-Instruct").entry
        == match("Qwen/Qwen2.5-7B-Instruct").entry
        == "qwen2.5"
    )
    assert "'me/*'" in match("me/anything").reason
    with pytest.raises(SourceError):
        match("some/anything")
    with pytest.raises(SourceError):
        match("anything")
