"""PlaceFinder: where in a template something was written, or where the template decided not to write it.

A character was written by the text of the template that it is in, or by the expression that pieces know
(`Piece.expression`). For text that is missing, `BranchWatch` finds out which conditions had another outcome than in a
conversation in which the text was written.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

from jinja2 import nodes

from turnwise.analysis.conversations import MessageDict, Probe
from turnwise.analysis.counterexample import RenderOutcome, try_render
from turnwise.engine.compiler.branches import OPERAND, BranchPoint
from turnwise.engine.compiler.syntax import normalise_newlines, parse, unpack_position
from turnwise.engine.compiler.tree import find_nodes, walk
from turnwise.engine.program import WatchedProgram
from turnwise.engine.provenance.expressions import Position, find_span
from turnwise.engine.provenance.rendering import Piece, Rendering
from turnwise.engine.renderer import Renderer
from turnwise.errors import TemplateError
from turnwise.evidence.checks.findings import Place
from turnwise.evidence.coverage import WatchedRenderer
from turnwise.messages import REASONING_KEYS

MISSING = re.compile(r"has no attribute '(\w+)'")
TEXT_FIELDS = ("content", "tool_calls", "function_call", *REASONING_KEYS)


class PlaceFinder:
    """Finds places in one template.

    Args:
        renderer: the template, with an allowance.
        run: renders a conversation, or returns the error.
        plain: a conversation that ends with a user message, which the template accepts.
    """

    def __init__(
        self, renderer: Renderer, run: Callable[[Probe], RenderOutcome], plain: Probe
    ) -> None:
        self._renderer = renderer
        self._run = run
        self._plain = plain
        programs = (renderer.program, *renderer.named.values())
        self._texts = {program.name: normalise_newlines(program.text) for program in programs}

    @cached_property
    def branches(self) -> BranchWatch:
        """Knows the conditions that two conversations do not share."""
        return BranchWatch(self._renderer)

    def program_name(self, probe: Probe) -> str:
        """Return the name of the program that renders a probe."""
        tool_use = self._renderer.named.get("tool_use")
        return tool_use.name if probe.tools is not None and tool_use else self._renderer.name

    def by_position(self, line: int, column: int, name: str | None = None) -> Place:
        """Return the place at a position of the template, or of one beside it."""
        name = name or self._renderer.name
        return make_place(name, self._texts.get(name, ""), line, column)

    def of_error(self, outcome: RenderOutcome) -> Place | None:
        """Return the place of an error."""
        if not isinstance(outcome, TemplateError) or outcome.line is None:
            return None
        missing = MISSING.search(outcome.message)
        read = self._find_reads(outcome.name, missing[1]) if missing else []
        if len(read) == 1:  # a value that was read there and used here
            return self.by_position(*read[0], outcome.name)
        return Place(outcome.name, outcome.line, outcome.column or 1, outcome.source_line or "")

    def _find_reads(self, name: str, key: str) -> list[Position]:
        tree = parse(self._texts.get(name, ""), name)
        found = [one.lineno for one in find_nodes(tree, nodes.Getattr) if one.attr == key]
        for item in find_nodes(tree, nodes.Getitem):
            if isinstance(item.arg, nodes.Const) and item.arg.value == key:
                found.append(item.lineno)
        return [unpack_position(line) for line in found]

    def at(self, probe: Probe, index: int, caller: bool = False) -> Place | None:
        """Return the place that wrote a character; with `caller`, as for `of_field`."""
        outcome = self._run(probe)
        if not isinstance(outcome, Rendering):
            return None
        start, index = 0, min(index, len(outcome.text) - 1)
        span = find_span(outcome.writers, index)
        if caller and span is not None and span.caller is not None:
            return self._place_of(probe, span.caller)
        for piece in outcome.pieces:
            if index < start + len(piece.text) and piece.origin.kind == "template":
                return self._place_in_text(piece, index - start, self.program_name(probe))
            start += len(piece.text)
            if index < start:
                break
        return self._place_of(probe, span.expression) if span is not None else None

    def of_field(self, probe: Probe, *path: str | int, caller: bool = False) -> Place | None:
        """Return the place that first wrote a field, or what was computed from it.

        With `caller`, a place inside of a macro is that of the expression which called it.
        """
        outcome = self._run(probe)
        if not isinstance(outcome, Rendering):
            return None
        start = 0
        for piece in outcome.pieces:
            paths = [piece.origin.path] if piece.origin.path else piece.origin.sources
            if any(found[: len(path)] == path for found in paths):
                span = find_span(outcome.writers, start)
                if span is not None:
                    return self._place_of(probe, span.caller if caller else span.expression)
            start += len(piece.text)
        return None

    def _place_of(self, probe: Probe, position: Position | None) -> Place | None:
        return None if position is None else self.by_position(*position, self.program_name(probe))

    def _place_in_text(self, piece: Piece, offset: int, name: str) -> Place:
        """Return the place of a character of the template's own text, which may have several lines."""
        line, column = piece.origin.line or 1, piece.origin.column or 1
        before = piece.text[:offset]
        newlines = before.count("\n")
        lines = self._texts.get(name, "").split("\n")
        source = "\n".join(lines[line - 1 : line + newlines])[column - 1 :]
        if newlines and source.startswith(before):
            line, column = line + newlines, len(before) - before.rfind("\n")
        elif source.startswith(before):
            column += len(before)
        return self.by_position(line, column, name)

    def of_variable(self, variable: str) -> Place | None:
        """Return where the template reads a variable for the last time."""
        found = [
            (name.lineno, program)
            for program, text in self._texts.items()
            for name in find_nodes(parse(text, program), nodes.Name)
            if name.name == variable and name.ctx == "load"
        ]
        return self.by_position(*unpack_position(found[-1][0]), found[-1][1]) if found else None

    @cached_property
    def of_roles(self) -> Place | None:
        """Where the template distinguishes the roles of messages."""
        probe = self._plain
        written = self.of_field(probe, "messages", len(probe.messages) - 1, "content", caller=True)
        if written is None or written.name != self._renderer.name:
            return written
        tree = parse(self._renderer.text, self._renderer.name)
        found = find_enclosing_choice(tree, written.line, written.column)
        return self.by_position(*found) if found else written

    def of_loop(self, place: Place | None, field: str) -> Place | None:
        """Return the innermost loop over a field that a place is in; the place itself, if it is in none."""
        if place is None:
            return None
        tree = parse(self._texts[place.name], place.name)
        loops = [
            loop
            for loop in find_nodes(tree, nodes.For)
            if (place.line, place.column) in _list_positions(*loop.body) and field in str(loop.iter)
        ]
        return self.by_position(*unpack_position(loops[-1].lineno), place.name) if loops else place

    def of_decision(self, probe: Probe, message: MessageDict, field: str) -> Place | None:
        """Return the condition that decided about a field, else where the roles are distinguished.

        It is found by comparing the branches with those of the same conversation without the field; without the whole
        message, if it has no other text.
        """
        rest = {name: value for name, value in message.items() if name != field}
        has_more = any(value for name, value in rest.items() if name in TEXT_FIELDS)
        others = []
        for one in probe.messages:
            if one != message:
                others.append(one)
            elif has_more:
                others.append(rest)
        loop = self._find_skipping_loop(probe) if message == probe.messages[0] else None
        if loop is not None:
            return loop
        without = replace(probe, messages=others)
        return self.branches.find_decision(probe, without) or self.of_roles

    def _find_skipping_loop(self, probe: Probe) -> Place | None:
        """Return the loop over messages that leaves out the first; None if something is written for it."""
        outcome = self._run(probe)
        if not isinstance(outcome, Rendering):
            return None
        if any(piece.origin.message == 0 for piece in outcome.pieces):
            return None
        roles = [message["role"] for message in probe.messages]
        other = roles.index(roles[0], 1) if roles[0] in roles[1:] else 0
        written = self.of_field(probe, "messages", other, "content", caller=True)
        return self.of_loop(written, "")


