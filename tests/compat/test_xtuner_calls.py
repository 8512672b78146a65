"""XTuner's dataset map functions, pretraining and packing.

`xtuner_rows.jsonl` has rows of our own and what XTuner's functions (revision b934f462) make of them: `mapped`, or the
type of the `error`. The tables below count the names in XTuner's configurations of that revision: of 594 files, 584
name a prompt template, a system text or a map function.
"""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import turnwise
from turnwise.compat import xtuner as compat

CASES = [
    json.loads(line)
    for line in (Path(__file__).parent / "xtuner_rows.jsonl")
    .read_text(encoding="utf-8")
    .splitlines()
]
# fmt: off
PROMPT_TEMPLATES = {
    "default": 177, "internlm2_chat": 60, "llama2_chat": 53, "qwen_chat": 44, "internlm_chat": 32, "chatglm3": 31,
    "baichuan2_chat": 20, "moss_sft": 18, "baichuan_chat": 16, "chatglm2": 16, "llama3_chat": 14, "phi3_chat": 14,
    "vicuna": 11, "minicpm": 11, "gemma": 6, "deepseek_moe": 5, "mixtral": 5, "deepseek_coder": 3, "mistral": 3,
    "deepseek_v2": 3, "minicpm3": 2, "zephyr": 2, "cohere_chat": 1,
}
SYSTEM_TEMPLATES = {
    "alpaca": 213, "coder": 41, "lawyer": 23, "arxiv_gentile": 18, "colorist": 18, "sql": 18, "moss_sft": 18,
    "medical": 13,
}
MAP_FUNCTIONS = {
    "template_map_fn_factory": 489, "alpaca_map_fn": 172, "alpaca_zh_map_fn": 95, "oasst1_map_fn": 81,
    "pretrain_map_fn": 33, "openai_map_fn": 33, "llava_map_fn": 33, "code_alpaca_map_fn": 28,
    "crime_kg_assitant_map_fn": 23, "law_reference_map_fn": 23, "arxiv_map_fn": 18, "colors_map_fn": 18,
    "sql_map_fn": 18, "medical_map_fn": 13, "openorca_map_fn": 13,
    "tiny_codes_map_fn": 13, "wizardlm_map_fn": 2, "default_map_fn": 1,
    "stack_exchange_map_fn": 1,
}
# fmt: on
ERRORS = {
    "KeyError": KeyError,
    "AssertionError": AssertionError,
    "NotImplementedError": NotImplementedError,
}


class XTunerCallLetters:
    """One id per character."""

    bos_token_id = 1
    eos_token_id = 2

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [ord(letter) + 10 for letter in text]


def encode(row: Any, **arguments: Any) -> dict[str, list[int]]:
    return compat.encode_fn(row, XTunerCallLetters(), **{"max_length": 10_000, **arguments})


def ids(text: str) -> list[int]:
    return XTunerCallLetters().encode(text)


# --- names


def test_the_names_of_the_configurations() -> None:
    """Every name that a configuration uses is here."""
    assert not PROMPT_TEMPLATES.keys() - compat.PROMPT_TEMPLATE.keys()
    assert not SYSTEM_TEMPLATES.keys() - compat.SYSTEM_TEMPLATE.keys()
    for name in MAP_FUNCTIONS:
        assert name in compat.__all__ and callable(getattr(compat, name))


def test_the_table_of_formats() -> None:
    """Nineteen functions by name; each can be pickled, so that worker processes can have it."""
    assert len(compat.DATASET_FORMAT_MAPPING) == 19
    for name, function in compat.DATASET_FORMAT_MAPPING.items():
        (found,) = (each for each in compat.__all__ if getattr(compat, each) is function)
        assert found.startswith(name) and found.endswith("_map_fn")
        assert pickle.loads(pickle.dumps(function)) == function
    assert {case["format"] for case in CASES} == set(compat.DATASET_FORMAT_MAPPING)


# --- rows


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["format"])
def test_rows(case: dict[str, Any]) -> None:
    function = compat.DATASET_FORMAT_MAPPING[case["format"]]
    row = copy.deepcopy(case["row"])
    if "error" not in case:
        assert function(row) == case["mapped"]
    else:
        with pytest.raises(turnwise.TurnwiseError) as caught:
            function(row)
        assert isinstance(caught.value, ERRORS[case["error"]])
    assert row == case["row"]  # which XTuner's functions for LLaVA change


@pytest.mark.parametrize("name", sorted(PROMPT_TEMPLATES))
def test_every_row_with_every_template(name: str) -> None:
    """What a map function returns can be rendered and encoded."""
    for case in CASES:
        if "error" in case or case["row"].get("abstract", "") is None:
            continue
        has_system = any(turn.get("system") for turn in case["mapped"]["conversation"])
        if has_system and "SYSTEM" not in compat.PROMPT_TEMPLATE[name]:
            continue
        row = compat.template_map_fn_factory(name)(copy.deepcopy(case["mapped"]))
        encoded = encode(row)
        texts = "".join(part.text for part in compat.segments(row))
        assert [id for id in encoded["input_ids"] if id > 2] == ids(texts)
        for label, id in zip(encoded["labels"], encoded["input_ids"], strict=True):
            assert label in (-100, id)


