"""Run hostile work in a child process, and measure what each step of it took.

A child is forked for each template, so that time and memory are its own and a crash is seen as one. Time is the
processor's. Memory is how far the peak of the resident set rises above what the process holds when the step starts; the
peak is reset before each step, where the kernel allows it.

A bound in milliseconds is meant for the reference machine. After a step that took longer, the child times a fixed
piece of Python work, and the bound grows by how much slower that was than on the reference machine: never less than
once, at most `MAX_SLOWNESS` times. A machine that is slower, or busy, does not fail a test; work without a bound does.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import resource
import signal
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import turnwise
from turnwise.engine import program

REFERENCE_MILLISECONDS = 17.0
"""What `calibrate` takes on the reference machine: the least of 100 runs on a Xeon at 2.5 GHz without other work
(Python 3.11.7). Other work on the same core doubles it."""
MAX_SLOWNESS = 2.5
TRIES = 8  # the best of these counts: the machine has other things to do
HOPELESS = 6  # a step that takes so many times its bound is not tried again, and is soon killed
MAX_GROWTH = 1 << 30  # bytes that a child may allocate; it gets a MemoryError for more

# Other dialects are imported when a template is compiled for the first time: here, and not again in every child.
turnwise.compile("{{ 1 }}").render([{"role": "user", "content": "?"}])

Step = Callable[[dict[str, Any]], object]
"""Work on the state of a child; a step finds there what those before it have made."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What became of one step: "done", "error" (one of ours), "skipped", "raw" or how the child died."""

    outcome: str
    detail: str = ""
    ms: float = 0.0
    mb: float = 0.0

    @property
    def is_ours(self) -> bool:
        return self.outcome in ("done", "error", "skipped")


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one step may take: milliseconds of the reference machine, and megabytes."""

    ms: float = 100
    mb: float = 64

    def problem(self, found: Measurement, slowness: float) -> str | None:
        """Return what is wrong with a measurement on a machine so much slower than the reference."""
        if not found.is_ours:
            return f"{found.outcome}: {found.detail}"
        if found.ms > self.ms * slowness:
            return f"{found.ms:.0f} ms, more than {self.ms:.0f} x {slowness:.2f}: {found.detail}"
        if found.mb > self.mb:
            return f"{found.mb:.0f} MB, more than {self.mb:.0f}: {found.detail}"
        return None


def calibrate() -> float:
    """Return the milliseconds of a fixed piece of work: calls, texts, numbers and a dict, as engines have them."""
    start = time.process_time()
    found: dict[str, tuple[int, str]] = {}
    total = 0
    for number in range(30_000):
        text = str(number)
        found[text] = (number, text)
        total += len(text.replace("1", "ab")) + number % 7
    return (time.process_time() - start) * 1000


def slowness_of(milliseconds: float) -> float:
    """Return how many times slower than the reference a machine is on which `calibrate` takes so long."""
    return min(max(milliseconds / REFERENCE_MILLISECONDS, 1.0), MAX_SLOWNESS)


def find_problems(steps: Mapping[str, Step], bounds: Mapping[str, Bounds]) -> dict[str, str]:
    """Run the steps in a child, again if one took too long, and return what was wrong with each at its best."""
    problems: dict[str, str] = {}
    for attempt in range(TRIES):
        found, slowness = measure_in_child(steps, bounds)
        wrong = {
            name: problem
            for name, one in found.items()
            if (problem := bounds[name].problem(one, slowness))
        }
        # a step that was good once is good: time only ever varies upwards
        problems = {name: text for name, text in wrong.items() if not attempt or name in problems}
        slow = [found[name].ms / bounds[name].ms for name in problems]
        if not problems or max(slow) > HOPELESS or not all(found[n].is_ours for n in problems):
            break
    return problems


def measure_in_child(
    steps: Mapping[str, Step], bounds: Mapping[str, Bounds]
) -> tuple[dict[str, Measurement], float]:
    """Return what each step took in a child of its own, and how slow the machine is if one took too long.

    Steps after one that failed are run too: a template that cannot be rendered still has stops. A step that looks in
    vain for what a failed one would have made is skipped.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            _run_steps(steps, bounds, writer)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        lines = pipe.read().splitlines()
    _, status = os.waitpid(child, 0)
    found: dict[str, Measurement] = {}
    slowness = 1.0
    for line in lines:
        row = json.loads(line)
        if "slowness" in row:
            slowness = row["slowness"]
        else:
            name = row.pop("step")
            found[name] = Measurement(**row)
    missing = [name for name in steps if name not in found]
    if missing:
        found[missing[0]] = Measurement(f"died with signal {status}", ms=1e9)
    return found, slowness


