"""Relative paths are those of the caller, wherever a worker runs."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from prepared_folders import make_folder_recipe, make_rows, write_jsonl
from turnwise.data import prepare
from turnwise.data.job import Job, Partition
from turnwise.data.ray import perform_row, read_answer
from turnwise.errors import DataError

TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"


def test_workers_need_not_share_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    write_jsonl(Path("data.jsonl"), make_rows(20))
    Path("chat.jinja").write_text(TEMPLATE)
    recipe = make_folder_recipe(
        Path("data.jsonl"), Path("out"), template="./chat.jinja", on_flaw="keep"
    )
    perform = Job.perform

    def perform_elsewhere(job: Job, task: object) -> object:
        with monkeypatch.context() as there:
            there.chdir(tmp_path / "elsewhere")
            copy = Job(job.recipe, job.work, job.partitions)  # as a new process has it
            return perform(copy, task)  # type: ignore[arg-type]

    monkeypatch.setattr(Job, "perform", perform_elsewhere)
    report = prepare(recipe, workers=1)
    assert report.rows["out"] == 20
    assert report.manifest["recipe"]["template"] == "./chat.jinja"
    assert report.manifest["inputs"][0]["path"] == "data.jsonl"


def test_a_failed_task_answers_with_its_error(tmp_path: Path) -> None:
    job = Job(make_folder_recipe(tmp_path / "data.jsonl", tmp_path), tmp_path, 1)
    answer = perform_row(job, pickle.dumps(Partition(0)))
    with pytest.raises(DataError, match="output shard 0"):
        read_answer(answer)
