"""One change that was made to a conversation before it was rendered."""

from __future__ import annotations

from typing import NamedTuple


class Change(NamedTuple):
    """One change of the input.

    Attributes:
        path: what was changed, such as `messages[2].content`.
        what: what was done.
        why: what the template does with the form that was given.
    """

    path: str
    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what} ({self.why})"
