"""The local engine: tasks on the processors of this machine.

Workers are new interpreters, never forks (see `isolation/process.py`), each with template and tokenizer loaded. They
read the input and write the shards themselves; the parent hands out tasks one at a time and only keeps accounts. A
worker that dies is replaced, and its task is done again.

With one worker the work is done in this process.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from turnwise.data.job import Job, Outcome, Task
from turnwise.data.local_worker import DONE, FAILED, READY
from turnwise.errors import DataError

MAX_ATTEMPTS = 3  # to do one task, or to start one worker
MIN_BYTES_PER_WORKER = (
    1 << 20
)  # of input: starting a worker takes as long as encoding some megabytes
MAIN = """
import sys
sys.path[:] = {path!r}
from turnwise.data.local_worker import main
main({descriptor!r})
"""
# One thread: there is a worker for every processor.
SETTINGS = {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


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
    """Return the local engine; its workers are starting.

    Raises:
        DataError: the recipe cannot be sent to another process.
    """
    workers = workers or choose_workers(input_bytes)
    if workers == 1 or os.name == "nt":  # Windows passes no descriptors to new processes
        return InlineEngine(job)
    try:
        pickle.dumps(job)
    except Exception as error:  # an object of the caller may raise anything when it is pickled
        raise DataError(
            f"the recipe cannot be sent to worker processes: {error}",
            hint="Give template and tokenizer by their names or paths, or use workers=1.",
        ) from error
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


class _Worker:
    """A worker process, its end of the pipe, and what it does now."""

    def __init__(self, job: Job) -> None:
        self.connection: Connection[Any, Any]
        self.connection, other = Pipe()
        code = MAIN.format(path=sys.path, descriptor=other.fileno())
        with other:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code],
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, **SETTINGS},
            )
        self.task: Task | None = None
        self.is_ready = False
        self.send(job)

    def send(self, message: Job | Task) -> None:
        """Send something; a worker that has died is noticed when its answer is read."""
        with contextlib.suppress(OSError):
            self.connection.send(message)

    def stop(self) -> int:
        """End the process, and return its exit code."""
        self.connection.close()
        self.process.kill()
        return self.process.wait()

    def explain_end(self) -> str:
        """Return how the process ended."""
        try:
            code = self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            code = self.stop()
        self.connection.close()
        if code < 0:
            return f"was killed by signal {-code}" + (" (out of memory?)" if code == -9 else "")
        return f"ended with exit code {code}"


class LocalEngine:
    """Does tasks in worker processes.

    Args:
        job: what the workers need to know.
        workers: how many there are.
    """

    def __init__(self, job: Job, workers: int) -> None:
        self.restarts: list[str] = []
        self._job = job
        self._failures: Counter[str] = Counter()  # by the name of the task; "" for the start
        self._digests: dict[str, str] | None = None
        self._again: deque[Task] = deque()
        self._workers = [_Worker(job) for _ in range(workers)]

    def describe(self) -> dict[str, str]:
        """Return the digests of template and tokenizer, from the first worker that is ready."""
        while self._digests is None:
            for _ in self._receive(timeout=None):
                pass
        return self._digests

    def run(self, tasks: Iterator[Task]) -> Iterator[Outcome]:
        """Do the tasks, and yield the outcome of each when it is done."""
        upcoming: deque[Task] = deque()
        is_exhausted = False
        while True:
            self._hand_out(upcoming)
            is_wanting = len(upcoming) < len(self._workers) and not is_exhausted
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
        for worker in self._workers:
            worker.stop()
        self._workers = []

    def _count_busy(self) -> int:
        return sum(worker.task is not None for worker in self._workers)

    def _hand_out(self, upcoming: deque[Task]) -> None:
        for worker in self._workers:
            waiting = self._again or upcoming
            if worker.is_ready and worker.task is None and waiting:
                worker.task = waiting.popleft()
                worker.send(worker.task)

    def _receive(self, timeout: float | None) -> Iterator[Outcome]:
        """Wait for workers to say something, and yield what they have done."""
        by_connection: dict[Any, _Worker] = {one.connection: one for one in self._workers}
        for connection in wait(list(by_connection), timeout):
            worker = by_connection[connection]
            try:
                kind, answer = worker.connection.recv()
            except (EOFError, OSError, pickle.UnpicklingError):
                self._replace(worker)
                continue
            if kind == FAILED:
                raise answer
            if kind == READY:
                worker.is_ready = True
                self._digests = answer
            if kind == DONE:
                worker.task = None
                yield answer

    def _replace(self, lost: _Worker) -> None:
        """Start a worker in the place of one that has died.

        Raises:
            DataError: its task, or starting it, has failed too often.
        """
        how = lost.explain_end()
        name = lost.task.name if lost.task else ""
        what = lost.task.describe() if lost.task else "a new worker"
        self._failures[name] += 1
        if self._failures[name] >= MAX_ATTEMPTS:
            raise DataError(
                f"{what}: the worker process {how}, {MAX_ATTEMPTS} times",
                hint="If the memory does not suffice, use fewer workers or a smaller chunk_bytes. "
                "What is done is kept.",
            )
        if lost.task is not None:
            self.restarts.append(f"a worker {how}; done again: {what}")
            self._again.append(lost.task)
        self._workers[self._workers.index(lost)] = _Worker(self._job)
