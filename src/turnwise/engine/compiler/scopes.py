"""Scopes of the template, and the Python variable that each of its names becomes.

jinja2's own symbol tracking decides which scope defines a name, so scoping is exact. Its reference `l_1_message` (the
name `message` of a scope at level 1) becomes the Python variable `v1_message`, with its trail in `o1_message`. Inputs
of the template are read once, at the start of the program: `messages` becomes `v_messages`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple, cast

from jinja2 import nodes
from jinja2.idtracking import VAR_LOAD_ALIAS, VAR_LOAD_PARAMETER, VAR_LOAD_RESOLVE, Symbols

from turnwise.engine.compiler.codegen import Code, CodeWriter, Kind, trail_of
from turnwise.engine.provenance.trails import root_trail
from turnwise.engine.runtime.functions import FUNCTIONS
from turnwise.engine.runtime.values import Undefined


class KnownMacro(NamedTuple):
    """A macro whose name has no other meaning in the template, so that it can be called directly."""

    variable: str
    function: str
    arguments: tuple[str, ...]


class Scope(Symbols):
    """jinja2's symbol table of one scope, with the variables of the inputs that the scope reads."""

    def __init__(self, parent: Symbols | None = None) -> None:
        super().__init__(parent)
        self.inputs: dict[str, str] = {}


class Frame(NamedTuple):
    """The surroundings of a node: its scope, and the statements around it."""

    symbols: Scope
    conditional: bool = False  # in an `if` or a ternary: unknown filters fail when they are reached
    constant: bool = False  # in an output without names, which jinja2 evaluates while compiling
    loop_depth: int = 0
    breakable: bool = False  # inside a loop, with no function in between
    in_number_loop: bool = False  # inside a loop over a range, and in none over messages
    elements: tuple[
        str, ...
    ] = ()  # trails of the elements of the loops around that look at a `type`
    assigning: bool = False  # in the value of a `{% set %}`

    def within_elements(self, trail: str) -> str:
        """Return the trail of text that is kept in a variable, with the content parts it may be made for."""
        for element in self.elements:
            trail = f"(WITHIN, {trail}, {element})"
        return trail

    def inner(self) -> Frame:
        """Return the frame of a new scope. As in jinja2, its code is not conditional."""
        return self._replace(symbols=Scope(self.symbols), conditional=False)

    def open_scope(self, node: nodes.Node, **branch: str) -> Frame:
        """Return the frame of the scope that `node` opens, with its names declared.

        `for_branch` selects the body, the test or the `else` of a loop.
        """
        frame = self.inner()
        frame.symbols.analyze_node(node, **branch)
        return frame


class Variables:
    """The Python variables of a program: which names they are, and what is known about their values."""

    def __init__(
        self,
        writer: CodeWriter,
        all_nodes: Iterable[nodes.Node],
        shadowed: frozenset[str],
    ) -> None:
        self.writer = writer
        self.frame = Frame(Scope())  # of the node that is being compiled
        self.shadowed = shadowed  # builtin functions whose names are inputs
        self.inputs: dict[str, Code] = {}
        self.input_lines: list[str] = []  # they read the inputs, at the start of the program
        self.functions: dict[str, str] = {}  # variables of builtin functions: what to call
        self.macros: dict[str, KnownMacro] = {}
        self.loops: dict[str, str] = {}  # variables of `loop`: the number of the loop
        self.used_as_values: set[str] = set()
        self.namespaces = {node.name for node in all_nodes if isinstance(node, nodes.NSRef)}
        self._known: dict[str, Code] = {}
        self._identifiers: dict[str, str] = {}

    # ---- frames ----

    @contextmanager
    def use_frame(self, frame: Frame) -> Iterator[None]:
        """Compile some nodes in another frame."""
        outer_frame, self.frame = self.frame, frame
        yield
        self.frame = outer_frame

    def open_scope(self, node: nodes.Node) -> AbstractContextManager[None]:
        return self.use_frame(self.frame.open_scope(node))

    def change_frame(self, **changes: bool) -> AbstractContextManager[None]:
        return self.use_frame(self.frame._replace(**changes))  # type: ignore[arg-type]

    # ---- names to variables ----

    def identifier(self, reference: str) -> str:
        """Return the Python variable for jinja2's reference to a name."""
        if reference not in self._identifiers:
            ascii_name = reference if reference.isascii() else f"l_{len(self._identifiers)}_"
            self._identifiers[reference] = ascii_name.replace("l_", "v", 1)
        return self._identifiers[reference]

    def resolve(self, name: str) -> str:
        """Return the variable that a name of the template refers to in the current scope."""
        scope: Any = self.frame.symbols
        while name not in scope.refs and scope.parent is not None:
            scope = scope.parent
        return scope.inputs.get(name) or self.identifier(scope.ref(name))

    def read(self, name: str) -> Code:
        variable = self.resolve(name)
        return self._known.get(variable) or Code(variable, trail_of(variable))

    def declare_loop_item(self, variable: str, kind: Kind) -> Code:
        """Note that a loop assigns this variable, with items of a certain kind."""
        item = Code(variable, trail_of(variable), kind)
        self.invalidate(variable)
        self.writer.reads.lasting.add(variable)
        self._known[variable] = item
        return item

    def invalidate(self, variable: str) -> None:
        """Forget what was known about a variable that is assigned again."""
        self._known.pop(variable, None)
        self.writer.reads.forget(variable)
        self.writer.reads.lasting.discard(variable)

    # ---- entering scopes ----

    def define_names(self) -> None:
        """Give every name of a new scope its first value: of the outer scope, of an input, or undefined.

        A scope uses the variable of an input, or a copy of it if the scope assigns the name.
        """
        symbols = self.frame.symbols
        for target, (how, _) in symbols.loads.items():
            if how == VAR_LOAD_PARAMETER:
                continue
            variable = self.identifier(target)
            name = target.split("_", 2)[2]  # of `l_0_messages`
            if how == VAR_LOAD_ALIAS:
                with self.use_frame(Frame(cast(Scope, symbols.parent))):
                    self.assign(variable, self.read(name))
            elif how == VAR_LOAD_RESOLVE:
                code = self.inputs.get(name) or self._add_input(name)
                if name in symbols.stores:
                    self.assign(variable, code)
                else:
                    symbols.inputs[name] = code.value
            else:
                self.assign(variable, Code(self.undefined_name(name)))
            self.invalidate(variable)

    def assign(self, variable: str, code: Code) -> None:
        """Write the assignment of a value and its trail."""
        self.writer.line(f"{variable} = {code.value}; {trail_of(variable)} = {code.trail}")

    def undefined_name(self, name: str) -> str:
        """Return the constant for a name without a value."""
        return self.writer.share_constant("U", Undefined(f"{name!r} is undefined"))

    def _add_input(self, name: str) -> Code:
        variable = f"v_{name}" if name.isascii() else f"v_{len(self.inputs)}"
        writer = self.writer
        if name in FUNCTIONS and name not in self.shadowed:
            code = Code(variable)
            self.functions[variable] = f"call_{name}"
            writer.constants[variable] = FUNCTIONS[name]
        else:
            kind = Kind.MESSAGES if name == "messages" else Kind.ANY
            code = Code(variable, writer.share_constant("R", root_trail(name)), kind)
            absence = self.undefined_name(name)
            self.input_lines.append(
                f"    {variable} = context[{name!r}] if {name!r} in context else {absence}"
            )
            writer.reads.lasting.add(variable)
        self.inputs[name] = self._known[variable] = code
        return code
