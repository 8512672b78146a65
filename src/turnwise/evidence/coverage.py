"""Which branches of two templates were reached while they were compared.

"Equal" is worth as much as the conversations that were tried. `Coverage` counts the branches of both templates and
lists those that no conversation took, with their places and their source, so that a reader can tell whether they
matter: a message of an error, a role that nobody uses, or half of the template.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from turnwise.engine.compiler.branches import LOOP, LOOP_ELSE, MACRO, OPERAND, BranchPoint
from turnwise.engine.compiler.syntax import normalise_newlines
from turnwise.engine.program import Program, WatchedProgram
from turnwise.engine.renderer import Renderer
from turnwise.errors import TemplateLimitError

MAX_SOURCE_LENGTH = 60  # characters of the template that are shown
MAX_SHOWN = 8  # branches that `str()` of a coverage lists
RUNS = {LOOP: "the body of", LOOP_ELSE: "the else of", MACRO: "the body of"}


class WatchedRenderer:
    """A template whose programs note which of their branches run.

    Args:
        renderer: The template.

    Attributes:
        renderer: The same with such programs.
        programs: They.
        is_counted: False if a program is too large for Python with its notes, and runs without.
    """

    def __init__(self, renderer: Renderer) -> None:
        self.programs: list[WatchedProgram] = []
        self.is_counted = True
        self.renderer = renderer.with_programs(self._watch)

    def _watch(self, program: Program) -> Program:
        try:
            watched = WatchedProgram(program.text, program.name, program.shadowed)
        except TemplateLimitError:
            self.is_counted = False
            return program
        self.programs.append(watched)
        return watched


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch that no conversation took.

    Attributes:
        template: "a" or "b".
        line: The line of its condition in the Jinja text, counted from 1.
        column: The column.
        source: The text of the template from there to the end of the line or tag.
        kind: "if", "inline if", "loop if", "operand", "loop", "loop else" or "macro".
        outcome: What never happened: True if the condition was never true, or the body never ran; False if the
            condition was never false.
    """

    template: str
    line: int
    column: int
    source: str
    kind: str
    outcome: bool

    def __str__(self) -> str:
        place = f"{self.template}:{self.line}:{self.column}"
        if self.kind in RUNS:
            return f"{place} never runs {RUNS[self.kind]} {self.source}"
        part = "an operand is " if self.kind == OPERAND else ""
        return f"{place} {part}never {'true' if self.outcome else 'false'}: {self.source}"


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of two templates the conversations reached.

    Attributes:
        reached: The number of branches that some conversation took.
        total: The number of all branches.
        unreached: Those that none took, in the order of the templates.
        uncounted: "a", "b" or both, if a template is too large to count its branches.
    """

    reached: int
    total: int
    unreached: tuple[Branch, ...] = ()
    uncounted: tuple[str, ...] = ()

    @property
    def percent(self) -> float:
        """The share of the branches that were reached."""
        return 100.0 * self.reached / self.total if self.total else 100.0

    def __str__(self) -> str:
        lines = [f"{self.reached} of {self.total} branches reached"]
        lines += [f"the branches of {name} were not counted" for name in self.uncounted]
        # an operand that never decides is mostly part of a condition that is listed too
        listed = sorted(self.unreached, key=lambda branch: branch.kind == OPERAND)
        lines += [f"  {branch}" for branch in listed[:MAX_SHOWN]]
        if len(listed) > MAX_SHOWN:
            lines.append(f"  and {len(listed) - MAX_SHOWN} more")
        return "\n".join(lines)


def measure_coverage(
    programs: Iterable[tuple[str, WatchedProgram]], uncounted: Iterable[str] = ()
) -> Coverage:
    """Return which branches of programs ran; each comes with the name of its template."""
    reached = total = 0
    unreached = []
    for name, program in programs:
        lines = normalise_newlines(program.text).split("\n")
        for number, point in enumerate(program.points):
            for outcome in (True, False) if point.is_condition else (True,):
                total += 1
                if outcome_number(number, outcome) in program.taken:
                    reached += 1
                else:
                    source = _read_source(lines, point)
                    place = (point.line, point.column)
                    unreached.append(Branch(name, *place, source, point.kind, outcome))
    return Coverage(reached, total, tuple(unreached), tuple(uncounted))


def outcome_number(point: int, outcome: bool) -> int:
    """Return the number by which a program notes an outcome of a point."""
    return 2 * point + (not outcome)


def _read_source(lines: list[str], point: BranchPoint) -> str:
    """Return the text of a template from a condition on, to the end of the line or tag."""
    text = lines[point.line - 1][point.column - 1 :]
    ends = [end for end in (text.find("%}"), text.find("}}")) if end >= 0]
    text = text[: min(ends, default=len(text))].rstrip(" -+")
    return text if len(text) <= MAX_SOURCE_LENGTH else f"{text[:MAX_SOURCE_LENGTH]}…"
