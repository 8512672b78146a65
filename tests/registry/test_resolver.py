"""One resolver: what `match` answers, `load` loads; what neither knows comes with what other systems would do."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from turnwise.errors import SourceError, TurnwiseWarning
from turnwise.registry import find_folder, find_source, load, match
from turnwise.registry.match import UnknownModel, _llamafactory_table, _ollama_models, tables
from turnwise.registry.store import find_entry

IDS = [row.pattern for table in tables().values() for row in table.by_id.values()]
OLLAMA_NAMES = [f"{name}:8b" for name in _ollama_models()]
LLAMAFACTORY_IDS = sorted(_llamafactory_table().by_id)


@pytest.mark.law
@pytest.mark.parametrize("model", [*IDS, *OLLAMA_NAMES, *LLAMAFACTORY_IDS])
def test_what_match_answers_is_loaded(model: str) -> None:
    try:
        expected = match(model)
    except UnknownModel:
        with pytest.raises(SourceError):
            find_source(model)
        return
    found = find_source(model)
    if entry := find_entry(model):  # the name of an entry comes before the id of a model
        assert found.name == entry.name
        return
    assert found.name == expected.name
    assert bool(found.warning) == bool(expected.warning)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("llama3.1:8b", "llama-3.1"),
        ("Qwen2.5-7B-Instruct", "qwen2.5"),
        ("hf.co/bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M", "llama-3.2"),
        ("THUDM/chatglm-6b-v1.1", "chatglm"),
    ],
)
def test_names_that_are_no_ids_of_a_hub(model: str, name: str) -> None:
    assert load(model).name == name


@pytest.mark.parametrize(
    ("model", "name", "system"),
    [
        ("openchat/openchat_3.5", "fastchat:openchat_3.5", "FastChat"),
        ("Phind/Phind-CodeLlama-34B-v2", "fastchat:phind", "FastChat"),
        ("openbmb/UltraLM-13b", "lmdeploy:ultralm", "LMDeploy"),
    ],
)
def test_a_rule_of_other_software_is_named(model: str, name: str, system: str) -> None:
    with pytest.warns(TurnwiseWarning, match=f"the format that {system} has"):
        assert load(model).name == name


@pytest.mark.parametrize(
    "model",
    [
        "stabilityai/stablelm-2-12b-chat",  # another generation than the rule's
        "somebody/openchat_3.5-poet",
        "openchat_3.5-awq-poet",
    ],
)
def test_a_rule_that_fits_a_part_of_a_name_is_not_believed(model: str) -> None:
    with pytest.raises(UnknownModel):
        match(model)


def test_an_unknown_id_comes_with_what_others_say() -> None:
    with pytest.raises(SourceError) as caught:
        load("THUDM/codegeex4-all-9b")
    hint = caught.value.hint or ""
    assert "`fastchat:codegeex`" in hint and "`lmdeploy:codegeex4`" in hint
    assert "download=True" in hint
    with pytest.raises(UnknownModel) as unknown:
        match("Qwen/Qwen2.5-7B-Instrukt")
    assert "Qwen/Qwen2.5-7B-Instruct (qwen2.5)" in str(unknown.value)
    assert "one_shot" not in str(unknown.value)
    assert unknown.value.as_data()["hint"] == unknown.value.hint
    assert str(pickle.loads(pickle.dumps(unknown.value))) == str(unknown.value)


def test_a_path_is_not_a_name(tmp_path: Path) -> None:
    for place in ("./Qwen2.5-7B-Instruct", str(tmp_path / "Qwen2.5-7B-Instruct"), "Qwen2.5.gguf"):
        with pytest.raises(SourceError, match="there is no"):
            load(place)


def test_a_folder_without_a_template_gets_the_entry_for_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "chatglm-6b-v1.1"
    folder.mkdir()
    (folder / "tokenizer_config.json").write_text("{}")
    with pytest.warns(TurnwiseWarning, match="the built-in entry chatglm is used"):
        assert load(folder).name == "chatglm"
    other = folder.rename(tmp_path / "mine")
    with pytest.raises(SourceError, match="no chat template"):
        load(other)


def test_the_folder_of_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = tmp_path / "models--me--mine" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert find_folder(tmp_path) == find_folder(str(tmp_path)) == tmp_path
    assert find_folder("me/mine") == find_folder("me/mine", revision="abc") == snapshot
    assert find_folder("me/other") is find_folder(tmp_path / "none") is None
    with pytest.raises(SourceError, match="not in the local Hugging Face cache"):
        find_folder("me/mine", revision="v2")
    with pytest.raises(SourceError, match="for the id of a model"):
        find_folder("mine", download=True)
