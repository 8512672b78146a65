"""The page of a folder has lines for the trainers that can take its shards, and only for those."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from turnwise.data import Recipe, prepare
from turnwise.data.pages import write_trainer_lines

CHAT = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
CASES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "plain": (
        {},
        {"TRL", "axolotl", "LLaMA-Factory, once", "LLaMA-Factory, then", "verl", "torch"},
    ),
    "packed": ({"packing": "best-fit", "max_length": 64}, {"TRL", "verl", "torch"}),
    "pairs": ({"preferences": "pairs"}, {"TRL"}),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Any]:
    """The name of a case, and the report of its run."""
    rows = [{"messages": [*CHAT, *CHAT]}] * 30
    if request.param == "pairs":
        rows = [{"prompt": "Hi", "chosen": "Hello", "rejected": "Ho"}] * 30
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    values = {"validation": 0.5, **CASES[request.param][0]}
    recipe = Recipe(tmp_path / "rows.jsonl", "chatml", "turnwise", tmp_path / "out", **values)
    return request.param, prepare(recipe, workers=1)


def test_lines_for_trainers_that_take_the_rows(case: tuple[str, Any]) -> None:
    name, report = case
    lines = write_trainer_lines(report.manifest, "my-shards")
    assert set(lines) == CASES[name][1]
    assert all("my-shards" in text for text in lines.values())
    assert ("padding_free=True" in lines["TRL"]) == (name == "packed")
    assert ("DPOTrainer" in lines["TRL"]) == (name == "pairs")
    for title in {"TRL", "torch", "LLaMA-Factory, once"} & lines.keys():
        ast.parse(lines[title])
    if "axolotl" in lines:
        limit = int(lines["axolotl"].rpartition("sequence_len: ")[2])
        tables = map(pyarrow.parquet.read_table, report.shards)
        assert limit >= max(max(table["length"].to_pylist()) for table in tables)


def test_the_page_of_the_folder_has_them(case: tuple[str, Any]) -> None:
    _, report = case
    page = (report.folder / "README.md").read_text()
    assert "## Train with it" in page
    for text in write_trainer_lines(report.manifest).values():
        assert text in page


def test_evaluation_only_with_a_split(case: tuple[str, Any]) -> None:
    _, report = case
    manifest = dict(report.manifest)
    splits = {shard["split"] for shard in manifest["shards"]}
    assert ("eval_dataset" in write_trainer_lines(manifest)["TRL"]) == ("validation" in splits)
    manifest["shards"] = [shard for shard in manifest["shards"] if shard["split"] == "train"]
    assert "eval_dataset" not in write_trainer_lines(manifest)["TRL"]
