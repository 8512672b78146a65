"""Plain copies of tool lists, cached.

The tools of an application rarely change between renderings.
"""

from __future__ import annotations

import marshal
from typing import Any

from turnwise.errors import MessageError
from turnwise.messages.input_reader import InputReader
from turnwise.messages.inspection import measure_input
from turnwise.sized_cache import MARSHAL_VERSION, SizedTable, digest

MAX_CACHE_BYTES = 36 << 20  # a list that takes more than an eighth of it is copied each time
MAX_KEY_BYTES = 4 << 20
TEXTS_SIZE = 4  # times the bytes that `marshal` writes of a list: what may be cached of texts, or takes as much
COPY_SIZE = 3  # the same, without the containers in it, and the bytes themselves
CONTAINER_BYTES = 400  # of a dict or a list
LEAST_SIZE = 100_000  # of a few tools, with the pieces of their texts
UNCACHED_ROOM = 4_000_000


class JsonCache(dict[Any, Any]):
    """What was made of the tools before: JSON texts.

    A template can write one list in any number of styles, so the size of all is bounded.
    """

    __slots__ = ("_room",)

    def __init__(self, room: int) -> None:
        super().__init__()
        self._room = room

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
    gives tools another form, `size` what `measure_input` says of the copy. `key` tells them from others in the cache.
    """

    __slots__ = ("cacheable_ids", "json_cache", "key", "normalised", "plain", "size")

    def __init__(self, tools: Any, room: int = UNCACHED_ROOM, key: bytes = b"") -> None:
        self.key = key
        self.plain = InputReader().read_tools(tools)
        self.json_cache = JsonCache(room)
        self.cacheable_ids = frozenset(_container_ids(self.plain))
        self.normalised: Any = None
        self.size = measure_input(self.plain)

    def __bool__(self) -> bool:
        return bool(self.plain)


_PREPARED: SizedTable[PreparedTools] = SizedTable(MAX_CACHE_BYTES)
_KEYS: SizedTable[bytes] = SizedTable(MAX_KEY_BYTES)  # by what the newest `marshal` writes


def prepared_tools(tools: Any) -> PreparedTools:
    """Return the plain copy of a tool list, from the cache if it was seen before.

    It is found by what `marshal` writes: that has exact types and order, and costs little. Its newest version takes
    half of the time, but writes equal lists in more than one way.
    """
    if type(tools) is PreparedTools:
        return tools
    try:
        written = marshal.dumps(tools)
        data = _KEYS.find(written)
        if data is None:
            data = marshal.dumps(tools, MARSHAL_VERSION)
            _KEYS.keep(written, data, 2 * len(data))
        prepared = _PREPARED.find(data)
        if prepared is None:
            # Of the bytes and not of the caller's objects: only their copy is kept.
            room = LEAST_SIZE + TEXTS_SIZE * len(data)
            prepared = PreparedTools(marshal.loads(data), room, digest(data))
            room += COPY_SIZE * len(data) + CONTAINER_BYTES * len(prepared.cacheable_ids)
            _PREPARED.keep(data, prepared, room)
        return prepared
    # A type that is not built in, or nested too deeply; or an array, of which `marshal` writes the bytes.
    except (ValueError, MessageError):
        return PreparedTools(tools)


def _container_ids(value: Any) -> list[int]:
    identities, waiting = [], [value]
    for item in waiting:  # which becomes longer
        if isinstance(item, (dict, list, tuple)):
            identities.append(id(item))
            waiting += item.values() if isinstance(item, dict) else item
    return identities


NO_TOOLS = PreparedTools(None)
