"""Assignments: `{% set %}`, `{% set %}` blocks, and the targets of loops and `with`."""

from __future__ import annotations

from collections.abc import Sequence

from jinja2 import nodes

from turnwise.engine.compiler.calls import CallCompiler
from turnwise.engine.compiler.codegen import Code, Kind, join_pairs
from turnwise.engine.compiler.context import CompilerPart
from turnwise.engine.compiler.syntax import CompileError


class AssignmentCompiler(CompilerPart):
    """Compiles assignments to names, to attributes of namespaces, and to several targets at once."""

    calls: CallCompiler

    def visit_Assign(self, node: nodes.Assign) -> None:
        with self.variables.change_frame(assigning=True):
            code = self.context.compile(node.node)
        self.writer.lineno = node.lineno
        self.bind(node.target, self.writer.mark_value(code, node.node))

    def visit_AssignBlock(self, node: nodes.AssignBlock) -> None:
        with self.variables.open_scope(node):
            code = self.capture(node.body)
            code = code._replace(trail=self.variables.frame.within_elements(code.trail))
            if node.filter is not None:
                code = self.calls.apply_filters(node.filter, code)
        self.bind(node.target, code)

    def capture(self, body: Sequence[nodes.Node]) -> Code:
        """Return the output of a block as a value."""
        writer = self.writer
        out = writer.temporary("out")
        with writer.redirect_output(out):
            writer.line(f"{out} = []")
            with writer.block("if True:"):
                self.variables.define_names()
                self.context.compile_body(body)
        return writer.store_pair(f"capture_output(rt, {out})")

    def bind(self, target: nodes.Node, code: Code) -> None:
        """Assign a value to a target of any form."""
        if isinstance(target, nodes.Name):
            self._bind_name(target, code)
        elif isinstance(target, nodes.NSRef):
            self._bind_attribute(target, code)
        elif isinstance(target, (nodes.Tuple, nodes.List)):
            self._unpack(target, code)
        else:
            raise CompileError(f"cannot assign to {type(target).__name__}", target.lineno)

    def _bind_name(self, target: nodes.Name, code: Code) -> None:
        writer = self.writer
        variable = self.variables.read(target.name)
        for waiting in writer.pending:
            # Output that waits may still use the old value.
            if waiting.kind is not Kind.LITERAL and variable.value in waiting.value:
                writer.flush()
                break
        assignment = f"{variable.trail} = {code.trail}"
        if code.value != variable.value:
            assignment = f"{variable.value} = {code.value}; {assignment}"
        writer.line(assignment)
        self.variables.invalidate(variable.value)
        self.variables.macros.pop(target.name, None)

    def _bind_attribute(self, target: nodes.NSRef, code: Code) -> None:
        writer = self.writer
        writer.flush()  # output that waits may be the namespace, with its old attribute
        namespace = self.variables.read(target.name).value
        writer.line(f"assign_attribute({namespace}, {target.attr!r}, {code.pair})")
        writer.reads.forget_changeable()

    def _unpack(self, target: nodes.Tuple | nodes.List, code: Code) -> None:
        writer = self.writer
        parts = [writer.new_pair() for _ in target.items]
        writer.line(f"{join_pairs(parts)}= unpack_values(rt, {code.pair}, {len(parts)})")
        for item, part in zip(target.items, parts, strict=True):
            self.bind(item, part)
