"""What `prepare` promises on one machine: the same bytes for any number of workers, and accounts that add up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import turnwise
from prepared_folders import make_folder_recipe, make_rows, read_folder, write_jsonl
from turnwise.data import Progress, Recipe, exchange, prepare, readers
from turnwise.errors import DataError, SourceError, TokenizerError, TurnwiseError

ROWS = make_rows(150)
BAD = [b'{"messages": [', b"\xff\xfe", {"messages": [{"role": "user", "content": "hi"}]}, {"x": 1}]
RECIPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "shuffle": {"shuffle": 7},
    "deduplicate": {"deduplicate": True},
    "everything": {
        "shuffle": 1,
        "deduplicate": True,
        "validation": 0.2,
        "packing": "best-fit",
        "max_length": 256,
        "group_by_length": True,
    },
    "arrow": {"shard_format": "arrow", "validation": 0.3},
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data set with bad rows, and some rows twice."""
    return write_jsonl(tmp_path / "data.jsonl", [*ROWS[:80], *BAD, *ROWS[60:]])


def read_samples(folder: Path, split: str = "train") -> list[dict[str, Any]]:
    rows = []
    for path in sorted(folder.glob(f"{split}-*.parquet")):
        rows += pq.read_table(path).to_pylist()
    return rows


@pytest.mark.law(1)
@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("everything", (1, 2)),
        *(pytest.param(name, (1, 2, 4), marks=pytest.mark.once) for name in RECIPES),
    ],
)
def test_bytes_do_not_depend_on_workers(
    name: str, counts: tuple[int, ...], data: Path, tmp_path: Path
) -> None:
    folders = []
    for workers in counts:
        recipe = make_folder_recipe(data, tmp_path / f"out{workers}", **RECIPES[name])
        report = prepare(recipe, workers=workers)
        assert not report.was_finished and report.kept == 0
        folders.append(read_folder(tmp_path / f"out{workers}"))
    assert all(folder == folders[0] for folder in folders[1:])
    assert sum(file.startswith("train-") for file in folders[0]) > 5
    assert not any("turnwise" in file or file.endswith(".tmp") for file in folders[0])


def test_every_row_is_accounted_for(data: Path, tmp_path: Path) -> None:
    report = prepare(make_folder_recipe(data, tmp_path / "out"))
    assert report.rows == {"in": 174, "out": 170, "rejected": 4, "filtered": 0}
    samples = read_samples(tmp_path / "out")
    assert len(samples) == report.manifest["samples"] == 170
    assert sum(row["length"] for row in samples) == report.manifest["tokens"]["all"]
    trained = sum(label != -100 for row in samples for label in row["labels"])
    assert trained == report.manifest["tokens"]["trained"]
    assert sum(count for _, count in report.manifest["lengths"]) == 170
    assert sum(count for _, count in report.manifest["trained_share"]) == 170
    assert [row["source_row"] for row in samples] == [
        number for number in range(1, 175) if not 81 <= number <= 84
    ]
    assert report.manifest == json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert [shard["rows"] for shard in report.manifest["shards"]] == [
        pq.read_metadata(path).num_rows for path in report.shards
    ]


def test_samples_are_those_of_encode(tmp_path: Path) -> None:
    data = write_jsonl(tmp_path / "data.jsonl", ROWS)
    prepare(make_folder_recipe(data, tmp_path / "out"), workers=2)
    template = turnwise.load("chatml")
    samples = read_samples(tmp_path / "out")
    for row, sample in zip(ROWS, samples, strict=True):
        encoded = template.encode(row["messages"], "turnwise")
        assert sample["input_ids"] == encoded.input_ids
        assert sample["labels"] == encoded.labels


def test_rejected_rows_keep_their_place_reason_and_bytes(data: Path, tmp_path: Path) -> None:
    report = prepare(make_folder_recipe(data, tmp_path / "out"))
    lines = [json.loads(line) for line in report.rejected.read_text().splitlines()]
    assert [line["row"] for line in lines] == [81, 82, 83, 84]
    text = data.read_bytes()
    assert text[lines[0]["offset"] :].startswith(b'{"messages": [\n')
    assert lines[0]["raw"] == '{"messages": ['
    assert "raw" not in lines[1] and lines[1]["raw_base64"] == "//4="
    assert all(line["file"] == str(data) and line["reason"] for line in lines)
    counted = report.manifest["reasons"]
    assert sum(counted.values()) == 4 and set(counted) == {line["kind"] for line in lines}


