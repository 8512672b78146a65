"""A worker process of the local engine: takes tasks from a connection, and answers with what became of them.

It ends when the other end of the connection is closed, in the middle of a task too: a thread waits for that. So no
worker outlives the process that started it, however that one ended.
"""

from __future__ import annotations

import os
import select
import sys
import threading
from concurrent.futures import Future
from dataclasses import replace
from importlib.abc import MetaPathFinder
from multiprocessing.connection import Connection

import pyarrow as pa

from turnwise.data.job import Job
from turnwise.data.kernel import Kernel
from turnwise.errors import DataError, TurnwiseError
from turnwise.tokens.tokenizers import Tokenizer

DONE, FAILED = "done", "failed"


def prepare_process() -> None:
    """Make Arrow ready, before workers are forked."""
    pa.set_cpu_count(1)  # there are other workers for the other processors
    keep_pandas_out()


def load_job(job: Job, loading: Future[Tokenizer]) -> Job:
    """Return the job with its template loaded, and with a tokenizer that a thread is loading.

    Raises:
        TurnwiseError: one of them cannot be loaded.
    """
    template = Kernel(job.recipe).template
    recipe = replace(job.recipe, template=template, tokenizer=loading.result())
    return Job(recipe, job.work, job.partitions)


def main(descriptor: int, job: Job) -> None:
    """Serve one connection until it is closed.

    Args:
        descriptor: the file descriptor of this end of the connection.
        job: what is to be done; template and tokenizer are loaded.
    """
    threading.Thread(target=_exit_with_parent, args=(descriptor,), daemon=True).start()
    connection: Connection[tuple[str, object], object] = Connection(descriptor)
    try:
        _serve(connection, job)
    except (EOFError, OSError):
        os._exit(0)  # the parent has closed its end


def _serve(connection: Connection[tuple[str, object], object], job: Job) -> None:
    while True:
        task = connection.recv()
        try:
            connection.send((DONE, job.perform(task)))  # type: ignore[arg-type]  # the parent sends tasks
        except TurnwiseError as error:
            connection.send((FAILED, error))
        except MemoryError:
            hint = "Use fewer workers, or a smaller chunk_bytes."
            connection.send((FAILED, DataError("a worker ran out of memory", hint=hint)))


class _NoPandas(MetaPathFinder):
    """Lets nobody find pandas."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Refuse pandas; of other modules nothing is known here."""
        if name == "pandas":
            raise ModuleNotFoundError(name, name=name)


def keep_pandas_out() -> None:
    """Let pyarrow believe that there is no pandas; other code can still import it.

    The first array that pyarrow makes imports pandas, if it is there, to see whether it was given some of its objects.
    That takes 0.35 s; no such object comes here.
    """
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    pa.array([0])  # it asks once
    sys.meta_path.remove(finder)


def _exit_with_parent(descriptor: int) -> None:
    waiting = select.poll()
    waiting.register(descriptor, 0)  # no events but that the other end is closed
    waiting.poll()
    os._exit(0)
