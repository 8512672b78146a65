"""Runs that are killed, interrupted or out of disk space are resumed, and end with the bytes of an undisturbed run."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kill_runs
from prepared_folders import (
    interrupt_prepare,
    make_folder_recipe,
    make_rows,
    read_folder,
    write_jsonl,
)
from turnwise.data import prepare
from turnwise.data.run import DONE, WORK
from turnwise.data.shards import TEMPORARY
from turnwise.errors import DataError

ROWS = make_rows(120)
needs_proc = pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="processes are found in /proc"
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "data.jsonl", [*ROWS, b"{", *ROWS[:30]])


def run_kills(data: Path, folder: Path, runs: int, seed: int, workers: int) -> dict[str, int]:
    arguments = [data, folder, runs, seed, workers]
    done = subprocess.run(
        [sys.executable, kill_runs.__file__, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    counts: dict[str, int] = json.loads(done.stdout)
    return counts


@needs_proc
@pytest.mark.law
@pytest.mark.once
def test_a_few_killed_runs_end_with_the_same_bytes(data: Path, tmp_path: Path) -> None:
    counts = run_kills(data, tmp_path, runs=4, seed=1, workers=1)
    assert counts["runs"] == 4 and counts["killed"] >= 2


@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize(("runs", "workers"), [(140, 1), (60, 2)])
def test_killed_runs_end_with_the_same_bytes(
    runs: int, workers: int, data: Path, tmp_path: Path
) -> None:
    counts = run_kills(data, tmp_path, runs, seed=2, workers=workers)
    assert counts["runs"] == runs and counts["killed"] + counts.get("restarts", 0) >= runs // 4


@needs_proc
@pytest.mark.law(1)
@pytest.mark.once
@pytest.mark.parametrize("victims", [slice(-1, None), slice(0, 1), slice(None)], ids=str)
def test_killed_processes_are_replaced(victims: slice, data: Path, tmp_path: Path) -> None:
    killed: list[int] = []

    def kill_some(progress: Any) -> None:
        processes = kill_runs.list_workers(os.getpid())  # the server first, then its workers
        if not killed and progress.rows and len(processes) == 3:
            for process in processes[victims]:
                killed.append(process)
                os.kill(process, signal.SIGKILL)

    recipe = make_folder_recipe(data, tmp_path / "out", chunk_bytes=1024)
    expected = prepare(make_folder_recipe(data, tmp_path / "expected", chunk_bytes=1024))
    report = prepare(recipe, workers=2, on_progress=kill_some)
    assert killed and report.manifest == expected.manifest
    assert read_folder(tmp_path / "out") == read_folder(tmp_path / "expected")
    for restart in report.restarts:  # none if it was idle
        assert "was killed" in restart and str(data) in restart


@needs_proc
def test_a_task_that_kills_its_workers_is_named(data: Path, tmp_path: Path) -> None:
    is_over = threading.Event()

    def kill_workers() -> None:
        while not is_over.wait(0.001):
            for worker in kill_runs.list_workers(os.getpid())[1:]:  # not the server
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)

    killer = threading.Thread(target=kill_workers)
    killer.start()
    try:
        with pytest.raises(DataError) as caught:
            prepare(make_folder_recipe(data, tmp_path / "out"), workers=2)
    finally:
        is_over.set()
        killer.join()
    assert f"{data}, from row " in caught.value.message
    assert "was killed by signal 9 (out of memory?), 3 times" in caught.value.message


@pytest.mark.law
@pytest.mark.once
def test_an_interrupt_leaves_a_folder_that_is_resumed(data: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    process, workers = interrupt_prepare(data, output, workers=2, chunk_bytes=1024)
    assert process.returncode != 0 and "KeyboardInterrupt" in process.stderr
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)
    assert not list(output.glob("train*")) and not (output / "manifest.json").exists()
    report = prepare(make_folder_recipe(data, output, chunk_bytes=1024))
    assert report.kept > 0
    prepare(make_folder_recipe(data, tmp_path / "expected", chunk_bytes=1024))
    assert read_folder(output) == read_folder(tmp_path / "expected")


# -- a full disk -----------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 200 KB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(disk)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted: {mounted.stderr.decode().strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.parametrize("values", [{}, {"shuffle": 1}])
def test_a_full_disk_is_reported_and_the_run_resumed(
    values: dict[str, Any], data: Path, tmp_path: Path, small_disk: Path
) -> None:
    expected = prepare(make_folder_recipe(data, tmp_path / "expected", **values))
    recipe = make_folder_recipe(data, small_disk / "out", **values)
    with pytest.raises(DataError, match="no space left to write") as caught:
        prepare(recipe)
    assert "run it again" in str(caught.value)
    assert not list((small_disk / "out").glob("train*"))
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    report = prepare(recipe)
    assert report.kept > 0 and report.manifest == expected.manifest
    assert read_folder(small_disk / "out") == read_folder(tmp_path / "expected")


@pytest.mark.law(2)
@pytest.mark.parametrize("failing", [1, 2, 5, 12])
def test_a_write_that_fails_is_reported_and_the_run_resumed(
    failing: int, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0
    sync = os.fsync

    def fail_once(handle: int) -> None:
        nonlocal calls
        calls += 1
        if calls == failing:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(handle)

    recipe = make_folder_recipe(data, tmp_path / "out")
    monkeypatch.setattr(os, "fsync", fail_once)
    with pytest.raises(DataError, match="no space left"):
        prepare(recipe)
    prepare(recipe)
    prepare(make_folder_recipe(data, tmp_path / "expected"))
    assert read_folder(tmp_path / "out") == read_folder(tmp_path / "expected")


# -- folders that were used before -----------------------------------------------------------------------------------


def stop_after(rows: int) -> Any:
    def stop(progress: Any) -> None:
        if progress.rows >= rows:
            raise KeyboardInterrupt

    return stop


def interrupt(recipe: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        prepare(recipe, workers=1, on_progress=stop_after(40))


def test_a_complete_folder_is_left_as_it_is(data: Path, tmp_path: Path) -> None:
    recipe = make_folder_recipe(data, tmp_path / "out")
    first = prepare(recipe)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    second = prepare(recipe)
    assert second.was_finished and second.manifest == first.manifest
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == before


def test_a_damaged_shard_is_noticed(data: Path, tmp_path: Path) -> None:
    recipe = make_folder_recipe(data, tmp_path / "out")
    shard = prepare(recipe).shards[1]
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    with pytest.raises(DataError, match=f"{shard.name} .* is missing or was changed"):
        prepare(recipe)


@pytest.mark.law(3)
@pytest.mark.parametrize("is_complete", [True, False])
@pytest.mark.parametrize(
    ("values", "difference"),
    [
        ({"max_length": 99}, "max_length was None, now 99"),
        ({"template": "zephyr"}, "template was 'chatml', now 'zephyr'"),
        ({"chunk_bytes": 5000}, "chunk_bytes was 4096, now 5000"),
    ],
)
def test_another_recipe_is_refused(
    values: dict[str, Any], difference: str, is_complete: bool, data: Path, tmp_path: Path
) -> None:
    recipe = make_folder_recipe(data, tmp_path / "out")
    if is_complete:
        prepare(recipe)
    else:
        interrupt(recipe)
    before = read_folder(tmp_path / "out")
    with pytest.raises(DataError, match="belongs to another run") as caught:
        prepare(make_folder_recipe(data, tmp_path / "out", **values))
    assert difference in caught.value.message
    assert read_folder(tmp_path / "out").keys() >= before.keys()
    assert prepare(recipe).was_finished == is_complete


@pytest.mark.parametrize("is_complete", [True, False])
def test_changed_contents_are_refused(is_complete: bool, data: Path, tmp_path: Path) -> None:
    template = tmp_path / "chat.jinja"
    template.write_text("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
    recipe = make_folder_recipe(data, tmp_path / "out", template=str(template), on_flaw="keep")
    if is_complete:
        prepare(recipe)
    else:
        interrupt(recipe)
    text = data.read_bytes()
    data.write_bytes(text.replace(b"apple", b"apply", 1))
    with pytest.raises(DataError, match="data.jsonl has changed"):
        prepare(recipe)
    data.write_bytes(text)
    template.write_text(template.read_text().replace(": ", ":"))
    with pytest.raises(DataError, match="the content of the template has changed"):
        prepare(recipe)


def test_half_written_files_are_swept_and_never_read(data: Path, tmp_path: Path) -> None:
    recipe = make_folder_recipe(data, tmp_path / "out")
    interrupt(recipe)
    done = tmp_path / "out" / WORK / DONE
    shards = sorted(done.glob("*.parquet"))
    assert len(shards) > 1
    shards[0].write_bytes(shards[0].read_bytes()[:100])  # as a disk may leave it after a crash
    shards[1].unlink()
    (done / f".x.parquet{TEMPORARY}").write_bytes(b"PAR1")
    report = prepare(recipe)
    assert report.kept == len(shards) - 2
    prepare(make_folder_recipe(data, tmp_path / "expected"))
    assert read_folder(tmp_path / "out") == read_folder(tmp_path / "expected")


def test_two_runs_in_one_folder_are_refused(data: Path, tmp_path: Path) -> None:
    recipe = make_folder_recipe(data, tmp_path / "out")
    problems: list[str] = []

    def run_again(progress: Any) -> None:
        if not problems:
            with pytest.raises(DataError) as caught:
                prepare(recipe)
            problems.append(caught.value.message)

    prepare(recipe, workers=1, on_progress=run_again)
    assert "another run works in" in problems[0]


def test_a_folder_with_other_files_is_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has other files in it: data\.jsonl"):
        prepare(make_folder_recipe(data, tmp_path))
    with pytest.raises(DataError, match="is a file, not a folder\n  .*give .*-shards"):
        prepare(make_folder_recipe(data, data))
