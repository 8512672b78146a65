"""Statements: output, conditions, assignments, `with`, filter blocks, `break` and `continue`.

Targets of loops are assigned here, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from jinja2 import nodes

from turnwise.engine.compiler.calls import CallCompiler
from turnwise.engine.compiler.codegen import Code, Kind, join_pairs, text_condition
from turnwise.engine.compiler.context import CompilerPart
from turnwise.engine.compiler.syntax import CompileError
from turnwise.engine.compiler.tree import flatten_chain, walk


class StatementCompiler(CompilerPart):
    """Compiles statements, except for loops and macros."""

    calls: CallCompiler

    # ---- output ----

    def visit_Output(self, node: nodes.Output) -> None:
        for child in node.nodes:
            self.writer.lineno = child.lineno or self.writer.lineno
            # Only slices differ between constant expressions and others.
            with self.variables.change_frame(constant=_is_constant_slice(child)):
                self._output(child)

    def _output(self, node: nodes.Node) -> None:
        """Output an expression; sums, ternaries and macros are not joined to one text before."""
        if isinstance(node, nodes.Add):
            self._output_sum(node)
        elif isinstance(node, nodes.Concat):
            for part in node.nodes:
                self._output(part)
        elif isinstance(node, nodes.CondExpr) and not isinstance(node.expr2, nodes.CondExpr):
            with self.variables.change_frame(conditional=True):
                with self.writer.block(f"if {self.compile_value(node.test)}:"):
                    self._output(node.expr1)
                if node.expr2 is not None:
                    with self.writer.block("else:"):
                        self._output(node.expr2)
        elif isinstance(node, nodes.Call) and (call := self.calls.compile_macro_call(node)):
            self.writer.output_call(call, node)
            self.writer.reads.forget_changeable()
        else:
            self.writer.queue_output(self.compile(node), node)

    def _output_sum(self, node: nodes.Add) -> None:
        """Output `a + b + c` part by part if every part is text; else the sum is calculated."""
        writer = self.writer
        operands = flatten_chain(node)
        codes = [writer.name_value(self.compile(operand)) for operand in operands]
        condition = text_condition(codes)
        if not condition:
            for code, operand in zip(codes, operands, strict=True):
                writer.queue_output(code, operand)
            return
        writer.mark_writer("WRITER", node)
        writer.flush()
        writer.lineno = node.lineno
        calculate = f"{writer.out} += to_text(rt, *add_values(rt, ({join_pairs(codes)})))"
        if any(code.is_scalar for code in codes):
            writer.line(calculate)
            return
        with writer.block(f"if {condition}:"):
            for code, operand in zip(codes, operands, strict=True):
                kind = code.kind if code.is_text else Kind.TEXT
                writer.queue_output(code._replace(kind=kind), operand)
        writer.line(f"else: {calculate}")

    # ---- conditions ----

    def visit_If(self, node: nodes.If) -> None:
        self.writer.flush()
        with self.variables.change_frame(conditional=True), ExitStack() as else_blocks:
            with self.writer.block(f"if {self.compile_value(node.test)}:"):
                self._compile_branch(node.body)
            for branch in node.elif_:
                with self.writer.draft() as draft:
                    test = self.compile_value(branch.test)
                keyword = "elif"
                if draft.lines:  # a test with lines of its own is an `if` within the `else`
                    else_blocks.enter_context(self.writer.block("else:"))
                    self.writer.adopt(draft)
                    keyword = "if"
                with self.writer.block(f"{keyword} {test}:"):
                    self._compile_branch(branch.body)
            if node.else_:
                with self.writer.block("else:"):
                    self._compile_branch(node.else_)

    def _compile_branch(self, body: list[nodes.Node]) -> None:
        """Write a branch, which pays for itself if it is expensive."""
        steps = self.context.costs.of_branch(body)
        if steps:
            self.writer.line(f"rt.steps -= {steps}")
            self.writer.line("if rt.steps < 0: check_call_budget(rt)")
        self.context.compile_body(body)

    def visit_Break(self, node: nodes.Break | nodes.Continue) -> None:
        keyword = type(node).__name__.lower()
        if not self.variables.frame.breakable:
            raise CompileError(f"'{keyword}' outside of a loop", node.lineno)
        self.writer.flush()
        self.writer.line(keyword)

    visit_Continue = visit_Break

    # ---- assignments ----

    def visit_Assign(self, node: nodes.Assign) -> None:
        with self.variables.change_frame(assigning=True):
            code = self.compile(node.node)
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
        writer = self.writer
        if isinstance(target, nodes.Name):
            self._bind_name(target, code)
        elif isinstance(target, nodes.NSRef):
            writer.flush()  # output that waits may be the namespace, with its old attribute
            namespace = self.variables.read(target.name).value
            writer.line(f"assign_attribute({namespace}, {target.attr!r}, {code.pair})")
            writer.reads.forget_changeable()
        else:
            assert isinstance(target, nodes.Tuple)  # jinja2 parses no other target
            parts = [writer.new_pair() for _ in target.items]
            writer.line(f"{join_pairs(parts)}= unpack_values(rt, {code.pair}, {len(parts)})")
            for item, part in zip(target.items, parts, strict=True):
                self.bind(item, part)

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

    # ---- blocks ----

    def visit_FilterBlock(self, node: nodes.FilterBlock) -> None:
        with self.variables.open_scope(node):
            code = self.calls.apply_filters(node.filter, self.capture(node.body))
        if code.kind is not Kind.TEXT:
            code = self.writer.store_pair(f"require_text({code.pair})", Kind.TEXT)
        self.writer.queue_output(code, node)

    def visit_With(self, node: nodes.With) -> None:
        codes = [self.writer.name_value(self.compile(value)) for value in node.values]
        with self.writer.block("if True:"), self.variables.open_scope(node):
            self.variables.define_names()
            for target, code in zip(node.targets, codes, strict=True):
                self.bind(target, code)
            self.context.compile_body(node.body)

    def visit_Scope(self, node: nodes.Scope) -> None:
        with self.writer.block("if True:"):
            self.context.compile_scope(node.body, self.variables.frame.open_scope(node))

    def visit_ExprStmt(self, node: nodes.ExprStmt) -> None:
        self.compile(node.node)


def _is_constant_slice(node: nodes.Node) -> bool:
    """Whether an expression has a slice, and jinja2 can evaluate it while compiling.
    That is so without names. It is also so for `none[1:] and name`: jinja2 stops at what is false, as a slice is that
    fails there. Where a name is sliced too, it is not known whether jinja2 gets that far, and the slice is evaluated
    with the others.
    """
    kinds = {type(each) for each in walk(node)}
    if nodes.Slice not in kinds or kinds.isdisjoint((nodes.Name, nodes.Call)):
        return nodes.Slice in kinds
    if not isinstance(node, nodes.And) or not _is_constant_slice(node.left):
        return False
    return not any(type(each) is nodes.Slice for each in walk(node.right))
