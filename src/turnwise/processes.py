"""Worker processes: new interpreters that run one function of this package and talk through a connection.

A new interpreter, never a fork of the caller: a caller with threads may be forked only at the risk of a lock that
no thread releases, and a new interpreter needs no `if __name__ == "__main__"` either.

The function gets the descriptor of its end of the connection, which is closed when the caller ends, however it ends.
`data/` forks its workers from one such process that has loaded template and tokenizer; `isolation/` sets limits of the
operating system in each.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from time import monotonic
from typing import Any

CHUNK = 1 << 16
MAIN = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the caller acts
os.set_inheritable({descriptor!r}, False)
sys.path[:] = {path!r}
from {module} import main
main({descriptor!r}, *{arguments!r})
"""
# One thread: there are other workers for the other processors, and threads of a library would take memory.
SETTINGS = {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


class Interpreter:
    """A new Python process that runs `main(descriptor, *arguments)` of a module, and a connection to it.

    Args:
        module: the name of the module.
        arguments: plain values, which are written into its first line of code.
        is_silent: what it writes to its standard error is dropped.

    Raises:
        OSError: the system starts no more processes.
    """

    def __init__(self, module: str, *arguments: Any, is_silent: bool = False) -> None:
        self.connection: Connection[Any, Any]
        self.connection, other = Pipe()
        path = [os.fspath(entry) for entry in sys.path if isinstance(entry, str | os.PathLike)]
        number = other.fileno()
        code = MAIN.format(path=path, module=module, descriptor=number, arguments=arguments)
        try:
            with other:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", code],
                    pass_fds=[number],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL if is_silent else None,
                    stderr=subprocess.DEVNULL if is_silent else None,
                    env={**os.environ, **SETTINGS},
                )
        except OSError:
            self.connection.close()
            raise

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def exchange(self, sent: bytes, wanted: int, end: float) -> bytearray:
        """Write some bytes and read some, whatever the process does meanwhile.

        The connection must not block (`os.set_blocking`), so that a process that neither reads nor writes is noticed.

        Args:
            sent: the bytes to write.
            wanted: how many to read.
            end: when to give up, by `time.monotonic`.

        Raises:
            TimeoutError: it took too long.
            BrokenPipeError: the process was dead before it got anything, so another one can do the work.
            EOFError: it has died.
        """
        number = self.connection.fileno()
        rest = memoryview(sent)
        received = bytearray()
        while rest or len(received) < wanted:
            poll = select.poll()  # not select.select, which accepts no number above 1,024
            poll.register(number, select.POLLIN | select.POLLOUT if rest else select.POLLIN)
            if not poll.poll(max(0.0, end - monotonic()) * 1000) and monotonic() >= end:
                raise TimeoutError
            try:
                rest = rest[os.write(number, rest[:CHUNK]) :] if rest else rest
            except BlockingIOError:
                pass
            except ConnectionError:
                if len(rest) == len(sent):
                    raise BrokenPipeError from None
                rest = memoryview(b"")  # it has died; what it wrote before is read first
            try:
                chunk = os.read(number, min(wanted - len(received), CHUNK))
            except BlockingIOError:
                continue
            except ConnectionError:
                chunk = b""
            if not chunk and len(received) < wanted:
                raise EOFError
            received += chunk
        return received

    def kill(self) -> None:
        """Kill the process; its connection stays open for a thread that reads it."""
        self._process.kill()

    def close(self, patience: float = 0.0) -> int:
        """Give the process so many seconds to end by itself, kill it, and return its exit code."""
        try:
            code = self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self.connection.close()
        return code


def explain_end(code: int) -> str:
    """Return how a process with this exit code ended, as a phrase."""
    if code < 0:
        return f"was killed by signal {-code}" + (" (out of memory?)" if code == -9 else "")
    return f"ended with exit code {code}"
