"""Programs that know which of their branches ran.

    program = WatchedProgram("{% if tools %}A{% else %}B{% endif %}")
    renderer = renderer.with_programs(lambda _: program)
    renderer.render([])
    program.taken          # {1}: the test of the `if` was false

Such a program writes what the ordinary one writes. It is made for one caller, who reads and clears `taken`, so it is
neither cached nor shared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnwise.engine.compiler.branches import NOTE, BranchPoint, WatchedTree
from turnwise.engine.compiler.compiler import GeneratedCode, generate_code
from turnwise.engine.compiler.syntax import parse_again
from turnwise.engine.program import FUNCTION_NAMES, Program


class WatchedProgram(Program):
    """A template that was compiled before, compiled so that it notes which of its branches run.

    Attributes:
        points: Where the template branches.
        taken: The outcomes so far: `2 * i` if point `i` was true or ran, `2 * i + 1` if it was false.

    Raises:
        TemplateLimitError: With its notes, the program is larger than Python or turnwise allows.
    """

    __slots__ = ("points", "taken")

    points: list[BranchPoint]
    taken: set[int]

    def _translate(self) -> GeneratedCode:
        watched = WatchedTree(parse_again(self.text))
        self.points = watched.points
        self.taken = set()
        generated = generate_code(watched.tree, self.shadowed, watched)
        generated.constants[NOTE] = self.taken.add
        return generated

    def shadowing(self, options: Mapping[str, Any]) -> Program:
        """Return this program: the options that shadow functions are known when it is made."""
        if FUNCTION_NAMES.intersection(options) <= self.shadowed:
            return self
        return super().shadowing(options)
