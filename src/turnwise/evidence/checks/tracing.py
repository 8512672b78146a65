"""Find the place in a template that wrote a character, or that decided not to.

Pieces know the place of the template's own texts, but not of the expression that wrote a field of a message. So the
template is compiled once more with a mark before and behind each expression that it outputs, and each operand of one
that joins texts; the marks are private characters that no template writes. Rendered with marks, each character lies in
the innermost expression that wrote it.
A template may look at what it wrote (`trim`, a comparison), and marks could change the answer. If the texts without
the marks are not the same, the neighbouring text of the template tells the place instead.

`BranchWatch` is for text that is missing: which conditions had another outcome than in a conversation in which the text
was written?
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from jinja2 import nodes

from turnwise.analysis.conversations import Probe
from turnwise.analysis.counterexample import try_render
from turnwise.engine.branch_coverage import WatchedProgram
from turnwise.engine.compiler.branches import OPERAND, BranchPoint, list_nodes
from turnwise.engine.compiler.compiler import GeneratedCode, generate_code
from turnwise.engine.compiler.syntax import (
    normalise_newlines,
    parse,
    parse_again,
    unpack_position,
)
from turnwise.engine.program import Program
from turnwise.engine.provenance.rendering import Origin, Rendering
from turnwise.engine.renderer import Renderer
from turnwise.errors import TemplateError, TemplateLimitError
from turnwise.evidence.checks.findings import Place

OPEN, END_OF_NUMBER, CLOSE = "\U000f5a01", "\U000f5a02", "\U000f5a03"
MARKS = re.compile(f"{OPEN}(\\d+){END_OF_NUMBER}|{CLOSE}")


class OutputExpression(NamedTuple):
    """An expression that a template outputs."""

    place: Place
    is_assigned: bool  # a variable whose value was put together elsewhere


class TracedProgram(Program):
    """A template that marks where each of its output expressions begins and ends.

    Attributes:
        expressions: the expressions by their numbers.
    """

    __slots__ = ("expressions",)

    expressions: list[OutputExpression]

    def _translate(self) -> GeneratedCode:
        tree = parse_again(self.text)
        lines = normalise_newlines(self.text).split("\n")
        self.expressions = []
        targets = [node.target for node in tree.find_all(nodes.Assign)]
        targets += [node.target for node in tree.find_all(nodes.AssignBlock)]
        assigned = {
            name.name
            for target in targets
            for name in list_nodes(target)
            if isinstance(name, nodes.Name)
        }
        for node in list_nodes(tree):
            if isinstance(node, nodes.Output):
                node.nodes = list(self._mark_all(node.nodes, lines, assigned))
        return generate_code(tree, self.shadowed)

    def _mark_all(
        self, found: Sequence[nodes.Expr], lines: Sequence[str], assigned: set[str]
    ) -> Iterator[nodes.Expr]:
        for node in (operand for one in found for operand in _operands(one)):
            if isinstance(node, nodes.TemplateData):
                yield node
                continue
            start = min(part.lineno for part in list_nodes(node) if part.lineno)
            line, column = unpack_position(start)
            place = Place(self.name, line, column, line_of(lines, line))
            mark = f"{OPEN}{len(self.expressions)}{END_OF_NUMBER}"
            is_assigned = isinstance(node, nodes.Name) and node.name in assigned
            self.expressions.append(OutputExpression(place, is_assigned))
            yield nodes.TemplateData(mark, lineno=node.lineno)
            yield node
            yield nodes.TemplateData(CLOSE, lineno=node.lineno)


def _operands(node: nodes.Expr) -> Iterator[nodes.Expr]:
    """Yield the texts that an output joins with `+` or `~`; of numbers, this changes the text, which is noticed."""
    if isinstance(node, nodes.Add):
        yield from _operands(node.left)
        yield from _operands(node.right)
    elif isinstance(node, nodes.Concat):
        for one in node.nodes:
            yield from _operands(one)
    else:
        yield node


class TracedSpan(NamedTuple):
    """Characters of a rendering with one origin, written by one expression, or by the template's own text."""

    start: int
    text: str
    origin: Origin
    expression: OutputExpression | None  # the innermost
    caller: OutputExpression | None = None  # the outermost: where a macro was called


