"""Run a target on one input after the other, and keep what fails.

An input is a number: the seed from which the target draws it. A target fails if anything but a `TurnwiseError` leaves
the code under test, if a law does not hold (an AssertionError), if it takes more processor time than its target may
for each 100 kB (100 ms for all that reads files), or if the process dies or hangs: the native libraries may do that,
so inputs run in a child process, which is replaced. A failing input is saved with its seed and the command that
repeats it.
"""

from __future__ import annotations

import faulthandler
import gc
import io
import os
import resource
import select
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

FOLDER = Path(__file__).resolve().parent
FAILURES = FOLDER / "failures"
SECONDS = 0.1  # of processor time that 100 kB may take
BYTES = 100_000
MAX_MEMORY = 4 * 2**30
HANG_SECONDS = 120  # by the clock: the machine may be busy
MAX_MESSAGE = 5_000  # characters of an error that is printed
MAX_FAILURES = 20  # of one run; more are of the same kind


@dataclass(frozen=True, slots=True)
class Target:
    """One thing to try.

    Attributes:
        name: of the target.
        make: returns the input of a seed, as the bytes of a file.
        run: gives the input to the code under test.
        about: one line for people.
        seconds: of processor time that 100 kB may take.
    """

    name: str
    make: Callable[[Random], bytes]
    run: Callable[[bytes], object]
    about: str
    seconds: float = SECONDS


@dataclass(frozen=True, slots=True)
class Failure:
    """An input that failed, and how."""

    target: str
    seed: int
    kind: str  # raw, slow, death, hang
    what: str
    details: str = ""

    @property
    def command(self) -> str:
        return f"make fuzz TARGET={self.target} SEED={self.seed}"


@dataclass(slots=True)
class Report:
    """What a run found."""

    target: str
    count: int = 0
    refused: int = 0
    worst: float = 0.0  # seconds of processor time for 100 kB
    worst_seed: int = 0
    failures: list[Failure] = field(default_factory=list)

    def __str__(self) -> str:
        kinds = [failure.kind for failure in self.failures]
        found = (
            ", ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds))) or "0 failures"
        )
        worst = f"worst {self.worst * 1000:.0f} ms per 100 kB (seed {self.worst_seed})"
        return (
            f"{self.target:12} {self.count:7,} inputs, {self.refused:7,} refused, {worst}, {found}"
        )


def make_input(target: Target, seed: int) -> bytes:
    """Return the input of a seed."""
    return target.make(Random(f"{target.name} {seed}"))


def run_target(
    target: Target,
    first: int = 0,
    count: int | None = None,
    minutes: float | None = None,
    seconds: float | None = None,
    folder: Path | None = FAILURES,
) -> Report:
    """Run the inputs of the seeds from `first` on, so many or for so long, and save those that fail."""
    report = Report(target.name)
    end = time.monotonic() + minutes * 60 if minutes is not None else float("inf")
    last = first + count if count is not None else sys.maxsize
    seed = first
    while seed < last and time.monotonic() < end and len(report.failures) < MAX_FAILURES:
        seed = _run_child(target, seed, last, end, seconds or target.seconds, report)
    if folder is not None:
        for failure in report.failures:
            save_failure(failure, make_input(target, failure.seed), folder)
    return report


