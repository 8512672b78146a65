"""The guard of functions that may read all of their arguments: no unknown value is in them.

A namespace counts as one, and so does a stream that an earlier section may have read: what they hold is not recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from turnwise.engine.runtime.values import (
    Cycler,
    Loop,
    Namespace,
    Stream,
    View,
)
from turnwise.engine.segments.symbols import (
    UNKNOWN,
    NotRecordable,
)

if TYPE_CHECKING:
    from turnwise.engine.segments.recorder import Recorder

CONTAINERS: dict[type, Callable[[Any], Any]] = {
    dict: lambda value: [*value.keys(), *value.values()],
    list: list,
    tuple: list,
    Loop: lambda value: [value.items, value.last_seen],
    Stream: lambda value: value.items,
    View: lambda value: value.items,
}


def run_guarded(recorder: Recorder, function: Any, *args: Any, **more: Any) -> Any:
    """Run a function that may read all of its arguments."""
    if holds_unknown(recorder, (args, more)):
        raise NotRecordable
    return keep_stream(recorder, function(*args, **more))


def keep_stream(recorder: Recorder, found: Any) -> Any:
    """Note in which section a stream was made: it can be read once."""
    if type(found) is tuple and found and type(found[0]) is Stream:
        recorder.streams[id(found[0])] = found[0], recorder.serial
    return found


def check_stream(recorder: Recorder, value: Any) -> None:
    """Refuse a stream that an earlier section may have read."""
    if type(value) is Stream and recorder.streams.get(id(value), (None, -1))[1] != recorder.serial:
        raise NotRecordable


def holds_unknown(recorder: Recorder, root: Any) -> bool:
    """Whether there is an unknown value, or one that may change between rounds, in a value."""
    waiting, seen = [root], set()
    while waiting:
        value = waiting.pop()
        kind = type(value)
        if kind in UNKNOWN or kind is Namespace or kind is Cycler:
            return True
        if kind is Stream and recorder.streams.get(id(value), (None, -1))[1] != recorder.serial:
            return True
        if kind in CONTAINERS and id(value) not in seen:
            seen.add(id(value))
            waiting += CONTAINERS[kind](value)
    return False
