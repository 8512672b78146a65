"""XTuner's `process_hf_dataset`, beside XTuner's code where there is a checkout of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy
import pytest

import corpus
import turnwise
from corpus import needs_corpus
from lazy_modules import LazyModule
from originals import find_checkout, load_xtuner
from turnwise.compat import xtuner
from turnwise.compat.xtuner import (
    PROMPT_TEMPLATE,
    process_hf_dataset,
    template_map_fn_factory,
)
from turnwise.tokens.tokenizers import tokenizer as load_shipped_tokenizer

pytestmark = pytest.mark.filterwarnings("ignore")  # of `datasets`
datasets = LazyModule("datasets")

SOURCE = find_checkout("xtuner")
"""A checkout of XTuner whose configs are read, and whose code is run beside ours."""
needs_source = pytest.mark.skipif(not SOURCE.is_dir(), reason="TURNWISE_XTUNER: no checkout")
ARGUMENTS: dict[str, Any] = dict(
    dataset_map_fn=xtuner.alpaca_map_fn,
    template_map_fn=template_map_fn_factory(PROMPT_TEMPLATE.internlm2_chat),
    remove_unused_columns=True,
    map_num_proc=None,
)
ROWS = [{"instruction": "Add", "input": "1 2", "output": "3"}] * 4 + [
    {"instruction": "x", "input": "", "output": "<nooutput>"}
]
EMPTY = [{"input": "a question that is longer than nine tokens by far", "output": "x"}]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    datasets.disable_progress_bars()
    yield
    datasets.enable_progress_bars()


def test_all_steps() -> None:
    given = ARGUMENTS | {"dataset": ROWS, "tokenizer": "turnwise", "max_length": 40}
    found = process_hf_dataset(**given)
    assert found.column_names == ["input_ids", "labels", "length"]
    assert list(found.length) == [40]
    whole = process_hf_dataset(**given, pack_to_max_length=False)
    text = turnwise.load("xtuner:internlm2_chat").render(
        [{"role": "user", "content": "Add\n1 2"}, {"role": "assistant", "content": "3"}]
    )
    tokenizer = load_shipped_tokenizer("turnwise")
    assert len(whole) == 4 and tokenizer.decode(whole[0]["input_ids"]).strip() == f"<s>{text.text}"
    trained = [label for label in whole[0]["labels"] if label >= 0]
    assert tokenizer.decode(trained).startswith("3<|im_end|>")


def test_splits_and_lengths() -> None:
    split = datasets.DatasetDict(
        train=datasets.Dataset.from_list(ROWS[:1]), test=datasets.Dataset.from_list(ROWS[:3])
    )
    rest = {"tokenizer": "turnwise", "max_length": 30, "map_num_proc": None}
    rest |= {"dataset_map_fn": "xtuner.dataset.map_fns.alpaca_map_fn", "pack_to_max_length": False}
    rest |= {"template_map_fn": template_map_fn_factory("vicuna"), "remove_unused_columns": True}
    for name, number in (("train", 1), ("test", 3), (None, 4)):
        assert len(process_hf_dataset(split, split=name, **rest)) == number
    assert len(process_hf_dataset(split, split=None, max_dataset_length=2, **rest)) == 2
    with pytest.raises(turnwise.SourceError, match="no table"):
        process_hf_dataset([{"a": 1}, {"a": "x"}], **rest)
    with pytest.raises(turnwise.SourceError, match="no split 'eval'"):
        process_hf_dataset(split, split="eval", **rest)


def test_rows_with_ids_are_only_packed() -> None:
    rows = [{"input_ids": [1, 2, 3], "labels": [1, 2, 3]}] * 4
    found = process_hf_dataset(
        rows, do_dataset_tokenization=False, max_length=6, use_varlen_attn=True, map_num_proc=2
    )
    assert found["input_ids"][:] == [[1, 2, 3, 1, 2, 3]] * 2
    assert found["cumulative_len"][:] == [[0, 3, 6]] * 2


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"use_varlen_attn": True, "pack_to_max_length": False}, "needs pack_to_max_length"),
        ({"split": "test", "max_length": 5}, "not of 'test'"),
        ({"max_length": None}, "max_length is missing"),
        (
            {"max_length": 9, "tokenizer": "turnwise", "dataset_map_fn": "default_map_fn"},
            "no row is left",
        ),
    ],
)
def test_arguments_that_contradict_each_other(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(turnwise.SourceError, match=problem) as raised:
        process_hf_dataset(EMPTY, map_num_proc=None, **arguments)
    assert isinstance(raised.value, AssertionError)


def test_a_map_function_that_is_not_there() -> None:
    with pytest.raises(turnwise.SourceError, match="turnwise has no msagent_react_map_fn"):
        process_hf_dataset(ROWS, dataset_map_fn="msagent_react_map_fn", max_length=5)
    with pytest.raises(turnwise.SourceError, match=r"no alpaca_map_fm\n.*'alpaca_map_fn'"):
        process_hf_dataset(ROWS, dataset_map_fn="alpaca_map_fm", max_length=5)


# --- the original


@cache
def invented_rows() -> dict[str, list[dict[str, Any]]]:
    """Return rows for each map function that make one table, and have an answer."""
    found: dict[str, list[dict[str, Any]]] = {}
    file = Path(__file__).with_name("xtuner_rows.jsonl")
    for line in file.read_text(encoding="utf-8").splitlines():
        item = json.loads(line)
        rounds = item.get("mapped", {}).get("conversation")
        rows = found.setdefault(item["format"], [])
        if '"loss"' in line:  # in one table a value is true or 1, not both
            continue
        texts = [str(turn.get("output", "")) for turn in rounds or []]
        if rounds and all(texts) and all(isinstance(v, str | list) for v in item["row"].values()):
            same = not rows or set(rows[0]) == set(item["row"])
            rows.extend([item["row"]] * 3 if same else [])
    return found


@cache
def load_tokenizer() -> Any:
    transformers = pytest.importorskip("transformers")
    file = corpus.tokenizer_folder("internlm2") / "tokenizer.json"
    special = {"bos_token": "<s>", "eos_token": "</s>"}
    return transformers.PreTrainedTokenizerFast(tokenizer_file=str(file), **special)


@needs_corpus
@needs_source
@pytest.mark.law
@pytest.mark.parametrize("template", PROMPT_TEMPLATE)
@pytest.mark.parametrize("name", xtuner.DATASET_FORMAT_MAPPING)
def test_ids_and_labels_are_xtuners(name: str, template: str) -> None:
    tokenizer = load_tokenizer()
    original = load_xtuner()
    rows = invented_rows()[name]
    (map_fn,) = (
        each
        for each in xtuner.__all__
        if getattr(xtuner, each) is xtuner.DATASET_FORMAT_MAPPING[name]
    )
    more = {"tokenizer": tokenizer, "map_num_proc": None, "max_length": 256}
    ours = {"dataset": rows, "dataset_map_fn": map_fn, **more}
    ours["template_map_fn"] = template_map_fn_factory(template)
    theirs = {**more, "dataset": datasets.Dataset.from_list(rows)}
    theirs["dataset_map_fn"] = original[map_fn]
    table = original["PROMPT_TEMPLATE"]
    theirs["template_map_fn"] = original["template_map_fn_factory"](table[template])
    results = []
    for process, arguments in (
        (process_hf_dataset, ours),
        (original["process_hf_dataset"], theirs),
    ):
        numpy.random.seed(7)
        results.append(process(**arguments).to_list())
    assert results[0] == results[1] and results[0]
