"""One worker process, seen from the caller.

The process is a new interpreter, never a fork: a caller with threads may be forked only at the risk of a lock that
nobody releases, and a new interpreter needs no `if __name__ == "__main__"` either. It costs a tenth of a second, so the
pool starts its workers ahead of time.

Pipes are read and written without blocking, so that a worker that neither reads nor writes is noticed too.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from time import monotonic
from typing import Any

from turnwise.isolation.answers import LENGTH, READY, Answer, read_answer

START_SECONDS = 300.0  # a machine may be very busy
MAX_ANSWER_BYTES = 1 << 30
CHUNK = 1 << 16
MAIN = """
import sys
sys.path[:] = {path!r}
from turnwise.isolation.worker import main
main({seconds!r}, {megabytes!r}, {setup!r})
"""
# One thread: a library's threads would take memory, and time that is not asked for.
SETTINGS = {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


class WorkerLost(Exception):
    """A worker did not answer; the text says why. It never leaves this package."""


class WorkerUnasked(WorkerLost):
    """A worker was dead before it got a request, so another one can answer it."""


class WorkerProcess:
    """A process that answers requests, one after the other.

    Args:
        seconds: the processor time of one request.
        megabytes: the memory that it may take in addition to that of an idle worker.
        patience: the most seconds to wait for an answer.
        setup: Python code that the worker runs first.
    """

    def __init__(self, seconds: float, megabytes: int, patience: float, setup: str) -> None:
        self.seconds = seconds
        self.megabytes = megabytes
        self.patience = patience
        code = MAIN.format(path=sys.path, seconds=seconds, megabytes=megabytes, setup=setup)
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **SETTINGS},
            bufsize=0,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout
        for pipe in (self._requests, self._answers):
            os.set_blocking(pipe.fileno(), False)
        self._is_ready = False
        self._start_lock = threading.Lock()

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def wait_until_ready(self) -> None:
        """Wait until the worker has started; threads may wait together.

        Raises:
            WorkerLost: it did not.
        """
        with self._start_lock:
            if not self._is_ready:
                started = self._exchange(b"", len(READY), START_SECONDS, monotonic())
                if bytes(started) != READY:
                    raise WorkerLost("it did not start")
                self._is_ready = True

    def ask(self, request: bytes) -> Answer:
        """Send a request, and wait for the answer.

        Raises:
            WorkerUnasked: the worker was dead before.
            WorkerLost: there is none.
            TurnwiseError: it cannot be read.
        """
        start = monotonic()
        sent = LENGTH.pack(len(request)) + request
        head = self._exchange(sent, LENGTH.size, self.patience, start)
        (size,) = LENGTH.unpack(head)
        if size > MAX_ANSWER_BYTES:
            raise WorkerLost(f"its answer has {size} bytes")
        answer: Any = read_answer(bytes(self._exchange(b"", size, self.patience, start)))
        return Answer(*answer)

    def _exchange(self, sent: bytes, wanted: int, patience: float, start: float) -> bytearray:
        """Write some bytes and read some, for so many seconds from a point in time on."""
        end = start + patience
        rest = memoryview(sent)
        received = bytearray()
        while rest or len(received) < wanted:
            poll = select.poll()  # not select.select, which takes no number above 1,024
            poll.register(self._answers, select.POLLIN)
            if rest:
                poll.register(self._requests, select.POLLOUT)
            if not poll.poll(max(0.0, end - monotonic()) * 1000) and monotonic() >= end:
                raise WorkerLost(f"there was no answer after {patience:g} s")
            try:
                if rest and (written := self._requests.write(rest[:CHUNK])):
                    rest = rest[written:]
            except BrokenPipeError:
                if len(rest) == len(sent):
                    raise WorkerUnasked("it died while it was idle") from None
                rest = memoryview(b"")  # it has died; what it wrote before is read first
            chunk = self._answers.read(min(wanted - len(received), CHUNK))
            if chunk == b"":
                raise WorkerLost(self._explain_death())
            received += chunk or b""
        return received

    def _explain_death(self) -> str:
        """Return why the process ended by itself."""
        try:
            code = self._process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            return "it closed its pipe"
        if code == -signal.SIGPROF:
            return f"it took more than {self.seconds:g} s of processor time"
        if code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
            return f"it died of {name}, perhaps since it may take no more than {self.megabytes} MB"
        return f"it ended with exit code {code}"

    def stop(self) -> None:
        """End the process; its pipes stay open for the call that reads them."""
        self._process.kill()

    def kill(self) -> None:
        """End the process, whatever it does, and release its pipes."""
        self._process.kill()
        self._process.wait()
        self._requests.close()
        self._answers.close()
