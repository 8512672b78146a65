"""A column that changes what a row means is read, carried or refused."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from data_batches import encode_row, encode_rows, make_batch, make_recipe, talk
from turnwise.cli import app
from turnwise.data import Recipe, prepare
from turnwise.data.finish import finish
from turnwise.data.kernel import Kernel
from turnwise.data.records import RecordReader, UnusableRow

RUN = CliRunner()
HELLO = talk("Hi", "Hello!")
SHAPES: dict[str, Any] = {
    "messages": {"messages": HELLO},
    "tools": {"messages": HELLO, "tools": []},
    "prompt": {"prompt": "Hi", "completion": "Hello!"},
    "conversational prompt": {"prompt": HELLO[:1], "completion": HELLO[1:]},
    "sharegpt": {
        "conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello!"}]
    },
    "alpaca": {"instruction": "Hi", "input": "", "output": "Hello!"},
    "xtuner": {"conversation": [{"input": "Hi", "output": "Hello!"}]},
    "paddlenlp": {"src": ["Hi"], "tgt": ["Hello!"]},
    "preference": {"prompt": "Hi", "chosen": "Hello!", "rejected": "Go away."},
}
REFUSED: list[tuple[str, Any]] = [
    *((name, False) for name in ("label", "is_good", "isGood", "IsCorrect", "answer_accepted")),
    *(("label", value) for value in (0, 1, True, "false", "bad", [False], {"value": False})),
    *((name, 0) for name in ("thumbs_up", "human-feedback", "resolved", "labels", "is_safe")),
    ("winner", "model_a"),
    *((name, True) for name in ("deleted", "is_toxic", "response_harmful")),
    *((name, 0.5) for name in ("weight", "sample_weight", "lossWeight")),
    *((name, False) for name in ("trainable", "training", "keep", "include", "kto_tag")),
    *((name, True) for name in ("skip", "ignore", "is_masked", "exclude", "contaminated")),
    *((name, True) for name in ("held_out", "is_heldout", "is_test")),
    *((name, [0, 1]) for name in ("loss_mask", "train_detail")),
    ("loss_scale", 0.5),
    ("answer_correct", 0),
    ("img", "a.png"),
    *(("split", value) for value in ("test", "validation", "dev")),
    *((name, ["a.png"]) for name in ("images", "image", "videos", "audio_path")),
    ("system", "You are a pirate."),
    ("functions", [{"name": "f"}]),
    *((name, {"label": False}) for name in ("metadata", "info")),
    ("annotations", {"human": [{"is_correct": False}]}),
]
CARRIED: list[tuple[str, Any]] = [
    *((name, 3) for name in ("score", "rating", "rank", "reward", "overall_score", "margin")),
    *((name, 1.5) for name in ("score_chosen", "chosen-rating", "helpfulness", "qualityScore")),
    ("annotations", [{"rating": "4"}]),
    ("meta", {"reward": {"value": -1}}),
]
HARMLESS: list[tuple[str, Any]] = [
    *((name, None) for name in ("label", "images", "score")),
    *(("images", value) for value in ([], "", {})),
    *(("weight", value) for value in (1, 1.0)),
    *((name, False) for name in ("deleted", "is_toxic", "flagged", "response_harmful")),
    *(("is_good", value) for value in (True, 1, "True")),
    *(("split", value) for value in ("train", "Train")),
    *((name, False) for name in ("skip", "skip_prompt_formatting", "ignored", "is_masked")),
    *((name, False) for name in ("is_test", "holdout", "held_out")),
    *((name, True) for name in ("keep", "training", "is_train")),
    *((name, 1) for name in ("failed_attempts", "num_bad_words")),
    *((name, "0") for name in ("correct_answer", "review_count")),
    *((name, "x") for name in ("id", "source", "language", "correct_answer", "test_list")),
]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_row_is_refused_rather_than_changed(shape: str) -> None:
    # Alpaca, ShareGPT and requests of Anthropic have it.
    reads_system = shape in ("alpaca", "sharegpt", "messages", "tools")
    given = [one for one in REFUSED if one[0] != "system" or not reads_system]
    rows = [{**SHAPES[shape], name: value} for name, value in given]
    names = sorted({name for name, _ in given})
    refused, dropped, carried = (
        encode_rows(rows, **values)
        for values in ({}, {"drop_columns": names}, {"carry_columns": names})
    )
    for (name, value), one, left, kept in zip(given, refused, dropped, carried, strict=True):
        assert (one["status"], one["kind"]) == ("rejected", "unread-column"), one
        assert "--drop-columns" in one["reason"] and name in one["reason"]
        assert left["status"] == "sample" and name in left["unread"]
        assert json.loads(kept["carried"]) == {name: value} and not kept["unread"]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_grade_is_carried(shape: str) -> None:
    records = encode_rows([{**SHAPES[shape], name: value} for name, value in CARRIED])
    for (name, value), record in zip(CARRIED, records, strict=True):
        assert record["status"] == "sample" and json.loads(record["carried"]) == {name: value}


def test_other_columns_are_listed() -> None:
    records = encode_rows([{"messages": HELLO, name: value} for name, value in HARMLESS])
    for (name, value), record in zip(HARMLESS, records, strict=True):
        assert record["status"] == "sample" and record["carried"] is None, record
        assert record["unread"] == (None if value is None else [name])


@pytest.mark.parametrize(
    ("key", "value", "status"),
    [
        *((key, False, "rejected") for key in ("label", "train", "loss", "is_good")),
        *((key, ["a.png"], "rejected") for key in ("images", "audio")),
        *((key, True, "sample") for key in ("train", "loss")),
        *((key, 2, "sample") for key in ("rank", "rating")),
        *((key, "x", "sample") for key in ("name", "id")),
    ],
)
def test_keys_of_messages_are_columns_too(key: str, value: Any, status: str) -> None:
    row = {"messages": [HELLO[0], {**HELLO[1], key: value}]}
    record = encode_row(row)
    assert record["status"] == status, record
    if status == "rejected":
        assert f"messages.{key}" in record["reason"]
        assert encode_row(row, drop_columns=[f"messages.{key}"])["kind"] != "unread-column"
    elif key in ("rank", "rating"):
        assert json.loads(record["carried"]) == {f"messages.{key}": [value]}


def test_keys_inside_of_keys_of_messages_are_columns_too() -> None:
    meta = {"meta": {"annotation": {"label": False}}}
    row = {"messages": [HELLO[0], {**HELLO[1], **meta}]}
    record = encode_row(row)
    assert (
        record["kind"] == "unread-column" and "messages.meta.annotation.label" in record["reason"]
    )
    assert encode_row(row, drop_columns=["messages.meta.annotation.label"])["status"] == "sample"
    called = {"id": "1", "function": {"name": "f", "arguments": {"label": False, "image": "a.png"}}}
    chat = [*HELLO[:1], {"role": "assistant", "content": "", "tool_calls": [called]}]
    assert encode_row({"messages": chat}, template="qwen3")["status"] == "sample"


@pytest.mark.parametrize("preferences", ["unpaired", "pairs"])
def test_a_row_without_the_columns_of_a_preference_lacks_columns(preferences: str) -> None:
    for more in ({}, {"label": None}):
        record = encode_row({"messages": HELLO, **more}, preferences=preferences)
        assert record["kind"] == "bad-column", record


def test_scan_is_given_the_carried_columns(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"messages": HELLO, "split": "test"}))
    command = ["scan", str(path), "-t", "chatml", "-k", "turnwise"]
    assert RUN.invoke(app, command).exit_code == 1
    assert RUN.invoke(app, [*command, "--carry-columns", "split"]).exit_code == 0


def test_a_system_column_that_repeats_a_message_says_nothing_new() -> None:
    row = {"messages": talk("Hi", "Hello!", system="Be kind."), "system": "Be kind."}
    assert encode_row(row)["status"] == "sample"


def test_columns_that_were_renamed_are_looked_at() -> None:
    columns = {"messages": "chat"}
    record = encode_row({"chat": HELLO, "is_good": False}, columns=columns)
    assert record["kind"] == "unread-column"
    renamed = {**columns, "label": "is_good"}
    assert encode_row({"chat": HELLO, "is_good": False}, columns=renamed)["kind"] == "unread-column"
    dropped = encode_row({"chat": HELLO, "is_good": 0}, columns=renamed, drop_columns=["is_good"])
    assert dropped["status"] == "sample"
    read = encode_row({"chat": HELLO, "is_good": "False"}, columns=renamed, preferences="unpaired")
    assert (read["status"], read["label"]) == ("sample", False)
    # A column that had the name before is not lost either.
    twice = encode_row({"chat": HELLO, "messages": talk("a", "b"), "id": 1}, columns=columns)
    assert twice["unread"] == ["messages", "id"]


# -- unpaired preferences ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "preference"])
def test_a_label_is_read(shape: str) -> None:
    values = (True, False, 0, 1, 1.0, "true", "False", "0")
    rows = [{**SHAPES[shape], "label": value} for value in values]
    for value, record in zip(values, encode_rows(rows, preferences="unpaired"), strict=True):
        assert (record["status"], record["unread"]) == ("sample", None)
        assert record["label"] is (str(value).lower() in ("true", "1", "1.0"))


@pytest.mark.parametrize("value", ["maybe", 2, -1, 0.5, [], {"value": True}, None])
def test_a_label_is_true_or_false(value: Any) -> None:
    record = encode_row({"messages": HELLO, "label": value}, preferences="unpaired")
    assert record["status"] == "rejected" and "label" in record["reason"]


def test_the_last_reply_is_the_completion() -> None:
    recipe = make_recipe(preferences="unpaired")
    row = {"messages": talk("a", "b", "c", "d"), "label": False}
    encoded = Kernel(recipe)
    (found,) = finish([encoded(make_batch([row]))], recipe).to_pylist()
    texts = {
        name: encoded.tokenizer.decode(found[name]) for name in ("prompt_ids", "completion_ids")
    }
    prompt = "".join(
        f"<|im_start|>{one['role']}\n{one['content']}<|im_end|>\n" for one in row["messages"][:3]
    )
    assert texts == {
        "prompt_ids": f"{prompt}<|im_start|>assistant\n",
        "completion_ids": "d<|im_end|>",
    }


def test_a_pair_becomes_two_replies() -> None:
    good, bad = encode_rows([SHAPES["preference"]], preferences="unpaired")
    assert (good["label"], bad["label"]) == (True, False)
    assert good["input_ids"] != bad["input_ids"] and good["prompt_length"] == bad["prompt_length"]


def test_a_completion_holds_nothing_but_the_reply() -> None:
    row = {"prompt": "a", "completion": talk("b", "c", "d", "e")[1:], "label": True}
    record = encode_row(row, preferences="unpaired")
    assert (record["status"], record["kind"]) == ("rejected", "refused")


def test_the_same_reply_with_two_labels_is_no_duplicate(tmp_path: Path) -> None:
    rows = [{"messages": HELLO, "label": label} for label in (True, False, True)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    recipe = Recipe(
        tmp_path / "rows.jsonl",
        "chatml",
        "turnwise",
        tmp_path / "out",
        preferences="unpaired",
        deduplicate=True,
    )
    report = prepare(recipe, workers=1)
    assert report.rows == {"in": 3, "out": 2, "rejected": 0, "filtered": 1}
    assert pq.read_table(report.shards[0])["label"].to_pylist() == [True, False]


def test_no_row_changes_its_meaning(tmp_path: Path) -> None:
    """Rows of TRL's documented columns: what a mode does not read is not written."""
    kto = [{"prompt": f"{n}?", "completion": f"{n}.", "label": n % 2 == 0} for n in range(50)]
    dpo = [{"prompt": f"{n}?", "chosen": f"{n}.", "rejected": "No."} for n in range(20)]
    sft = [{"messages": talk(f"{n}?", f"{n}.")} for n in range(10)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, kto + dpo + sft)))
    found = {}
    for mode in ("chosen", "pairs", "unpaired"):
        recipe = Recipe(
            tmp_path / "rows.jsonl", "chatml", "turnwise", tmp_path / mode, preferences=mode
        )
        report = prepare(recipe, workers=1)
        found[mode] = [report.rows["out"], report.rows["rejected"]]
        if mode == "unpaired":
            labels = Counter(pq.read_table(report.shards[0])["label"].to_pylist())
            assert labels == {True: 25 + 20, False: 25 + 20}
    assert found == {"chosen": [30, 50], "pairs": [20, 60], "unpaired": [70, 10]}


