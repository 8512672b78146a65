"""State that all parts of the compiler share, and the dispatch of nodes to the part that compiles them.

An expression is compiled by `compile(node)`, which writes the lines it needs and returns a `Code`. With
`trail=False` (conditions, comparisons) nothing is spent on trails. Frequent and cheap operations become plain Python:
a field of a dict, a comparison with a constant, a test. Everything else is a call into the runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from jinja2 import nodes

from turnwise.engine.compiler.codegen import Code, CodeWriter
from turnwise.engine.compiler.scopes import CompileError, Frame, Variables

ExpressionHandlers = dict[type, Callable[..., Code]]  # called with node, trail
StatementHandlers = dict[type, Callable[..., None]]  # called with node
TAGS = {"ScopedEvalContextModifier": "autoescape", "FromImport": "from ... import"}


class CompileContext:
    """The writer and the variables of one program, and the handler of each node type."""

    def __init__(self, tree: nodes.Template, shadowed: frozenset[str]) -> None:
        self.writer = CodeWriter()
        self.variables = Variables(self.writer, tree, shadowed)
        self.expressions: ExpressionHandlers = {}
        self.statements: StatementHandlers = {}

    def compile(self, node: nodes.Node, trail: bool = True) -> Code:
        """Write the lines that an expression needs, and return the code of its value."""
        self.writer.lineno = node.lineno or self.writer.lineno
        handler = self.expressions.get(type(node))
        if handler is None:
            raise CompileError(f"{type(node).__name__} is not part of chat templates", node.lineno)
        return handler(node, trail)

    def compile_value(self, node: nodes.Node) -> str:
        """Return the Python expression for a value whose trail is not needed, such as a condition."""
        return self.compile(node, trail=False).value

    def compile_body(self, body: Iterable[nodes.Node]) -> None:
        """Write the lines of some statements."""
        for node in body:
            self.writer.lineno = node.lineno or self.writer.lineno
            handler = self.statements.get(type(node))
            if handler is None:
                name = type(node).__name__
                tag = TAGS.get(name, name.lower())
                raise CompileError(f"'{tag}' is not part of chat templates", node.lineno)
            handler(node)

    def compile_scope(self, body: Iterable[nodes.Node], frame: Frame) -> None:
        """Write the lines of a scope, after its names got their first values."""
        with self.variables.use_frame(frame):
            self.variables.define_names()
            self.compile_body(body)
