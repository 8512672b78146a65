"""What runs in a worker process: set limits, then answer requests until the caller closes the connection.

Limits are those of the operating system, which no code in the process can forget: memory for all its life, processor
time for each request. A signal whose action is to end the process needs no Python code to run, so it also ends an
endless loop in C. Only workers import this module: not every system has what it needs.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import signal
import sys
import warnings
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any, BinaryIO

from turnwise.errors import TurnwiseError, TurnwiseWarning
from turnwise.isolation.answers import FUNCTION, LENGTH, READY, Answer, write_answer
from turnwise.registry import load
from turnwise.template import Template, compile

MAX_TEMPLATES = 16  # that a worker keeps compiled
MAX_OPEN_FILES = 64
MEGABYTE = 1 << 20
# The limit is the size at the start plus what the caller allows: the interpreter and its libraries are not counted.
MEASURING_PERIOD = 16  # requests
RETIRING_SHARE = 0.75  # of the memory; a worker whose caches have grown so far is replaced

MAKERS: dict[str, Callable[..., Template]] = {"compile": compile, "load": load}
VERBS = ("render", "encode", "examples", "stops", "markers", "parse", "convert")


def main(descriptor: int, seconds: float, megabytes: int, setup: str) -> None:
    """Serve requests on a connection until the caller closes it."""
    requests = os.fdopen(descriptor, "rb")
    answers = os.fdopen(descriptor, "wb", closefd=False)
    if setup:
        exec(setup, {"__name__": "__worker__"})
    sys.dont_write_bytecode = True
    start = data_size()
    set_limits(start + megabytes * MEGABYTE)
    answers.write(READY)
    answers.flush()
    serve(requests, answers, seconds, start + int(RETIRING_SHARE * megabytes * MEGABYTE))


def set_limits(data: int) -> None:
    """Bound memory and files, for good; a worker writes no file and leaves no core dump."""
    bounds = {
        resource.RLIMIT_DATA: data,
        resource.RLIMIT_NOFILE: MAX_OPEN_FILES,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
    }
    for kind, bound in bounds.items():
        hard = resource.getrlimit(kind)[1]
        if hard != resource.RLIM_INFINITY:
            bound = min(bound, hard)
        with contextlib.suppress(ValueError, OSError):  # not every system has every limit
            resource.setrlimit(kind, (bound, bound))


def data_size() -> int:
    """Return the size of this process's data, as RLIMIT_DATA counts it; a guess where it is not known."""
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmData:"):
                return int(line.split()[1]) * 1024
    return 256 * MEGABYTE


def serve(requests: BinaryIO, answers: BinaryIO, seconds: float, size: int) -> None:
    """Answer requests, each within so much processor time, until the process has grown to a size."""
    retires = False
    count = 0
    while not retires and (head := requests.read(LENGTH.size)):
        # SIGPROF ends the process.
        signal.setitimer(signal.ITIMER_PROF, seconds)
        answer = respond(requests.read(*LENGTH.unpack(head)))
        count += 1
        has_grown = count % MEASURING_PERIOD == 0 and data_size() > size
        retires = answer.retires or has_grown
        sent = pack(answer._replace(retires=retires))
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.write(LENGTH.pack(len(sent)) + sent)
        answers.flush()


def pack(answer: Answer) -> bytes:
    """Return an answer as bytes; one that cannot be sent is an error."""
    try:
        return write_answer(tuple(answer))
    except MemoryError:
        return write_answer(tuple(Answer(None, None, (), out_of_memory=True, retires=True)))
    except Exception as error:  # pickling an object may raise anything
        problem = TurnwiseError(f"a worker's result cannot be sent: {error!r:.200}")
        return write_answer(tuple(answer._replace(result=None, error=problem)))


def respond(data: bytes) -> Answer:
    """Return the result of a request, or its error, with the warnings on the way."""
    result: Any = None
    problem: Exception | None = None
    out_of_memory = False
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = run(*pickle.loads(data))
        except TurnwiseError as error:
            problem = error
        except MemoryError:
            out_of_memory = True
        except Exception as error:
            # A defect, or a request with objects that only the caller's process has.
            problem = TurnwiseError(f"a worker failed with {error!r:.300}")
        texts = tuple(str(w.message) for w in caught if issubclass(w.category, TurnwiseWarning))
    return Answer(result, problem, texts, out_of_memory, retires=out_of_memory)


def run(source: bytes, verb: str, positional: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Call a verb of a template, or a function of a module."""
    if verb == FUNCTION:
        module, _, name = source.decode().partition(":")
        return getattr(import_module(module), name)(*positional, **named)
    template = make_template(source)
    if not verb:
        return template.name
    if verb not in VERBS:
        raise TurnwiseError(f"a worker does not know the call {verb!r:.80}")
    return getattr(template, verb)(*positional, **named)


@lru_cache(MAX_TEMPLATES)
def make_template(source: bytes) -> Template:
    """Return the template of a recipe, which is compiled unless this worker knows it."""
    maker, given, options, limits = pickle.loads(source)
    template = MAKERS[maker](given, **options)
    return template if limits is None else template.with_limits(limits)
