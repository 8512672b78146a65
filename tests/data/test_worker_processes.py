"""Workers of the local engine start and end cleanly, whatever the process of the caller is like."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import turnwise
from prepared_folders import make_folder_recipe, make_rows, read_folder, write_jsonl
from turnwise.data import local, prepare
from turnwise.data.job import Job
from turnwise.data.local import LocalEngine
from turnwise.errors import DataError, TokenizerError

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forked")

OWN = "{% for m in messages %}[{{ m.role }}]{{ m.content }}<|im_end|>{% endfor %}"
OWN_CLASS = """
import sys
from turnwise.data import Recipe, prepare
from turnwise.errors import DataError

class Mine:
    pass

try:
    prepare(Recipe(sys.argv[1], "chatml", Mine(), sys.argv[2], chunk_bytes=1024), workers=2)
except DataError as error:
    print(error)
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "data.jsonl", make_rows(60))


def run_both(data: Path, folder: Path, **values: object) -> None:
    """Run a recipe with one and with two workers, and compare."""
    for workers in (1, 2):
        recipe = make_folder_recipe(data, folder / f"{workers}", chunk_bytes=1024, **values)
        prepare(recipe, workers=workers)
    assert read_folder(folder / "1") == read_folder(folder / "2")


def test_workers_know_entries_of_the_caller(data: Path, tmp_path: Path) -> None:
    turnwise.register("workers-own", OWN, stops=["<|im_end|>"])
    run_both(data, tmp_path, template="workers-own")


def test_a_path_object_in_the_module_path(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, tmp_path])
    run_both(data, tmp_path)


@pytest.fixture
def ignored_children() -> Iterator[None]:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGCHLD, before)


@pytest.mark.usefixtures("ignored_children")
def test_a_caller_that_ignores_its_children(
    data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run_both(data, tmp_path)
    assert capfd.readouterr().err == ""


def test_a_caller_that_forks_meanwhile(data: Path, tmp_path: Path) -> None:
    """The fork has our end of the connections, too, so the server never sees them closed."""
    forks: list[int] = []

    def fork(progress: object) -> None:
        if not forks:
            forks.append(os.fork())
            if not forks[0]:
                signal.pause()

    start = time.monotonic()
    try:
        prepare(
            make_folder_recipe(data, tmp_path / "out", chunk_bytes=1024),
            workers=2,
            on_progress=fork,
        )
        assert time.monotonic() - start < 60
        prepare(make_folder_recipe(data, tmp_path / "out", chunk_bytes=1024))  # it is not locked
    finally:
        os.kill(forks[0], signal.SIGKILL)
        os.waitpid(forks[0], 0)


def test_a_server_is_ended_before_it_is_ready_and_when_it_is_stopped(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "PATIENCE", 0.2)
    job = Job(make_folder_recipe(data, tmp_path / "out"), tmp_path, 1)
    engine = LocalEngine(job, 2)
    assert engine._stop_server() == "was killed by signal 9 (out of memory?)"
    engine = LocalEngine(job, 2)
    engine.describe()
    os.kill(engine._server.pid, signal.SIGSTOP)
    assert "was killed" in engine._stop_server()


def test_an_object_that_workers_cannot_unpickle(data: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", OWN_CLASS, str(data), str(tmp_path / "out")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sys.path))},
    )
    assert "the recipe cannot be sent to worker processes: AttributeError" in done.stdout
    assert "names or paths, or use workers=1" in done.stdout
    assert done.stderr == "" and done.returncode == 0


def test_an_error_before_the_job_is_read(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TURNWISE_BACKEND", "bogus")
    with pytest.raises(TokenizerError, match="unknown back end 'bogus'"):
        prepare(make_folder_recipe(data, tmp_path / "out"), workers=2)
    assert capfd.readouterr().err == ""


def test_a_program_that_does_not_know_itself(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", None)
    with pytest.raises(DataError, match="does not know its own program"):
        prepare(make_folder_recipe(data, tmp_path / "out"), workers=2)


def test_a_folder_in_which_nothing_was_written_may_be_used_again(
    data: Path, tmp_path: Path
) -> None:
    wrong = make_folder_recipe(data, tmp_path / "out", columns={"messages": "nothing"})
    assert prepare(wrong).manifest["rows"]["out"] == 0
    report = prepare(make_folder_recipe(data, tmp_path / "out"))
    assert report.rows["out"] > 0 and report.rows["rejected"] == 0


@pytest.mark.law
def test_one_thread_of_several_prepares(data: Path, tmp_path: Path) -> None:
    problems: list[Exception] = []

    def run(name: str) -> None:
        try:
            run_both(data, tmp_path / name)
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=run, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
