"""Operators: `and`, `or`, `not`, the inline `if`, comparisons and arithmetic.

The runtime checks the types and charges for the work. Where the compiler knows that one side is an int or a constant,
it writes the Python operator itself.
"""

from __future__ import annotations

from contextlib import ExitStack

from jinja2 import nodes

from turnwise.engine.compiler.codegen import Code, Kind, join_pairs, scalar
from turnwise.engine.compiler.context import CompilerPart
from turnwise.engine.compiler.tree import flatten_chain
from turnwise.engine.runtime.measures import free_search_length

SIGNS = {"eq": "==", "ne": "!=", "lt": "<", "lteq": "<=", "gt": ">", "gteq": ">="}
NO_ELSE = "the inline if-expression evaluated to false and no else section was defined."


class OperatorCompiler(CompilerPart):
    """Compiles operators; the operands are left to the expression compiler."""

    # ---- logic ----

    def visit_Not(self, node: nodes.Not, trail: bool) -> Code:
        return scalar(f"(not {self.compile_value(node.node)})")

    def visit_And(self, node: nodes.And | nodes.Or, trail: bool) -> Code:
        """The right side runs only if the left one does not decide."""
        writer = self.writer
        operator, needs_right = ("and", "") if isinstance(node, nodes.And) else ("or", "not ")
        left = self.compile(node.left, trail)
        left_lineno = writer.lineno
        result = writer.new_pair()
        with writer.draft() as draft:
            right = self.compile(node.right, trail)
        if not draft.lines and not trail:
            # The right side needs no lines of its own: one Python expression does.
            return scalar(f"({left.value} {operator} {right.value})")
        right_lineno, writer.lineno = writer.lineno, left_lineno
        self._assign(result, left, trail)
        with writer.block(f"if {needs_right}{result.value}:"):
            writer.adopt(draft)
            writer.lineno = right_lineno
            self._assign(result, right, trail)
        return result if trail else Code(result.value)

    visit_Or = visit_And

    def visit_CondExpr(self, node: nodes.CondExpr, trail: bool) -> Code:
        with self.variables.change_frame(conditional=True):
            test = self.compile_value(node.test)
            result = self.writer.new_pair()
            if trail and self.writer.marks_writers:
                result = result._replace(writer=f"w{result.value}")
            for head, branch in ((f"if {test}:", node.expr1), ("else:", node.expr2)):
                with self.writer.block(head):
                    code = Code(f"Undefined({NO_ELSE!r})")
                    if branch is not None:
                        code = self.compile(branch, trail)
                    self._assign(result, code, trail)
                    if result.writer:
                        number = code.writer or self.writer.number_writer(branch or node)
                        self.writer.line(f"{result.writer} = {number}")
        return result if trail else Code(result.value)

    def _assign(self, result: Code, code: Code, trail: bool) -> None:
        self.writer.line(f"{result.value} = {code.value}")
        if trail:
            self.writer.line(f"{result.trail} = {code.trail}")

    # ---- comparisons ----

    def visit_Compare(self, node: nodes.Compare, trail: bool) -> Code:
        left = self.compile(node.expr, False)
        if len(node.ops) == 1:
            right = self._compile_operand(node.ops[0].expr)
            return self._compare(left, node.ops[0], right)
        result = self.writer.temporary()
        self.writer.line(f"{result} = True")
        with ExitStack() as blocks:
            # A chain: each comparison runs only if all before it hold.
            for operand in node.ops:
                blocks.enter_context(self.writer.block(f"if {result}:"))
                right = self._compile_operand(operand.expr)
                self.writer.line(f"{result} = {self._compare(left, operand, right).value}")
                left = right
        return scalar(result)

    def _compile_operand(self, node: nodes.Expr) -> Code:
        code = self.compile(node, False)
        return code if code.is_literal else self.writer.name_value(code)

    def _compare(self, left: Code, operand: nodes.Operand, right: Code) -> Code:
        operator, values = operand.op, f"{left.value}, {right.value}"
        if operator not in SIGNS:
            test = self._compile_membership(left, operand.expr, right)
            return scalar(f"(not {test})" if operator == "notin" else test)
        inline = f"({left.value} {SIGNS[operator]} {right.value})"
        if operator not in ("eq", "ne"):
            is_free = left.kind is right.kind is Kind.INT
            return scalar(inline if is_free else f"compare(rt, {operator!r}, {values})")
        # Comparing with a literal or number costs no more than the literal is long.
        if left.is_literal or right.is_literal or left.is_scalar or right.is_scalar:
            return scalar(inline)
        return scalar(f"({'not ' * (operator == 'ne')}is_equal(rt, {values}))")

    def _compile_membership(self, left: Code, container: nodes.Expr, right: Code) -> str:
        inline = f"{left.value} in {right.value}"
        call = f"contains(rt, {left.value}, {right.value})"
        if left.kind is Kind.LITERAL and right.value.isidentifier():
            if right.kind is Kind.MESSAGE:
                return f"({inline})"
            # Searching a short text is cheaper than charging for it.
            kind = f"{right.value}.__class__"
            limit = free_search_length(len(str(left.literal)))
            short = f"{kind} is dict or {kind} is str and len({right.value}) < {limit}"
            return f"({inline} if {short} else {call})"
        if isinstance(container, (nodes.List, nodes.Tuple)) and all(
            isinstance(item, nodes.Const) for item in container.items
        ):
            return f"({inline})"
        return call

    # ---- arithmetic ----

    def visit_Add(self, node: nodes.Add, trail: bool) -> Code:
        codes = [self.compile(part) for part in flatten_chain(node)]
        self.writer.lineno = node.lineno
        if all(code.kind is Kind.INT for code in codes):
            return scalar(f"({' + '.join(code.value for code in codes)})", Kind.INT)
        return self.writer.store_pair(f"add_values(rt, ({join_pairs(codes)}))")

    def visit_Sub(self, node: nodes.BinExpr, trail: bool) -> Code:
        left = self.compile(node.left)
        right = self.compile(node.right)
        self.writer.lineno = node.lineno
        if isinstance(node, nodes.Sub) and left.kind is right.kind is Kind.INT:
            return scalar(f"({left.value} - {right.value})", Kind.INT)
        return self.writer.store_pair(f"do_{type(node).__name__}(rt, {left.pair}, {right.pair})")

    visit_Mul = visit_Div = visit_FloorDiv = visit_Mod = visit_Pow = visit_Sub

    def visit_Concat(self, node: nodes.Concat, trail: bool) -> Code:
        codes = [self.compile(part) for part in node.nodes]
        return self.writer.store_pair(f"concatenate(rt, ({join_pairs(codes)}))", Kind.TEXT)

    def visit_Neg(self, node: nodes.Neg | nodes.Pos, trail: bool) -> Code:
        is_negative = isinstance(node, nodes.Neg)
        if (
            is_negative
            and isinstance(node.node, nodes.Const)
            and type(node.node.value) in (int, float)
        ):
            return self.compile(nodes.Const(-node.node.value, lineno=node.lineno))
        return scalar(f"apply_sign({self.compile_value(node.node)}, {is_negative})")

    visit_Pos = visit_Neg
