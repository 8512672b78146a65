"""The local engine: tasks on the processors of this machine.

Workers are forks of one process that has loaded template and tokenizer (`fork_server.py` has the other end of the
connections). They read the input and write the shards themselves; the parent hands out tasks one at a time and only
keeps accounts. A worker that dies is replaced, and its task is done again.

With one worker the work is done in this process.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
from collections import Counter, deque
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import send_handle
from typing import Any, Protocol

from turnwise.data.fork_server import FAILED, FORK, REMEDY, STOP
from turnwise.data.job import Job, Outcome, Task
from turnwise.errors import DataError
from turnwise.processes import Interpreter, explain_end

MAX_ATTEMPTS = 3  # to do one task, or to load template and tokenizer
# Of input: starting workers takes as long as encoding some megabytes.
MIN_BYTES_PER_WORKER = 1 << 20
DEAD = (EOFError, OSError)  # what a connection to a process raises that has died
PATIENCE = 5.0  # seconds for the server to end


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


class Worker:
    """A worker process, our end of the connection to it, and what it does now."""

    def __init__(self, server: ForkServer, process: int, connection: Connection[Any, Any]) -> None:
        self.process = process
        self.connection = connection
        self.task: Task | None = None
        self._server = server

    def send(self, task: Task) -> None:
        """Send a task; a worker that has died is noticed when its answer is read."""
        self.task = task
        with contextlib.suppress(OSError):
            self.connection.send(task)

    def explain_end(self) -> str:
        """Return how a worker ended that has closed its end of the connection, as a phrase."""
        self.connection.close()
        try:
            return explain_end(self._server.find_exit_code(self.process))
        except DEAD:
            return "was killed"  # as the server was, which alone knows how


class ForkServer:
    """The process that loads template and tokenizer, and forks workers.

    Args:
        job: what is to be done.
    """

    def __init__(self, job: Job) -> None:
        self._is_ready = False
        self._process = Interpreter("turnwise.data.fork_server")
        self._connection = self._process.connection
        with contextlib.suppress(OSError):  # it has died: that is noticed when its answer is read
            self._connection.send(job.recipe.tokenizer)
            self._connection.send(job)

    def receive_digests(self) -> dict[str, str]:
        """Wait until it is ready, and return the digests of template and tokenizer.

        Raises:
            TurnwiseError: one of them cannot be loaded.
            EOFError, OSError: the server has died.
        """
        kind, answer = self._connection.recv()
        if kind == FAILED:
            raise answer
        self._is_ready = True
        digests: dict[str, str] = answer
        return digests

    def fork(self) -> Worker:
        """Start a worker.

        Raises:
            EOFError, OSError: the server has died.
        """
        connection, other = Pipe()
        with other:
            self._connection.send(FORK)
            send_handle(self._connection, other.fileno(), self._process.pid)
            return Worker(self, self._connection.recv(), connection)

    def find_exit_code(self, process: int) -> int:
        """Wait for a worker to end.

        Raises:
            EOFError, OSError: the server has died.
        """
        self._connection.send(process)
        code: int = self._connection.recv()
        return code

    def close(self) -> str:
        """Wait until it has killed its workers and ended, and return how it ended."""
        # Closing the connection is not enough: a process that the caller has forked may have it, too.
        with contextlib.suppress(OSError):
            self._connection.send(STOP)
        # One that loads would load to the end first; it has no workers yet.
        return explain_end(self._process.close(PATIENCE if self._is_ready else 0.0))


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
