"""Shards of `turnwise prepare` load and train where their page says: `make integrations-trl` (-axolotl, -verl, ...).

The lines of the page are executed as they are, but for the flags that keep a trainer on a processor for one step.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pyarrow.parquet
import pytest

import host_sources
from host_chats import make_tokenizer
from turnwise.data import Recipe, prepare
from turnwise.data.pages import write_trainer_lines
from turnwise.errors import SourceError

torch = pytest.importorskip("torch")
datasets = pytest.importorskip("datasets")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

LIMIT = 96
ON_A_PROCESSOR = (
    'report_to="none", use_cpu=True, bf16=False, save_strategy="no", max_steps=1, '
    "per_device_train_batch_size=4, learning_rate=1e-2, "
)


def make_shards(folder: Path, rows: list[dict[str, Any]], **values: Any) -> dict[str, str]:
    """Prepare rows in the folder `out` of the current one, and return the lines for trainers."""
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    settings = {"max_length": LIMIT, "chunk_bytes": 2048, **values}
    report = prepare(Recipe("rows.jsonl", "chatml", "turnwise", "out", **settings), workers=1)
    assert report.rows["out"] == len(rows) and len(report.shards) > 1
    return write_trainer_lines(report.manifest)


def make_rows(count: int = 60) -> list[dict[str, Any]]:
    rows = []
    for number in range(count):
        asked = {"role": "user", "content": f"What comes after {number}? " * (number % 4 + 1)}
        rows.append({"messages": [asked, {"role": "assistant", "content": f"{number + 1}."}]})
    return rows


def read_shards(split: str) -> list[dict[str, Any]]:
    paths = sorted(Path("out").glob(f"{split}-*.parquet"))
    return [row for path in paths for row in pyarrow.parquet.read_table(path).to_pylist()]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return tmp_path


@pytest.fixture
def model(tmp_path: Path) -> Any:
    """A small model that was loaded from a folder: DPO loads it again, as its reference."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    config = transformers.LlamaConfig(
        vocab_size=len(make_tokenizer("chatml")), pad_token_id=0, **sizes, **heads
    )
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "model")
    return transformers.LlamaForCausalLM.from_pretrained(tmp_path / "model")


def make_trainer(lines: str, model: Any, config: str) -> Any:
    """Run the lines of the page; the trainer gets what keeps it on this machine."""
    pytest.importorskip("trl")
    assert lines.count(f"{config}(") == 1
    names: dict[str, Any] = {"model": model, "tokenizer": make_tokenizer("chatml")}
    exec(lines.replace(f"{config}(", f"{config}({ON_A_PROCESSOR}output_dir="), names)
    return names["trainer"]


def train_one_step(trainer: Any) -> None:
    before = {name: value.clone() for name, value in trainer.model.named_parameters()}
    found = trainer.train()
    assert found.global_step == 1 and 0 < found.training_loss < 100
    changed = [
        name for name, value in trainer.model.named_parameters() if value.ne(before[name]).any()
    ]
    assert changed


def without_padding(trainer: Any) -> list[tuple[list[int], list[int]]]:
    """The ids and labels of each sample that the model of a trainer would see."""
    found = []
    for batch in trainer.get_train_dataloader():
        for ids, labels, seen in zip(
            batch["input_ids"], batch["labels"], batch["attention_mask"], strict=True
        ):
            length = int(seen.sum())
            assert labels[length:].eq(-100).all()
            found.append((ids[:length].tolist(), labels[:length].tolist()))
    return sorted(found)


def test_datasets_loads_the_folder(folder: Path) -> None:
    make_shards(folder, make_rows(), validation=0.2)
    found = datasets.load_dataset("out")
    assert set(found) == {"train", "validation"}
    for split in found:
        assert found[split].to_list() == read_shards(split)
    assert found["train"].num_rows + found["validation"].num_rows == 60


def test_trl_trains_a_step(folder: Path, model: Any) -> None:
    lines = make_shards(folder, make_rows(), validation=0.2)
    trainer = make_trainer(lines["TRL"], model, "SFTConfig")
    rows = read_shards("train")
    assert without_padding(trainer) == sorted((row["input_ids"], row["labels"]) for row in rows)
    assert len(trainer.eval_dataset) == len(read_shards("validation"))
    train_one_step(trainer)


