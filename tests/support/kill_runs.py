"""Kill runs of `prepare` at random points, resume them, and compare with an undisturbed run.

    python kill_runs.py DATA FOLDER RUNS SEED WORKERS

A run is a fork of this process, which never encodes anything itself and so has no threads, with all modules imported:
200 runs take minutes. A run is killed (SIGKILL) in one of three ways:

    step      by itself, just before or after one of the calls that change the disk (sync, rename, remove, open)
    time      by its parent, after a random part of the time that an undisturbed run takes
    worker    one of its worker processes is killed; the run itself must go on and end well

After `step` and `time` it is resumed; sometimes the resumed run is killed too. Prints one line of JSON for all runs.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prepared_folders import make_folder_recipe, read_folder
from turnwise.data import prepare
from turnwise.data.run import DONE, WORK

RECIPES: tuple[dict[str, Any], ...] = (
    {},
    {"shuffle": 3, "deduplicate": True, "validation": 0.2},
    {"packing": "best-fit", "max_length": 256, "validation": 0.1},
    {"deduplicate": True},
)
STEPS = ("fsync", "replace", "unlink", "rmdir", "mkdir")


class Killer:
    """Counts the calls that change the disk, and ends this process at one of them."""

    def __init__(self, at: int | None, is_before: bool) -> None:
        self.count = 0
        self._at = at
        self._is_before = is_before
        for name in STEPS:
            setattr(os, name, self._wrap(getattr(os, name)))

    def _wrap(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **named: Any) -> Any:
            self.count += 1
            if self.count == self._at and self._is_before:
                os.kill(os.getpid(), signal.SIGKILL)
            result = call(*args, **named)
            if self.count == self._at:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return step


def fork_run(
    data: Path,
    output: Path,
    values: dict[str, Any],
    workers: int,
    kill_at: int | None = None,
    is_before: bool = False,
) -> tuple[int, Path]:
    """Start a run in a fork; return its process, and the file in which it tells what it did."""
    report_file = output.with_suffix(".report")
    report_file.unlink(missing_ok=True)
    process = os.fork()
    if process:
        return process, report_file
    code = 1
    try:
        killer = Killer(kill_at, is_before)
        report = prepare(make_folder_recipe(data, output, **values), workers=workers)
        report_file.write_text(
            json.dumps([killer.count, report.kept, len(report.restarts), report.was_finished])
        )
        code = 0
    finally:
        os._exit(code)


def wait_for(process: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def list_workers(process: int) -> list[int]:
    """Return the processes that a run has started: a server, and the workers that it forked."""
    try:
        text = Path(f"/proc/{process}/task/{process}/children").read_text()
    except OSError:
        return []
    children = [int(child) for child in text.split()]
    return [one for child in children for one in (child, *list_workers(child))]


class Harness:
    """Runs, kills and resumes.

    Args:
        data: the input.
        folder: where to work.
        workers: the workers of each run; with more than one, workers are killed too.
        source: the source of chance.
    """

    def __init__(self, data: Path, folder: Path, workers: int, source: random.Random) -> None:
        self.data, self.folder, self.workers, self.source = data, folder, workers, source
        self.counts: Counter[str] = Counter()
        self.expected: list[dict[str, bytes]] = []
        self.steps: list[int] = []
        self.seconds: list[float] = []
        for number, values in enumerate(RECIPES):
            output = folder / f"undisturbed{number}"
            start = time.monotonic()
            process, report_file = fork_run(data, output, values, workers)
            assert wait_for(process) == 0
            self.seconds.append(time.monotonic() - start)
            self.steps.append(json.loads(report_file.read_text())[0])
            self.expected.append(read_folder(output))

    def run(self, number: int) -> None:
        """Disturb one run, and compare what becomes of it."""
        chosen = number % len(RECIPES)
        output = self.folder / "out"
        shutil.rmtree(output, ignore_errors=True)
        self._disturb(chosen, output)
        if self.source.random() < 0.3:
            self._disturb(chosen, output)
        records = len(list((output / WORK / DONE).glob("*.json")))
        is_published = (output / WORK / "publishing.json").exists()
        process, report_file = fork_run(self.data, output, RECIPES[chosen], self.workers)
        assert wait_for(process) == 0, f"run {number}: it cannot be resumed"
        _, kept, _, was_finished = json.loads(report_file.read_text())
        if not was_finished and not is_published:
            assert kept == records, f"run {number}: {records} chunks were done, {kept} were kept"
            self.counts["resumed"] += kept > 0
        self.counts["finished before"] += was_finished
        found = read_folder(output)
        assert found == self.expected[chosen], f"run {number}: other bytes"

    def _disturb(self, chosen: int, output: Path) -> None:
        ways = ["step", "time"] if self.workers == 1 else ["time", "worker", "worker"]
        way = self.source.choice(ways)
        at, is_before = None, self.source.random() < 0.5
        if way == "step":
            at = self.source.randint(1, self.steps[chosen])
        process, report_file = fork_run(
            self.data, output, RECIPES[chosen], self.workers, at, is_before
        )
        if way != "step":
            time.sleep(self.source.uniform(0.0, self.seconds[chosen]))
            victims = list_workers(process) if way == "worker" else [process]
            for victim in self.source.sample(victims, min(1, len(victims))):
                try:
                    os.kill(victim, signal.SIGKILL)
                except ProcessLookupError:
                    self.counts["too late"] += 1
        code = wait_for(process)
        if way == "worker":
            assert code == 0, "a run must survive the death of a worker"
            self.counts["restarts"] += json.loads(report_file.read_text())[2]
        self.counts[way] += 1
        self.counts["killed"] += code == -signal.SIGKILL


def main(data: str, folder: str, runs: str, seed: str, workers: str) -> None:
    harness = Harness(Path(data), Path(folder), int(workers), random.Random(int(seed)))
    for number in range(int(runs)):
        harness.run(number)
        print(f"{number + 1} of {runs}", dict(harness.counts), file=sys.stderr, flush=True)
    print(json.dumps({"runs": int(runs), **harness.counts}))


if __name__ == "__main__":
    main(*sys.argv[1:])