class BranchWatch(WatchedRenderer):
    """Compares which branches two conversations take."""

    def find_decision(self, probe: Probe, without: Probe) -> Place | None:
        """Return the condition that decided about something that the other conversation lacks.

        Conditions are compared that have an outcome in the first conversation only. The first of them that is true
        begins the branch that the template took; one inside of that branch which is false decided against it, else the
        last that is true. If none is true, the last that is false is where the template ran out of branches.
        """
        found, before = self._run(probe), self._run(without)
        for program, ours, theirs in zip(self.programs, found, before, strict=True):
            true, false = _new_points(program, ours - theirs)
            if not true and not false:
                continue
            chosen = true[0] if true else false[-1]
            whole = [point for point in false if point.kind != OPERAND]
            inside = [point for point in whole if _is_inside(program, point, chosen)]
            further = [point for point in true if _is_inside(program, point, chosen)]
            place = inside[-1] if true and inside else [chosen, *further][-1]
            return make_place(
                program.name, normalise_newlines(program.text), place.line, place.column
            )
        return None

    def _run(self, probe: Probe) -> list[frozenset[int]]:
        for program in self.programs:
            program.taken.clear()
        try_render(self.renderer, probe)
        return [frozenset(program.taken) for program in self.programs]


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
    for node in find_nodes(parse(program.text, program.name), nodes.If):
        if place in _list_positions(node.test):
            body = _list_positions(*node.body)
            return bool(body) and min(body) <= (point.line, point.column) <= max(body)
    return False


def find_enclosing_choice(tree: nodes.Template, line: int, column: int) -> Position | None:
    """Return the position of the `if` directly inside of a loop that an expression lies in, else that of the loop.

    In a loop over messages that is where the template distinguishes their roles.
    """
    for loop in find_nodes(tree, nodes.For):
        for statement in loop.body:
            if (line, column) in _list_positions(statement):
                chosen = statement if isinstance(statement, nodes.If) else loop
                return unpack_position(chosen.lineno)
    return None


def _list_positions(*roots: nodes.Node) -> list[Position]:
    return [unpack_position(node.lineno) for node in walk(*roots) if node.lineno]


def make_place(name: str, text: str, line: int, column: int) -> Place:
    """Return a place in a template."""
    lines = text.split("\n")
    return Place(name, line, column, lines[line - 1] if 0 < line <= len(lines) else "")
