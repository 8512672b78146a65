"""The Ray engine: tasks on a cluster, by Ray Data.

Every task is a row of a Ray data set, and `map_batches` hands it to an actor that keeps template and tokenizer warm.
The actors read the input and write the shards themselves, as local workers do, so nothing but tasks and accounts moves
through Ray's object store; inputs and the output folder must be on storage that all machines share, under the same
path. An actor that dies is replaced by Ray, and its task is done again.

A cluster that is already connected is used; otherwise the one that `RAY_ADDRESS` names, or a new one on this machine.
Compressed inputs are unpacked before the tasks begin, by the process that calls `prepare`.
"""

from __future__ import annotations

import logging
import os
import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from turnwise.data.job import Job, Outcome, Task
from turnwise.data.local import TaskEngine
from turnwise.errors import DataError, TurnwiseError
from turnwise.messages import JsonObject
from turnwise.processes import SETTINGS


class TaskActor:
    """Does tasks in an actor of Ray.

    Args:
        job: the job, pickled.
    """

    def __init__(self, job: bytes) -> None:
        self._job: Job = pickle.loads(job)
        self._job.describe()  # loads template and tokenizer

    def __call__(self, batch: JsonObject) -> JsonObject:
        """Do the tasks of one batch."""
        return {"answer": [perform_row(self._job, bytes(task)) for task in batch["task"]]}


class RayEngine(TaskEngine):
    """Does tasks by an actor pool of Ray Data.

    Args:
        job: what the actors need to know.
        workers: how many actors there are; None for one on each processor of the cluster.
    """

    def __init__(self, job: Job, workers: int | None) -> None:
        super().__init__(job)
        self._ray = _import_ray()
        self._is_own = not self._ray.is_initialized()
        if self._is_own:
            _start_ray_here(self._ray)
        self._workers = workers or int(self._ray.cluster_resources().get("CPU", 1))

    def run(self, tasks: Iterator[Task]) -> Iterator[Outcome]:
        """Do the tasks, and yield the outcome of each when it is done."""
        rows = [{"task": pickle.dumps(task)} for task in tasks]
        if not rows:
            return
        data = self._ray.data.from_items(rows, override_num_blocks=len(rows)).map_batches(
            TaskActor,
            fn_constructor_args=[pickle.dumps(self._job)],
            batch_size=1,
            num_cpus=1,
            compute=self._ray.data.ActorPoolStrategy(size=min(self._workers, len(rows))),
        )
        for row in data.iter_rows():
            yield read_answer(row["answer"])

    def close(self) -> None:
        """Leave the cluster, if this engine has joined it."""
        if self._is_own:
            self._ray.shutdown()


def start_ray(job: Job, workers: int | None, input_bytes: int) -> RayEngine:
    """Return the Ray engine.

    Raises:
        DataError: Ray is not installed, or the recipe cannot be sent to other processes.
    """
    return RayEngine(job, workers)


def _import_ray() -> Any:
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise DataError(
            "the engine 'ray' needs Ray Data", hint="Install it: pip install 'turnwise[ray]'"
        ) from error
    return ray


def _start_ray_here(ray: Any) -> None:
    """Join the cluster of RAY_ADDRESS, or start one on this machine that finds the same modules as this process."""
    with pass_environment():  # Ray's own way of setting variables takes seconds for each process
        ray.init(include_dashboard=False, logging_level="error", log_to_driver=False)
    logging.getLogger("ray.data").setLevel(logging.WARNING)


def perform_row(job: Job, task: bytes) -> bytes:
    """Do a pickled task, and return its outcome or its error, pickled.

    The error is data: what a cluster does with exceptions of its workers (retry, wrap, print) would hide the one
    sentence that the user needs.
    """
    try:
        return pickle.dumps(job.perform(pickle.loads(task)))
    except TurnwiseError as error:
        return pickle.dumps(error)


def read_answer(answer: bytes) -> Outcome:
    """Return the outcome of an answer.

    Raises:
        TurnwiseError: the task has failed.
    """
    found: Any = pickle.loads(answer)
    if isinstance(found, TurnwiseError):
        raise found
    outcome: Outcome = found
    return outcome


@contextmanager
def pass_environment() -> Iterator[None]:
    """Let the processes that Ray starts find the modules of this one, and use one thread each."""
    variables = {**SETTINGS, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