def test_trl_keeps_packed_samples_apart(folder: Path, model: Any) -> None:
    lines = make_shards(folder, make_rows(), packing="best-fit")
    assert set(lines) == {"TRL", "verl", "torch"}
    trainer = make_trainer(lines["TRL"], model, "SFTConfig")
    lengths = sorted(length for row in read_shards("train") for length in row["seq_lengths"])
    found = []
    for batch in trainer.get_train_dataloader():
        positions = batch["position_ids"][0].tolist()
        starts = [index for index, position in enumerate(positions) if position == 0]
        found += [
            end - start for start, end in zip(starts, [*starts[1:], len(positions)], strict=True)
        ]
        assert batch["labels"][0][starts].eq(-100).all()
    assert sorted(found) == lengths and len(lengths) == 60
    train_one_step(trainer)


def test_trl_trains_a_step_on_pairs(folder: Path, model: Any) -> None:
    rows = [
        {"prompt": f"After {number}?", "chosen": f"{number + 1}.", "rejected": "No idea."}
        for number in range(60)
    ]
    lines = make_shards(folder, rows, preferences="pairs")
    trainer = make_trainer(lines["TRL"], model, "DPOConfig")
    shown = next(iter(trainer.get_train_dataloader()))
    assert shown["input_ids"].shape[0] == 8  # four pairs
    train_one_step(trainer)