class Tracer:
    """Finds places for one template.

    Args:
        renderer: the template, with an allowance.
    """

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._lines = {
            program.name: normalise_newlines(program.text).split("\n")
            for program in (renderer.program, *renderer.named.values())
        }
        self._traced: Renderer | None = None
        self._programs: dict[str, Program] = {}
        try:
            self._traced = renderer.with_programs(self._trace)
        except TemplateLimitError:  # with its marks it is too large for Python
            self._traced = None

    def _trace(self, program: Program) -> Program:
        traced = TracedProgram(program.text, program.name, program.shadowed)
        self._programs[program.name] = traced
        return traced

    def place(self, line: int, column: int, name: str | None = None) -> Place:
        """Return a place by its position."""
        name = name or self._renderer.name
        return Place(name, line, column, line_of(self._lines.get(name, []), line))

    def program_name(self, probe: Probe) -> str:
        """Return the name of the program that renders a probe."""
        tool_use = self._renderer.named.get("tool_use")
        return tool_use.name if probe.tools is not None and tool_use else self._renderer.name

    def of_error(self, error: Exception) -> Place | None:
        """Return the place of an error of a template."""
        if not isinstance(error, TemplateError) or error.line is None:
            return None
        return Place(error.name, error.line, error.column or 1, error.source_line or "")

    def at(self, probe: Probe, rendering: Rendering, index: int) -> Place | None:
        """Return the place that wrote a character of the rendering of a probe."""
        spans = self.spans(probe, rendering)
        starts = [span.start for span in spans]
        found = bisect_right(starts, index) - 1
        return self._place_of(spans, found, index, probe) if found >= 0 else None

    def of_path(
        self, probe: Probe, rendering: Rendering, path: tuple[str | int, ...], caller: bool = False
    ) -> Place | None:
        """Return the place that wrote a field, or what was computed from it, first.

        With `caller`, a place inside of a macro is that of the expression which called it.
        """
        spans = self.spans(probe, rendering)
        for number, span in enumerate(spans):
            paths = [span.origin.path] if span.origin.path else span.origin.sources
            if any(found[: len(path)] == path for found in paths):
                if caller and span.caller is not None:
                    return span.caller.place
                return self._place_of(spans, number, span.start, probe)
        return None

    def _place_of(
        self, spans: Sequence[TracedSpan], number: int, index: int, probe: Probe
    ) -> Place | None:
        span = spans[number]
        name = self.program_name(probe)
        if span.origin.kind == "template" and span.origin.line is not None:
            return self._place_in_text(span, index, name)
        if span.expression is not None and not span.expression.is_assigned:
            return span.expression.place
        # a variable that was put together elsewhere: the template's text beside it was written there
        for near in (*reversed(spans[:number]), *spans[number + 1 :]):
            if near.origin.kind == "template" and near.origin.line and near.text.strip():
                return self._place_in_text(near, near.start + len(near.text) - 1, name)
        return span.expression.place if span.expression is not None else None

    def _place_in_text(self, span: TracedSpan, index: int, name: str) -> Place:
        """Return the place of a character of the template's own text, which may have several lines."""
        line, column = span.origin.line or 1, span.origin.column or 1
        before = span.text[: index - span.start]
        lines = self._lines.get(name, [])
        newlines = before.count("\n")
        source = "\n".join(lines[line - 1 : line + newlines])[column - 1 :]
        if newlines and source.startswith(before):
            line, column = line + newlines, len(before) - before.rfind("\n")
        elif source.startswith(before):
            column += len(before)
        return Place(name, line, column, line_of(lines, line))

    def spans(self, probe: Probe, rendering: Rendering) -> list[TracedSpan]:
        """Return the characters of a rendering with their origins and expressions."""
        if self._traced is not None:
            traced = try_render(self._traced, probe)
            if isinstance(traced, Rendering):
                spans = list(_read_marks(traced, self._expressions(probe)))
                if "".join(span.text for span in spans) == rendering.text:
                    return spans
        spans, start = [], 0
        for piece in rendering.pieces:
            spans.append(TracedSpan(start, piece.text, piece.origin, None))
            start += len(piece.text)
        return spans

    def _expressions(self, probe: Probe) -> list[OutputExpression]:
        program = self._programs.get(self.program_name(probe))
        return program.expressions if isinstance(program, TracedProgram) else []


