"""DecisionSearch: which decision of a template keeps a text from being written.

A decision is a condition, or a slice that leaves out items of a list. Each is forced to another outcome while the same
conversation is rendered again: the one with which the text is written is the one that decided against it. One program
can force every decision, by its number:

    {% if role == "tool" %}     becomes     {% if forced_outcome if forced_decision == 3 else role == "tool" %}
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple, cast

from jinja2 import nodes

from turnwise.analysis.conversations import Probe
from turnwise.analysis.counterexample import RenderOutcome, try_render
from turnwise.engine.compiler.compiler import GeneratedCode, generate_code
from turnwise.engine.compiler.syntax import parse_again, unpack_position
from turnwise.engine.compiler.tree import find_nodes, find_start, walk
from turnwise.engine.program import Program
from turnwise.engine.provenance.expressions import Position
from turnwise.engine.provenance.rendering import Rendering
from turnwise.engine.renderer import Renderer
from turnwise.errors import TemplateLimitError
from turnwise.messages import Path

FORCED, OUTCOME = "forced_decision", "forced_outcome"
ALLOWED = 6  # times the budgets of one rendering, for one search
MARKER = re.compile(r"[<\[]")
ADDED = 2  # where a score has the number of added markers


class ForcedDecision(NamedTuple):
    """A place where a template decides: a condition, or a slice.

    Attributes:
        start: where it begins.
        otherwise: where the branch begins that is taken in its place, if that is the only other one.
        is_slice: whether it is a slice, which can be forced to be the whole list.
        words: the texts that it compares with.
    """

    start: Position
    otherwise: Position | None = None
    is_slice: bool = False
    words: tuple[str, ...] = ()


class ForcedProgram(Program):
    """A template that was compiled before, compiled so that options force one of its decisions."""

    __slots__ = ("decisions",)

    decisions: list[ForcedDecision]

    def _translate(self) -> GeneratedCode:
        tree = parse_again(self.text)
        self.decisions = []
        # a condition about these is itself in question, any other one what its branches write
        given = {"messages", "loop"}
        for loop in find_nodes(tree, nodes.For):
            given |= {one.name for one in find_nodes(loop.target, nodes.Name)}
        for node in list(walk(tree)):
            if isinstance(node, nodes.Slice):
                node.start, node.stop = self._force(node.start), self._force(node.stop)
                self.decisions.append(ForcedDecision(unpack_position(node.lineno), is_slice=True))
            elif isinstance(node, (nodes.If, nodes.CondExpr, nodes.For)) and node.test is not None:
                start, other = find_start(node.test), None
                is_given = any(one.name in given for one in find_nodes(node.test, nodes.Name))
                if isinstance(node, nodes.If) and not node.elif_ and not is_given:
                    other = _find_first(node.else_)
                words = tuple(str(one.value) for one in find_nodes(node.test, nodes.Const))
                node.test = self._force(cast(nodes.Expr, node.test))
                self.decisions.append(ForcedDecision(unpack_position(start), other, words=words))
        return generate_code(tree, self.shadowed)

    def _force(self, node: nodes.Expr | None) -> nodes.Expr | None:
        if node is None:
            return None
        line = node.lineno
        number = nodes.Operand("eq", nodes.Const(len(self.decisions), lineno=line), lineno=line)
        is_forced = nodes.Compare(nodes.Name(FORCED, "load", lineno=line), [number], lineno=line)
        outcome = nodes.Name(OUTCOME, "load", lineno=line)
        return nodes.CondExpr(is_forced, outcome, node, lineno=line)


def _find_first(body: list[nodes.Node]) -> Position | None:
    """Return where the first statement of a branch begins, but for white space."""
    for node in walk(*body):
        if isinstance(node, nodes.TemplateData):
            if node.data.strip():
                return unpack_position(node.lineno)
        elif not isinstance(node, nodes.Output):
            return unpack_position(find_start(node))
    return None


class DecisionSearch:
    """Finds the decisions of one template.

    Args:
        renderer: the template.
    """

    def __init__(self, renderer: Renderer) -> None:
        self._programs: dict[str, ForcedProgram] = {}
        self._renderer = renderer.with_programs(self._compile)

    def _compile(self, program: Program) -> Program:
        forced = ForcedProgram(program.text, program.name, program.shadowed)
        return self._programs.setdefault(program.name, forced)

    def find(self, name: str, probe: Probe, path: Path, turn: Position | None) -> Position | None:
        """Return where a template decided not to write a field; None if no decision of its own did.

        Args:
            name: the name of the program that renders the conversation.
            probe: the conversation.
            path: the field.
            turn: where it is written in another conversation, if it is: a decision after it that adds another turn
                explains nothing.
        """
        best: tuple[int, ...] = ()
        place = None
        try:
            for score, found in self._try_all(name, probe, path):
                is_plain = not score[ADDED]
                known = (turn is not None and is_plain, *score)
                if known > best and (turn is None or is_plain or found < turn):
                    best, place = known, found
        except TemplateLimitError:  # what was found so far will do
            return place
        return place

    def _try_all(
        self, name: str, probe: Probe, path: Path
    ) -> Iterator[tuple[tuple[int, ...], Position]]:
        """Yield the decisions with which a field is written, and how good each explains that it is not."""
        renderer = self._renderer.allow(ALLOWED)
        original = try_render(renderer, probe)
        if not isinstance(original, Rendering):
            return
        role = str(probe.messages[int(path[1])]["role"])
        markers = len(MARKER.findall(original.text))
        is_whole = all(origin.message != path[1] for _, origin in original.pieces)
        for number, decision in enumerate(self._programs[name].decisions):
            for outcome in (None,) if decision.is_slice else (True, False):
                options = {**probe.options, FORCED: number, OUTCOME: outcome}
                rendering = try_render(renderer, replace(probe, options=options))
                fields = _list_fields(rendering)
                if not isinstance(rendering, Rendering) or not any(
                    one[: len(path)] == path for one in fields
                ):
                    continue
                # the best is that which adds the text alone, not a turn for it
                added = max(len(MARKER.findall(rendering.text)) - markers, 0)
                is_item = decision.is_slice and is_whole
                is_about = any(role in word for word in decision.words)
                score = (len(fields), is_item, -added, is_about)
                yield score, (outcome and decision.otherwise) or decision.start


def _list_fields(outcome: RenderOutcome) -> set[Path]:
    """Return the fields of the conversation that were written; a role is part of a header."""
    return {
        path
        for _, origin in (outcome.pieces if isinstance(outcome, Rendering) else ())
        for path in ([origin.path] if origin.path else origin.sources)
        if path[0] in ("messages", "tools") and path[-1] != "role"
    }
