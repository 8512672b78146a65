"""Count the branches of a template that ran: a separate way to compile it, which ordinary rendering does not pay for.

Every condition of a syntax tree is wrapped in a node that notes its outcome: the tests of `if`, `elif`,
inline `if` and filtered loops, and every operand of `and` and `or`. The body and the `else` of a loop and the body of a
macro begin with a note that they ran. So the branches of

    {% if tools and not quiet %}A{% else %}B{% endif %}

are the two outcomes of the whole test and of each of its operands. An outcome is a number; the generated code adds it
to a set, with one more line for each condition.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from jinja2 import nodes

from turnwise.engine.compiler.codegen import Code
from turnwise.engine.compiler.context import CompilerPart
from turnwise.engine.compiler.syntax import unpack_position
from turnwise.engine.compiler.tree import find_start, walk

NOTE = "note_branch"  # what generated code calls with the number of an outcome
OPERAND = "operand"
LOOP, LOOP_ELSE, MACRO = "loop", "loop else", "macro"
CONDITIONS = {nodes.If: "if", nodes.CondExpr: "inline if", nodes.For: "loop if"}


class BranchPoint(NamedTuple):
    """A place of a template where it branches.

    Attributes:
        kind: "if", "inline if", "loop if", "operand", "loop", "loop else" or "macro".
        node: The condition, or the statement whose body runs or not.
        line: Its line in the template, counted from 1.
        column: Its column.
    """

    kind: str
    node: nodes.Node
    line: int
    column: int

    @property
    def is_condition(self) -> bool:
        """True if it has two outcomes; a body only runs or not."""
        return self.kind not in (LOOP, LOOP_ELSE, MACRO)


class WatchedTree:
    """A syntax tree in which every condition is watched.

    Args:
        tree: The tree; it is changed.

    Attributes:
        points: Where it branches; point `i` has the outcomes `2 * i` (true, or it ran) and `2 * i + 1` (false).
    """

    def __init__(self, tree: nodes.Template) -> None:
        self.points: list[BranchPoint] = []
        for node in sorted(walk(tree), key=lambda node: node.lineno or 0):
            self._watch(node)

    def _watch(self, node: nodes.Node) -> None:
        if isinstance(node, (nodes.If, nodes.CondExpr, nodes.For)) and node.test is not None:
            node.test = self._wrap(node.test, CONDITIONS[type(node)])
        if isinstance(node, (nodes.And, nodes.Or)):
            node.left = self._wrap(node.left, OPERAND)
            node.right = self._wrap(node.right, OPERAND)
        elif isinstance(node, nodes.For):
            node.body.insert(0, self._note_run(node, LOOP))
            if node.else_:
                node.else_.insert(0, self._note_run(node, LOOP_ELSE))
        elif isinstance(node, nodes.Macro):
            node.body.insert(0, self._note_run(node, MACRO))

    def _wrap(self, node: Any, kind: str) -> Any:
        """Return a node that evaluates an expression and notes whether it is true."""
        # The operands of another `and` are watched themselves; `value or ''` asks nothing about its second part.
        is_watched = isinstance(node, (nodes.And, nodes.Or))
        is_fallback = isinstance(node, nodes.Const) or not getattr(node, "items", True)
        if kind == OPERAND and (is_watched or is_fallback):
            return node
        return self._mark(node, kind, node)

    def _note_run(self, node: nodes.Node, kind: str) -> nodes.Stmt:
        always = nodes.Const(True, lineno=node.lineno)
        return nodes.ExprStmt(self._mark(always, kind, node), lineno=node.lineno)

    def _mark(self, expression: nodes.Expr, kind: str, node: nodes.Node) -> nodes.Node:
        start = find_start(node) if isinstance(node, nodes.Expr) else node.lineno
        # jinja2 allows no node types of our own; a template has a Keyword only in a call, which compiles it
        marked = nodes.Keyword(str(len(self.points)), expression, lineno=node.lineno)
        self.points.append(BranchPoint(kind, node, *unpack_position(start)))
        return marked


class BranchCompiler(CompilerPart):
    """Compiles the nodes that note outcomes: the number of a point, and the condition."""

    def visit_Keyword(self, node: nodes.Keyword, trail: bool) -> Code:
        code = self.writer.name_value(self.compile(node.value, trail))
        outcome = 2 * int(node.key)
        self.writer.line(f"{NOTE}({outcome} if {code.value} else {outcome + 1})")
        return code
