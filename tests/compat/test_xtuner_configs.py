"""XTuner's configs: their dataset sections are read and run, beside XTuner's code where there is a checkout of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy
import pytest

import corpus
import turnwise
from corpus import needs_corpus
from originals import find_checkout, load_xtuner
from turnwise.compat import xtuner
from turnwise.compat.xtuner import (
    BUILDER,
    PROMPT_TEMPLATE,
    ConcatDataset,
    process_hf_dataset,
    read_config,
    template_map_fn_factory,
)
from turnwise.compat.xtuner_process import UNSUPPORTED, ObjectPath
from turnwise.tokens.tokenizers import tokenizer as load_shipped_tokenizer

pytestmark = pytest.mark.filterwarnings("ignore")  # of `datasets`
datasets = pytest.importorskip("datasets")

SOURCE = find_checkout("xtuner")
"""A checkout of XTuner whose configs are read, and whose code is run beside ours."""
needs_source = pytest.mark.skipif(not SOURCE.is_dir(), reason="TURNWISE_XTUNER: no checkout")
CONFIG = """
import torch
from datasets import load_dataset
from mmengine.dataset import DefaultSampler
from transformers import AutoTokenizer
from xtuner.dataset import process_hf_dataset
from xtuner.dataset.map_fns import alpaca_map_fn, template_map_fn_factory
from xtuner.engine.hooks import SomeHook
from xtuner.utils import PROMPT_TEMPLATE, SYSTEM_TEMPLATE

# Data
prompt_template = PROMPT_TEMPLATE.internlm2_chat
max_length = int(2048 - (336 / 14) ** 2)
pack_to_max_length = True
accumulative_counts = 16
accumulative_counts *= 2
SYSTEM = SYSTEM_TEMPLATE.coder
tokenizer = dict(
    type=AutoTokenizer.from_pretrained,
    pretrained_model_name_or_path="internlm/internlm2-chat-7b",
)
model = dict(dtype=torch.float16, seed=open("x").read())
train_dataset = dict(
    type=process_hf_dataset,
    dataset=dict(type=load_dataset, path="tatsu-lab/alpaca"),
    tokenizer=tokenizer,
    max_length=max_length,
    dataset_map_fn=alpaca_map_fn,
    template_map_fn=dict(type=template_map_fn_factory, template=prompt_template),
    remove_unused_columns=True,
    shuffle_before_pack=True,
    pack_to_max_length=pack_to_max_length,
)
sampler = DefaultSampler if max_length > 1 else None
hooks = [dict(type=SomeHook)]
if pack_to_max_length:
    hooks += [dict(type=SomeHook, every=accumulative_counts)]
