"""PlaceFinder: where in a template something was written, or where the template decided not to write it.

A character was written by the text of the template that it is in, or by the expression that pieces know
(`Piece.expression`). For text that is missing, `DecisionSearch` finds the condition that kept it from being
written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property

from jinja2 import nodes

from turnwise.analysis.conversations import Probe
from turnwise.analysis.counterexample import RenderOutcome
from turnwise.engine.compiler.syntax import normalise_newlines, parse, unpack_position
from turnwise.engine.compiler.tree import find_nodes
from turnwise.engine.provenance.expressions import Position, find_span
from turnwise.engine.provenance.rendering import Origin, Piece, Rendering
from turnwise.engine.renderer import Renderer
from turnwise.errors import TemplateError
from turnwise.evidence.checks.decisions import DecisionSearch
from turnwise.evidence.checks.findings import Place

MISSING = re.compile(r"has no attribute '(\w+)'")
BLOCK_TAG = re.compile(
    r"\{%[-+]?\s*(?:(if|for|macro|call|filter|generation|set\s+\w+\s*[-+]?%)|(end|else|elif))"
)


class PlaceFinder:
    """Finds places in one template.

    Args:
        renderer: the template, with an allowance.
        run: renders a conversation, or returns the error.
    """

    def __init__(self, renderer: Renderer, run: Callable[[Probe], RenderOutcome]) -> None:
        self._renderer = renderer
        self._run = run
        programs = (renderer.program, *renderer.named.values())
        self._texts = {program.name: normalise_newlines(program.text) for program in programs}

    def list_trees(self) -> Iterator[tuple[nodes.Template, str, str]]:
        """Yield the syntax trees of the template and of those beside it, with their texts and names."""
        for name, text in self._texts.items():
            yield parse(text, name), text, name

    @cached_property
    def decisions(self) -> DecisionSearch:
        """Finds what keeps a text from being written."""
        return DecisionSearch(self._renderer)

    def program_name(self, probe: Probe) -> str:
        """Return the name of the program that renders a probe."""
        tool_use = self._renderer.named.get("tool_use")
        return tool_use.name if probe.tools is not None and tool_use else self._renderer.name

    def by_position(self, line: int, column: int, name: str | None = None) -> Place:
        """Return the place at a position of the template, or of one beside it."""
        name = name or self._renderer.name
        return make_place(name, self._texts.get(name, ""), line, column)

    def of_node(self, node: nodes.Node, name: str) -> Place:
        """Return the place of a node of a syntax tree."""
        return self.by_position(*unpack_position(node.lineno), name)

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
        return [unpack_position(line) for read, line in list_read_items(tree) if read == key]

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
            is_constant = (piece.origin.line, piece.origin.column) in self._constants
            if index < start + len(piece.text) and piece.origin.kind == "template":
                if span is not None and span.expression is not None and is_constant:
                    break
                return self._place_in_text(piece, index - start, self.program_name(probe))
            start += len(piece.text)
            if index < start:
                break
        return self._place_of(probe, span.expression) if span is not None else None

    def after(self, probe: Probe, index: int) -> Place | None:
        """Return where the text is missing that should close what begins with a character.

        That is where its content is written, if both are in one line, else the end of the branch, loop or macro that
        both are in.
        """
        outcome, opening = self._run(probe), self.at(probe, index)
        if opening is None or not isinstance(outcome, Rendering):
            return None
        index = max(outcome.text.find(">", index), index)  # of `<function=name>`
        contents = [span for span in outcome.spans(_is_content) if span[0] > index]
        start, end = contents[0] if contents else (index, index)
        content = self.at(probe, start) or opening
        following = self.at(probe, end) or opening
        if content.line < opening.line:  # in a macro of its own
            content = self.at(probe, start, caller=True) or opening
        if opening.line in (content.line, following.line):
            return opening
        line = _find_end(self._texts[opening.name], opening.line, content.line)
        return self.by_position(line, 1, opening.name)

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

    @cached_property
    def _constants(self) -> set[Position]:
        """Where the values of names begin that the template sets once: what counts is where these are written."""
        return {
            unpack_position(one.node.lineno)
            for tree, _, _ in self.list_trees()
            for one in tree.body
            if isinstance(one, nodes.Assign) and isinstance(one.node, nodes.Const)
        }

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
            for tree, _, program in self.list_trees()
            for name in find_nodes(tree, nodes.Name)
            if name.name == variable and name.ctx == "load"
        ]
        return self.by_position(*unpack_position(found[-1][0]), found[-1][1]) if found else None

    def of_constant(self, value: str) -> Place | None:
        """Return where the template has a text in quotes for the first time."""
        for tree, _, program in self.list_trees():
            for one in find_nodes(tree, nodes.Const):
                if one.value == value:
                    return self.by_position(*unpack_position(one.lineno), program)
        return None

    def of_decision(self, probe: Probe, *path: str | int) -> Place | None:
        """Return what kept a field of a message from being written, else where messages are written."""
        name = self.program_name(probe)
        message = probe.messages[int(path[1])]
        alone = [one for one in probe.messages if one is message or one["role"] != message["role"]]
        plain = replace(probe, tools=None, messages=alone)
        usual = ("messages", alone.index(message), *path[2:])
        turn = self.of_field(plain, *usual, caller=True)
        found = self.decisions.find(name, probe, path, turn and (turn.line, turn.column))
        if found is not None:
            return self.by_position(*found, name)
        if turn is None and path[2:3] == ("tool_calls",) and len(path) > 3:
            alone[int(usual[1])] = {**message, "tool_calls": [message["tool_calls"][path[3]]]}
            turn = self.of_field(plain, *usual[:3], 0)  # where the call would be written alone
        return (
            turn or self.of_field(probe, *path[:2], caller=True) or self.of_field(probe, "messages")
        )


def _is_content(origin: Origin) -> bool:
    return origin.kind != "template" and (origin.path or ("",))[-1] != "role"


def _find_end(source: str, first: int, last: int) -> int:
    """Return the line of the tag that ends the innermost block which two lines are in; the first one, if none does."""
    before = "\n".join(source.split("\n")[:first])
    depth = 0
    for tag in BLOCK_TAG.finditer(source, len(before)):
        line = source.count("\n", 0, tag.start()) + 1
        if not tag[1] and not depth and line > last:
            return line
        depth = max(depth + (1 if tag[1] else -(tag[2] == "end")), 0)
    return first


def list_read_items(tree: nodes.Template) -> Iterator[tuple[str, int]]:
    """Yield the keys that a template reads as attributes or items, and where."""
    for named in find_nodes(tree, nodes.Getattr):
        yield named.attr, named.lineno
    for item in find_nodes(tree, nodes.Getitem):
        if isinstance(item.arg, nodes.Const):
            yield str(item.arg.value), item.lineno


def make_place(name: str, text: str, line: int, column: int) -> Place:
    """Return a place in a template."""
    lines = text.split("\n")
    return Place(name, line, column, lines[line - 1] if 0 < line <= len(lines) else "")