def make_labelled_rows(count: int = 60) -> list[dict[str, Any]]:
    """Rows of each form that TRL documents for KTO; every third reply is a bad one."""
    rows: list[dict[str, Any]] = []
    for number in range(count):
        label = number % 3 > 0
        asked = [{"role": "user", "content": f"After {number}?"}]
        answer = f"{number + 1}." if label else "No idea."
        reply = [{"role": "assistant", "content": answer}]
        standard = {"prompt": f"After {number}?", "completion": answer, "label": label}
        talk = {"prompt": asked, "completion": reply, "label": label}
        rows.append((standard, talk, {"messages": [*asked, *reply], "label": label})[number // 20])
    return rows


def test_trl_trains_a_step_on_labelled_replies(folder: Path, model: Any) -> None:
    rows = make_labelled_rows()
    lines = make_shards(folder, rows, preferences="unpaired")
    trainer = make_trainer(lines["TRL"], model, "KTOConfig")
    written = read_shards("train")
    assert [row["label"] for row in written] == [row["label"] for row in rows]
    tokenizer = make_tokenizer("chatml")
    for row, given in zip(written, rows, strict=True):
        answer = given.get("completion") or given["messages"][1:]
        text = answer if isinstance(answer, str) else answer[0]["content"]
        assert tokenizer.decode(row["completion_ids"]) == f"{text}<|im_end|>"
    seen = []
    for batch in trainer.get_train_dataloader():
        for ids, mask, label in zip(
            batch["input_ids"], batch["completion_mask"], batch["label"], strict=True
        ):
            seen.append((ids[mask.bool()].tolist(), bool(label)))
        assert "KL_input_ids" in batch
    assert sorted(seen) == sorted((row["completion_ids"], row["label"]) for row in written)
    assert sum(label for _, label in seen) == 40
    train_one_step(trainer)


def test_trl_makes_the_same_ids_of_labelled_replies(folder: Path, model: Any) -> None:
    """TRL's own preparation of the rows, but for the text after the stop, which no model writes."""
    trl = pytest.importorskip("trl")
    rows = make_labelled_rows()[20:40]
    make_shards(folder, rows, preferences="unpaired", chunk_bytes=1024)
    config = trl.KTOConfig(output_dir="kto", report_to="none", use_cpu=True, bf16=False)
    data = datasets.Dataset.from_list(rows)
    tokenizer = make_tokenizer("chatml")
    theirs = trl.KTOTrainer(model, args=config, processing_class=tokenizer, train_dataset=data)
    for row, other in zip(read_shards("train"), theirs.train_dataset, strict=True):
        assert (row["prompt_ids"], row["label"]) == (other["prompt_ids"], other["label"])
        ids = row["completion_ids"]
        assert other["completion_ids"][: len(ids)] == ids
        assert not tokenizer.decode(other["completion_ids"][len(ids) :]).strip()


def test_torch_loads_batches(folder: Path) -> None:
    from turnwise.integrations.prepared_shards import PreparedShards

    lines = make_shards(folder, make_rows())
    names: dict[str, Any] = {}
    exec(lines["torch"], names)
    seen = []
    for batch in names["loader"]:
        for row in range(len(batch["input_ids"])):
            length = int(batch["attention_mask"][row].sum())
            seen.append(
                (batch["input_ids"][row, :length].tolist(), batch["labels"][row, :length].tolist())
            )
            assert batch["labels"][row, length:].eq(-100).all()
            assert batch["loss_mask"][row].eq(batch["labels"][row].ne(-100)).all()
    rows = read_shards("train")
    assert sorted(seen) == sorted((row["input_ids"], row["labels"]) for row in rows)
    shards = PreparedShards("out")
    assert [shards[index]["input_ids"].tolist() for index in range(60)] == [
        row["input_ids"] for row in rows
    ]
    assert len(PreparedShards("out", max_samples=7)) == 7
    with pytest.raises(IndexError):
        shards[60]
    in_workers = torch.utils.data.DataLoader(shards, num_workers=1, batch_size=1)
    assert sum(1 for _ in in_workers) == 60


def test_torch_names_what_is_wrong(folder: Path) -> None:
    from turnwise.integrations.prepared_shards import PreparedShards

    make_shards(folder, make_rows())
    with pytest.raises(SourceError, match="there are no shards"):
        PreparedShards("nowhere")
    with pytest.raises(SourceError, match="more than max_length=8"):
        PreparedShards("out", config={"max_length": 8})


@pytest.mark.parametrize("packing", ["none", "best-fit"])
def test_verl_collates_batches(folder: Path, packing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    yaml = pytest.importorskip("yaml")
    lines = make_shards(folder, make_rows(), packing=packing)
    host_sources.find_package("verl")
    loading = host_sources.import_part("verl.utils.import_utils", bare=2)
    tensordict = {"tensordict.tensorclass": {"NonTensorData": None}}
    ours = {"verl.utils.tensordict_utils": {"nested_tensor_from_tensor_list": None}}
    for name, values in {"tensordict": {}, **tensordict, **ours}.items():
        module = ModuleType(name)
        vars(module).update(values)
        monkeypatch.setitem(sys.modules, name, module)
    utils = host_sources.import_part("verl.utils.dataset.dataset_utils", bare=3)
    config = yaml.safe_load(lines["verl"])["data"]
    dataset_class = loading.load_extern_object(*config["custom_cls"].values())
    dataset = dataset_class(
        parquet_files=config["train_files"], tokenizer=None, config=config, processor=None
    )
    collate = utils.SFTTensorCollator(utils.DatasetPadMode(config["pad_mode"]))
    batch = collate([dataset[index] for index in range(8)])
    rows = read_shards("train")
    for index, row in enumerate(rows[:8]):
        assert batch["input_ids"][index].tolist() == row["input_ids"]
        assert batch["loss_mask"][index].tolist() == [int(label != -100) for label in row["labels"]]
        expected = row.get("position_ids") or list(range(row["length"]))
        assert batch["position_ids"][index].tolist() == expected


def test_llama_factory_reads_its_folder(folder: Path) -> None:
    lines = make_shards(folder, make_rows(), validation=0.2)
    exec(lines["LLaMA-Factory, once"], {})
    path = lines["LLaMA-Factory, then"].splitlines()[0].removeprefix("tokenized_path: ")
    # What its loader calls for a folder that is not empty.
    found = datasets.load_from_disk(path)
    parts = host_sources.load_functions("llamafactory", "data/data_utils.py", "get_dataset_module")
    parts["get_dataset_module"].__globals__["DatasetDict"] = datasets.DatasetDict
    module = parts["get_dataset_module"](found)
    assert module["train_dataset"]["labels"][:] == [row["labels"] for row in read_shards("train")]
    assert len(module["eval_dataset"]) == len(read_shards("validation"))


def test_axolotl_takes_the_rows_as_they_are(folder: Path) -> None:
    yaml = pytest.importorskip("yaml")
    lines = make_shards(folder, make_rows(), validation=0.2)
    (config,) = yaml.safe_load(lines["axolotl"])["datasets"]
    parts = host_sources.load_functions(
        "axolotl", "utils/data/shared.py", "_load_from_local_path", "get_dataset_type"
    )
    parts["_load_from_local_path"].__globals__.update(
        Path=Path, load_from_disk=datasets.load_from_disk, load_dataset=datasets.load_dataset
    )
    asked = SimpleNamespace(data_files=None, **config)
    found = parts["_load_from_local_path"](asked, {"split": config["split"]})
    wrappers = host_sources.load_functions(
        "axolotl", "utils/data/wrappers.py", "_is_dataset_already_tokenized"
    )
    wrappers["_is_dataset_already_tokenized"].__globals__["Dataset"] = datasets.Dataset
    assert wrappers["_is_dataset_already_tokenized"](found)
    assert found["labels"][:] == [row["labels"] for row in read_shards("train")]