"""
ROWS = [{"instruction": "Add", "input": "1 2", "output": "3"}] * 4 + [
    {"instruction": "x", "input": "", "output": "<nooutput>"}
]
EMPTY = [{"input": "a question that is longer than nine tokens by far", "output": "x"}]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    datasets.disable_progress_bars()
    yield
    datasets.enable_progress_bars()


def write(folder: Path, text: str) -> Path:
    file = folder / "config.py"
    file.write_text(text, encoding="utf-8")
    return file


# --- reading


def test_a_config_is_read_without_what_it_imports(tmp_path: Path) -> None:
    config = read_config(write(tmp_path, CONFIG))
    assert config.max_length == 1472 and config.accumulative_counts == 32
    assert config.prompt_template is PROMPT_TEMPLATE.internlm2_chat
    assert config["SYSTEM"] == xtuner.SYSTEM_TEMPLATE["coder"]
    assert repr(config.tokenizer["type"]) == "transformers.AutoTokenizer.from_pretrained"
    section = config.train_dataset
    assert section["dataset_map_fn"].find() is xtuner.alpaca_map_fn
    assert section["type"] == ObjectPath("xtuner.dataset.process_hf_dataset")
    assert repr(config.sampler) == "mmengine.dataset.DefaultSampler"
    assert config.hooks[1] == {"type": ObjectPath("xtuner.engine.hooks.SomeHook"), "every": 32}
    with pytest.raises(turnwise.SourceError, match=r"line 22: .*open.* is not evaluated"):
        config.model  # noqa: B018


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("x = 'a' * 10**9", "x"),
        ("x = 9\n" + "x *= x\n" * 40, "x"),
        ("x = 2 ** 10**9", "x"),
        ("x = [0]\n" + "x += x\n" * 40, "x"),
        ("x = 'ab'\n" + "x = x + x\n" * 40, "x"),
        ("x = [0] * 1000\n" + "x = x * 1000\n" * 3, "x"),
        ("x = ().__class__", "x"),
        ("x = __import__('os').system('true')", "x"),
        ("x = [y for y in range(9)]", "x"),
        ("x = 1 / 0", "x"),
        ("x = {**{}}", "x"),
        ("x = unknown.y", "x"),
        ("from os import system\nx = system('true')", "x"),
        ("x = (lambda: 1)()", "x"),
    ],
)
def test_what_a_config_cannot_do(tmp_path: Path, text: str, name: str) -> None:
    config = read_config(write(tmp_path, text))
    with pytest.raises(turnwise.SourceError, match=r"config.py, line \d+"):
        config[name]


@pytest.mark.parametrize("text", ["x =", "\0", "(" * 5000])
def test_files_that_are_no_configs(tmp_path: Path, text: str) -> None:
    with pytest.raises(turnwise.SourceError, match="is not Python"):
        read_config(write(tmp_path, text))
    with pytest.raises(turnwise.SourceError, match="cannot be read"):
        read_config(tmp_path / "none.py")


# --- running


def test_a_section_runs(tmp_path: Path) -> None:
    section = dict(read_config(write(tmp_path, CONFIG)).train_dataset)
    section.update(dataset=ROWS, tokenizer="turnwise", max_length=40, map_num_proc=None)
    found = BUILDER.build(section)
    assert found.column_names == ["input_ids", "labels", "length"]
    assert list(found.length) == [40]
    whole = BUILDER.build({**section, "pack_to_max_length": False})
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
    both = ConcatDataset([{"type": process_hf_dataset, "dataset": split, **rest}] * 2)
    assert len(both) == 2 and both[-1] == both[0]
    with pytest.raises(IndexError):
        both[2]
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


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ({"type": "process_hf_dataset", "max_lenght": 5}, "no argument 'max_lenght'.*\n.*Did you"),
        ({"type": "xtuner.dataset.LLaVADataset", "image_folder": "x"}, "images.*\n.*image_folder"),
        ({"type": "xtuner.dataset.nothing"}, "turnwise has no xtuner.dataset.nothing"),
        ({"type": "no_such_package.load"}, "cannot be imported.*\n.*Install 'no_such_package'"),
        ({"type": "json.no_such_name"}, "cannot be imported"),
    ],
)
def test_sections_that_cannot_be_built(section: dict[str, Any], problem: str) -> None:
    with pytest.raises(turnwise.SourceError, match=problem):
        BUILDER.build(section)


# --- the original


def find_configs() -> list[Path]:
    return sorted((SOURCE / "xtuner" / "configs").rglob("*.py"))


def find_sections(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if "type" in value:
            yield value
        for each in value.values():
            yield from find_sections(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from find_sections(each)


@needs_source
def test_every_config_is_read() -> None:
    found: Counter[str] = Counter()
    for file in find_configs():
        config = read_config(file)
        parts = [name for name in config if name.endswith(("_dataset", "_dataloader"))]
        types = [repr(each["type"]) for name in parts for each in find_sections(config[name])]
        own = {name.rpartition(".")[2] for name in types if name.startswith("xtuner.dataset.")}
        missing = own & UNSUPPORTED.keys()
        found["has no dataset" if not own else "not built" if missing else "built"] += 1
    assert found == {"built": 489, "not built": 98, "has no dataset": 7}


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
@pytest.mark.parametrize("file", find_configs(), ids=lambda file: file.stem)
def test_ids_and_labels_are_xtuners(file: Path) -> None:
    tokenizer = load_tokenizer()
    original = load_xtuner()
    config = read_config(file)
    sections = [
        each
        for name in config
        if name.endswith("_dataset") or name in ("alpaca_en", "alpaca_zh", "oasst1")
        for each in find_sections(config[name])
        if repr(each["type"]) == "xtuner.dataset.process_hf_dataset"
    ]
    for section in sections:
        if "tokenizer" not in section:  # rows of ids
            continue
        map_fn = str(section.get("dataset_map_fn") or "openai_map_fn").rpartition(".")[2]
        (rows,) = (
            invented_rows()[name]
            for name, function in xtuner.DATASET_FORMAT_MAPPING.items()
            if function.__name__ == map_fn
        )
        ours = {key: value for key, value in section.items() if key != "type"}
        more = {"dataset": rows, "tokenizer": tokenizer, "map_num_proc": None, "max_length": 256}
        ours |= {**more, "dataset_map_fn": map_fn}
        theirs = {**ours, "dataset": datasets.Dataset.from_list(rows)}
        theirs["dataset_map_fn"] = original[map_fn]
        if section.get("template_map_fn") is not None:
            template = section["template_map_fn"]["template"]
            names = [name for name, value in PROMPT_TEMPLATE.items() if value is template]
            table = original["PROMPT_TEMPLATE"]
            theirs["template_map_fn"] = original["template_map_fn_factory"](table[names[0]])
        results = []
        for process, arguments in (
            (process_hf_dataset, ours),
            (original["process_hf_dataset"], theirs),
        ):
            numpy.random.seed(7)
            results.append(process(**arguments).to_list())
        assert results[0] == results[1] and results[0]
