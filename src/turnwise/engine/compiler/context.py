"""State that all parts of the compiler share, and the dispatch of nodes to the part that compiles them.

A part (`CompilerPart`) has a method `visit_Filter`, `visit_If` ... for each node type of jinja2 that it compiles. An
expression is compiled by `compile(node)`, which writes the lines it needs and returns a `Code`. With `trail=False`
(conditions, comparisons) nothing is spent on trails. Frequent and cheap operations become plain Python: a field of a
dict, a comparison with a constant, a test. Everything else is a call into the runtime.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jinja2 import nodes

from turnwise.engine.compiler.codegen import Code, CodeWriter
from turnwise.engine.compiler.cost import StepCosts
from turnwise.engine.compiler.scopes import Frame, Variables
from turnwise.engine.compiler.syntax import CompileError
from turnwise.engine.compiler.tree import Body, walk

TAGS = {"ScopedEvalContextModifier": "autoescape", "FromImport": "from ... import"}


class CompileContext:
    """The writer, the variables and the costs of one program, all nodes of its tree, and the parts of the compiler."""

    def __init__(self, tree: nodes.Template, shadowed: frozenset[str]) -> None:
        self.writer = CodeWriter()
        self.nodes = list(walk(tree))
        self.variables = Variables(self.writer, self.nodes, shadowed)
        self.costs = StepCosts()
        self.parts: list[CompilerPart] = []
        self._visitors: dict[type, Callable[..., Any]] = {}

    def release_parts(self) -> None:
        """Forget the parts: they hold this context, and large texts would wait for the garbage collector."""
        self.parts.clear()
        self._visitors.clear()

    def _visit(self, node: nodes.Node, **options: bool) -> Any:
        self.writer.lineno = node.lineno or self.writer.lineno
        kind = type(node)
        if kind not in self._visitors:
            method = f"visit_{kind.__name__}"
            visitors = [getattr(part, method) for part in self.parts if hasattr(part, method)]
            if not visitors:
                tag = TAGS.get(kind.__name__, kind.__name__.lower())
                raise CompileError(f"'{tag}' is not part of chat templates", node.lineno)
            self._visitors[kind] = visitors[0]
        return self._visitors[kind](node, **options)

    def compile(self, node: nodes.Node, trail: bool = True) -> Code:
        """Write the lines that an expression needs, and return the code of its value."""
        code: Code = self._visit(node, trail=trail)
        return code

    def compile_value(self, node: nodes.Node) -> str:
        """Return the Python expression for a value whose trail is not needed, such as a condition."""
        return self.compile(node, trail=False).value

    def compile_body(self, body: Body) -> None:
        """Write the lines of some statements."""
        for node in body:
            self._visit(node)

    def compile_scope(self, body: Body, frame: Frame) -> None:
        """Write the lines of a scope, after its names got their first values."""
        with self.variables.use_frame(frame):
            self.variables.define_names()
            self.compile_body(body)


class CompilerPart:
    """A part of the compiler: methods `visit_...` for the nodes that it compiles.

    Args:
        context: the state that all parts share.
        others: the parts that it calls, by the names that it declares.
    """

    def __init__(self, context: CompileContext, **others: Any) -> None:
        self.context = context
        self.writer = context.writer
        self.variables = context.variables
        self.compile = context.compile
        self.compile_value = context.compile_value
        vars(self).update(others)