def test_null_is_not_written_as_a_word() -> None:
    with pytest.raises(turnwise.MessageError, match="input: must be text, not null"):
        compat.alpaca_map_fn({"instruction": "x", "input": None, "output": "y"})


@pytest.mark.parametrize(
    ("loss", "trained"),
    [(True, True), ("true", True), ("TRUE", True), (1, False), (0, False), (None, False)],
)
def test_loss_is_read_as_a_word(loss: Any, trained: bool) -> None:
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    (turn,) = compat.openai_map_fn({"messages": messages})["conversation"]
    assert turn["output_with_loss"] is True
    messages[1]["loss"] = loss
    (turn,) = compat.openai_map_fn({"messages": messages})["conversation"]
    assert turn["output_with_loss"] is trained


# --- without a template


def test_pretraining() -> None:
    """Without template_map_fn: bos, the text, and no eos; a round of another function has its eos."""
    encoded = encode(compat.pretrain_map_fn({"text": " all of it "}))
    assert encoded == {
        "input_ids": [1, *ids("all of it")],
        "labels": [-100, *ids("all of it")],
    }
    encoded = encode(compat.default_map_fn({"input": "q", "output": "a"}))
    assert encoded == {
        "input_ids": [1, *ids("qa"), 2],
        "labels": [-100, -100, *ids("a"), 2],
    }
    two = {"conversation": [{"input": "q", "output": "a"}, {"input": "r", "output": "b"}]}
    assert encode(two)["input_ids"] == [1, *ids("qa"), 2, 1, *ids("rb"), 2]
    with pytest.raises(KeyError, match="no 'output'"):
        encode({"conversation": [{"input": "q"}]})
    with pytest.raises(AssertionError):
        encode(two, input_ids_with_output=False)


def test_an_image_is_in_an_input_only() -> None:
    turn = {"input": "<image>q", "output": "<image>a", "output_with_loss": False}
    encoded = encode({"conversation": [turn]}, with_image_token=True)
    assert encoded["input_ids"] == [1, compat.IMAGE_TOKEN_INDEX, *ids("q<image>a"), 2]
    assert set(encoded["labels"]) == {-100}


# --- packing


def test_packing_of_two_batches() -> None:
    packer = compat.Packer(chunk_size=4, use_varlen_attn=True)
    rows = [[1, 2, 3], [4, 5, 6], [7]]
    assert packer({"input_ids": rows, "labels": rows}) == {
        "input_ids": [[1, 2, 3, 4]],
        "labels": [[1, 2, 3, 4]],
        "cumulative_len": [[0, 3, 4]],
        "position_ids": [[0, 1, 2, 0]],
    }
    assert packer.residual["input_ids"] == [5, 6, 7]
    assert packer.residual_cumulative_len == [0, 2, 3]
    assert packer({"input_ids": [[8, 9]], "labels": [[8, -100]]}) == {
        "input_ids": [[5, 6, 7, 8]],
        "labels": [[5, 6, 7, 8]],
        "cumulative_len": [[0, 2, 3, 4]],
        "position_ids": [[0, 1, 0, 0]],
    }
    assert packer({"input_ids": [], "labels": []})["input_ids"] == [[9]]  # the last batch
    dropping = compat.Packer(4, drop_last=True)
    assert dropping({"input_ids": [[1]], "labels": [[1]]}) == {"input_ids": [], "labels": []}
    for labels in ([[1]], [[1], [2]]):
        with pytest.raises(turnwise.MessageError, match="as many labels as ids"):
            compat.Packer(4)({"input_ids": [[1, 2]], "labels": labels})
    with pytest.raises(turnwise.MessageError, match="a row is a list of ids, not 5"):
        compat.Packer(4)({"input_ids": [5], "labels": [5]})
    for size in (0, -1, "4", True):
        with pytest.raises(turnwise.MessageError, match="chunk_size"):
            compat.Packer(size)


ROWS = st.lists(st.lists(st.integers(0, 9), max_size=7), max_size=5)


@given(st.lists(ROWS, min_size=1, max_size=4), st.integers(1, 9))
def test_packing_laws(batches: list[list[list[int]]], size: int) -> None:
    """Nothing is lost or moved; chunks are full but for batches that fill none; positions restart at each row."""
    packer = compat.Packer(size, use_varlen_attn=True)
    ids_out: list[int] = []
    positions: list[int] = []
    for rows in batches:
        result = packer({"input_ids": rows, "labels": rows})
        for chunk, bounds, places in zip(
            result["input_ids"], result["cumulative_len"], result["position_ids"], strict=True
        ):
            assert len(chunk) == size or len(result["input_ids"]) == 1
            assert bounds[0] == 0 and bounds[-1] == len(chunk) == len(places)
            assert bounds == sorted(bounds)
            ids_out += chunk
            positions += places
    everything = [id for rows in batches for row in rows for id in row]
    assert ids_out + packer.residual["input_ids"] == everything
    # A position is 0 at the start of a row or a chunk, else one more than the last.
    for before, after in zip(positions, positions[1:], strict=False):
        assert after in (0, before + 1)
