"""Caches that are bounded by bytes.

What is cached comes from others: templates, conversations, tools. A cache that counts entries would keep 256 templates
of a megabyte, each with a program several times as large; these count the estimated bytes of all entries, and do not
keep what takes too large a part of them. All of them together are counted by `count_cached_bytes`.
"""

from __future__ import annotations

import marshal
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from hashlib import blake2b
from typing import Any, Generic, TypeVar
from weakref import WeakSet

T = TypeVar("T")

MAX_BYTES = 8 << 20
LARGEST_SHARE = 8  # an entry takes at most this part of the cache
ENTRY_BYTES = 500  # of an entry without its texts
DIGEST_SIZE = 16
MARSHAL_VERSION = 2  # the last one that writes equal values as equal bytes


class SizedTable(Generic[T]):
    """A table that drops the least recently used entries first. Threads may share it.

    Args:
        max_bytes: the bytes of all entries together.

    Attributes:
        peek: returns what was kept, as `find` does, at less cost: it does not count as used.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, T] = OrderedDict()
        self._sizes: dict[Hashable, int] = {}
        self.peek = self._entries.get
        self.bytes = 0
        _TABLES.add(self)

    def find(self, key: Hashable) -> T | None:
        """Return what was kept; None if there is nothing."""
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
            return self._entries.get(key)

    def keep(self, key: Hashable, value: T, size: int) -> None:
        """Keep a value in the place of an earlier one, unless it is too large.

        Args:
            key: its key.
            value: what is kept.
            size: the estimated bytes of key and value.
        """
        size += ENTRY_BYTES
        with self._lock:
            self._entries.pop(key, None)
            self.bytes -= self._sizes.pop(key, 0)
            if size > self._max_bytes // LARGEST_SHARE:
                return
            self._entries[key], self._sizes[key] = value, size
            self.bytes += size
            while self.bytes > self._max_bytes:
                self.bytes -= self._sizes.pop(self._entries.popitem(last=False)[0])


_TABLES: WeakSet[SizedTable[Any]] = WeakSet()


def count_cached_bytes() -> int:
    """Return the estimated bytes of all tables of this process."""
    return sum(table.bytes for table in list(_TABLES))


class SizedCache(SizedTable[T]):
    """Caches the results of a function.

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
        super().__init__(max_bytes)
        self._make = make
        self._measure = measure

    def get(self, *arguments: Hashable) -> T:
        """Return the result for these arguments, made now if it is not known."""
        made = self.find(arguments)
        if made is None:
            made = self._make(*arguments)
            self.keep(arguments, made, sys.getsizeof(arguments[0]) + self._measure(made))
        return made


def make_digest(value: Any) -> bytes:
    """Return a key that stands for a value: equal ones are of the same types, and in the same order."""
    try:
        return digest(marshal.dumps(value, MARSHAL_VERSION))
    except ValueError:  # a type that is not built in, or nested too deeply
        return digest(repr(value).encode("utf-8", "surrogatepass"))


def digest(data: bytes) -> bytes:
    """Return a key that stands for bytes."""
    return blake2b(data, digest_size=DIGEST_SIZE).digest()
