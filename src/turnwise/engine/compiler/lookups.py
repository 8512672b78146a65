"""Lookups: `owner.name`, `owner["name"]`, `owner[index]`, slices, and the attributes of `loop`.

A field of a dict is read inline, guarded by a test of the owner's class; every other owner takes the runtime call. What
was read stays available in its variable, so a second `message.role` costs nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from jinja2 import nodes

from turnwise.engine.compiler.codegen import NO_TRAIL, Code, Kind, scalar, trail_of
from turnwise.engine.compiler.context import CompilerPart
from turnwise.engine.compiler.tree import is_loop
from turnwise.engine.runtime.methods import METHODS
from turnwise.engine.runtime.values import Undefined
from turnwise.errors import short_repr

# `loop` as expressions over the variables of loop {0}: the counter i, the elements t, their trails o
LOOP_ATTRIBUTES = {
    "index0": "i{0}",
    "index": "(i{0} + 1)",
    "first": "(i{0} == 0)",
    "last": "(i{0} + 1 == len(t{0}))",
    "length": "len(t{0})",
    "revindex": "(len(t{0}) - i{0})",
    "revindex0": "(len(t{0}) - i{0} - 1)",
    "depth": "1",
    "depth0": "0",
}
LOOP_NEIGHBOURS = {
    "previtem": "get_neighbour(t{0}, o{0}, i{0} - 1, NO_PREVIOUS)",
    "nextitem": "get_neighbour(t{0}, o{0}, i{0} + 1, NO_NEXT)",
}


class Lookup(NamedTuple):
    """The generated forms of one lookup."""

    guard: str  # the condition under which the inline form is right; empty if it always is
    inline: str
    inline_trail: str
    call: str  # the runtime call for all other owners; returns value and trail


class LookupCompiler(CompilerPart):
    """Compiles attributes, items and slices."""

    def find_loop(self, node: nodes.Expr) -> str | None:
        """Return the number of the loop whose `loop` this node is, if the loop has no object."""
        variables = self.variables
        if is_loop(node) and variables.frame.symbols.find_ref("loop"):
            return variables.loops.get(variables.resolve("loop"))
        return None

    def _is_namespace(self, node: nodes.Expr) -> bool:
        """Whether the name is that of a namespace anywhere in the template."""
        return isinstance(node, nodes.Name) and node.name in self.variables.namespaces

    def visit_Getattr(self, node: nodes.Getattr, trail: bool) -> Code:
        name, writer = node.attr, self.writer
        loop = self.find_loop(node.node)
        if loop is not None and name in LOOP_ATTRIBUTES:
            kind = Kind.SCALAR if name in ("first", "last") else Kind.INT
            return scalar(LOOP_ATTRIBUTES[name].format(loop), kind)
        if loop is not None and name in LOOP_NEIGHBOURS:
            return writer.store_pair(LOOP_NEIGHBOURS[name].format(loop))
        owner = writer.store_value(self.context.compile(node.node))
        writer.lineno = node.lineno
        call = f"get_attribute(rt, {owner.pair}, {name!r})"
        if self._is_namespace(node.node):
            pairs = f"{owner.value}.pairs"
            guard = f"{owner.value}.__class__ is Namespace and {name!r} in {pairs}"
            return writer.store_pair(f"{pairs}[{name!r}] if {guard} else {call}")
        if name in METHODS[dict]:
            return writer.store_pair(call)
        return self._read_field(owner, name, call, trail)

    def visit_Getitem(self, node: nodes.Getitem, trail: bool) -> Code:
        owner = self.writer.store_value(self.context.compile(node.node))
        if isinstance(node.arg, nodes.Slice):
            return self._compile_slice(owner, node.arg)
        key = self.context.compile(node.arg, False)
        self.writer.lineno = node.lineno
        call = f"get_item(rt, {owner.pair}, {key.value})"
        name = key.literal
        if (
            isinstance(name, str)
            and name not in METHODS[dict]
            and not self._is_namespace(node.node)
        ):
            return self._read_field(owner, name, call, trail)
        # A loop over a range looks its messages up by number, which shows where each one begins.
        code = self.writer.store_pair(call)
        if self.variables.frame.in_number_loop and not key.is_literal:
            self.writer.flush()
            self.writer.line(f"{self.writer.out} += ('', (BOUND, {code.trail}))")
        return code

    def _compile_slice(self, owner: Code, node: nodes.Slice) -> Code:
        bounds = ""
        for bound in (node.start, node.stop, node.step):
            value = "None" if bound is None else self.context.compile_value(bound)
            bounds += f", {value}"
        function = "get_constant_slice" if self.variables.frame.constant else "get_slice"
        return self.writer.store_pair(f"{function}(rt, {owner.pair}{bounds})")

    def _read_field(self, owner: Code, name: str, call: str, trail: bool) -> Code:
        """Look a field up, unless it is available from an earlier lookup."""
        writer = self.writer
        key = writer.quote(name)
        message = f"'dict object' has no attribute {short_repr(name)}"
        absence = writer.share_constant("U", Undefined(message, owner.value, name))
        guard = "" if owner.kind is Kind.MESSAGE else f"{owner.value}.__class__ is dict"
        inline = f"{owner.value}[{key}] if {key} in {owner.value} else {absence}"
        lookup = Lookup(guard, inline, f"({owner.trail}, {key})", call)
        known = writer.reads.recall(owner.value, key)
        if known is None:
            code = self._write_lookup(lookup, trail)
        elif trail and known.trail == NO_TRAIL:
            code = self._add_trail(lookup, known.value)
        else:
            return known
        writer.reads.remember(owner.value, key, code)
        return code

    def _write_lookup(self, lookup: Lookup, trail: bool) -> Code:
        line, inline = self.writer.line, lookup.inline
        value = self.writer.temporary()
        if not trail:
            if lookup.guard:
                inline = f"({inline}) if {lookup.guard} else {lookup.call}[0]"
            line(f"{value} = {inline}")
            return Code(value)
        code = Code(value, trail_of(value))
        assignments = f"{value} = {inline}; {code.trail} = {lookup.inline_trail}"
        if lookup.guard:
            line(f"if {lookup.guard}: {assignments}")
            line(f"else: {code.pair} = {lookup.call}")
        else:
            line(assignments)
        return code

    def _add_trail(self, lookup: Lookup, value: str) -> Code:
        """Write the trail of a value that was looked up without one."""
        code = Code(value, self.writer.temporary("o"))
        trail = lookup.inline_trail
        if lookup.guard:
            trail = f"{trail} if {lookup.guard} else {lookup.call}[1]"
        self.writer.line(f"{code.trail} = {trail}")
        return code
