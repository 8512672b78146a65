"""TRL's SFTTrainer gets the labels of turnwise, and a small model learns from them: `make integrations-trl`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import turnwise
from host_chats import BAD_ROWS, KINDS, make_tokenizer, rows
from turnwise.errors import TurnwiseWarning
from turnwise.integrations.tokenizer_template import template_of
from turnwise.integrations.transformers import bind
from turnwise.integrations.trl import prepare_dataset, training_template

torch = pytest.importorskip("torch")
trl = pytest.importorskip("trl")
datasets = pytest.importorskip("datasets")
transformers = pytest.importorskip("transformers")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def make_model(tokenizer: Any) -> Any:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # more of them wait for each other on a busy machine
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4}
    config = transformers.LlamaConfig(vocab_size=len(tokenizer), **sizes, **heads)
    return transformers.LlamaForCausalLM(config)


def make_trainer(folder: Path, tokenizer: Any, dataset: Any, **settings: Any) -> Any:
    arguments = trl.SFTConfig(
        str(folder),
        per_device_train_batch_size=4,
        learning_rate=1e-2,
        logging_steps=5,
        max_length=None,
        report_to="none",
        use_cpu=True,
        bf16=False,  # which is its default, and slow without a GPU
        save_strategy="no",
        **settings,
    )
    return trl.SFTTrainer(
        make_model(tokenizer), arguments, train_dataset=dataset, processing_class=tokenizer
    )


def many_rows(count: int) -> list[dict[str, Any]]:
    """As many rows, no two the same."""
    base = rows()
    made = []
    for index in range(count):
        row = dict(base[index % len(base)])
        if "messages" in row:
            first, *others = row["messages"]
            text = f"{first['content']} ({index})"
            row["messages"] = [{**first, "content": text}, *others]
        made.append(row)
    return made


def seen_by_the_model(trainer: Any) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The ids and labels of every sample that the collator hands over, without padding."""
    found = []
    for batch in trainer.get_train_dataloader():
        for ids, labels, attention in zip(
            batch["input_ids"], batch["labels"], batch["attention_mask"], strict=True
        ):
            length = int(attention.sum())
            assert labels[length:].eq(-100).all()
            found.append((tuple(ids[:length].tolist()), tuple(labels[:length].tolist())))
    return sorted(found)


@pytest.mark.parametrize("kind", KINDS)
def test_labels_reach_the_trainer_and_the_loss_goes_down(kind: str, tmp_path: Path) -> None:
    tokenizer, given = make_tokenizer(kind), many_rows(200)
    prepared = prepare_dataset(given, tokenizer)
    assert not [problem for problem in prepared.problems if problem.is_dropped]
    assert set(prepared.dataset["row"]) == set(range(200))
    template = template_of(tokenizer)
    expected = []
    for row in given:
        arguments = turnwise.shapes.conversation(row).arguments
        samples = template.examples(arguments.pop("messages"), tokenizer, **arguments)
        expected += [(tuple(one.input_ids), tuple(one.labels)) for one in samples]
    trainer = make_trainer(tmp_path, tokenizer, prepared.dataset, num_train_epochs=1)
    assert seen_by_the_model(trainer) == sorted(expected)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < 0.8 * losses[0], losses


@pytest.mark.parametrize("column", ["assistant_masks", "completion_mask"])
def test_masks_give_the_same_labels(column: Any, tmp_path: Path) -> None:
    tokenizer, given = make_tokenizer("llama-3.1"), many_rows(24)
    labels = prepare_dataset(given, tokenizer, split=False).dataset
    masks = prepare_dataset(given, tokenizer, split=False, column=column).dataset
    only = {"completion_only_loss": True} if column == "completion_mask" else {}
    assert seen_by_the_model(make_trainer(tmp_path, tokenizer, masks, **only)) == (
        seen_by_the_model(make_trainer(tmp_path, tokenizer, labels))
    )


def test_a_dataset_is_mapped_by_processes_and_bad_rows_are_named() -> None:
    tokenizer = bind(make_tokenizer("qwen2.5"))
    given = [{"messages": row["messages"]} for row in many_rows(60) if "messages" in row]
    bad = [{"messages": []}, {"messages": [{"role": "user", "content": "nobody answers"}]}]
    dataset = datasets.Dataset.from_list([*given, *bad])
    with pytest.warns(TurnwiseWarning, match=r"2 of \d+ rows give no sample"):
        mapped = prepare_dataset(dataset, tokenizer, num_proc=2)
    dropped = [problem.row for problem in mapped.problems if problem.is_dropped]
    assert dropped == [len(given), len(given) + 1]
    assert any(
        "messages[1]" in problem.reason for problem in mapped.problems
    )  # its reasoning is not written
    listed = prepare_dataset(given, tokenizer)
    assert mapped.dataset["labels"][:] == listed.dataset["labels"][:]
    with pytest.raises(turnwise.MessageError, match="nobody|nothing is trained|no message"):
        prepare_dataset(bad, tokenizer)
    with pytest.raises(turnwise.MessageError, match="row 0"):
        prepare_dataset([*BAD_ROWS, *given], tokenizer, strict=True)


@pytest.mark.parametrize("kind", ["qwen2.5", "llama-3", "zephyr"])
def test_a_training_template_gives_the_same_labels(kind: str, tmp_path: Path) -> None:
    tokenizer = make_tokenizer(kind)
    given = [
        {"messages": row["messages"]}
        for row in many_rows(16)
        if {message["role"] for message in row["messages"]} <= {"user", "assistant"}
    ]
    safe = bind(make_tokenizer(kind))
    safe.chat_template = training_template(safe)
    trainer = make_trainer(
        tmp_path, safe, datasets.Dataset.from_list(given), assistant_only_loss=True
    )
    prepared = prepare_dataset(given, tokenizer, split=False)
    assert seen_by_the_model(trainer) == (
        seen_by_the_model(make_trainer(tmp_path, tokenizer, prepared.dataset))
    )
