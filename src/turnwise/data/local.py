"""The local engine: tasks on the processors of this machine.

Workers are forks of one process that has loaded template and tokenizer (`fork_server.py`). They read the input and
write the shards themselves; the parent hands out tasks one at a time and only keeps accounts. A worker that dies is
replaced, and its task is done again.

With one worker the work is done in this process.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections import Counter, deque
from collections.abc import Iterator
from multiprocessing.connection import wait
from typing import Any, Protocol

from turnwise.data.fork_server import REMEDY
from turnwise.data.job import Job, Outcome, Task
from turnwise.data.local_worker import FAILED
from turnwise.data.worker_processes import DEAD, ForkServer, Worker
from turnwise.errors import DataError

MAX_ATTEMPTS = 3  # to do one task, or to load template and tokenizer
# Of input: starting workers takes as long as encoding some megabytes.
MIN_BYTES_PER_WORKER = 1 << 20


class TaskEngine(Protocol):
    """Does tasks, in any order.

    Attributes:
        restarts: what was done again, and why.
    """

    restarts: list[str]

    def describe(self) -> dict[str, str]:
        """Return the digests of template and tokenizer, or raise what is wrong with them."""

    def run(self, tasks: Iterator[Task]) -> Iterator[Outcome]:
        """Do the tasks, and yield the outcome of each when it is done."""

    def close(self) -> None:
        """Stop at once; what is done is kept."""


def choose_workers(input_bytes: int) -> int:
    """Return how many workers make sense: one for each processor, fewer for little input."""
    processors = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):  # a container may have fewer than the machine
        processors = len(os.sched_getaffinity(0))
    return max(1, min(processors, input_bytes // MIN_BYTES_PER_WORKER))


def start_local(job: Job, workers: int | None, input_bytes: int) -> TaskEngine:
    """Return the local engine; template and tokenizer are being loaded.

    Raises:
        DataError: the recipe cannot be sent to another process.
    """
    workers = workers or choose_workers(input_bytes)
    if workers == 1 or os.name == "nt":  # Windows cannot fork
        return InlineEngine(job)
    try:
        pickle.dumps(job)
    except Exception as error:  # an object of the caller may raise anything when it is pickled
        raise DataError(
            f"the recipe cannot be sent to worker processes: {error}",
            hint=REMEDY,
        ) from error
    if not sys.executable:
        raise DataError(
            "this Python does not know its own program, and starts no workers", hint=REMEDY
        )
    return LocalEngine(job, workers)


class InlineEngine:
    """Does tasks in this process."""

    def __init__(self, job: Job) -> None:
        self.restarts: list[str] = []
        self._job = job

    def describe(self) -> dict[str, str]:
        """Return the digests of template and tokenizer."""
        return self._job.describe()

    def run(self, tasks: Iterator[Task]) -> Iterator[Outcome]:
        """Do the tasks one after the other."""
        return map(self._job.perform, tasks)

    def close(self) -> None:
        """Do nothing: there is nothing that could go on."""


class LocalEngine:
    """Does tasks in worker processes.

    Args:
        job: what the workers need to know.
        workers: how many there are.
    """

    def __init__(self, job: Job, workers: int) -> None:
        self.restarts: list[str] = []
        self._job = job
        self._count = workers
        self._failures: Counter[str] = Counter()  # by the name of the task; "" for the server
        self._again: deque[Task] = deque()
        self._workers: list[Worker] = []
        self._digests: dict[str, str] | None = None  # None until the server is ready
        self._server = ForkServer(job)

    def describe(self) -> dict[str, str]:
        """Return the digests of template and tokenizer, when they are loaded."""
        while self._digests is None:
            try:
                self._digests = self._server.receive_digests()
            except DEAD:
                self._restart_server()
        return self._digests

    def run(self, tasks: Iterator[Task]) -> Iterator[Outcome]:
        """Do the tasks, and yield the outcome of each when it is done."""
        upcoming: deque[Task] = deque()
        is_exhausted = False
        while True:
            self._hand_out(upcoming)
            is_wanting = len(upcoming) < self._count and not is_exhausted
            if not (is_wanting or upcoming or self._again or self._count_busy()):
                return
            yield from self._receive(timeout=0 if is_wanting else None)
            if is_wanting:  # the next task is made while the workers are busy
                task = next(tasks, None)
                is_exhausted = task is None
                if task is not None:
                    upcoming.append(task)

    def close(self) -> None:
        """Kill the workers; what they have written is whole, or has a temporary name."""
        self._server.close()
        for worker in self._workers:
            worker.connection.close()
        self._workers = []

    def _count_busy(self) -> int:
        return sum(worker.task is not None for worker in self._workers)

    def _hand_out(self, upcoming: deque[Task]) -> None:
        """Give a task to each worker that has none; start workers as long as there are tasks for them."""
        while waiting := self._again or upcoming:
            idle = next((worker for worker in self._workers if worker.task is None), None)
            if idle is None and len(self._workers) == self._count:
                return
            if idle is None:
                idle = self._start_worker()
            idle.send(waiting.popleft())

    def _start_worker(self) -> Worker:
        while True:
            self.describe()  # the server is ready then
            try:
                self._workers.append(self._server.fork())
            except DEAD:
                self._restart_server()
                continue
            return self._workers[-1]

    def _receive(self, timeout: float | None) -> Iterator[Outcome]:
        """Wait for workers to say something, and yield what they have done."""
        by_connection: dict[Any, Worker] = {one.connection: one for one in self._workers}
        for connection in wait(list(by_connection), timeout):
            worker = by_connection[connection]
            try:
                kind, answer = worker.connection.recv()
            except (*DEAD, pickle.UnpicklingError):
                self._give_up(worker)
                continue
            if kind == FAILED:
                raise answer
            worker.task = None
            yield answer

    def _give_up(self, lost: Worker) -> None:
        """Forget a worker that has died; its task is done again.

        Raises:
            DataError: the task has failed too often.
        """
        self._workers.remove(lost)
        how = lost.explain_end()
        if lost.task is not None:
            what = lost.task.describe()
            self._count_failure(lost.task.name, what, how)
            self.restarts.append(f"a worker {how}; done again: {what}")
            self._again.append(lost.task)

    def _restart_server(self) -> None:
        """Start another server; workers that are there go on.

        Raises:
            DataError: it has died too often.
        """
        self._count_failure("", "a new worker", self._server.close())
        self._digests = None
        self._server = ForkServer(self._job)

    def _count_failure(self, name: str, what: str, how: str) -> None:
        self._failures[name] += 1
        if self._failures[name] >= MAX_ATTEMPTS:
            raise DataError(
                f"{what}: the worker process {how}, {MAX_ATTEMPTS} times",
                hint="If the memory does not suffice, use fewer workers or a smaller chunk_bytes. "
                "What is done is kept.",
            )
