"""Loops: what `{% for %}` becomes.

A loop is a plain Python `for` over the elements and their trails side by side. `loop.index` and its kin are
expressions over a counter; only a template that uses `loop` as a value gets an object. A loop over messages marks, in
the output, which message it is at. `{% for x in xs if test %}` asks the test on the way, unless the body looks ahead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jinja2 import nodes

from turnwise.engine.compiler.codegen import Code
from turnwise.engine.compiler.cost import step_cost
from turnwise.engine.compiler.scopes import Fault, Frame, LoopNames
from turnwise.engine.compiler.statements import Statements
from turnwise.engine.runtime.operations import CALL_WEIGHT

NESTED_LOOPS = 12  # Python allows twenty blocks within one function


class Loops(Statements):
    """The part of the compiler that knows loops."""

    def on_For(self, node: nodes.For, frame: Frame) -> None:
        if node.recursive:
            return self.recursive_loop(node, frame)
        items = self.code(node.iter, frame)
        number = self.temporary("")
        if items.kind == "messages":
            self.line(
                f"t{number} = {items.value}; o{number} = walk_messages(rt, t{number}, {step_cost(node.body) + 2})"
            )
            return self.loop(node, frame, number, items.kind)
        self.line(
            f"t{number}, o{number}, k{number} = walk(rt, {items.value}, {items.trail}, {step_cost(node.body) + 2})"
        )
        self.loop(node, frame, number, "numbers" if over_numbers(node.iter) else "")

    def loop(self, node: nodes.For, frame: Frame, number: str, kind: str = "") -> None:
        """A loop over elements t, with trails o; k says whether they may be messages; i counts, if anybody asks."""
        inner = frame.inner()
        inner.loops += 1
        inner.breakable = True
        inner.counting = (kind == "numbers" or frame.counting) and kind != "messages"
        if inner.loops > NESTED_LOOPS:
            raise Fault(f"more than {NESTED_LOOPS} loops within loops", node.lineno)
        uses = set(uses_of_loop(node.body))
        loop_name = (
            self.identifier(inner.symbols.declare_parameter("loop"))
            if uses or node.recursive
            else ""
        )
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
        target = self.target_name(node, inner, kind) or f"x{number}"
        trail = f"o{target[1:]}" if target[0] == "v" else f"ox{number}"
        counts = bool(uses or node.recursive) and not lazy_test
        heads = (f"i{number}, ", "NUMBERS, ") if counts else ("", "")
        with self.block(f"for {heads[0]}{target}, {trail} in zip({heads[1]}t{number}, o{number}):"):
            if target[0] != "v":
                self.bind(node.target, Code(target, trail), inner)
            if lazy_test:
                self.ask_test(node, frame, number, bool(uses))
            if loop_name and as_value:
                self.line(f"{loop_name}.index0 = i{number}")
            if marks:
                self.loop_mark(kind, number, trail)
            self.enter(inner)
            self.statements(node.body, inner)
            if node.else_:  # as in jinja2, a round that does not reach its end does not count
                self.flush()
                self.line(f"e{number} = False")
        if marks:
            self.loop_mark(kind, number, "DONE")
        if node.else_:
            self.otherwise(node, frame, number)

    def ask_test(self, node: nodes.For, frame: Frame, number: str, counts: bool) -> None:
        """`if test` of a loop, on the way: elements that fail it are passed over and not counted."""
        assert node.test is not None
        inner = (
            frame.inner()
        )  # a scope of its own: `loop` is the one around, and names of the body are not seen
        inner.symbols.analyze_node(node, for_branch="test")
        self.enter(inner)
        self.line(f"if not ({self.condition(node.test, inner)}): continue")
        if counts:
            self.line(f"i{number} += 1")

    def loop_mark(self, kind: str, number: str, trail: str) -> None:
        """Loops over messages say which one they are at; other loops do if it turns out that they are over messages."""
        if kind == "messages":
            self.mark(trail)
        elif kind == "numbers":  # which message it is at shows when it takes one
            self.mark(trail if trail in ("LOOP", "DONE") else "NEXT")
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
        """The variable of a loop with one target. It holds messages if nothing else binds it."""
        target = node.target
        if not isinstance(target, nodes.Name):
            return None
        name = self.identifier(frame.symbols.ref(target.name))
        self.forget(name)
        self.lasting.add(name)
        self.trails.pop(name, None)
        bound = any(
            other.ctx == "store" and other.name == target.name
            for part in node.body
            for other in names_in(part)
        )
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
            self.line("if depth0 >= rt.depth: raise limit_error('depth')")
            self.line(
                f"def again{number}_(pair): return captured(rt, again{number}(pair, depth0 + 1))"
            )
            cost = step_cost(node.body) + CALL_WEIGHT
            self.line(f"t{number}, o{number}, k{number} = walk(rt, pair[0], pair[1], {cost})")
            self.loop(node, frame, number)
            self.flush()
            self.line("return out")
        self.out = outside
        self.line(f"{self.out} += again{number}(({items.value}, {items.trail}), 0)")


KNOWN_LOOP = set(LoopNames("", "", "", 0).attributes) | set(LoopNames("", "", "", 0).neighbours)
LOOKS_AHEAD = {"last", "length", "revindex", "revindex0", "nextitem", "previtem"}


def over_numbers(node: nodes.Node) -> bool:
    return (
        isinstance(node, nodes.Call)
        and isinstance(node.node, nodes.Name)
        and node.node.name == "range"
    )


def names_in(node: nodes.Node) -> Iterator[nodes.Name]:
    if isinstance(node, nodes.Name):
        yield node
    yield from node.find_all(nodes.Name)


def uses_of_loop(body: Iterable[nodes.Node]) -> Iterable[str]:
    """How `loop` is used in a body: an attribute's name, or "" where it is used as a value."""
    waiting: list[nodes.Node] = list(body)
    while waiting:
        node = waiting.pop()
        if (
            isinstance(node, nodes.Getattr)
            and isinstance(node.node, nodes.Name)
            and node.node.name == "loop"
        ):
            yield node.attr
        elif isinstance(node, nodes.Name) and node.name == "loop":
            yield ""
        else:
            waiting.extend(node.iter_child_nodes())


def writes(body: Iterable[nodes.Node]) -> bool:
    """Whether a body can put anything out."""
    return any(
        isinstance(node, (nodes.Output, nodes.CallBlock, nodes.FilterBlock))
        or any(node.find_all(nodes.Output))
        for node in body
    )
