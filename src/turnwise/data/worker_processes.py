"""Worker processes as the engine sees them: the server that forks them, and one object for each.

The other ends of the connections are `fork_server.py` and `local_worker.py`.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import send_handle
from typing import TYPE_CHECKING, Any

from turnwise.data.fork_server import FAILED, FORK, STOP

if TYPE_CHECKING:
    from turnwise.data.job import Job, Task

MAIN = """
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent acts
sys.path[:] = {path!r}
from turnwise.data.fork_server import main
main({descriptor!r})
"""
DEAD = (EOFError, OSError)  # what a connection to a process raises that has died
PATIENCE = 5.0  # seconds for the server to end
# One thread: there is a worker for every processor.
SETTINGS = {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


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
        self._connection: Connection[Any, Any]
        self._connection, other = Pipe()
        path = [os.fspath(entry) for entry in sys.path if isinstance(entry, str | os.PathLike)]
        code = MAIN.format(path=path, descriptor=other.fileno())
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, **SETTINGS},
            )
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
        if not self._is_ready:  # it would load to the end first; there are no workers yet
            self._process.kill()
        try:
            code = self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:  # somebody has stopped it
            self._process.kill()
            code = self._process.wait()
        self._connection.close()
        return explain_end(code)


def explain_end(code: int) -> str:
    """Return how a process with this exit code ended, as a phrase."""
    if code < 0:
        return f"was killed by signal {-code}" + (" (out of memory?)" if code == -9 else "")
    return f"ended with exit code {code}"
