"""Evaluation cards: the same prompts, the same hash; other prompts, and the first difference is shown."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import turnwise
from cli_runner import bad, good, run
from loaded import load_entry
from turnwise.analysis.conversations import load_probes
from turnwise.evidence.eval_card import KIND, compare_cards, hash_values, make_card
from turnwise.tokens.tokenizers import tokenizer
from turnwise.tokens.tokenizers.files import SHIPPED

EDITIONS = {
    "turnwise eval card 1": "7f5727f7c5eda8c6b0d8759448630494699fdf0e51d820b51f3c01cf889575e5",
}
"""The hash of the conversations of each edition."""


def card_of(name: str) -> Any:
    return make_card(load_entry(name), tokenizer("turnwise"))


def test_conversations_of_an_edition_never_change() -> None:
    """If this fails, `KIND` needs a new number, and a row here: cards of papers would not be comparable."""
    every = [
        [probe.covers, probe.messages, probe.arguments()] for probe in load_probes("eval_card")
    ]
    assert hash_values([json.dumps(every, default=str)]) == EDITIONS[KIND]
    names = [row["conversation"] for row in card_of("chatml")["rows"]]
    assert len(set(names)) == len(names) >= 20


@pytest.mark.parametrize("verb", [card_of, turnwise.check])
def test_the_filters_of_other_threads_stay(
    verb: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    # `warnings.catch_warnings` changes the filters of the whole process while it lasts.
    with monkeypatch.context() as patched:
        patched.delattr(warnings, "catch_warnings")
        verb("chatml")


def test_a_card_is_the_ids_of_encode() -> None:
    card, template = card_of("qwen3"), load_entry("qwen3")
    (row,) = [row for row in card["rows"] if row["conversation"] == "system and question"]
    chat = [{"role": "system", "content": "Rules"}, {"role": "user", "content": "First"}]
    encoded = template.encode(chat, "turnwise", add_generation_prompt=True, add_stop=False)
    assert row == {**row, "text": encoded.text, "ids": encoded.input_ids}
    assert card == card_of("qwen3")
    assert f"{hash_values(encoded.input_ids)[:12]}    17 tokens" in str(card)


@pytest.mark.law(3)
@pytest.mark.parametrize("name", sorted(turnwise.entries()))
def test_every_entry_has_a_card(name: str) -> None:
    card = card_of(name)
    assert any(row["ids"] for row in card["rows"])
    assert compare_cards(card, json.loads(json.dumps(card))) is None


def test_a_refusal_is_a_row() -> None:
    card = card_of("gemma-2")
    refused = [row for row in card["rows"] if row["ids"] is None]
    assert refused and "must take turns" in refused[0]["text"]
    assert "refused: user and assistant must take turns" in str(card)
    found = compare_cards(card, card_of("gemma-3"))
    assert found is not None


def test_the_first_difference_is_shown() -> None:
    text = load_entry("chatml").text
    changed = turnwise.compile(text.replace("<|im_end|>", "<|im_end|> "), name="changed")
    assert changed.text != text
    found = compare_cards(card_of("chatml"), make_card(changed, tokenizer("turnwise")))
    assert found is not None
    assert found.conversation == "a question"
    assert "<|im_end|>⟪" in found.texts[0] and found.ids[0] != found.ids[1]
    assert "ids differ from number" in str(found)


# -- the command


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "model"
    made.mkdir()
    (made / "tokenizer.json").write_bytes((Path(SHIPPED) / "tokenizer.json").read_bytes())
    (made / "chat_template.jinja").write_text(load_entry("qwen3").text)
    return made


def test_a_card_of_a_folder_equals_its_file(folder: Path, tmp_path: Path) -> None:
    written = good("eval-card", folder, "--json")
    card = json.loads(written)
    assert card["kind"] == KIND
    file = tmp_path / "card.json"
    file.write_text(written)
    assert card["ids_sha256"] in good("eval-card", "--compare", file, folder)
    assert good("eval-card", folder).splitlines()[1] == f"ids {card['ids_sha256']}"
    found = run("eval-card", "--compare", file, "qwen2.5", "--tokenizer", folder, "--json")
    assert found.exit_code == 1
    answer = json.loads(found.stdout)
    assert not answer["equal"] and answer["a"] == card["ids_sha256"] != answer["b"]
    assert answer["difference"]["conversation"] == "a question"


def test_an_entry_has_no_tokenizer_of_its_own() -> None:
    result = run("eval-card", "qwen3")
    assert result.exit_code == 0
    assert "which no model has" in result.stderr


def test_misuse(folder: Path, tmp_path: Path) -> None:
    assert "--compare" in bad("eval-card", folder, folder)
    assert "--compare" in bad("eval-card", "--compare", folder)
    file = tmp_path / "odd.json"
    for data in ([], {"rows": 5}, {"kind": KIND, "rows": []}, None, {"rows": [{}]}):
        file.write_text(json.dumps(data))
        assert "no evaluation card" in bad("eval-card", file)
    card = json.loads(good("eval-card", folder, "--json"))
    card["rows"][0]["ids"][0] += 1
    file.write_text(json.dumps(card))
    assert "was changed" in bad("eval-card", file)
    assert "absent.json" in bad("eval-card", tmp_path / "absent.json")
