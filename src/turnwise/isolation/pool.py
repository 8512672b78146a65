"""The pool of worker processes, and templates whose calls run in it."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import weakref
from collections import deque
from contextlib import suppress
from time import monotonic
from types import TracebackType
from typing import Any
from warnings import warn

from turnwise.engine.provenance.rendering import Rendering
from turnwise.engine.runtime.limits import Limits
from turnwise.errors import (
    MessageError,
    TemplateLimitError,
    TurnwiseError,
    TurnwiseWarning,
    note_warning,
)
from turnwise.isolation.answers import FUNCTION, LENGTH, PROTOCOL, READY, Answer, read_answer
from turnwise.messages import JsonMapping, JsonObject
from turnwise.processes import Interpreter, explain_end
from turnwise.replies.events import Message
from turnwise.tokens.encoded import Encoded
from turnwise.tokens.markers import Markers
from turnwise.tokens.stop_ids import Stops
from turnwise.training import Examples

SPARES = 1  # workers that are started ahead of time, for the next one that is killed
PATIENCE = 30  # how many times its processor time a call may last: others use the processor too
START_SECONDS = 300.0  # a machine may be very busy
MAX_ANSWER_BYTES = 1 << 30
CALLER = 4  # stack levels from here to the code that called a method of IsolatedTemplate
Recipe = tuple[str, Any, JsonObject, Limits | None]  # what a worker makes a template of
HINT = "isolated(seconds=..., megabytes=...) allows more"


def isolated(
    workers: int = 4,
    *,
    seconds: float = 1.0,
    megabytes: int = 512,
    patience: float | None = None,
    setup: str = "",
) -> WorkerPool:
    """Start worker processes for templates of strangers.

    Args:
        workers: how many calls run at the same time; others wait.
        seconds: the processor time of one call.
        megabytes: the memory that a worker may take for its templates.
        patience: how many seconds a call may last by the clock, whatever it does; 30 times its processor time by
            default, since others use the processor too.
        setup: Python code that each worker runs when it starts, before its limits hold: to register templates, or to
            load large tokenizers.

    Returns:
        The pool. Use it in a `with` statement, or call `close`.

    Raises:
        MessageError: an argument is not a positive number.
        TurnwiseError: this system has no such limits (Windows).

    Example:
        >>> with turnwise.isolated(workers=1) as pool:
        ...     template = pool.compile("{% for m in messages %}{{ m.content }}{% endfor %}")
        ...     template.render([{"role": "user", "content": "Hi"}]).text
        'Hi'
    """
    return WorkerPool(workers, seconds, megabytes, patience, setup)


class WorkerLost(Exception):
    """A worker did not answer; the text says why. It never leaves this package."""


class WorkerProcess:
    """A process that answers requests, one after the other.

    It takes a tenth of a second to start, so the pool starts its workers ahead of time.

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
        arguments = (seconds, megabytes, setup)
        self.process = Interpreter("turnwise.isolation.worker", *arguments, is_silent=True)
        os.set_blocking(self.process.connection.fileno(), False)
        self._is_ready = False
        self._start_lock = threading.Lock()

    def wait_until_ready(self) -> None:
        """Wait until the worker has started; threads may wait together.

        Raises:
            TurnwiseError: it did not.
        """
        with self._start_lock:
            if not self._is_ready:
                try:
                    self._exchange(b"", len(READY), START_SECONDS, monotonic())
                except WorkerLost as lost:
                    raise _not_started(str(lost)) from None
                self._is_ready = True

    def ask(self, request: bytes) -> Answer:
        """Send a request, and wait for the answer.

        Raises:
            BrokenPipeError: the worker was dead before.
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
        try:
            return self.process.exchange(sent, wanted, start + patience)
        except TimeoutError:
            raise WorkerLost(f"there was no answer after {patience:g} s") from None
        except EOFError:
            raise WorkerLost(f"it {self._explain_death()}") from None

    def _explain_death(self) -> str:
        code = self.process.close(START_SECONDS)
        if code == -signal.SIGPROF:
            return f"took more than {self.seconds:g} s of processor time"
        if code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
            return f"died of {name}, perhaps since it may take no more than {self.megabytes} MB"
        return explain_end(code)


class WorkerPool:
    """Worker processes that render templates, see `isolated`. Threads may share it; a forked process may not."""

    def __init__(
        self,
        workers: int = 4,
        seconds: float = 1.0,
        megabytes: int = 512,
        patience: float | None = None,
        setup: str = "",
    ) -> None:
        if os.name != "posix":
            raise TurnwiseError("isolated templates need the limits of a POSIX system")
        numbers = {"workers": workers, "seconds": seconds, "megabytes": megabytes}
        if patience is not None:
            numbers["patience"] = patience
        for name, value in numbers.items():
            kinds: Any = int if name in ("workers", "megabytes") else (int, float)
            if isinstance(value, bool) or not isinstance(value, kinds) or not 0 < value < 1e9:
                raise MessageError(f"a positive number is needed, not {value!r:.80}", path=name)
        if not isinstance(setup, str):
            raise MessageError(f"setup is Python code as text, not {type(setup).__name__}")
        self._arguments = (seconds, megabytes, patience or PATIENCE * seconds, setup)
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._places = threading.BoundedSemaphore(workers)
        self._alive: set[WorkerProcess] = set()
        self._idle: deque[WorkerProcess] = deque()
        self._is_closed = False
        self._finalizer = weakref.finalize(self, _kill_all, self._alive)
        try:
            for _ in range(workers + SPARES):
                self._start_worker()
        except OSError as error:
            self.close()
            raise _not_started(str(error)) from error

    def compile(
        self, source: Any, dialect: str | None = None, limits: Limits | None = None, **options: Any
    ) -> IsolatedTemplate:
        """Compile a template in a worker. The arguments are those of `turnwise.compile`.

        Args:
            source: Jinja text, or the text or dict of another dialect.
            dialect: the name of the dialect; guessed if not given.
            limits: other limits than the usual ones.
            options: the other arguments of `turnwise.compile`.

        Raises:
            TurnwiseError: as `turnwise.compile` does.
            TemplateLimitError: it costs more than the pool allows.
        """
        return self._make("compile", source, {"dialect": dialect, **options}, limits)

    def load(self, name: Any, limits: Limits | None = None, **options: Any) -> IsolatedTemplate:
        """Load a template in a worker. The arguments are those of `turnwise.load`."""
        return self._make("load", name, options, limits)

    def run(self, function: str, *positional: Any, **named: Any) -> Any:
        """Call a function in a worker, within the limits of the pool.

        Args:
            function: the function as `module:name`. Its result must be plain data.
            positional: its arguments, which are pickled.
            named: its keyword arguments.

        Raises:
            TurnwiseError: what the function raises.
            TemplateLimitError: it costs more than the pool allows.

        Example:
            >>> with turnwise.isolated(workers=1) as pool:
            ...     pool.run("math:gcd", 12, 18)
            6
        """
        return self.call(function.encode(), FUNCTION, positional, named)

    def _make(
        self, maker: str, given: Any, options: JsonMapping, limits: Limits | None
    ) -> IsolatedTemplate:
        recipe = (maker, given, dict(options), limits)
        name = self.call(_to_bytes(recipe), "", (), {})
        return IsolatedTemplate(self, recipe, str(name))

    def call(
        self, source: bytes, verb: str, positional: tuple[Any, ...], named: JsonMapping
    ) -> Any:
        """Call a verb of a template in a worker; waiting for a free one does not count.

        Raises:
            TurnwiseError: what the call raises.
            TemplateLimitError: the call went over a limit of its worker.
        """
        request = _to_bytes((source, verb, positional, dict(named)))
        if os.getpid() != self._owner:
            raise TurnwiseError("a pool of workers cannot be used in a forked process")
        try:
            with self._places:
                answer = self._ask_living(request)
        except WorkerLost as lost:
            raise _make_error(str(lost)) from None
        except BrokenPipeError:
            raise _make_error("it died while it was idle") from None
        for text in answer.warnings:
            if note_warning(text):
                warn(text, TurnwiseWarning, stacklevel=CALLER)
        if answer.out_of_memory:
            raise _make_error(f"it took more than {self._arguments[1]} MB of memory")
        if answer.error is not None:
            raise answer.error
        return answer.result

    def _ask_living(self, request: bytes) -> Answer:
        """Ask a worker; those that died while they were idle are replaced, however many they are."""
        for _ in range(len(self._alive)):
            with suppress(BrokenPipeError):
                return self._ask(request)
        return self._ask(request)

    def _ask(self, request: bytes) -> Answer:
        worker = self._take()
        is_lost = True
        try:
            worker.wait_until_ready()
            answer = worker.ask(request)
            is_lost = answer.retires
        finally:
            self._give_back(worker, is_lost)
        return answer

    def _start_worker(self) -> None:
        worker = WorkerProcess(*self._arguments)
        with self._lock:
            is_closed = self._is_closed
            if not is_closed:
                self._alive.add(worker)
                self._idle.append(worker)
        if is_closed:
            worker.process.close()

    def _take(self) -> WorkerProcess:
        with self._lock:
            if self._is_closed:
                raise TurnwiseError("the pool of workers is closed")
            if self._idle:
                return self._idle.popleft()
        # The last one could not be replaced.
        try:
            self._start_worker()
        except OSError as error:
            raise _not_started(str(error)) from error
        return self._take()

    def _give_back(self, worker: WorkerProcess, is_lost: bool) -> None:
        """Take a worker back, or kill it and start another one."""
        with self._lock:
            keeps = not is_lost and not self._is_closed
            if keeps:
                self._idle.appendleft(worker)  # its templates are compiled
            else:
                self._alive.discard(worker)
        if not keeps:
            worker.process.close()
            with suppress(OSError):  # the next call tries again
                self._start_worker()

    def wait_until_ready(self) -> None:
        """Wait until all workers have started, so that the first call does not.

        Raises:
            TurnwiseError: one did not start.
        """
        with self._lock:
            idle = list(self._idle)
        for worker in idle:
            worker.wait_until_ready()

    @property
    def pids(self) -> list[int]:
        """The ids of the worker processes."""
        with self._lock:
            return sorted(worker.process.pid for worker in self._alive)

    def close(self) -> None:
        """Kill all workers; calls that are running end with an error."""
        with self._lock:
            self._is_closed = True
            idle = list(self._idle)
            running = self._alive.difference(idle)
            self._idle.clear()
            self._alive.difference_update(idle)
            for worker in running:
                worker.process.kill()  # the call that waits for it releases it
        for worker in idle:
            worker.process.close()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class IsolatedTemplate:
    """A template whose calls run in the workers of a pool. Made by `WorkerPool.compile` and `WorkerPool.load`.

    The calls are those of `Template`, with the same arguments and results; a tokenizer is best given by its name or
    file, since the worker loads it once. Renderings come with their pieces.

    Example:
        >>> with turnwise.isolated(workers=1, seconds=30) as pool:
        ...     str(pool.load("chatml").render([{"role": "user", "content": "Hi"}]))
        '<|im_start|>user\\nHi<|im_end|>\\n'
    """

    def __init__(self, pool: WorkerPool, recipe: Recipe, name: str) -> None:
        self.name = name
        self._pool = pool
        self._recipe = recipe
        self._source = _to_bytes(recipe)

    def render(self, /, messages: Any, *more: Any, **arguments: Any) -> Rendering:
        """Render a conversation, as `Template.render` does."""
        result: Rendering = self._call("render", messages, *more, **arguments)
        return result

    def encode(self, /, messages: Any, tokenizer: Any, *more: Any, **arguments: Any) -> Encoded:
        """Encode a conversation, as `Template.encode` does."""
        result: Encoded = self._call("encode", messages, tokenizer, *more, **arguments)
        return result

    def examples(self, /, messages: Any, tokenizer: Any, *more: Any, **arguments: Any) -> Examples:
        """Encode training samples, as `Template.examples` does."""
        result: Examples = self._call("examples", messages, tokenizer, *more, **arguments)
        return result

    def parse(self, reply: Any, *more: Any, **arguments: Any) -> Message:
        """Parse a reply, as `Template.parse` does."""
        result: Message = self._call("parse", reply, *more, **arguments)
        return result

    def stops(self, tokenizer: Any = None) -> Stops:
        """Return the texts that end generation, as `Template.stops` does."""
        result: Stops = self._call("stops", tokenizer)
        return result

    def markers(self, tokenizer: Any) -> Markers:
        """Return the control tokens that the template writes, as `Template.markers` does."""
        result: Markers = self._call("markers", tokenizer)
        return result

    def convert(self, dialect: str, **arguments: Any) -> Any:
        """Write the template in another dialect, as `Template.convert` does."""
        return self._call("convert", dialect, **arguments)

    def with_limits(self, limits: Limits) -> IsolatedTemplate:
        """Return a copy with other budgets, as `Template.with_limits` does; the pool's limits hold as well."""
        if not isinstance(limits, Limits):
            raise MessageError(f"limits are turnwise.Limits, not {type(limits).__name__}")
        maker, given, options, _ = self._recipe
        return IsolatedTemplate(self._pool, (maker, given, options, limits), self.name)

    def _call(self, verb: str, /, *positional: Any, **named: Any) -> Any:
        return self._pool.call(self._source, verb, positional, named)

    def __repr__(self) -> str:
        return f"<IsolatedTemplate {self.name}>"


def _not_started(reason: str) -> TurnwiseError:
    hint = "is the code in `setup` right?"
    return TurnwiseError(f"a worker process did not start: {reason}", hint=hint)


def _make_error(reason: str) -> TemplateLimitError:
    return TemplateLimitError(
        f"the worker process of the template was ended: {reason}", budget="isolation", hint=HINT
    )


def _to_bytes(value: Any) -> bytes:
    """Return a request as bytes.

    Raises:
        MessageError: it holds something that cannot be sent to another process.
    """
    try:
        return pickle.dumps(value, PROTOCOL)
    except Exception as error:  # the caller's objects may raise anything
        raise MessageError(f"it cannot be sent to a worker: {error!r:.200}") from error


def _kill_all(workers: set[WorkerProcess]) -> None:
    for worker in list(workers):
        worker.process.close()