# -- what is shown ----------------------------------------------------------------------------------------------------


def test_columns_that_were_not_read_are_shown_everywhere(tmp_path: Path) -> None:
    rows = [{"messages": HELLO, "id": n, "score": n} for n in range(3)]
    rows.append({"messages": HELLO, "label": False, "<b>": "x"})
    data, out = tmp_path / "rows.jsonl", tmp_path / "out"
    data.write_text("\n".join(map(json.dumps, rows)))
    arguments = [str(data), "-t", "chatml", "-k", "turnwise"]
    dry = RUN.invoke(app, ["prepare", *arguments, "--dry-run"])
    done = RUN.invoke(app, ["prepare", *arguments, "-o", str(out)])
    for shown in (dry.stdout, done.stdout):
        assert "not read: id (3 rows), label (1 row), <b> (1 row)" in " ".join(shown.split())
        assert "carried: score (3 rows)" in " ".join(shown.split())
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["unread"] == {"id": 3, "label": 1, "<b>": 1}
    assert manifest["carried"] == {"score": 3}
    of_dry = json.loads(RUN.invoke(app, ["prepare", *arguments, "--dry-run", "--json"]).stdout)
    assert (of_dry["unread"], of_dry["carried"]) == (manifest["unread"], manifest["carried"])
    page = (out / "report.html").read_text()
    assert "&lt;b&gt;" in page and "<td>id</td><td>not read</td>" in page
    assert "id (3 rows)" in (out / "README.md").read_text()
    (table,) = [pq.read_table(path) for path in sorted(out.glob("*.parquet"))]
    assert [json.loads(text) for text in table["carried"].to_pylist()] == [
        {"score": n} for n in range(3)
    ]


def test_packed_rows_carry_a_value_for_each_sample(tmp_path: Path) -> None:
    rows = [{"messages": HELLO, "score": n} for n in range(4)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    recipe = Recipe(
        *(tmp_path / "rows.jsonl", "chatml", "turnwise", tmp_path / "out"),
        max_length=64,
        packing="best-fit",
    )
    found = pq.read_table(prepare(recipe, workers=1).shards[0]).to_pylist()
    carried = [json.loads(text)["score"] for row in found for text in row["carried"]]
    assert sorted(carried) == [0, 1, 2, 3]


def test_a_reader_says_where_the_column_is() -> None:
    reader = RecordReader(make_recipe())
    with pytest.raises(UnusableRow) as caught:
        reader.read_value({"messages": HELLO, "meta": {"review": {"label": False}}})
    assert caught.value.path == "meta.review" and caught.value.unread == ("meta",)
