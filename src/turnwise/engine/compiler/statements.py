"""Statements: scopes, output, conditions, assignments and blocks.

Scopes are jinja2's own symbol tracking (`Frame`): a name gets its first value when its scope is entered. Output waits
in `pending` until something else must happen, so that texts that stand side by side go out in one statement.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, cast

from jinja2 import nodes
from jinja2.idtracking import VAR_LOAD_ALIAS, VAR_LOAD_PARAMETER, VAR_LOAD_RESOLVE

from turnwise.engine.compiler.codegen import Code
from turnwise.engine.compiler.expressions import Expressions, spelled
from turnwise.engine.compiler.scopes import Fault, Frame, Scope
from turnwise.engine.compiler.syntax import operands
from turnwise.engine.provenance.trails import JOINED, root
from turnwise.engine.runtime.functions import FUNCTIONS
from turnwise.engine.runtime.values import Undefined

UNSUPPORTED = {"ScopedEvalContextModifier": "autoescape", "FromImport": "from ... import"}


class Statements(Expressions):
    """The part of the compiler that knows statements, but for loops and macros."""

    def __init__(self, tree: nodes.Template, shadowed: frozenset[str] = frozenset()) -> None:
        super().__init__()
        self.tree = tree
        self.out = "out"
        self.pending: list[Code] = []  # output that has not been written yet
        self.shadowed = shadowed
        self.inputs: dict[
            str, tuple[str, str]
        ] = {}  # names from outside: their variable and its trail
        self.heads: list[str] = []  # the lines that read them
        self.macro_lines: dict[str, int] = {}  # where a macro becomes a value
        self.namespaces = {node.name for node in tree.find_all(nodes.NSRef)}
        self.bound_names = [node.name for node in tree.find_all(nodes.Macro)]
        self.bound_names += [node.name for node in tree.find_all(nodes.Name) if node.ctx != "load"]

    # ---- scopes ----

    def enter(self, frame: Frame) -> None:
        """Give every name of a new scope its first value: from around, from the context, or undefined."""
        for target, (how, source) in frame.symbols.loads.items():
            if how == VAR_LOAD_PARAMETER:
                continue
            name = self.identifier(target)
            trail = f"o{name[1:]}"
            if how == VAR_LOAD_ALIAS:
                around = self.variable(name_of(target), Frame(cast(Scope, frame.symbols.parent)))
                self.line(f"{name} = {around.value}; {trail} = {around.trail}")
            elif how == VAR_LOAD_RESOLVE:
                self.input(name, source, frame)
            else:
                absence = self.shared("U", Undefined(f"{name_of(target)!r} is undefined"))
                self.line(f"{name} = {absence}; {trail} = None")
            self.forget(name)

    def input(self, name: str, source: str, frame: Frame) -> None:
        """A name that comes from outside. It is read once, at the start; a scope that binds it too gets a copy."""
        first, trail = self.inputs.get(source) or self.first_read(source)
        if source in frame.symbols.stores:
            self.line(f"{name} = {first}; o{name[1:]} = {trail}")
        else:
            frame.symbols.inputs[source] = first

    def first_read(self, source: str) -> tuple[str, str]:
        name = f"v_{source}" if source.isascii() else f"v_{len(self.inputs)}"
        if source in FUNCTIONS and source not in self.shadowed:
            self.trails[name] = "None"
            self.functions[name] = f"call_{source}"
            self.constants[name] = FUNCTIONS[source]
        else:
            self.trails[name] = self.shared("R", root(source))
            absence = self.shared("U", Undefined(f"{source!r} is undefined"))
            self.heads.append(
                f"    {name} = context[{source!r}] if {source!r} in context else {absence}"
            )
            if source == "messages":
                self.kinds[name] = "messages"
            self.lasting.add(name)
        self.inputs[source] = (name, self.trails[name])
        return self.inputs[source]

    def statements(self, body: Iterable[nodes.Node], frame: Frame) -> None:
        for node in body:
            self.here = node.lineno or self.here
            write = getattr(self, f"on_{type(node).__name__}", None)
            if write is None:
                word = UNSUPPORTED.get(type(node).__name__, type(node).__name__.lower())
                raise Fault(f"'{word}' is not part of chat templates", node.lineno)
            write(node, frame)

    # ---- output ----

    def on_Output(self, node: nodes.Output, frame: Frame) -> None:
        for child in node.nodes:
            self.here = child.lineno or self.here
            self.output(child, frame)

    def output(self, node: nodes.Node, frame: Frame) -> None:
        """Put an expression out. Output waits until something else must happen, so that neighbours go out together."""
        if isinstance(node, nodes.Add):
            self.output_sum(node, frame)
        elif isinstance(node, nodes.Concat):
            for part in node.nodes:
                self.output(part, frame)
        elif isinstance(node, nodes.Call) and (direct := self.direct_call(node, frame)) is not None:
            self.flush()  # a macro's pieces need not be joined first
            self.line(f"{self.out} += {direct}")
            self.forget_changeable()
        elif isinstance(node, nodes.CondExpr) and not isinstance(node.expr2, nodes.CondExpr):
            soft = frame.softened()
            with self.block(f"if {self.condition(node.test, frame)}:"):
                self.output(node.expr1, soft)
            if node.expr2 is not None:
                with self.block("else:"):
                    self.output(node.expr2, soft)
        else:
            self.wait(self.code(node, frame))

    def wait(self, code: Code) -> None:
        """Put the value out with its neighbours; what is not text yet becomes text there."""
        if code.kind in ("constant", "fact", "whole"):
            code = Code(f"str({code.value})", code.trail, "text")
        self.pending.append(code if code.kind in ("text", "literal") else self.named(code))

    def output_sum(self, node: nodes.Add, frame: Frame) -> None:
        """`a + b + c` goes out part by part if every part is text; else Python decides what it is."""
        codes = [self.named(self.code(part, frame)) for part in operands(node)]
        condition = self.all_text(codes)
        if not condition:
            self.pending += codes
            return
        self.flush()
        self.here = node.lineno
        if any(code.kind in ("constant", "fact", "whole") for code in codes):
            self.line(f"{self.out} += text(rt, *added(rt, ({spelled(codes)})))")
            return
        self.line(f"if {condition}: {self.out} += ({spelled(self.fused(codes))})")
        self.line(f"else: {self.out} += text(rt, *added(rt, ({spelled(codes)})))")

    def flush(self) -> None:
        if not self.pending:
            return
        waiting, self.pending = self.pending, []
        condition = self.all_text(waiting)
        parts = spelled(self.fused(waiting))
        if not condition:
            self.line(f"{self.out} += ({parts})")
        else:
            self.line(f"if {condition}: {self.out} += ({parts})")
            self.line(f"else: {self.out} += printed(rt, ({parts}))")

    def bound(self, trail: str) -> None:
        self.flush()
        self.line(f"{self.out} += ('', (BOUND, {trail}))")

    def mark(self, trail: str) -> None:
        """Note what is going on: an empty text with a trail that says it."""
        self.pending.append(Code("''", trail, "text"))

    def all_text(self, codes: Sequence[Code]) -> str:
        """The condition under which all of these are text; empty if they are."""
        names = dict.fromkeys(code.value for code in codes if code.kind not in ("text", "literal"))
        return " and ".join(f"{name}.__class__ is str" for name in names)

    def fused(self, codes: Sequence[Code]) -> list[Code]:
        """Literals that stand side by side go out as one text, whose trail still tells them apart."""
        result: list[Code] = []
        for literal, group in groupby(codes, lambda code: code.kind == "literal"):
            side_by_side = list(group)
            if literal and len(side_by_side) > 1:
                texts = [ast.literal_eval(code.value) for code in side_by_side]
                parts = [
                    part
                    for text, code in zip(texts, side_by_side, strict=True)
                    for part in (text, int(code.trail))
                ]
                result.append(
                    Code(repr("".join(texts)), self.shared("J", (JOINED, parts)), "literal")
                )
            else:
                result += side_by_side
        return result

    # ---- conditions ----

    def on_If(self, node: nodes.If, frame: Frame) -> None:
        soft = frame.softened()
        self.flush()
        with self.block(f"if {self.condition(node.test, frame)}:"):
            self.statements(node.body, soft)
        depth = 0
        for branch in node.elif_:
            depth += self.alternative(branch, soft)
        if node.else_:
            with self.block("else:"):
                self.statements(node.else_, soft)
        for _ in range(depth):
            self.available.pop()
            self.indent -= 1

    def alternative(self, branch: nodes.If, frame: Frame) -> bool:
        """An `elif`. If its test needs lines of its own they go into an `else:`, which stays open; true if it does."""
        start = len(self.lines)
        self.available.append({})  # what the test reads is read only if it is asked
        self.indent += 1
        test = self.condition(branch.test, frame)
        opened = len(self.lines) > start
        if opened:
            self.lines.insert(start, "    " * (self.indent - 1) + "else:")
            self.places.insert(start, self.here)
        else:
            self.available.pop()
            self.indent -= 1
        with self.block(f"{'if' if opened else 'elif'} {test}:"):
            self.statements(branch.body, frame)
        return opened

    def on_Break(self, node: nodes.Break, frame: Frame) -> None:
        refuse_outside(node, frame)
        self.flush()
        self.line("break")

    def on_Continue(self, node: nodes.Continue, frame: Frame) -> None:
        refuse_outside(node, frame)
        self.flush()
        self.line("continue")

    # ---- assignments ----

    def on_Assign(self, node: nodes.Assign, frame: Frame) -> None:
        code = self.code(node.node, frame)
        self.here = node.lineno
        self.bind(node.target, code, frame)

    def bind(self, target: nodes.Node, code: Code, frame: Frame) -> None:
        if isinstance(target, nodes.Name):
            name = self.variable(target.name, frame)
            if any(
                waiting.kind != "literal" and name.value in waiting.value
                for waiting in self.pending
            ):
                self.flush()
            if code.value == name.value:
                self.line(f"{name.trail} = {code.trail}")
            else:
                self.line(f"{name.value} = {code.value}; {name.trail} = {code.trail}")
            self.forget(name.value)
            self.lasting.discard(name.value)
            self.kinds.pop(name.value, None)
            self.macros.pop(target.name, None)
        elif isinstance(target, nodes.NSRef):
            self.flush()  # what is waiting may be the namespace, as it is now
            namespace = self.variable(target.name, frame)
            private = target.attr.startswith("_")
            if not private:
                pair = f"{namespace.value}.pairs[{target.attr!r}] = ({code.value}, {code.trail})"
                self.line(f"if {namespace.value}.__class__ is Namespace: {pair}")
            self.line(
                f"{'' if private else 'else: '}assigned({namespace.value}, {target.attr!r}, {code.value}, {code.trail})"
            )
            self.forget_changeable()
        elif isinstance(target, (nodes.Tuple, nodes.List)):
            parts = [self.temporary() for _ in target.items]
            names = "".join(f"{part}, o{part[1:]}, " for part in parts)
            if len(parts) == 2 and code.value.isidentifier():  # the pairs of a dict
                self.line(f"if {code.value}.__class__ is tuple and len({code.value}) == 2:")
                self.line(f"    {parts[0]}, {parts[1]} = {code.value}")
                self.line(
                    f"    o{parts[0][1:]} = ({code.trail}, 0); o{parts[1][1:]} = ({code.trail}, 1)"
                )
                self.line(f"else: {names}= unpacked(rt, {code.value}, {code.trail}, 2)")
            else:
                self.line(f"{names}= unpacked(rt, {code.value}, {code.trail}, {len(parts)})")
            for part, item in zip(parts, target.items, strict=True):
                self.bind(item, Code(part, f"o{part[1:]}"), frame)
        else:
            raise Fault(f"cannot assign to {type(target).__name__}", target.lineno)

    def on_AssignBlock(self, node: nodes.AssignBlock, frame: Frame) -> None:
        inner = frame.inner()
        inner.symbols.analyze_node(node)
        code = self.block_text(node.body, inner)
        if node.filter is not None:
            code = self.filter_chain(node.filter, code, inner)
        self.bind(node.target, code, frame)

    def block_text(self, body: Sequence[nodes.Node], inner: Frame) -> Code:
        """What a block writes, as a value."""
        self.flush()
        outside, self.out = self.out, self.temporary("out")
        self.line(f"{self.out} = []")
        with self.scope():
            self.enter(inner)
            self.statements(body, inner)
        written, self.out = self.out, outside
        return self.pair(f"captured(rt, {written})")

    def scope(self) -> Any:
        return self.block("if True:")

    def filter_chain(self, node: nodes.Filter, code: Code, frame: Frame) -> Code:
        if isinstance(node.node, nodes.Filter):
            code = self.filter_chain(node.node, code, frame)
        self.here = node.lineno
        return self.filtered(node, code, frame)

    def on_FilterBlock(self, node: nodes.FilterBlock, frame: Frame) -> None:
        inner = frame.inner()
        inner.symbols.analyze_node(node)
        code = self.filter_chain(node.filter, self.block_text(node.body, inner), inner)
        self.wait(
            code
            if code.kind == "text"
            else self.pair(f"only_text({code.value}, {code.trail})", "text")
        )

    def on_With(self, node: nodes.With, frame: Frame) -> None:
        inner = frame.inner()
        inner.symbols.analyze_node(node)
        codes = [self.named(self.code(value, frame)) for value in node.values]
        with self.scope():
            self.enter(inner)
            for target, code in zip(node.targets, codes, strict=True):
                self.bind(target, code, inner)
            self.statements(node.body, inner)

    def on_Scope(self, node: nodes.Scope, frame: Frame) -> None:
        inner = frame.inner()
        inner.symbols.analyze_node(node)
        with self.scope():
            self.enter(inner)
            self.statements(node.body, inner)

    def on_ExprStmt(self, node: nodes.ExprStmt, frame: Frame) -> None:
        self.code(node.node, frame)


def refuse_outside(node: nodes.Node, frame: Frame) -> None:
    if not frame.breakable:
        raise Fault(f"'{type(node).__name__.lower()}' outside of a loop", node.lineno)


def name_of(reference: str) -> str:
    """The template's name behind jinja2's name for it: `l_0_messages`."""
    return reference.split("_", 2)[2]
