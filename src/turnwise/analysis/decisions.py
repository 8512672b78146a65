"""Find the condition of a template that decided between two texts.

Two renderings part at some character. The pieces know which text of the template is on each side, and the syntax tree
which branches of `if`, `elif`, `else` and inline `if` that is in:

    {%- if loop.index0 > question.at -%}
        {{ '<think>' + thought }}          one side: in the body of the `if`
    {%- else -%}
        {{ body }}                         the other side: in its `else`
    {%- endif -%}

The first branch that only one of the two is in belongs to the condition that decided. For text of a message, the
template's own text after it (else before it) is asked: the expression that wrote it is often the same in all branches.
Where both sides are in the same branches (a loop over other values), the place of the text itself is all that is known;
and where one of them is in a macro, which may be called from many branches, the condition next to the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from os.path import commonprefix
from typing import NamedTuple

from jinja2 import nodes

from turnwise.engine.compiler.syntax import normalise_newlines, parse, unpack_position
from turnwise.engine.compiler.tree import find_start
from turnwise.engine.provenance.rendering import Piece

MAX_SHOWN_SOURCE = 100  # characters of a line of a template
MAX_MAPS = 64  # templates whose branches are remembered

Place = tuple[int, int]  # line and column
NOWHERE = (0, 0)


@dataclass(frozen=True, slots=True)
class Decision:
    """A place of a template: the condition that decided between two texts, or the text itself.

    Attributes:
        line: Its line, counted from 1.
        column: Its column.
        source: The line as it is written, without its indentation.
    """

    line: int
    column: int
    source: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.source}"


class _Branch(NamedTuple):
    """One branch of a condition; the same number in two branches means the same condition."""

    condition: int
    name: str
    position: int  # of the test


class BranchMap:
    """The branches that every place of a template is in.

    Args:
        text: The template; it must compile.
    """

    def __init__(self, text: str) -> None:
        self._lines = normalise_newlines(text).split("\n")
        # None for a place in a macro: which call wrote the text is not known.
        self._paths: dict[Place, tuple[_Branch, ...] | None] = {}
        waiting: list[tuple[nodes.Node, tuple[_Branch, ...] | None]] = [
            (parse(text, "template"), ())
        ]
        for node, path in waiting:
            self._paths[unpack_position(node.lineno or 0)] = path  # an inner node comes later
            if isinstance(node, nodes.Macro):
                path = None
            for child, inside in _children(node):
                waiting.append((child, None if path is None else (*path, *inside)))
        self._paths.pop(NOWHERE, None)

    def find(self, before: Sequence[Piece], after: Sequence[Piece]) -> Decision | None:
        """Return what decided between two texts.

        Args:
            before: The pieces of one rendering, from the first different character on.
            after: Those of the other.
        """
        first, second = self._place_of(before), self._place_of(after)
        mine, theirs = self._paths.get(first), self._paths.get(second)
        if mine and after and before[0].origin.message != after[0].origin.message:
            # the other side is another message, which is in branches of its own
            deciding = mine[-1:]
        elif mine is not None and theirs is not None:
            common = len(commonprefix([mine, theirs]))
            deciding = mine[common:] or theirs[common:]
        else:  # of the side that is known, the condition next to the text
            deciding = (mine or theirs or ())[-1:]
        if deciding:
            return self._show(unpack_position(deciding[0].position))
        place = first if first[0] else second
        return self._show(place) if place[0] else None

    def _place_of(self, pieces: Sequence[Piece]) -> Place:
        """Return the place of the first text of the template, preferably one of the same message outside of macros,
        else of the expression that wrote the first piece; (0, 0) if there is none.
        """
        found = own = pieces[0].expression or NOWHERE if pieces else NOWHERE
        for piece in pieces:
            origin = piece.origin
            if found[0] and origin.message != pieces[0].origin.message:
                break
            if origin.line is None or origin.column is None:
                continue
            place = origin.line, origin.column
            if self._paths.get(place) is not None:
                return place
            found = place if found == own else found
        return found

    def _show(self, place: Place) -> Decision:
        line, column = place
        source = self._lines[line - 1]
        if len(source) > MAX_SHOWN_SOURCE:  # a template in one line: from the condition on
            source = source[column - 1 :][:MAX_SHOWN_SOURCE]
        return Decision(line, column, source.strip())


@lru_cache(MAX_MAPS)
def map_branches(text: str) -> BranchMap:
    """Return the branches of a template that compiles; the last ones are remembered."""
    return BranchMap(text)


def _children(node: nodes.Node) -> Iterator[tuple[nodes.Node, tuple[_Branch, ...]]]:
    """Yield the children of a node, each with the branch that it is in, if the node is a condition."""
    if isinstance(node, nodes.If):
        for number, one in enumerate((node, *node.elif_)):
            yield one.test, ()
            yield from ((child, _in_branch(node, str(number), one.test)) for child in one.body)
        yield from ((child, _in_branch(node, "else", one.test)) for child in node.else_)
    elif isinstance(node, nodes.CondExpr):
        yield node.test, ()
        yield node.expr1, _in_branch(node, "body", node.test)
        if node.expr2 is not None:
            yield node.expr2, _in_branch(node, "else", node.test)
    else:
        yield from ((child, ()) for child in node.iter_child_nodes())


def _in_branch(condition: nodes.Node, name: str, test: nodes.Node) -> tuple[_Branch, ...]:
    return (_Branch(id(condition), name, find_start(test)),)