def _read_marks(rendering: Rendering, expressions: list[OutputExpression]) -> Iterator[TracedSpan]:
    """Yield the spans of a rendering with marks, without them."""
    start = 0
    opened: list[int] = []
    for piece in rendering.pieces:
        done = 0
        for mark in (*MARKS.finditer(piece.text), None):
            text = piece.text[done : mark.start() if mark else len(piece.text)]
            if text:
                inner, outer = (opened[-1], opened[0]) if opened else (-1, -1)
                known = [
                    expressions[number] if 0 <= number < len(expressions) else None
                    for number in (inner, outer)
                ]
                yield TracedSpan(start, text, piece.origin, *known)
                start += len(text)
            if mark is None:
                break
            done = mark.end()
            if mark[1] is not None:
                opened.append(int(mark[1]))
            elif opened:
                opened.pop()


class BranchWatch:
    """Compares which branches two conversations take.

    Args:
        renderer: the template, with an allowance.
    """

    def __init__(self, renderer: Renderer) -> None:
        self._programs: list[WatchedProgram] = []
        self._renderer: Renderer | None
        try:
            self._renderer = renderer.with_programs(self._watch)
        except TemplateLimitError:  # with its notes it is too large for Python
            self._renderer = None

    def _watch(self, program: Program) -> Program:
        watched = WatchedProgram(program.text, program.name, program.shadowed)
        self._programs.append(watched)
        return watched

    def find_decision(self, probe: Probe, without: Probe) -> Place | None:
        """Return the condition that decided about something that the other conversation lacks.

        Conditions are compared that have an outcome in the first conversation only. The first of them that is true
        begins the branch that the template took; one inside of that branch which is false decided against it. If
        none is true, the last that is false is where the template ran out of branches.
        """
        if self._renderer is None:
            return None
        found, before = self._run(probe), self._run(without)
        for program, ours, theirs in zip(self._programs, found, before, strict=True):
            true, false = _new_points(program, ours - theirs)
            if not true and not false:
                continue
            chosen = true[0] if true else false[-1]
            whole = [point for point in false if point.kind != OPERAND]
            inside = [point for point in whole if _is_inside(program, point, chosen)]
            place = inside[-1] if true and inside else chosen
            lines = normalise_newlines(program.text).split("\n")
            return Place(program.name, place.line, place.column, line_of(lines, place.line))
        return None

    def _run(self, probe: Probe) -> list[frozenset[int]]:
        for program in self._programs:
            program.taken.clear()
        assert self._renderer is not None
        try_render(self._renderer, probe)
        return [frozenset(program.taken) for program in self._programs]


def _new_points(
    program: WatchedProgram, outcomes: frozenset[int]
) -> tuple[list[BranchPoint], list[BranchPoint]]:
    """Return the conditions of outcomes that are true, and those that are false, in the order of the template."""
    sides: tuple[list[BranchPoint], list[BranchPoint]] = ([], [])
    for outcome in sorted(outcomes):
        point = program.points[outcome // 2]
        if point.is_condition:
            sides[outcome % 2].append(point)
    for side in sides:
        side.sort(key=lambda point: (point.line, point.column))
    return sides


def _is_inside(program: WatchedProgram, point: BranchPoint, condition: BranchPoint) -> bool:
    """Return True if a condition is in the body of the `if` that another one belongs to."""
    place = (condition.line, condition.column)
    for node in parse(program.text, program.name).find_all(nodes.If):
        tests = [unpack_position(one.lineno) for one in list_nodes(node.test) if one.lineno]
        if place in tests:
            body = [
                unpack_position(one.lineno)
                for statement in node.body
                for one in list_nodes(statement)
                if one.lineno
            ]
            return bool(body) and min(body) <= (point.line, point.column) <= max(body)
    return False


def line_of(lines: Sequence[str], line: int) -> str:
    """Return a line, counted from 1; empty if there is none."""
    return lines[line - 1] if 0 < line <= len(lines) else ""


def find_enclosing_choice(tree: nodes.Template, line: int, column: int) -> tuple[int, int] | None:
    """Return the position of the `if` directly inside of a loop that an expression lies in, else that of the loop.

    In a loop over messages that is where the template tells their roles apart.
    """
    found = None
    for loop in tree.find_all(nodes.For):
        for statement in loop.body:
            positions = [node.lineno for node in list_nodes(statement) if node.lineno]
            if any(unpack_position(position) == (line, column) for position in positions):
                chosen = statement if isinstance(statement, nodes.If) else loop
                found = found or unpack_position(chosen.lineno)
    return found
