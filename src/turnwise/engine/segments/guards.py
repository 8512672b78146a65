"""The guard of functions that may read all of their arguments: no unknown value is in them.

A namespace counts as one, and so does a stream that an earlier section may have read: what they hold is not recorded.
"""

from __future__ import annotations

from typing import Any

from turnwise.engine.runtime.values import (
    Stream,
)
from turnwise.engine.segments.recorder import Recorder
from turnwise.engine.segments.symbols import (
    NotRecordable,
    holds_unknown,
    is_stale,
)


def run_guarded(recorder: Recorder, function: Any, *args: Any, **more: Any) -> Any:
    """Run a function that may read all of its arguments."""
    if holds_unknown(recorder, (args, more)):
        raise NotRecordable
    return keep_stream(recorder, function(*args, **more))


def run_handler(handler: Any, recorder: Recorder, function: Any, *args: Any, **more: Any) -> Any:
    """Run what stands for a function, or that function for arguments that it does not know."""
    found = handler(recorder, function, *args, **more)
    return run_guarded(recorder, function, *args, **more) if found is None else found


def keep_stream(recorder: Recorder, found: Any) -> Any:
    """Note in which section a stream was made: it can be read once."""
    if type(found) is tuple and found and type(found[0]) is Stream:
        recorder.streams[id(found[0])] = found[0], recorder.serial
    return found


def check_stream(recorder: Recorder, value: Any) -> None:
    """Refuse a stream that an earlier section may have read."""
    if is_stale(recorder, value):
        raise NotRecordable
