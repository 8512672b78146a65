"""A template becomes one Python function that appends text and trails to a list.

    {% for m in messages %}<|{{ m.role }}|>{% endfor %}

becomes, in essence,

    t1, o1 = walk(rt, messages, (ROOT, 'messages'), 4)
    for i2, v1_m in enumerate(t1):
        o1_m = (o1, i2)
        ...
        out += ('<|', 0, t3, (o1_m, 'role'), '|>', 2)

jinja2's parser and its symbol tracking are used as they are, so syntax and scoping are exact; its code generator and its
constant folding are not used at all. Macros are nested functions, names of outer scopes are closures. Loops pay for all
their iterations at the start, in nodes of their body (`weight`).

Not supported, and refused while compiling: `include`, `import`, `extends`, `block`, `autoescape`, `trans`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from jinja2 import nodes
from jinja2.compiler import find_undeclared
from jinja2.idtracking import (
    VAR_LOAD_ALIAS,
    VAR_LOAD_PARAMETER,
    VAR_LOAD_RESOLVE,
    Symbols,
)

from turnwise.engine.expressions import Expressions, Fault, Frame, KnownMacro, LoopNames, spelled
from turnwise.engine.functions import FUNCTIONS
from turnwise.engine.operations import CALL_WEIGHT
from turnwise.engine.syntax import children, operands
from turnwise.engine.trails import JOINED, root
from turnwise.engine.values import Undefined
from turnwise.engine.writer import Code

NESTED_LOOPS = 12  # Python allows twenty blocks within one function
SPECIAL = ("caller", "kwargs", "varargs")


class Compiler(Expressions):
    """The half of the compiler that knows statements."""

    def __init__(self, tree: nodes.Template, shadowed: frozenset[str] = frozenset()) -> None:
        super().__init__()
        self.tree = tree
        self.out = "out"
        self.pending: list[Code] = []  # output that has not been written yet
        self.shadowed = shadowed
        self.inputs: dict[str, tuple[str, str]] = {}  # names from outside: their variable and its trail
        self.heads: list[str] = []  # the lines that read them
        self.macro_lines: dict[str, int] = {}  # where a macro becomes a value
        self.namespaces = {node.name for node in tree.find_all(nodes.NSRef)}
        self.bound_names = [node.name for node in tree.find_all(nodes.Macro)]
        self.bound_names += [node.name for node in tree.find_all(nodes.Name) if node.ctx != "load"]

    def program(self) -> str:
        frame = Frame(Symbols())
        frame.symbols.analyze_node(self.tree)
        with self.function("def run(rt, context):"):
            self.line("out = []")
            self.enter(frame)
            self.statements(self.tree.body, frame)
            self.flush()
            self.line("return out")
        for name, number in self.macro_lines.items():
            if name not in self.loaded:  # it is only ever called by name, so nobody needs it as a value
                self.lines[number] = "    pass"
        self.lines[1:1] = self.heads
        self.places[1:1] = [0] * len(self.heads)
        return "\n".join(self.lines) + "\n"

    # ---- scopes ----

    def enter(self, frame: Frame) -> None:
        """Give every name of a new scope its first value: from around, from the context, or undefined."""
        for target, (how, source) in frame.symbols.loads.items():
            if how == VAR_LOAD_PARAMETER:
                continue
            if how == VAR_LOAD_RESOLVE:
                self.identifiers.pop(target, None)
            name = self.identifier(target)
            trail = f"o{name[1:]}"
            if how == VAR_LOAD_ALIAS:
                around = self.identifier(source)
                self.line(f"{name} = {around}; {trail} = {self.trails.get(around, f'o{around[1:]}')}")
            elif how == VAR_LOAD_RESOLVE:
                self.input(name, source, frame)
            else:
                absence = self.shared("U", Undefined(f"{target.split('_', 2)[2]!r} is undefined"))
                self.line(f"{name} = {absence}; {trail} = None")
            self.forget(name)

    def input(self, name: str, source: str, frame: Frame) -> None:
        """A name that comes from outside. It is read once, at the start; a scope that binds it too gets a copy."""
        first, trail = self.inputs.get(source) or self.first_read(source)
        if source in frame.symbols.stores:
            self.line(f"{name} = {first}; o{name[1:]} = {trail}")
        else:
            self.identifiers[frame.symbols.ref(source)] = first

    def first_read(self, source: str) -> tuple[str, str]:
        name = f"v_{source}" if source.isascii() else f"v_{len(self.inputs)}"
        if source in FUNCTIONS and source not in self.shadowed:
            self.trails[name] = "None"
            self.functions[name] = f"call_{source}"
            self.constants[name] = FUNCTIONS[source]
        else:
            self.trails[name] = self.shared("R", root(source))
            absence = self.shared("U", Undefined(f"{source!r} is undefined"))
            self.heads.append(f"    {name} = context[{source!r}] if {source!r} in context else {absence}")
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
                raise Fault(f"'{type(node).__name__.lower()}' is not part of chat templates", node.lineno)
            write(node, frame)

    # ---- output ----

    def on_Output(self, node: nodes.Output, frame: Frame) -> None:
        for child in node.nodes:
            self.here = child.lineno or self.here
            self.output(child, frame)

    def output(self, node: nodes.Expr, frame: Frame) -> None:
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
                parts = [part for text, code in zip(texts, side_by_side, strict=True) for part in (text, int(code.trail))]
                result.append(Code(repr("".join(texts)), self.shared("J", (JOINED, parts)), "literal"))
            else:
                result += side_by_side
        return result

    # ---- conditions ----

    def on_If(self, node: nodes.If, frame: Frame) -> None:
        soft = frame.softened()
        self.flush()
        depth = 0
        head = "if"
        for branch in (node, *node.elif_):
            start = len(self.lines)
            test = self.condition(branch.test, frame if branch is node else soft)
            if branch is not node and len(self.lines) == start:
                head = "elif"
            elif branch is not node:  # the test needs lines of its own: they go into an else
                lines, self.lines = self.lines[start:], self.lines[:start]
                self.line("else:")
                self.places.insert(start, self.places.pop())
                self.lines += ["    " + line for line in lines]
                self.indent += 1
                self.available.append({})
                depth += 1
                head = "if"
            with self.block(f"{head} {test}:"):
                self.statements(branch.body, soft)
        if node.else_:
            with self.block("else:"):
                self.statements(node.else_, soft)
        for _ in range(depth):
            self.available.pop()
            self.indent -= 1

    # ---- loops ----

    def on_For(self, node: nodes.For, frame: Frame) -> None:
        if node.recursive:
            return self.recursive_loop(node, frame)
        items = self.code(node.iter, frame)
        number = self.temporary("")
        if items.kind == "messages":
            self.line(f"t{number} = {items.value}; o{number} = walk_messages(rt, t{number}, {weight(node.body) + 2})")
            return self.loop(node, frame, number, items.kind)
        self.line(f"t{number}, o{number}, k{number} = walk(rt, {items.value}, {items.trail}, {weight(node.body) + 2})")
        self.loop(node, frame, number, items.kind)

    def loop(self, node: nodes.For, frame: Frame, number: str, kind: str = "") -> None:
        """A loop over elements t, with trails o; k says whether they may be messages; i counts, if anybody asks."""
        inner = frame.inner()
        inner.loops += 1
        if inner.loops > NESTED_LOOPS:
            raise Fault(f"more than {NESTED_LOOPS} loops within loops", node.lineno)
        uses = set(uses_of_loop(node.body))
        loop_name = self.identifier(inner.symbols.declare_parameter("loop")) if uses or node.recursive else ""
        inner.symbols.analyze_node(node, for_branch="body")
        as_value = node.recursive or not uses <= KNOWN_LOOP
        if node.test is not None and (as_value or uses & LOOKS_AHEAD):
            self.choose_first(node, frame, number)
        self.name_loop(loop_name, as_value, node.recursive, number)
        if node.else_:
            self.line(f"e{number} = True")
        marks = writes(node.body)
        if marks:
            self.loop_mark(kind, number, "LOOP")
        lazy_test = node.test is not None and not (as_value or uses & LOOKS_AHEAD)
        if lazy_test and uses:
            self.line(f"i{number} = -1")
        counts = bool(uses or node.recursive) and not lazy_test
        target = self.target_name(node, inner, kind) or f"x{number}"
        heads = (f"i{number}, ", "NUMBERS, ") if counts else ("", "")
        trail = f"o{target[1:]}" if target[0] == "v" else f"ox{number}"
        with self.block(f"for {heads[0]}{target}, {trail} in zip({heads[1]}t{number}, o{number}):"):
            if target[0] != "v":
                self.bind(node.target, Code(target, trail), inner)
            if lazy_test and node.test is not None:
                self.line(f"if not ({self.condition(node.test, inner)}): continue")
                if uses:
                    self.line(f"i{number} += 1")
            if loop_name and as_value:
                self.line(f"{loop_name}.index0 = i{number}")
            if node.else_:
                self.line(f"e{number} = False")
            if marks:
                self.loop_mark(kind, number, trail)
            self.enter(inner)
            self.statements(node.body, inner)
        if marks:
            self.loop_mark(kind, number, "DONE")
        if node.else_:
            self.otherwise(node, frame, number)

    def loop_mark(self, kind: str, number: str, trail: str) -> None:
        """Loops over messages say which one they are at; other loops do if it turns out that they are over messages."""
        if kind == "messages":
            self.mark(trail)
        else:
            self.flush()
            self.line(f"if k{number}: {self.out} += ('', {trail})")

    def name_loop(self, name: str, as_value: bool, recursive: bool, number: str) -> None:
        """Decide what `loop` is: an object, or only the local variables behind its attributes."""
        if name and as_value:
            again, depth = (f"again{number}_", "depth0") if recursive else ("None", "0")
            self.line(f"{name} = Loop(t{number}, o{number}, {depth}, {again}); o{name[1:]} = None")
            self.loop_names.pop(name, None)
        elif name:
            self.loop_names[name] = LoopNames(f"i{number}", f"t{number}", f"o{number}", 0)

    def otherwise(self, node: nodes.For, frame: Frame, number: str) -> None:
        inner = frame.inner()
        inner.symbols.analyze_node(node, for_branch="else")
        with self.block(f"if e{number}:"):
            self.enter(inner)
            self.statements(node.else_, inner)

    def target_name(self, node: nodes.For, frame: Frame, kind: str) -> str | None:
        """The variable of a loop with one target; it holds messages if the loop is over them and nothing else binds it."""
        target = node.target
        if not isinstance(target, nodes.Name):
            return None
        name = self.identifier(frame.symbols.ref(target.name))
        self.forget(name)
        self.lasting.add(name)
        self.trails.pop(name, None)
        bound = any(other.ctx == "store" and other.name == target.name for part in node.body for other in names_in(part))
        self.kinds[name] = "message" if kind == "messages" and not bound else ""
        return name

    def choose_first(self, node: nodes.For, frame: Frame, number: str) -> None:
        """`{% for x in xs if test %}` where the loop looks ahead: the test is asked for all elements first."""
        inner = frame.inner()
        inner.symbols.analyze_node(node, for_branch="test")
        chosen = self.temporary()
        self.line(f"{chosen} = []")
        target = self.target_name(node, inner, "") or f"x{number}"
        trail = f"o{target[1:]}" if target[0] == "v" else f"ox{number}"
        with self.block(f"for i{number}, {target}, {trail} in zip(NUMBERS, t{number}, o{number}):"):
            if target[0] != "v":
                self.bind(node.target, Code(target, trail), inner)
            self.enter(inner)
            test = self.condition(node.test, inner) if node.test is not None else "True"
            self.line(f"if {test}: {chosen}.append(i{number})")
        self.line(f"t{number}, o{number} = picked(t{number}, o{number}, {chosen})")

    def recursive_loop(self, node: nodes.For, frame: Frame) -> None:
        """The body is a function, so that `loop(children)` can run it again."""
        number = self.temporary("")
        items = self.code(node.iter, frame)
        self.flush()
        outside, self.out = self.out, "out"
        with self.function(f"def again{number}(pair, depth0):"):
            self.line("out = []")
            self.line("if depth0 >= rt.depth: raise exceeded('depth')")
            self.line(f"def again{number}_(pair): return captured(rt, again{number}(pair, depth0 + 1))")
            cost = weight(node.body) + CALL_WEIGHT
            self.line(f"t{number}, o{number}, k{number} = walk(rt, pair[0], pair[1], {cost})")
            self.loop(node, frame, number)
            self.flush()
            self.line("return out")
        self.out = outside
        self.line(f"{self.out} += again{number}(({items.value}, {items.trail}), 0)")

    def on_Break(self, node: nodes.Break, frame: Frame) -> None:
        self.flush()
        self.line("break")

    def on_Continue(self, node: nodes.Continue, frame: Frame) -> None:
        self.flush()
        self.line("continue")

    # ---- assignments ----

    def on_Assign(self, node: nodes.Assign, frame: Frame) -> None:
        code = self.code(node.node, frame)
        self.here = node.lineno
        self.bind(node.target, code, frame)
        if frame.loops and isinstance(node.node, nodes.Getitem) and not isinstance(node.node.arg, nodes.Const):
            self.flush()
            self.line(f"{self.out} += ('', (BOUND, {self.trail_of(node.target, frame)}))")

    def trail_of(self, target: nodes.Expr, frame: Frame) -> str:
        return self.variable(target.name, frame).trail if isinstance(target, nodes.Name) else "None"

    def bind(self, target: nodes.Expr, code: Code, frame: Frame) -> None:
        if isinstance(target, nodes.Name):
            name = self.variable(target.name, frame)
            if any(waiting.kind != "literal" and name.value in waiting.value for waiting in self.pending):
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
            namespace = self.variable(target.name, frame)
            private = target.attr.startswith("_")
            if not private:
                pair = f"{namespace.value}.pairs[{target.attr!r}] = ({code.value}, {code.trail})"
                self.line(f"if {namespace.value}.__class__ is Namespace: {pair}")
            self.line(f"{'' if private else 'else: '}assigned({namespace.value}, {target.attr!r}, {code.value}, {code.trail})")
            self.forget_changeable()
        elif isinstance(target, (nodes.Tuple, nodes.List)):
            parts = [self.temporary() for _ in target.items]
            names = "".join(f"{part}, o{part[1:]}, " for part in parts)
            if len(parts) == 2 and code.value.isidentifier():  # the pairs of a dict
                self.line(f"if {code.value}.__class__ is tuple and len({code.value}) == 2:")
                self.line(f"    {parts[0]}, {parts[1]} = {code.value}")
                self.line(f"    o{parts[0][1:]} = ({code.trail}, 0); o{parts[1][1:]} = ({code.trail}, 1)")
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
        self.wait(code)

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

    # ---- macros ----

    def on_Macro(self, node: nodes.Macro, frame: Frame) -> None:
        name = self.variable(node.name, frame)
        function = self.temporary("macro")
        arguments = tuple(argument.name for argument in node.args)
        if frame.symbols.parent is None and not frame.soft and self.plain_macro(node):
            self.macros[node.name] = KnownMacro(name.value, function, arguments)
        body = self.macro_body(node, node.name, function, frame)
        if node.name in self.macros:
            self.macro_lines[node.name] = len(self.lines)
        self.line(f"{name.value} = {body}; {name.trail} = None")
        self.forget(name.value)

    def plain_macro(self, node: nodes.Macro) -> bool:
        """Nothing else has this name, and the macro takes only what it lists."""
        return (
            self.bound_names.count(node.name) == 1
            and not find_undeclared(node.body, SPECIAL)
            and not {argument.name for argument in node.args} & set(SPECIAL)
        )

    def on_CallBlock(self, node: nodes.CallBlock, frame: Frame) -> None:
        if isinstance(node.call.node, nodes.ExtensionAttribute):
            return self.generation(node, frame)
        caller = self.temporary("caller")
        self.line(f"{caller} = {self.macro_body(node, 'caller', self.temporary('macro'), frame)}")
        callee = self.code(node.call.node, frame)
        arguments = self.arguments(node.call, frame)
        self.here = node.lineno
        result = self.pair(f"call(rt, {callee.value}, {callee.trail}{arguments}, **{{'caller': ({caller}, None)}})")
        self.forget_changeable()
        self.wait(result)

    def generation(self, node: nodes.CallBlock, frame: Frame) -> None:
        inner = frame.inner()
        inner.symbols.analyze_node(node)
        self.mark("BEGIN")
        with self.scope():
            self.enter(inner)
            self.statements(node.body, inner)
        self.mark("END")

    def macro_body(self, node: nodes.Macro | nodes.CallBlock, name: str, function: str, frame: Frame) -> str:
        """Write the function of a macro; the result makes the macro's value."""
        inner = frame.inner()
        inner.loops = 0
        inner.symbols.analyze_node(node)
        names = [argument.name for argument in node.args]
        used = find_undeclared(node.body, SPECIAL)
        explicit = "caller" in names
        if "caller" in used and explicit and names.index("caller") < len(names) - len(node.defaults):
            raise Fault('the special "caller" argument must be omitted or be given a default', node.lineno)
        extra = [special for special in SPECIAL if special in used and special not in names]
        parameters = [self.identifier(inner.symbols.ref(argument)) for argument in names]
        parameters += [self.identifier(inner.symbols.declare_parameter(special)) for special in extra]
        inner.symbols.analyze_node(node)
        self.flush()
        outside, self.out = self.out, "out"
        with self.function(f"def {function}({', '.join(f'a{i}' for i in range(len(parameters)))}):"):
            self.line(f"out = []; rt.steps -= {weight(node.body) + CALL_WEIGHT}; rt.depth -= 1")
            self.line("if rt.steps < 0 or rt.depth < 0: spent(rt)")
            for number, parameter in enumerate(parameters):
                self.line(f"{parameter}, o{parameter[1:]} = a{number}")
            self.enter(inner)
            self.defaults(node, names, parameters, inner)
            self.statements(node.body, inner)
            self.flush()
            self.line("rt.depth += 1")
            self.line("return out")
        self.out = outside
        special = ("caller" in used, "kwargs" in extra, "varargs" in extra, explicit)
        return f"Macro({name!r}, {function}, {tuple(names)!r}, {special!r})"

    def defaults(self, node: Any, names: list[str], parameters: list[str], frame: Frame) -> None:
        for number, (name, parameter) in enumerate(zip(names, parameters, strict=False)):
            behind = number - (len(names) - len(node.defaults))
            with self.block(f"if {parameter} is MISSING:"):
                if behind >= 0:
                    code = self.code(node.defaults[behind], frame)
                else:
                    code = Code(f"Undefined({f'parameter {name!r} was not provided'!r})")
                self.line(f"{parameter} = {code.value}; o{parameter[1:]} = {code.trail}")


