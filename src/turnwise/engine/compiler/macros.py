"""Macros, call blocks and `{% generation %}`.

A macro becomes a Python function that takes pairs of value and trail and returns its output. Where its name can mean
nothing else, calls go straight to the function; otherwise its value is a runtime `Macro`, which sorts the arguments.
"""

from __future__ import annotations

from collections import Counter

from jinja2 import nodes
from jinja2.compiler import find_undeclared

from turnwise.engine.compiler.calls import CallCompiler
from turnwise.engine.compiler.codegen import Code, trail_of
from turnwise.engine.compiler.context import CompileContext, CompilerPart
from turnwise.engine.compiler.scopes import Frame, KnownMacro
from turnwise.engine.compiler.syntax import CompileError
from turnwise.engine.compiler.tree import find_assigned_names
from turnwise.engine.runtime.values import Undefined

SPECIAL_NAMES = ("caller", "kwargs", "varargs")
MacroNode = nodes.Macro | nodes.CallBlock


class MacroCompiler(CompilerPart):
    """Compiles everything whose body is run by a call."""

    def __init__(self, context: CompileContext, calls: CallCompiler) -> None:
        super().__init__(context)
        self.calls = calls
        self._value_lines: dict[str, int] = {}  # where a known macro becomes a value
        self._assigned_names = Counter(find_assigned_names(context.nodes))

    def remove_unused_values(self) -> None:
        """Blank the lines that make values of macros which are only ever called directly."""
        for name, index in self._value_lines.items():
            if name not in self.variables.used_as_values:
                lines = self.writer.lines
                lines[index] = lines[index]._replace(text="    pass")

    def visit_Macro(self, node: nodes.Macro) -> None:
        variable = self.variables.read(node.name).value
        function = self.writer.temporary("macro")
        frame = self.variables.frame
        runs_once = frame.symbols.parent is None and not frame.conditional
        if runs_once and self._is_known(node):
            arguments = tuple(argument.name for argument in node.args)
            self.variables.macros[node.name] = KnownMacro(variable, function, arguments)
        value = self._compile_function(node, node.name, function)
        if node.name in self.variables.macros:
            self._value_lines[node.name] = len(self.writer.lines)
        self.variables.assign(variable, value)
        self.variables.invalidate(variable)

    def _is_known(self, node: nodes.Macro) -> bool:
        """Whether nothing else has this name, and the macro takes only the arguments it lists."""
        names = {argument.name for argument in node.args}
        return (
            self._assigned_names[node.name] == 1
            and not find_undeclared(node.body, SPECIAL_NAMES)
            and names.isdisjoint(SPECIAL_NAMES)
        )

    def visit_CallBlock(self, node: nodes.CallBlock) -> None:
        if isinstance(node.call.node, nodes.ExtensionAttribute):  # text that the model generates
            # transformers makes a function of the block, so no `break` leaves it
            inner = self.variables.frame.open_scope(node)._replace(breakable=False)
            self.writer.emit_marker("BEGIN")
            with self.writer.block("if True:"):
                self.context.compile_scope(node.body, inner)
            self.writer.emit_marker("END")
            return
        caller = self.writer.temporary("caller")
        value = self._compile_function(node, None, self.writer.temporary("macro"))
        self.writer.line(f"{caller} = {value.value}")
        callee = self.compile(node.call.node)
        value = self.calls.call_value(callee, node.call, f", **{{'caller': ({caller}, None)}}")
        self.writer.queue_output(value, node.call)

    def _compile_function(self, node: MacroNode, name: str | None, function: str) -> Code:
        """Write the function of a macro, and return the code of the macro's value."""
        inner = Frame(self.variables.frame.open_scope(node).symbols)  # it runs elsewhere
        names = [argument.name for argument in node.args]
        used = find_undeclared(node.body, SPECIAL_NAMES)
        first_default = len(names) - len(node.defaults)
        if "caller" in used and "caller" in names[:first_default]:
            message = 'the special "caller" argument must be omitted or be given a default'
            raise CompileError(message, node.lineno)
        extra = [name for name in SPECIAL_NAMES if name in used and name not in names]
        references = [inner.symbols.ref(name) for name in names]
        references += [inner.symbols.declare_parameter(name) for name in extra]
        parameters = [self.variables.identifier(reference) for reference in references]
        inner.symbols.analyze_node(node)
        writer = self.writer
        arguments = ", ".join(f"a{i}" for i in range(len(parameters)))
        with writer.function(f"def {function}({arguments}):"):
            writer.line(f"out = []; rt.steps -= {self.context.costs.of_macro(node)}; rt.depth -= 1")
            writer.line("if rt.steps < 0 or rt.depth < 0: check_call_budget(rt)")
            for number, parameter in enumerate(parameters):
                writer.line(f"{parameter}, {trail_of(parameter)} = a{number}")
            with self.variables.use_frame(inner):
                self.variables.define_names()
                self._compile_defaults(node, parameters, first_default)
                self.context.compile_body(node.body)
            writer.flush()
            writer.line("rt.depth += 1")
        special = ("caller" in used, "kwargs" in extra, "varargs" in extra)
        return Code(f"Macro({name!r}, {function}, {tuple(names)!r}, *{special!r})")

    def _compile_defaults(self, node: MacroNode, parameters: list[str], first_default: int) -> None:
        """Give arguments that are missing their defaults.
        All of them are undefined first, since a default may name any argument.
        """
        writer = self.writer
        for number, (argument, parameter) in enumerate(zip(node.args, parameters, strict=False)):
            message = f"parameter {argument.name!r} was not provided"
            undefined = writer.share_constant("U", Undefined(message))
            writer.line(f"if {parameter} is MISSING: {parameter} = {undefined}")
            if number >= first_default:
                writer.line(f"d{parameter[1:]} = {parameter} is {undefined}")
        with_defaults = parameters[first_default : len(node.args)]
        for parameter, default in zip(with_defaults, node.defaults, strict=True):
            with writer.block(f"if d{parameter[1:]}:"):
                self.variables.assign(parameter, self.compile(default))
