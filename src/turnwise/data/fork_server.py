"""The process that workers are forked from: it loads template and tokenizer once, and all workers share them.

Loading takes seconds of processor time and hundreds of megabytes, nearly all of it for the tokenizer. A fork costs
milliseconds and shares the memory. Forking is safe here and not in the caller's process, which may have any threads:
this one is a new interpreter, and has none left when it forks.

    the engine sends                      the server answers
    the tokenizer of the recipe
    a Job                                 (READY, digests) or (FAILED, error)
    a task                                (DONE, outcome), (FAILED, error), or (LOST, (name of the task, how)) if the
                                          worker that did it has died
    STOP

It ends with its workers when the engine says so, closes the connection, or is killed. The tokenizer comes before the
job, so that it is loaded while the modules that a job needs are imported: nothing here imports them at the top.

A worker receives tasks, and answers each with (DONE, outcome) or (FAILED, error). It ends when the other end of its
connection is closed, in the middle of a task too: a thread waits for that. So no worker outlives the process that
started it, however that one ended.
"""

from __future__ import annotations

import gc
import os
import pickle
import select
import signal
import sys
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from turnwise.errors import DataError, TurnwiseError
from turnwise.processes import explain_end
from turnwise.tokens import tokenizers
from turnwise.tokens.tokenizers.backends import EAGER, choose_backend

if TYPE_CHECKING:
    from turnwise.data.job import Job, Task

READY, DONE, FAILED, LOST, STOP = "ready", "done", "failed", "lost", "stop"
REMEDY = "Give template and tokenizer by their names or paths, or use workers=1."
DEAD = (EOFError, OSError, pickle.UnpicklingError)  # of a connection to a process that has died


def main(descriptor: int, count: int) -> None:
    """Serve one engine until it says STOP, or closes its connection.

    Args:
        descriptor: the file descriptor of this end of the connection.
        count: the most workers.
    """
    gc.set_threshold(100_000)  # imports and rows make many objects, and hardly any garbage
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # who ignores it cannot wait for workers
    engine: Connection[Any, Any] = Connection(descriptor)
    try:
        job = _load(engine)
        if job is not None:
            _serve(engine, job, count)
    except DEAD:
        pass  # the engine has closed its end
    os._exit(0)  # to free everything one by one takes a fifth of a second


def _load(connection: Connection[Any, Any]) -> Job | None:
    """Receive a job, load what it needs, and report its digests; or report why that fails, and return None."""
    problem: TurnwiseError
    try:
        with ThreadPoolExecutor(1) as thread:
            loading = thread.submit(
                tokenizers.tokenizer, connection.recv(), backend=choose_backend(None) or EAGER
            )
            given: Job = connection.recv()  # which imports all that a job needs
            job = given.load(loading.result)
        digests = job.describe()
    except TurnwiseError as error:
        problem = error
    except Exception as error:  # an object of the caller may raise anything where it is unpickled
        reason = f"{type(error).__name__}: {error}"
        problem = DataError(f"the recipe cannot be sent to worker processes: {reason}", hint=REMEDY)
    else:
        arrow = import_module("pyarrow")
        arrow.set_cpu_count(1)  # other workers have the other processors
        # For its first list, pyarrow imports pandas if it finds it: a quarter of a second in each worker.
        path, sys.path = sys.path, []
        arrow.array([])
        sys.path = path
        # What is here now is never garbage, and must not be copied by a collector that marks it.
        gc.freeze()
        connection.send((READY, digests))
        return job
    connection.send((FAILED, problem))
    return None


@dataclass(slots=True)
class ForkedWorker:
    """A worker: its process, our end of the connection to it, and the name of the task that it does."""

    process: int
    connection: Connection[Any, Any]
    task: str = ""


def _serve(engine: Connection[Any, Any], job: Job, count: int) -> None:
    """Hand out tasks to at most `count` workers, until the engine says STOP or closes its connection."""
    tasks: deque[Task] = deque()
    workers: list[ForkedWorker] = []
    try:
        while True:
            ready = wait([engine, *(worker.connection for worker in workers)])
            for worker in [worker for worker in workers if worker.connection in ready]:
                if not _pass_on(worker, engine):
                    workers.remove(worker)
            if engine in ready:
                message = engine.recv()
                if message == STOP:
                    return
                tasks.append(message)
            while tasks:
                idle = next((worker for worker in workers if not worker.task), None)
                if idle is None:
                    if len(workers) == count:
                        break
                    idle = _fork(job, [engine, *(worker.connection for worker in workers)])
                    workers.append(idle)
                task = tasks.popleft()
                idle.task = task.name
                with suppress(OSError):  # it has died: that is noticed when its answer is read
                    idle.connection.send(task)
    finally:
        for worker in workers:
            os.kill(worker.process, signal.SIGKILL)
        for worker in workers:
            os.waitpid(worker.process, 0)


def _pass_on(worker: ForkedWorker, engine: Connection[Any, Any]) -> bool:
    """Pass the answer of a worker on to the engine; return whether the worker lives."""
    try:
        answer = worker.connection.recv_bytes()
    except DEAD:
        worker.connection.close()
        code = os.waitstatus_to_exitcode(os.waitpid(worker.process, 0)[1])
        if worker.task:
            engine.send((LOST, (worker.task, explain_end(code))))
        return False
    worker.task = ""
    engine.send_bytes(answer)
    return True


def _fork(job: Job, others: Sequence[Connection[Any, Any]]) -> ForkedWorker:
    """Fork a worker; `others` are the connections that it must not keep open."""
    ours, theirs = Pipe()
    process = os.fork()
    if process:
        theirs.close()
        return ForkedWorker(process, ours)
    try:
        for connection in (ours, *others):
            connection.close()
        threading.Thread(target=_exit_with_caller, args=(theirs.fileno(),), daemon=True).start()
        _work(theirs, job)
    except DEAD:
        os._exit(0)  # the server has ended
    finally:
        os._exit(1)  # nothing of the server runs here


def _work(connection: Connection[Any, Any], job: Job) -> None:
    while True:
        task = connection.recv()
        try:
            connection.send((DONE, job.perform(task)))
        except TurnwiseError as error:
            connection.send((FAILED, error))
        except MemoryError:
            hint = "Use fewer workers, or a smaller chunk_bytes."
            connection.send((FAILED, DataError("a worker ran out of memory", hint=hint)))


def _exit_with_caller(descriptor: int) -> None:
    waiting = select.poll()
    waiting.register(descriptor, 0)  # no events but that the other end is closed
    waiting.poll()
    os._exit(0)
