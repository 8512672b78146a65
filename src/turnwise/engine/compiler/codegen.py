"""Lines of Python, and what is known at each point of them.

The compiler is a walk over jinja2's tree that appends lines here. Three things make the lines fast:

* Blocks know what is *available*: `message.role` that was read once is a local variable, and stays one until the name
  is bound again or the block ends in which it was read.
* Every line remembers the template place it was written for, so the program carries no position code; a failing line is
  looked up in `places` from the traceback.
* Names of the template become numbered or ASCII identifiers; its texts appear only through `repr`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from turnwise.engine.compiler.syntax import place


class Code(NamedTuple):
    """A Python expression for a value, and one for its trail."""

    value: str
    trail: str = "None"
    kind: str = ""  # what the value certainly is, if anything: a key of KINDS


KINDS = {
    "text": "a str",
    "literal": "a str that stands in the template",
    "constant": "another literal",
    "fact": "a number, a truth or None: nobody wrote it",
    "whole": "an int",
    "message": "a dict",
    "messages": "a list of dicts",
}


class Known(NamedTuple):
    """A field that was read before: where its value is, and where its trail is once somebody wanted it."""

    value: str
    trail: str | None


class Writer:
    """Collects lines; knows indentation, temporaries, template nodes and available reads."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.places: list[int] = []
        self.nodes: list[int] = []
        self.here = 0
        self.indent = 0
        self.temporaries = 0
        self.available: list[dict[tuple[str, str], Known]] = [{}]
        self.lasting: set[str] = set()
        self.constants: dict[str, Any] = {}

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)
        self.places.append(self.here)

    def flush(self) -> None:
        """Write the output that is waiting: before anything that may run more or less often than this line."""

    def temporary(self, prefix: str = "t") -> str:
        self.temporaries += 1
        return f"{prefix}{self.temporaries}"

    def node(self, lineno: int) -> str:
        """A number for a piece of template text; the number is its trail."""
        self.nodes.append(lineno)
        return str(len(self.nodes) - 1)

    def shared(self, prefix: str, value: Any) -> str:
        """A name for a value that is made once, with the program."""
        name = f"{prefix}{len(self.constants)}"
        self.constants[name] = value
        return name

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """An indented block; what it reads is not available behind it."""
        self.flush()
        self.line(head)
        self.indent += 1
        self.available.append({})
        start = len(self.lines)
        yield
        self.flush()
        if len(self.lines) == start:
            self.line("pass")
        self.available.pop()
        self.indent -= 1

    @contextmanager
    def function(self, head: str) -> Iterator[None]:
        """A function body: nothing read outside is available, since it runs at another time."""
        outside, self.available = self.available, [{}]
        with self.block(head):
            yield
        self.available = outside

    # ---- available reads ----

    def recall(self, owner: str, name: str) -> Known | None:
        for scope in reversed(self.available):
            if (owner, name) in scope:
                return scope[owner, name]
        return None

    def remember(self, owner: str, name: str, known: Known) -> None:
        self.available[-1][owner, name] = known

    def forget(self, owner: str) -> None:
        """The name is bound again: what was read from it is stale, here and in every block around."""
        for scope in self.available:
            for key in [key for key in scope if key[0] == owner]:
                del scope[key]

    def forget_changeable(self) -> None:
        """A namespace may have changed: only loop items and inputs are certain to be as they were."""
        for scope in self.available:
            for key in [key for key in scope if key[0] not in self.lasting]:
                del scope[key]

    def table(self) -> list[tuple[int, int]]:
        return [place(lineno) for lineno in self.nodes]
