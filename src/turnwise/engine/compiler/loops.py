"""Loops: `{% for %}` becomes a Python `for` over the elements and their trails.

Loop number 2 has these variables in the generated code:

    t2    the elements
    o2    their trails
    i2    the index of the current element, from 0; only if something uses `loop`
    k2    whether the elements are messages, or parts of a content
    e2    whether the `else` branch will run: no round has been completed; only if there is an `else`
    x2    the current element, and
    ox2   its trail, if the target is no plain name: `for key, value in items`

`loop.index` and the like are expressions over these variables; only a template that uses `loop` as a value gets an
object. A loop over messages, or over the parts of a message's content, marks, in the output, where it starts (`LOOP`)
and ends (`DONE`), and which element it is at. Text that is not written there but kept in a variable (`{% set %}`) has
the element in its trail (`Frame.part`).

`{% for x in xs if test %}` tests each element on its turn, unless the body looks ahead (`loop.last`): then all
elements are tested first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jinja2 import nodes

from turnwise.engine.compiler.codegen import Code, Kind
from turnwise.engine.compiler.context import CompilerPart
from turnwise.engine.compiler.cost import MACRO_CALL_STEPS
from turnwise.engine.compiler.scopes import Frame
from turnwise.engine.compiler.statements import StatementCompiler
from turnwise.engine.compiler.syntax import CompileError
from turnwise.engine.compiler.tree import (
    Body,
    child_nodes,
    find_assigned_names,
    find_nodes,
    is_loop,
    list_lookups,
    walk,
)
from turnwise.engine.runtime.access import LOOP_ATTRIBUTES, LOOP_NEIGHBOURS

MAX_LOOP_DEPTH = 12  # Python allows twenty blocks within one function
SIMPLE_ATTRIBUTES = {*LOOP_ATTRIBUTES, *LOOP_NEIGHBOURS}
RANGE = nodes.Name("range", "load")
OUTPUT = (nodes.Output, nodes.CallBlock, nodes.FilterBlock)
LOOKAHEAD = {"last", "length", "revindex", "revindex0", "nextitem", "previtem"}


class ForLoop:
    """What is decided about a `{% for %}` before its code is written."""

    def __init__(self, node: nodes.For, number: str, elements: Kind = Kind.ANY) -> None:
        uses = set(_find_loop_uses([node.target, *node.body]))
        self.node = node
        self.number = number
        self.elements = elements  # what is certain about each
        self.uses_loop = bool(uses) or node.recursive
        self.needs_object = node.recursive or not uses <= SIMPLE_ATTRIBUTES
        looks_ahead = self.needs_object or bool(uses & LOOKAHEAD)
        self.tests_first = node.test is not None and looks_ahead
        self.tests_each = node.test is not None and not looks_ahead
        self.has_output = any(isinstance(each, OUTPUT) for each in walk(*node.body))


class LoopCompiler(CompilerPart):
    """Compiles loops."""

    statements: StatementCompiler

    def visit_For(self, node: nodes.For) -> None:
        if node.recursive:
            self._compile_recursive(node)
            return
        items = self.compile(node.iter)
        number = self.writer.temporary("")
        cost = str(self.context.costs.of_round(node))
        if _skips_texts(node):
            cost += ", True"
        elements = Kind.ANY
        if isinstance(node.iter, nodes.Call) and node.iter.node == RANGE:
            elements = Kind.INT
        if items.kind is Kind.MESSAGES:
            elements = Kind.MESSAGE
        self._compile_loop(ForLoop(node, number, elements), f"{items.pair}, {cost}")

    def _compile_recursive(self, node: nodes.For) -> None:
        """Compile the loop as a function, so that `loop(children)` can run it again."""
        writer = self.writer
        number = writer.temporary("")
        items = self.compile(node.iter)
        run = f"again{number}"
        with writer.function(f"def {run}(pair, depth0):"):
            writer.line("out = []")
            writer.line("if depth0 >= rt.depth: raise limit_error('depth')")
            writer.line(f"def {run}_(pair): return capture_output(rt, {run}(pair, depth0 + 1))")
            cost = self.context.costs.of_round(node) + MACRO_CALL_STEPS
            self._compile_loop(ForLoop(node, number), f"pair[0], pair[1], {cost}")
        writer.line(f"{writer.out} += {run}(({items.pair}), 0)")

    def _compile_loop(self, loop: ForLoop, items: str) -> None:
        """Compile the loop over these items: their value and trail, and what a round costs."""
        writer, node, number = self.writer, loop.node, loop.number
        writer.line(f"t{number}, o{number}, k{number} = start_loop(rt, {items})")
        inner = self._open_body(loop)
        loop_variable = self.variables.identifier(inner.symbols.declare_parameter("loop"))
        inner.symbols.analyze_node(node, for_branch="body")
        if loop.tests_first:
            self._filter_elements(loop)
        if loop.needs_object:
            arguments = f"depth0, again{number}_" if node.recursive else "0, None"
            value = Code(f"Loop(t{number}, o{number}, {arguments})")
            self.variables.assign(loop_variable, value)
        else:  # `loop` is only a name for the variables of this loop
            self.variables.loops[loop_variable] = number
        if node.else_:
            writer.line(f"e{number} = True")
        self._emit_marker(loop, "LOOP")
        if loop.tests_each and loop.uses_loop:
            writer.line(f"i{number} = start_count(t{number})")
        with self._iterate(
            loop, loop.elements, inner, is_counted=loop.uses_loop and not loop.tests_each
        ) as element_trail:
            if loop.tests_each:
                self._skip_unless_test(loop)
            if loop.needs_object:
                writer.line(f"{loop_variable}.index0 = i{number}")
            if loop.elements is Kind.INT:
                element_trail = "NEXT"  # the lookup of the message will mark which one it is
            elif _may_be_over_parts(node):
                inner = inner._replace(elements=(*inner.elements, element_trail))
            self._emit_marker(loop, element_trail)
            self.context.compile_scope(node.body, inner)
            if node.else_:  # as in jinja2, a round that `continue` cuts short does not count
                writer.flush()
                writer.line(f"e{number} = False")
        self.variables.loops.pop(loop_variable, None)  # elsewhere it names something else
        self._emit_marker(loop, "DONE")
        if node.else_:
            with writer.block(f"if e{number}:"):
                frame = self.variables.frame.open_scope(node, for_branch="else")
                self.context.compile_scope(node.else_, frame)

    def _open_body(self, loop: ForLoop) -> Frame:
        frame = self.variables.frame
        depth = frame.loop_depth + 1
        if depth > MAX_LOOP_DEPTH:
            message = f"more than {MAX_LOOP_DEPTH} loops within loops"
            raise CompileError(message, loop.node.lineno)
        in_number_loop = frame.in_number_loop
        if loop.elements is not Kind.ANY:
            in_number_loop = loop.elements is Kind.INT
        return frame.inner()._replace(
            loop_depth=depth, breakable=True, in_number_loop=in_number_loop
        )

    @contextmanager
    def _iterate(
        self, loop: ForLoop, elements: Kind, frame: Frame, is_counted: bool
    ) -> Iterator[str]:
        """Write the `for` statement and assign its targets; give the trail of the element."""
        number = loop.number
        element = Code(f"x{number}", f"ox{number}")
        unpacked: nodes.Node | None = loop.node.target
        if isinstance(unpacked, nodes.Name):
            name, kind = unpacked.name, Kind.ANY
            # it holds messages if the body does not assign it
            if elements is Kind.MESSAGE and name not in find_assigned_names(walk(*loop.node.body)):
                kind = elements
            variable = self.variables.identifier(frame.symbols.ref(name))
            element = self.variables.declare_loop_item(variable, kind)
            unpacked = None
        head = f"for {element.pair} in zip(t{number}, o{number}):"
        if is_counted:
            head = f"for i{number}, {element.pair} in zip(NUMBERS, t{number}, o{number}):"
        with self.writer.block(head):
            if unpacked is not None:
                with self.variables.use_frame(frame):
                    self.statements.bind(unpacked, element)
            yield element.trail

    def _filter_elements(self, loop: ForLoop) -> None:
        """Test all elements before the loop."""
        number, writer = loop.number, self.writer
        inner = self.variables.frame.open_scope(loop.node, for_branch="test")
        chosen = writer.temporary()
        writer.line(f"{chosen} = []")
        with self._iterate(loop, Kind.ANY, inner, is_counted=True):
            writer.line(f"if {self._compile_test(loop, inner)}: {chosen}.append(i{number})")
        writer.line(f"t{number}, o{number} = pick_elements(t{number}, o{number}, {chosen})")

    def _skip_unless_test(self, loop: ForLoop) -> None:
        """Test an element on its turn; one that fails is not counted."""
        # In a scope of its own: `loop` is the outer one, and names of the body are not defined.
        inner = self.variables.frame.open_scope(loop.node, for_branch="test")
        self.writer.line(f"if not ({self._compile_test(loop, inner)}): continue")
        if loop.uses_loop:
            self.writer.line(f"i{loop.number} += 1")

    def _compile_test(self, loop: ForLoop, frame: Frame) -> str:
        assert loop.node.test is not None
        with self.variables.use_frame(frame):
            self.variables.define_names()
            return self.compile_value(loop.node.test)

    def _emit_marker(self, loop: ForLoop, trail: str) -> None:
        """Mark, in the output, the start and the end of a loop over messages, and each message."""
        writer = self.writer
        if not loop.has_output:
            return
        if loop.elements is Kind.ANY:  # it may turn out to be over messages
            writer.flush()
            writer.line(f"if k{loop.number}: {writer.out} += ('', {trail})")
            return
        writer.emit_marker(trail)


def _may_be_over_parts(node: nodes.For) -> bool:
    """Whether a loop looks at the `type` of its elements, as those over the parts of a content do."""
    target = node.target
    if not isinstance(target, nodes.Name) or target.name in find_assigned_names(walk(*node.body)):
        return False
    fields = {
        *_find_fields(node, nodes.Name(target.name, "load")),
        *(constant.value for constant in find_nodes(node.iter, nodes.Const)),
    }
    return "type" in fields and "role" not in fields


def _skips_texts(node: nodes.For) -> bool:
    """Whether a loop only asks for the `type` of its elements, which a letter of a text does not have."""
    branch = node.body[0] if len(node.body) == 1 else None
    if not isinstance(branch, nodes.If) or not isinstance(node.target, nodes.Name):
        return False
    fields = list_lookups(nodes.Name(node.target.name, "load"), "type")
    return not (branch.else_ or node.else_ or node.test) and all(
        isinstance(one.test, nodes.Compare)
        and one.test.expr in fields
        and all(each.op == "eq" and isinstance(each.expr, nodes.Const) for each in one.test.ops)
        for one in (branch, *branch.elif_)
    )


def _find_fields(node: nodes.Node, owner: nodes.Name) -> Iterator[object]:
    """Yield the fields of a variable that are read: `name.field`, `name['field']`, `name.get('field')`."""
    for lookup in walk(node):
        if isinstance(lookup, nodes.Getattr) and lookup.node == owner:
            yield lookup.attr
        elif isinstance(lookup, nodes.Getitem) and lookup.node == owner:
            yield getattr(lookup.arg, "value", None)
        elif isinstance(lookup, nodes.Call) and getattr(lookup.node, "node", None) == owner:
            yield getattr((*lookup.args, None)[0], "value", None)


def _find_loop_uses(body: Body) -> Iterator[str]:
    """Yield the attributes of `loop` that a body uses; "" where it uses `loop` as a value."""
    stack = list(body)
    while stack:
        node = stack.pop()
        if node == nodes.Name("loop", "store"):
            raise CompileError("a loop cannot assign to `loop`", node.lineno)
        if is_loop(node):
            yield ""
        elif isinstance(node, nodes.Getattr) and is_loop(node.node):
            yield node.attr
        else:
            stack += child_nodes(node)
