"""Encode with the reference at first, and with fastokens once that pays.

fastokens encodes many times faster than the reference, and takes three times as long to load. So a command that encodes
one conversation is done long before fastokens would be loaded, and a server or a data job soon regrets the reference.
Which of the two a process is shows in what it encodes: after an allowance of characters, fastokens is loaded in a
thread, compared with the reference, and used from the next text on. The ids are the same before and after.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock, Thread
from typing import NamedTuple

from turnwise.tokens.tokenizers.foreign_errors import describe_error
from turnwise.tokens.tokenizers.selfcheck import Backend

# Characters that the reference may encode for each token of the vocabulary: about fifty conversations, which take it a
# twentieth of the time in which fastokens is loaded.
ALLOWANCE_PER_TOKEN = 1


class FastBackend(NamedTuple):
    """A fast back end that was compared with the reference."""

    backend: Backend | None
    problem: str | None = None  # why it cannot be used
    decodes_alike: bool = False


@dataclass
class DeferredBackend:
    """The reference, until a fast back end is loaded.

    Args:
        reference: the back end that encodes in the meantime.
        load: loads the fast back end and compares it with the reference.
        adopt: is called with what `load` returned, in a thread that encodes.
        allowance: how many characters are encoded before the fast back end is loaded.
    """

    _reference: Backend
    _load: Callable[[], FastBackend]
    _adopt: Callable[[FastBackend], None]
    _allowance: int
    _loaded: FastBackend | None = None
    _thread: Thread | None = None
    _lock: Lock = field(default_factory=Lock)

    def encode(self, text: str, position: int) -> list[int]:
        self._spend(len(text))
        return self._reference.encode(text, position)

    def load_for(self, characters: int) -> None:
        """Load the fast back end and wait for it, if so many characters are about to be encoded that it pays."""
        if characters < self._allowance:
            return
        with self._lock:
            self._start_loading()
        if self._thread and self._thread.is_alive():
            self._thread.join()
        if self._loaded is not None:
            self._adopt(self._loaded)

    def _spend(self, characters: int) -> None:
        """Count characters; load the fast back end when the allowance is spent, adopt it when it is loaded."""
        self._allowance -= characters
        if self._allowance > 0:
            return
        if self._loaded is not None:
            self._adopt(self._loaded)
        elif self._lock.acquire(blocking=False):
            try:
                self._start_loading()
            finally:
                self._lock.release()

    def _start_loading(self) -> None:
        """Load the fast back end in a thread, unless one is at it."""
        # A thread that was loading when the process was forked does not live in the child.
        if self._loaded is None and not (self._thread and self._thread.is_alive()):
            thread = Thread(target=self._run, name="turnwise loads fastokens")
            try:
                thread.start()
            except RuntimeError:  # no threads here, or no more of them
                self._run()
            self._thread = thread

    def _run(self) -> None:
        try:
            self._loaded = self._load()
        except (
            BaseException
        ) as error:  # nobody waits for the thread; a panic in Rust is not an Exception
            self._loaded = FastBackend(None, describe_error(error))
