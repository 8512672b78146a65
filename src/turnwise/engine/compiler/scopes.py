"""Names while compiling: which scope defines one, and what is known about it.

jinja2's own symbol tracking decides what is local to what, so scoping is exact. Beside it there are only notes: which
names are inputs, which stand for `loop`, which are macros that can be called directly.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from jinja2.idtracking import Symbols


class Fault(Exception):
    """The tree asks for something that cannot be compiled."""

    def __init__(self, message: str, lineno: int, hint: str | None = None) -> None:
        super().__init__(message)
        self.lineno = lineno
        self.hint = hint


class LoopNames:
    """The local variables that stand for `loop`."""

    def __init__(self, index: str, items: str, trail: str, depth: int) -> None:
        self.attributes = {
            "index0": index,
            "index": f"({index} + 1)",
            "first": f"({index} == 0)",
            "last": f"({index} + 1 == len({items}))",
            "length": f"len({items})",
            "revindex": f"(len({items}) - {index})",
            "revindex0": f"(len({items}) - {index} - 1)",
            "depth": str(depth + 1),
            "depth0": str(depth),
        }
        self.neighbours = {
            "previtem": f"neighbour({items}, {trail}, {index} - 1, NO_PREVIOUS)",
            "nextitem": f"neighbour({items}, {trail}, {index} + 1, NO_NEXT)",
        }


class KnownMacro(NamedTuple):
    """A macro whose name means nothing else in the template."""

    variable: str
    function: str
    arguments: tuple[str, ...]


class Scope(Symbols):
    """jinja2's symbol tracking, which also knows which of its names are inputs, and the variables of those."""

    def __init__(self, parent: Symbols | None = None, level: int | None = None) -> None:
        super().__init__(parent, level)
        self.inputs: dict[str, str] = {}

    def owner(self, name: str) -> Scope:
        """The scope that defines a name."""
        scope: Any = self
        while name not in scope.refs and scope.parent is not None:
            scope = scope.parent
        found: Scope = scope
        return found


class Frame:
    """A scope of names. jinja2's own symbol tracking decides what is local, so scoping is exact."""

    def __init__(
        self, symbols: Scope, soft: bool = False, loops: int = 0, breakable: bool = False
    ) -> None:
        self.symbols = symbols
        self.breakable = breakable  # inside a loop, with no function in between
        self.counting = False  # inside a loop over numbers, and in none over messages
        self.soft = (
            soft  # inside a condition: an unknown filter fails when it is reached, not before
        )
        self.loops = loops

    def inner(self) -> Frame:
        return self.like(Scope(parent=self.symbols), self.soft)

    def softened(self) -> Frame:
        return self.like(self.symbols, True)

    def like(self, symbols: Scope, soft: bool) -> Frame:
        frame = Frame(symbols, soft, self.loops, self.breakable)
        frame.counting = self.counting
        return frame
