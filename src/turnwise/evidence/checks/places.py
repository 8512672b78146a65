"""PlaceFinder: where in a template something was written, or where the template decided not to write it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

from turnwise.analysis.conversations import MessageDict, Probe
from turnwise.analysis.counterexample import RenderOutcome
from turnwise.engine.compiler.syntax import parse
from turnwise.engine.provenance.rendering import Rendering
from turnwise.engine.renderer import Renderer
from turnwise.evidence.checks.findings import Place
from turnwise.evidence.checks.tracing import BranchWatch, Tracer, find_enclosing_choice
from turnwise.messages import REASONING_KEYS

TEXT_FIELDS = ("content", "tool_calls", "function_call", *REASONING_KEYS)


class PlaceFinder:
    """Finds places in one template.

    Args:
        renderer: the template, with an allowance.
        run: renders a conversation, or returns the error.
        plain: a conversation that ends with a user message, which the template takes.
    """

    def __init__(
        self, renderer: Renderer, run: Callable[[Probe], RenderOutcome], plain: Probe
    ) -> None:
        self._renderer = renderer
        self._run = run
        self._plain = plain

    @cached_property
    def tracer(self) -> Tracer:
        """Knows which expression wrote which character."""
        return Tracer(self._renderer)

    @cached_property
    def branches(self) -> BranchWatch:
        """Knows the conditions that two conversations do not share."""
        return BranchWatch(self._renderer)

    def by_position(self, line: int, column: int, name: str | None = None) -> Place:
        """Return the place at a position of the template, or of one beside it."""
        return self.tracer.place(line, column, name)

    def of_error(self, outcome: RenderOutcome) -> Place | None:
        """Return the place of an error."""
        return None if isinstance(outcome, Rendering) else self.tracer.of_error(outcome)

    def at(self, probe: Probe, index: int) -> Place | None:
        """Return the place that wrote a character."""
        outcome = self._run(probe)
        return self.tracer.at(probe, outcome, index) if isinstance(outcome, Rendering) else None

    def of_field(self, probe: Probe, *path: str | int, caller: bool = False) -> Place | None:
        """Return the place that wrote a field; with `caller`, where the macro was called that wrote it."""
        outcome = self._run(probe)
        if not isinstance(outcome, Rendering):
            return None
        return self.tracer.of_path(probe, outcome, path, caller)

    @cached_property
    def of_roles(self) -> Place | None:
        """Where the template tells the roles of messages apart."""
        probe = self._plain
        written = self.of_field(probe, "messages", len(probe.messages) - 1, "content", caller=True)
        if written is None or written.name != self._renderer.name:
            return written
        tree = parse(self._renderer.text, self._renderer.name)
        found = find_enclosing_choice(tree, written.line, written.column)
        return self.tracer.place(*found) if found else written

    def of_decision(self, probe: Probe, message: MessageDict, field: str) -> Place | None:
        """Return the condition that decided what becomes of a field, else where the roles are told apart.

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
        without = replace(probe, messages=others)
        return self.branches.find_decision(probe, without) or self.of_roles