KNOWN_LOOP = set(LoopNames("", "", "", 0).attributes) | set(LoopNames("", "", "", 0).neighbours)
LOOKS_AHEAD = {"last", "length", "revindex", "revindex0", "nextitem", "previtem"}


def names_in(node: nodes.Node) -> Iterator[nodes.Name]:
    if isinstance(node, nodes.Name):
        yield node
    yield from node.find_all(nodes.Name)


def uses_of_loop(body: Iterable[nodes.Node]) -> Iterable[str]:
    """How `loop` is used in a body: an attribute's name, or "" where it is used as a value."""
    waiting: list[nodes.Node] = list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, nodes.Getattr) and isinstance(node.node, nodes.Name) and node.node.name == "loop":
            yield node.attr
        elif isinstance(node, nodes.Name) and node.name == "loop":
            yield ""
        else:
            waiting.extend(node.iter_child_nodes())


def writes(body: Iterable[nodes.Node]) -> bool:
    """Whether a body can put anything out."""
    return any(
        isinstance(node, (nodes.Output, nodes.CallBlock, nodes.FilterBlock)) or any(node.find_all(nodes.Output))
        for node in body
    )


HEAVY: dict[type, int] = {nodes.Filter: 4, nodes.Test: 2, nodes.Call: 6, nodes.Concat: 3, nodes.Add: 2, nodes.Mod: 2}


def weight(body: Iterable[nodes.Node]) -> int:
    """How many steps one run of a body takes at most. Loops inside pay for themselves; of branches the longest counts."""
    return sum(map(weight_of, body))


def weight_of(node: nodes.Node) -> int:
    if isinstance(node, nodes.For):
        return 1 + weight_of(node.iter)
    if isinstance(node, nodes.Macro):
        return 1
    if isinstance(node, nodes.If):
        tests = weight_of(node.test) + sum(weight_of(branch.test) for branch in node.elif_)
        bodies = (node.body, *(branch.body for branch in node.elif_), node.else_)
        return 1 + tests + max(map(weight, bodies))
    return HEAVY.get(type(node), 1) + sum(map(weight_of, children(node)))
