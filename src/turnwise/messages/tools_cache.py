"""Plain copies of tool lists, cached.

The tools of an application rarely change between renderings.
"""

from __future__ import annotations

import marshal
from threading import Lock
from typing import Any

from turnwise.messages.input_reader import InputReader

CACHE_SIZE = 64
MAX_CACHED_SIZE = 4_000_000  # characters that are cached for one tool list, or what takes as much
MAX_KEY_BYTES = 1 << 20  # larger tool lists are copied each time, so that the cache stays small
# Of all keys; a list with its copy and its texts takes about ten times its key.
MAX_CACHE_BYTES = 1 << 22


class JsonCache(dict[Any, Any]):
    """What was made of the tools before: JSON texts, and their fragments and pieces.

    A template can write one list in any number of styles, so the size of all is bounded.
    """

    __slots__ = ("_room",)

    def __init__(self) -> None:
        super().__init__()
        self._room = MAX_CACHED_SIZE

    def add(self, key: Any, value: Any, size: int) -> None:
        """Keep a value of this size if there is room for it."""
        if key in self:
            self[key] = value
        elif size <= self._room:
            self._room -= size
            self[key] = value


class PreparedTools:
    """Tools as plain data, with the JSON texts that templates made of them.

    `plain` is the copy (None if there are no tools), `cacheable_ids` the identity of every dict and
    list in it: they live as long as the copy, so `json_cache` may use them as keys. `normalised` is kept for who
    gives tools another form.
    """

    __slots__ = ("cacheable_ids", "json_cache", "normalised", "plain")

    def __init__(self, tools: Any) -> None:
        self.plain = InputReader().read_tools(tools)
        self.json_cache = JsonCache()
        self.cacheable_ids = frozenset(_container_ids(self.plain))
        self.normalised: Any = None


class ToolsCache:
    """Tool lists that were prepared before, by what `marshal` writes for them; the oldest go first."""

    def __init__(self) -> None:
        self._known: dict[bytes, PreparedTools] = {}
        self._bytes = 0
        self._lock = Lock()

    def prepare(self, key: bytes) -> PreparedTools:
        """Return the tools that `marshal` wrote as `key`."""
        known = self._known.get(key)
        if known is not None:
            return known
        prepared = PreparedTools(marshal.loads(key))
        with self._lock:
            if key not in self._known:
                self._bytes += len(key)
            self._known[key] = prepared
            while self._bytes > MAX_CACHE_BYTES or len(self._known) > CACHE_SIZE:
                oldest = next(iter(self._known))
                del self._known[oldest]
                self._bytes -= len(oldest)
        return prepared


_PREPARED = ToolsCache()


def prepared_tools(tools: Any) -> PreparedTools:
    """Return the plain copy of a tool list, from the cache if it was seen before.

    The cache key is written by `marshal`: it holds exact types and order, and costs little.
    """
    if type(tools) is PreparedTools:
        return tools
    try:
        key = marshal.dumps(tools)
    except ValueError:  # a type that is not built in, or nested too deeply
        return PreparedTools(tools)
    if len(key) >= MAX_KEY_BYTES:
        return PreparedTools(tools)
    return _PREPARED.prepare(key)


def _container_ids(value: Any) -> list[int]:
    identities, waiting = [], [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, (dict, list, tuple)):
            identities.append(id(item))
            waiting += item.values() if isinstance(item, dict) else item
    return identities


NO_TOOLS = PreparedTools(None)
