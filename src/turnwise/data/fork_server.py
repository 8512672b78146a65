"""The process that workers are forked from: it loads template and tokenizer once, and all workers share them.

Loading takes seconds of processor time and hundreds of megabytes, nearly all of it for the tokenizer. A fork costs
milliseconds and shares the memory. Forking is safe here and not in the caller's process, which may have any threads:
this one is a new interpreter, and has none left when it forks.

    the engine sends                      the server answers
    the tokenizer of the recipe
    a Job                                 (READY, digests) or (FAILED, error)
    FORK, then a descriptor               the process id of a new worker, which serves that descriptor
    the process id of a worker            its exit code; it has closed its connection, so it is ending
    STOP

It ends with its workers when the engine says so, closes the connection, or is killed. The tokenizer comes before the
job, so that it is loaded while the modules that a job needs are imported.
"""

from __future__ import annotations

import gc
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from typing import Any

from turnwise.errors import DataError, TurnwiseError
from turnwise.tokens import tokenizers
from turnwise.tokens.tokenizers.backends import EAGER, choose_backend

READY, FAILED, FORK, STOP = "ready", "failed", "fork", "stop"
REMEDY = "Give template and tokenizer by their names or paths, or use workers=1."
WORKER = "turnwise.data.local_worker"


def main(descriptor: int) -> None:
    """Serve one engine until it says STOP, or closes its connection.

    Args:
        descriptor: the file descriptor of this end of the connection.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # who ignores it cannot wait for workers
    connection: Connection[Any, Any] = Connection(descriptor)
    workers: set[int] = set()
    try:
        job = _load(connection)
        if job is not None:
            _serve(connection, job, workers)
    except (EOFError, OSError):
        pass  # the engine has closed its end
    finally:
        for process in workers:
            os.kill(process, signal.SIGKILL)
        for process in workers:
            os.waitpid(process, 0)
    os._exit(0)  # to free everything one by one takes a fifth of a second


def _load(connection: Connection[Any, Any]) -> Any:
    """Receive a job, and load what it needs; None if that fails, which the engine is told."""
    problem: TurnwiseError
    try:
        with ThreadPoolExecutor(1) as thread:
            backend = choose_backend(None) or EAGER
            loading = thread.submit(tokenizers.tokenizer, connection.recv(), backend=backend)
            worker = import_module(WORKER)  # with all that a job needs
            job = worker.load_job(connection.recv(), loading)
        digests = job.describe()
    except TurnwiseError as error:
        problem = error
    except Exception as error:  # an object of the caller may raise anything where it is unpickled
        reason = f"{type(error).__name__}: {error}"
        problem = DataError(f"the recipe cannot be sent to worker processes: {reason}", hint=REMEDY)
    else:
        worker.prepare_process()
        # What is here now is never garbage, and must not be copied by a collector that marks it.
        gc.freeze()
        connection.send((READY, digests))
        return job
    connection.send((FAILED, problem))
    return None


def _serve(connection: Connection[Any, Any], job: Any, workers: set[int]) -> None:
    """Fork workers and wait for those that end, as the engine says; `workers` are those that are there."""
    while (message := connection.recv()) != STOP:
        if message == FORK:
            process = _fork(connection, job)
            workers.add(process)
            connection.send(process)
        else:
            workers.discard(message)
            connection.send(os.waitstatus_to_exitcode(os.waitpid(message, 0)[1]))


def _fork(connection: Connection[Any, Any], job: Any) -> int:
    """Receive a descriptor, and fork a worker that serves it."""
    descriptor = recv_handle(connection)
    process = os.fork()
    if process:
        os.close(descriptor)
        return process
    try:
        connection.close()  # the engine must be seen to close it, by the server
        import_module(WORKER).main(descriptor, job)
    finally:
        os._exit(1)  # nothing of the server runs here