def test_the_first_bad_row_can_end_the_run(data: Path, tmp_path: Path) -> None:
    recipe = make_folder_recipe(data, tmp_path / "out", on_bad_row="fail")
    with pytest.raises(DataError) as caught:
        prepare(recipe)
    assert f"{data}, row 81, byte " in caught.value.message
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_shuffling_is_one_order_of_all_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the name of the file decides about the order, too
    write_jsonl(tmp_path / "data.jsonl", ROWS)
    data = Path("data.jsonl")
    orders = {}
    for seed in (1, 2):
        prepare(make_folder_recipe(data, tmp_path / f"out{seed}", shuffle=seed))
        orders[seed] = [row["source_row"] for row in read_samples(tmp_path / f"out{seed}")]
    assert sorted(orders[1]) == sorted(orders[2]) == list(range(1, 151))
    assert orders[1] != orders[2] and orders[1] != sorted(orders[1])
    # Rows of all parts of the file meet in the first shard.
    first = pq.read_table(min((tmp_path / "out1").glob("train-*")))["source_row"].to_pylist()
    assert min(first) < 50 and max(first) > 100


@pytest.mark.parametrize("passes", [1, 5])
def test_of_equal_samples_the_first_stays(
    passes: int, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "MAX_DIGESTS", 1_000_000 if passes == 1 else 170 // passes)
    report = prepare(make_folder_recipe(data, tmp_path / "out", deduplicate=True))
    assert report.rows == {"in": 174, "out": 150, "rejected": 4, "filtered": 20}
    assert report.manifest["duplicates"] == report.manifest["reasons"]["duplicate"] == 20
    kept = [row["source_row"] for row in read_samples(tmp_path / "out")]
    assert kept == [*range(1, 81), *range(105, 175)]


def test_progress_reaches_the_end(data: Path, tmp_path: Path) -> None:
    seen: list[Progress] = []
    recipe = make_folder_recipe(data, tmp_path / "out", shuffle=1)
    report = prepare(recipe, on_progress=seen.append)
    encoded = [one for one in seen if one.stage == "encode"]
    assert encoded[0].rows == 0 and encoded[-1].rows == 174 and encoded[-1].rejected == 4
    assert encoded[-1].bytes_done == encoded[-1].bytes_total == data.stat().st_size
    assert encoded[-1].tokens == report.manifest["tokens"]["all"]
    assert seen[-1].stage == "assemble" and seen[-1].shards_done == seen[-1].shards_total > 5


# -- bad input -------------------------------------------------------------------------------------------------------


def test_mixed_shapes_are_read_row_by_row(tmp_path: Path) -> None:
    rows = [
        ROWS[0],
        {"prompt": "a", "completion": "b"},
        {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]},
        {"instruction": "a", "output": "b"},
    ]
    data = write_jsonl(tmp_path / "data.jsonl", rows)
    assert prepare(make_folder_recipe(data, tmp_path / "out")).rows["out"] == 4


def test_a_huge_line_costs_no_other_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "MAX_ROW_BYTES", 1 << 20)
    huge = {"messages": [{"role": "user", "content": "x" * (2 << 20)}]}
    data = write_jsonl(tmp_path / "data.jsonl", [*ROWS[:5], huge, *ROWS[5:10]])
    report = prepare(make_folder_recipe(data, tmp_path / "out"), workers=1)
    assert report.rows == {"in": 11, "out": 10, "rejected": 1, "filtered": 0}
    (line,) = map(json.loads, report.rejected.read_text().splitlines())
    assert line["row"] == 6 and line["kind"] == "row-too-large" and "2,097," in line["reason"]


def test_empty_inputs_give_an_empty_folder_with_a_manifest(tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    data.touch()
    report = prepare(make_folder_recipe(data, tmp_path / "out", shuffle=1))
    assert report.rows == {"in": 0, "out": 0, "rejected": 0, "filtered": 0}
    assert report.shards == [] and "is empty" in report.manifest["notes"][0]


def test_a_wrong_column_rejects_every_row_by_name(data: Path, tmp_path: Path) -> None:
    recipe = make_folder_recipe(data, tmp_path / "out", columns={"messages": "dialogue"})
    report = prepare(recipe)
    assert report.rows["out"] == 0
    assert "dialogue" in report.rejected.read_text().splitlines()[0]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({"template": "no such template"}, SourceError),
        ({"tokenizer": "no such tokenizer"}, TokenizerError),
        ({"inputs": "no such file"}, DataError),
        ({"output": None}, DataError),
    ],
)
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.once)])
def test_what_cannot_be_loaded_leaves_nothing_behind(
    values: dict[str, Any], kind: type[TurnwiseError], workers: int, data: Path, tmp_path: Path
) -> None:
    settings = {"template": "chatml", "tokenizer": "turnwise", "inputs": str(data)}
    recipe = Recipe(**{**settings, "output": str(tmp_path / "out"), **values})
    with pytest.raises(kind):
        prepare(recipe, workers=workers)
    assert not (tmp_path / "out").exists()


def test_arguments_that_are_wrong_are_named(data: Path, tmp_path: Path) -> None:
    recipe = make_folder_recipe(data, tmp_path / "out")
    with pytest.raises(DataError, match="there is no engine 'rai'") as caught:
        prepare(recipe, engine="rai")
    assert "Did you mean 'ray'?" in str(caught.value)
    for workers in (0, -1, True, "2"):
        with pytest.raises(DataError, match="workers is"):
            prepare(recipe, workers=workers)  # type: ignore[arg-type]
