"""A template becomes one Python function that appends text and trails to a list.

    {% for m in messages %}<|{{ m.role }}|>{% endfor %}

becomes, in essence,

    t1, o1 = walk(rt, messages, (ROOT, 'messages'), 4)
    for i2, v1_m in enumerate(t1):
        o1_m = (o1, i2)
        ...
        out += ('<|', 0, t3, (o1_m, 'role'), '|>', 2)

jinja2's parser and its symbol tracking are used as they are, so syntax and scoping are exact; its code generator and
its constant folding are not used at all. Macros are nested functions, names of outer scopes are closures. Loops pay
for all their iterations at the start, in nodes of their body (`step_cost`).

Not supported, and refused while compiling: `include`, `import`, `extends`, `block`, `autoescape`, `trans`.
"""

from __future__ import annotations

from typing import Any

from jinja2 import nodes
from jinja2.compiler import find_undeclared

from turnwise.engine.compiler.cost import step_cost
from turnwise.engine.compiler.loops import Loops
from turnwise.engine.compiler.scopes import Fault, Frame, KnownMacro, Scope
from turnwise.engine.runtime.operations import CALL_WEIGHT
from turnwise.engine.runtime.values import Undefined

SPECIAL = ("caller", "kwargs", "varargs")


class Compiler(Loops):
    """The whole of it: the program around the statements, and macros."""

    def program(self) -> str:
        frame = Frame(Scope())
        frame.symbols.analyze_node(self.tree)
        with self.function("def run(rt, context):"):
            self.line("out = []")
            self.enter(frame)
            self.statements(self.tree.body, frame)
            self.flush()
            self.line("return out")
        for name, number in self.macro_lines.items():
            if (
                name not in self.loaded
            ):  # it is only ever called by name, so nobody needs it as a value
                self.lines[number] = "    pass"
        self.lines[1:1] = self.heads
        self.places[1:1] = [0] * len(self.heads)
        return "\n".join(self.lines) + "\n"

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
        self.line(f"{caller} = {self.macro_body(node, None, self.temporary('macro'), frame)}")
        callee = self.code(node.call.node, frame)
        _, arguments = self.arguments(node.call, frame)
        self.here = node.lineno
        result = self.pair(
            f"call(rt, {callee.value}, {callee.trail}{arguments}, **{{'caller': ({caller}, None)}})"
        )
        self.forget_changeable()
        self.wait(result)

    def generation(self, node: nodes.CallBlock, frame: Frame) -> None:
        inner = frame.inner()
        inner.breakable = False  # transformers makes a function of the block
        inner.symbols.analyze_node(node)
        self.mark("BEGIN")
        with self.scope():
            self.enter(inner)
            self.statements(node.body, inner)
        self.mark("END")

    def macro_body(
        self, node: nodes.Macro | nodes.CallBlock, name: str | None, function: str, frame: Frame
    ) -> str:
        """Write the function of a macro; the result makes the macro's value."""
        inner = frame.inner()
        inner.loops, inner.breakable, inner.counting = 0, False, False
        inner.symbols.analyze_node(node)
        names = [argument.name for argument in node.args]
        used = find_undeclared(node.body, SPECIAL)
        explicit = "caller" in names
        if (
            "caller" in used
            and explicit
            and names.index("caller") < len(names) - len(node.defaults)
        ):
            raise Fault(
                'the special "caller" argument must be omitted or be given a default', node.lineno
            )
        extra = [special for special in SPECIAL if special in used and special not in names]
        parameters = [self.identifier(inner.symbols.ref(argument)) for argument in names]
        parameters += [
            self.identifier(inner.symbols.declare_parameter(special)) for special in extra
        ]
        inner.symbols.analyze_node(node)
        self.flush()
        outside, self.out = self.out, "out"
        with self.function(
            f"def {function}({', '.join(f'a{i}' for i in range(len(parameters)))}):"
        ):
            self.line(f"out = []; rt.steps -= {step_cost(node.body) + CALL_WEIGHT}; rt.depth -= 1")
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
        """Arguments that were not given: undefined first, since a default may name any of them, then their default."""
        first = len(names) - len(node.defaults)
        for number, (name, parameter) in enumerate(zip(names, parameters, strict=False)):
            undefined = self.shared("U", Undefined(f"parameter {name!r} was not provided"))
            self.line(f"if {parameter} is MISSING: {parameter} = {undefined}")
            if number >= first:
                self.line(f"d{parameter[1:]} = {parameter} is {undefined}")
        for parameter, default in zip(parameters[first : len(names)], node.defaults, strict=True):
            with self.block(f"if d{parameter[1:]}:"):
                code = self.code(default, frame)
                self.line(f"{parameter} = {code.value}; o{parameter[1:]} = {code.trail}")