class _State(dict[str, Any]):
    """What the steps of one child have made."""

    def __missing__(self, name: str) -> NoReturn:
        raise _Skipped(name)


class _Skipped(Exception):
    pass


def _run_steps(steps: Mapping[str, Step], bounds: Mapping[str, Bounds], writer: int) -> None:
    _limit_child()
    state = _State()
    is_slow = False
    for name, step in steps.items():
        # the default answer to this alarm is to die
        signal.setitimer(signal.ITIMER_PROF, 1.5 * HOPELESS * bounds[name].ms / 1000)
        row = _measure(step, state)
        is_slow = is_slow or row.ms > bounds[name].ms
        fields = {field: getattr(row, field) for field in Measurement.__slots__}
        os.write(writer, json.dumps({"step": name, **fields}).encode() + b"\n")
    signal.setitimer(signal.ITIMER_PROF, 0)
    if is_slow:
        times = [calibrate() for _ in range(3)]
        os.write(writer, json.dumps({"slowness": slowness_of(min(times))}).encode() + b"\n")


def _limit_child() -> None:
    warnings.simplefilter("ignore")
    gc.freeze()  # what the tests before this one have left is not looked through
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    size = int(_status("VmSize") * 1024) or (8 << 30)
    resource.setrlimit(resource.RLIMIT_AS, (size + MAX_GROWTH, size + MAX_GROWTH))
    # A rendering answers a MemoryError as if a budget had run out; here that would hide what was not charged.
    program.RUNTIME_ERRORS = tuple(  # type: ignore[assignment]
        kind for kind in program.RUNTIME_ERRORS if kind is not MemoryError
    )


def _measure(step: Step, state: dict[str, Any]) -> Measurement:
    before = reset_peak()
    start = time.process_time()
    try:
        detail, outcome = str(step(state))[:80], "done"
    except turnwise.TurnwiseError as error:
        outcome, detail = "error", str(error)[:200]
    except _Skipped as error:
        outcome, detail = "skipped", str(error)
    except BaseException as error:  # exactly what must not happen
        outcome, detail = "raw", repr(error)[:200]
    spent = (time.process_time() - start) * 1000  # of this process: others may be using the machine
    return Measurement(outcome, detail, spent, (peak_memory() - before) / 1024)


def reset_peak() -> float:
    """Make the peak what the process holds now, and return it in kilobytes."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        return peak_memory()
    return _status("VmRSS")


def peak_memory() -> float:
    """Return the largest resident set so far in kilobytes."""
    return _status("VmHWM") or float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def memory_in_use() -> float:
    """Return the resident set in kilobytes, without what is freed and kept for later."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # glibc's; another library keeps less
        ctypes.CDLL(None).malloc_trim(0)
    return _status("VmRSS")


def _status(field: str) -> float:
    """Return a field of the process's status in kilobytes; 0 where the system has none."""
    try:
        with open("/proc/self/status") as file:
            found: Sequence[str] = [line for line in file if line.startswith(f"{field}:")]
    except OSError:
        return 0
    return float(found[0].split()[1]) if found else 0
