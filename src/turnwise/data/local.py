"""The local engine: tasks on the processors of this machine.

Workers are forks of one process that has loaded template and tokenizer (`fork_server.py`, at the other end of the
connection, hands out the tasks). They read the input and write the shards themselves; this process sends tasks and only
keeps accounts. A worker that dies is replaced, and so is the server; the tasks that were lost are done again.

With one worker the work is done in this process.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
from collections import Counter
from collections.abc import Iterator

from turnwise.data.fork_server import DEAD, DONE, FAILED, READY, REMEDY, STOP
from turnwise.data.job import Job, Outcome, Task
from turnwise.errors import DataError
from turnwise.processes import Interpreter, explain_end

MAX_ATTEMPTS = 3  # to do one task, or to load template and tokenizer
# Of input: starting workers takes as long as encoding some megabytes.
MIN_BYTES_PER_WORKER = 1 << 20
PATIENCE = 5.0  # seconds for the server to end
TASKS_PER_WORKER = 2  # the next one is made while a worker is busy


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
        return TaskEngine(job)
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


class TaskEngine:
    """Does tasks, in any order: here in this process.

    Args:
        job: what is to be done.

    Attributes:
        restarts: what was done again, and why.
    """

    def __init__(self, job: Job) -> None:
        self.restarts: list[str] = []
        self._job = job

    def describe(self) -> dict[str, str]:
        """Return the digests of template and tokenizer, or raise what is wrong with them."""
        return self._job.describe()

    def run(self, tasks: Iterator[Task]) -> Iterator[Outcome]:
        """Do the tasks, and yield the outcome of each when it is done."""
        return map(self._job.perform, tasks)

    def close(self) -> None:
        """Stop at once; what is done is kept."""


class LocalEngine(TaskEngine):
    """Does tasks in worker processes.

    Args:
        job: what the workers need to know.
        workers: how many there are.
    """

    def __init__(self, job: Job, workers: int) -> None:
        super().__init__(job)
        self._count = workers
        self._failures: Counter[str] = Counter()  # by the name of the task; "" for the server
        self._sent: dict[str, Task] = {}  # those that are not done, by their names
        self._start_server()

    def _start_server(self) -> None:
        self._digests: dict[str, str] | None = None  # None until the server is ready
        self._server = Interpreter("turnwise.data.fork_server", self._count)
        for message in (self._job.recipe.tokenizer, self._job, *self._sent.values()):
            self._send(message)

    def _send(self, message: object) -> None:
        with contextlib.suppress(OSError):  # it has died: that is noticed when its answer is read
            self._server.connection.send(message)

    def describe(self) -> dict[str, str]:
        """Return the digests of template and tokenizer, when they are loaded."""
        while self._digests is None:
            self._receive()
        return self._digests

    def run(self, tasks: Iterator[Task]) -> Iterator[Outcome]:
        """Do the tasks, and yield the outcome of each when it is done."""
        for task in tasks:
            self._sent[task.name] = task
            self._send(task)
            yield from self._receive_all_but(TASKS_PER_WORKER * self._count - 1)
        yield from self._receive_all_but(0)

    def _receive_all_but(self, count: int) -> Iterator[Outcome]:
        while len(self._sent) > count:
            outcome = self._receive()
            if outcome is not None:
                yield outcome

    def _receive(self) -> Outcome | None:
        """Wait for the next answer of the server; return the outcome of a task that is done."""
        try:
            kind, answer = self._server.connection.recv()
        except DEAD:
            how = self._stop_server()
            self._count_failure("", "a new worker", how)
            for task in self._sent.values():
                self._note_restart(task, how)
            self._start_server()
            return None
        if kind == FAILED:
            raise answer
        if kind == DONE:
            del self._sent[answer.name]
            outcome: Outcome = answer
            return outcome
        if kind == READY:
            self._digests = answer
        else:  # a worker has died
            name, how = answer
            task = self._sent[name]
            self._count_failure(name, task.describe(), how)
            self._note_restart(task, how)
            self._send(task)
        return None

    def close(self) -> None:
        """Kill the workers; what they have written is whole, or has a temporary name."""
        self._stop_server()

    def _stop_server(self) -> str:
        """Wait until the server has killed its workers and ended, and return how it ended."""
        # Closing the connection is not enough: a process that the caller has forked may have it, too.
        self._send(STOP)
        # One that loads would load to the end first; it has no workers yet.
        return explain_end(self._server.close(PATIENCE if self._digests else 0.0))

    def _note_restart(self, task: Task, how: str) -> None:
        self.restarts.append(f"a worker {how}; done again: {task.describe()}")

    def _count_failure(self, name: str, what: str, how: str) -> None:
        self._failures[name] += 1
        if self._failures[name] >= MAX_ATTEMPTS:
            raise DataError(
                f"{what}: the worker process {how}, {MAX_ATTEMPTS} times",
                hint="If the memory does not suffice, use fewer workers or a smaller chunk_bytes. "
                "What is done is kept.",
            )
