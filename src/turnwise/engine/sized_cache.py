"""A cache of what was made from texts, bounded by bytes.

Templates come from strangers as well. A cache that counts entries would keep 256 templates of a megabyte, each with a
program several times as large; this one counts the estimated bytes of all entries, and does not keep what is too large
to be a template that somebody uses.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")

MAX_BYTES = 8 << 20
LARGEST_SHARE = 8  # an entry takes at most this part of the cache
ENTRY_BYTES = 500  # of an entry without its texts


class SizedCache(Generic[T]):
    """Caches the results of a function; the least recently used are dropped first.

    Args:
        make: the function; its arguments are hashable, the first is a text.
        measure: returns the estimated bytes of a result, beside those of the text.
        max_bytes: the bytes of all entries together.
    """

    def __init__(
        self,
        make: Callable[..., T],
        measure: Callable[[T], int] = lambda _: 0,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._make = make
        self._measure = measure
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._entries: OrderedDict[tuple[Hashable, ...], tuple[T, int]] = OrderedDict()
        self.bytes = 0

    def get(self, *arguments: Hashable) -> T:
        """Return the result for these arguments, made now if it is not known."""
        with self._lock:
            entry = self._entries.get(arguments)
            if entry is not None:
                self._entries.move_to_end(arguments)
                return entry[0]
        made = self._make(*arguments)
        self._keep(arguments, made)
        return made

    def _keep(self, arguments: tuple[Hashable, ...], made: T) -> None:
        size = ENTRY_BYTES + sys.getsizeof(arguments[0]) + self._measure(made)
        if size > self._max_bytes // LARGEST_SHARE:
            return
        with self._lock:
            if arguments in self._entries:
                return
            self._entries[arguments] = made, size
            self.bytes += size
            while self.bytes > self._max_bytes:
                _, (_, dropped) = self._entries.popitem(last=False)
                self.bytes -= dropped
