"""Immutable: the base of objects that never change once they are made.

A frozen dataclass would do where the constructor takes exactly the fields. This is for objects that copy or compute
what they hold.
"""

from __future__ import annotations

from typing import Any, NoReturn


class Immutable:
    """Refuses assignment; a constructor sets its slots with `_set_slots`."""

    __slots__ = ()

    def _set_slots(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be set: it never changes")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be deleted: it never changes")
