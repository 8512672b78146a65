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
job, so that it is loaded while the modules that a job needs are imported: nothing here imports them at the top.

A worker receives tasks, and answers each with (DONE, outcome) or (FAILED, error). It ends when the other end of its
connection is closed, in the middle of a task too: a thread waits for that. So no worker outlives the process that
started it, however that one ended.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from typing import TYPE_CHECKING, Any

from turnwise.errors import DataError, TurnwiseError
from turnwise.tokens import tokenizers
from turnwise.tokens.tokenizers.backends import EAGER, choose_backend

if TYPE_CHECKING:
    from turnwise.data.job import Job

READY, DONE, FAILED, FORK, STOP = "ready", "done", "failed", "fork", "stop"
REMEDY = "Give template and tokenizer by their names or paths, or use workers=1."


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


def _load(connection: Connection[Any, Any]) -> Job | None:
    """Receive a job, load what it needs, and report its digests; or report why that fails, and return None."""
    problem: TurnwiseError
    try:
        with ThreadPoolExecutor(1) as thread:
            backend = choose_backend(None) or EAGER
            loading = thread.submit(tokenizers.tokenizer, connection.recv(), backend=backend)
            import_module("turnwise.data.job")  # with all that a job needs
            given: Job = connection.recv()
            job = given.load(loading.result)
        digests = job.describe()
    except TurnwiseError as error:
        problem = error
    except Exception as error:  # an object of the caller may raise anything where it is unpickled
        reason = f"{type(error).__name__}: {error}"
        problem = DataError(f"the recipe cannot be sent to worker processes: {reason}", hint=REMEDY)
    else:
        import_module("pyarrow").set_cpu_count(1)  # other workers have the other processors
        # What is here now is never garbage, and must not be copied by a collector that marks it.
        gc.freeze()
        connection.send((READY, digests))
        return job
    connection.send((FAILED, problem))
    return None


def _serve(connection: Connection[Any, Any], job: Job, workers: set[int]) -> None:
    """Fork workers and wait for those that end, as the engine says; `workers` are those that are there."""
    while (message := connection.recv()) != STOP:
        if message == FORK:
            process = _fork(connection, job)
            workers.add(process)
            connection.send(process)
        else:
            workers.discard(message)
            connection.send(os.waitstatus_to_exitcode(os.waitpid(message, 0)[1]))


def _fork(connection: Connection[Any, Any], job: Job) -> int:
    """Receive a descriptor, and fork a worker that serves it."""
    descriptor = recv_handle(connection)
    process = os.fork()
    if process:
        os.close(descriptor)
        return process
    try:
        connection.close()  # the engine must be seen to close it, by the server
        threading.Thread(target=_exit_with_caller, args=(descriptor,), daemon=True).start()
        _work(Connection(descriptor), job)
    except (EOFError, OSError):
        os._exit(0)  # the engine has closed its end
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
