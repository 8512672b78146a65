"""The Daft engine: tasks as rows of a Daft data frame, done by a class of which each process has one instance.

Daft runs on this machine, or on a Ray cluster after `daft.set_runner_ray()`. As with Ray, workers read and write
themselves; only tasks and accounts are in the data frame.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

from turnwise.data.job import Job, Outcome, Task
from turnwise.data.local import choose_workers
from turnwise.data.task_row import pass_environment, perform_row, read_answer
from turnwise.errors import DataError


class TaskPerformer:
    """Does tasks in a process of Daft.

    Args:
        job: the job, pickled.
    """

    def __init__(self, job: bytes) -> None:
        self._job: Job = pickle.loads(job)

    def perform(self, task: bytes) -> bytes:
        """Do one task."""
        return perform_row(self._job, task)


class DaftEngine:
    """Does tasks by a user-defined class of Daft.

    Args:
        job: what the workers need to know.
        workers: how many processes there are.
    """

    def __init__(self, job: Job, workers: int) -> None:
        self.restarts: list[str] = []
        self._job = job
        self._workers = workers
        self._daft = _import_daft()

    def describe(self) -> dict[str, str]:
        """Return the digests of template and tokenizer, as this process finds them."""
        return self._job.describe()

    def run(self, tasks: Iterator[Task]) -> Iterator[Outcome]:
        """Do the tasks, and yield the outcome of each when it is done."""
        pickled = [pickle.dumps(task) for task in tasks]
        if not pickled:
            return
        decorate = self._daft.cls(max_concurrency=self._workers, use_process=self._workers > 1)
        performer = decorate(TaskPerformer)(pickle.dumps(self._job))
        frame = self._daft.from_pydict({"task": pickled}).into_batches(1)
        frame = frame.select(performer.perform(frame["task"]).alias("answer"))
        with pass_environment():
            for row in frame.iter_rows():
                yield read_answer(row["answer"])

    def close(self) -> None:
        """Do nothing: Daft ends its processes with the query."""


def start_daft(job: Job, workers: int | None, input_bytes: int) -> DaftEngine:
    """Return the Daft engine.

    Raises:
        DataError: Daft is not installed.
    """
    return DaftEngine(job, workers or choose_workers(input_bytes))


def _import_daft() -> Any:
    try:
        import daft
    except ImportError as error:
        raise DataError(
            "the engine 'daft' needs Daft", hint="Install it: pip install daft"
        ) from error
    return daft