def save_failure(failure: Failure, data: bytes, folder: Path) -> Path:
    """Save an input and what is known of it; return the file of the input."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{failure.target}-{failure.seed}"
    path.with_suffix(".input").write_bytes(data)
    lines = [f"{failure.kind}: {failure.what}", f"repeat: {failure.command}", "", failure.details]
    path.with_suffix(".txt").write_text(
        "\n".join(lines), encoding="utf-8", errors="backslashreplace"
    )
    return path.with_suffix(".input")


def _run_child(
    target: Target, seed: int, last: int, end: float, seconds: float, report: Report
) -> int:
    """Run seeds in a child process until it ends; return the seed to go on with."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            _work(target, seed, last, end, seconds, writer)
        finally:
            os._exit(0)
    os.close(writer)
    hangs = False
    with os.fdopen(reader, "rb") as pipe:
        for line in _read_lines(pipe):
            if line is None:
                hangs = True
                os.kill(child, signal.SIGKILL)
                break
            kind, _, rest = line.partition(" ")
            if kind == "try":
                seed = int(rest)
                continue
            _note(report, seed, kind, rest)
    _, status = os.waitpid(child, 0)
    if hangs:
        report.failures.append(Failure(target.name, seed, "hang", f"no end in {HANG_SECONDS} s"))
    elif os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        report.failures.append(Failure(target.name, seed, "death", f"the process ended by {name}"))
    return seed + 1


def _read_lines(pipe: io.BufferedReader) -> Iterator[str | None]:
    """Yield the lines of a child, and None if it has written nothing for too long."""
    rest = b""
    while True:
        ready, _, _ = select.select([pipe], [], [], HANG_SECONDS)
        if not ready:
            yield None
            return
        data = os.read(pipe.fileno(), 2**16)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace")


def _note(report: Report, seed: int, kind: str, rest: str) -> None:
    if kind == "done":
        outcome, _, spent = rest.partition(" ")
        report.count += 1
        report.refused += outcome == "refused"
        if float(spent) > report.worst:
            report.worst, report.worst_seed = float(spent), seed
        return
    what, *details = rest.split("\x1e")
    if len(report.failures) < MAX_FAILURES:
        report.failures.append(Failure(report.target, seed, kind, what, "\n".join(details)))


def _address_space() -> int:
    """Return the size of this process in bytes; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return 0
    return pages * resource.getpagesize()


def _work(target: Target, seed: int, last: int, end: float, seconds: float, writer: int) -> None:
    """Run seeds in this process; one line before each, and one after."""
    memory = _address_space() + MAX_MEMORY  # the process that forked may be a large one
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 2)  # panics of native libraries
    faulthandler.disable()
    gc.freeze()
    failures = 0
    warnings.simplefilter("ignore")
    while seed < last and time.monotonic() < end and failures < MAX_FAILURES:
        os.write(writer, f"try {seed}\n".encode())
        try:
            line = try_seed(target, seed, seconds)
        except BaseException:  # `make` failed: a defect of the target
            line = f"raw the target itself failed\n{traceback.format_exc()[-3_000:]}"
        failures += not line.startswith("done")
        os.write(writer, (line.replace("\n", "\x1e") + "\n").encode("utf-8", "backslashreplace"))
        seed += 1


def try_seed(target: Target, seed: int, seconds: float = SECONDS) -> str:
    """Run one input and return the line that tells how it went."""
    data = make_input(target, seed)
    size = max(len(data), BYTES) / BYTES
    outcome, spent = _measure(target, data)
    if outcome not in ("accepted", "refused"):
        return f"raw {outcome}"
    for _ in range(4):
        if spent <= seconds * size:
            return f"done {outcome} {spent / size:.4f}"
        spent = min(spent, _measure(target, data)[1])  # something was made once, or collected
    return f"slow {spent:.3f} s of processor time for {len(data):,} bytes"


def _measure(target: Target, data: bytes) -> tuple[str, float]:
    from turnwise import TurnwiseError

    start = time.process_time()
    outcome = "accepted"
    try:
        target.run(data)
    except TurnwiseError as refusal:
        outcome = "refused"
        if len(str(refusal)) > MAX_MESSAGE:
            outcome = f"an error of {len(str(refusal)):,} characters"
    except BaseException as error:  # a panic of a native library is no Exception
        name = f"{type(error).__name__}: {str(error)[:300]}"
        outcome = f"{name}\n{traceback.format_exc()[-3_000:]}"
    return outcome, time.process_time() - start
