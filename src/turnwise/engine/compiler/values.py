"""Expressions without operators: constants, containers and names; and lookups: `owner.name`, `owner["name"]`,
`owner[index]`, slices, and the attributes of `loop`.

A field of a dict is read inline, guarded by a test of the owner's class; every other owner takes the runtime call. What
was read stays available in its variable, so a second `message.role` costs nothing.
"""

from __future__ import annotations

import re

from jinja2 import nodes

from turnwise.engine.compiler.codegen import NO_TRAIL, Code, Kind, scalar, trail_of
from turnwise.engine.compiler.context import CompilerPart
from turnwise.engine.compiler.syntax import CompileError
from turnwise.engine.compiler.tree import is_loop
from turnwise.engine.runtime.access import LOOP_ATTRIBUTES, LOOP_NEIGHBOURS
from turnwise.engine.runtime.limits import MAX_INTEGER_BITS
from turnwise.engine.runtime.methods import METHODS
from turnwise.engine.runtime.values import Undefined
from turnwise.errors import short_repr

SURROGATE = re.compile("[\ud800-\udfff]")


class ValueCompiler(CompilerPart):
    """Compiles constants, lists, tuples, dicts and names; attributes, items and slices."""

    def visit_Const(self, node: nodes.Const | nodes.TemplateData, trail: bool) -> Code:
        value = node.data if isinstance(node, nodes.TemplateData) else node.value
        source = self.writer.quote(value) if isinstance(value, str) else repr(value)
        position = self.writer.add_text_position(node.lineno)
        if isinstance(value, str):
            if not value.isascii() and SURROGATE.search(value):
                message = "half of a surrogate pair cannot be written as UTF-8"
                raise CompileError(message, node.lineno)
            frame = self.variables.frame
            if trail and frame.assigning and frame.elements:
                return Code(source, frame.within_elements(position), Kind.TEXT)
            return Code(source, position, Kind.LITERAL, value)
        if type(value) is int:
            if value.bit_length() > MAX_INTEGER_BITS:
                raise CompileError("an integer has at most 308 digits", node.lineno)
            return Code(f"({source})", position, Kind.INT, value)
        if source in ("inf", "-inf", "nan"):
            source = f"float({source!r})"
        return Code(source, position, Kind.CONSTANT)

    visit_TemplateData = visit_Const

    def visit_List(self, node: nodes.List | nodes.Tuple, trail: bool) -> Code:
        codes = [self.compile(item, trail) for item in node.items]
        values = "".join(f"{code.value}, " for code in codes)
        value = f"[{values}]" if isinstance(node, nodes.List) else f"({values})"
        if not trail or not codes:
            return Code(value)
        return Code(value, f"(ITEMS, ({', '.join(code.trail for code in codes)},))")

    visit_Tuple = visit_List

    def visit_Dict(self, node: nodes.Dict, trail: bool) -> Code:
        writer = self.writer
        values, value_trails, key_trails = [], [], []
        for item in node.items:
            key = writer.name_value(self.compile(item.key))
            if not key.is_text:  # the hashes of others may collide
                charged = f"charge_key(rt, {key.value}, {3 * len(node.items)})"  # three dicts
                key = writer.store_value(Code(charged, key.trail))
            value = self.compile(item.value, trail)
            values.append(f"{key.value}: {value.value}")
            value_trails.append(f"{key.value}: {value.trail}")
            key_trails.append(f"{key.value}: {key.trail}")
        if not values:
            return Code("{}")
        trails = f"(ITEMS, {{{', '.join(value_trails)}}}, {{{', '.join(key_trails)}}})"
        return Code(f"{{{', '.join(values)}}}", trails if trail else NO_TRAIL)

    def visit_Name(self, node: nodes.Name, trail: bool) -> Code:
        variables = self.variables
        variables.used_as_values.add(node.name)
        return variables.read(node.name)

    # ---- lookups ----

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
        owner = writer.store_value(self.compile(node.node))
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
        owner = self.writer.store_value(self.compile(node.node))
        if isinstance(node.arg, nodes.Slice):
            parts = (node.arg.start, node.arg.stop, node.arg.step)
            bounds = ", ".join(
                "None" if part is None else self.compile_value(part) for part in parts
            )
            function = "get_constant_slice" if self.variables.frame.constant else "get_slice"
            return self.writer.store_pair(f"{function}(rt, {owner.pair}, {bounds})")
        key = self.compile(node.arg, False)
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

    def _read_field(self, owner: Code, name: str, call: str, trail: bool) -> Code:
        """Look a field up, unless it is available from an earlier lookup."""
        writer = self.writer
        key = writer.quote(name)
        message = f"'dict object' has no attribute {short_repr(name)}"
        absence = writer.share_constant("U", Undefined(message, owner.value, name))
        # the condition under which the inline form is right; empty if it always is
        guard = "" if owner.kind is Kind.MESSAGE else f"{owner.value}.__class__ is dict"
        inline = f"{owner.value}[{key}] if {key} in {owner.value} else {absence}"
        inline_trail = f"({owner.trail}, {key})"
        known = writer.reads.recall(owner.value, key)
        if known is None:
            code = self._write_lookup(guard, inline, inline_trail if trail else "", call)
        elif trail and known.trail == NO_TRAIL:
            code = Code(known.value, writer.temporary("o"))
            if guard:
                inline_trail += f" if {guard} else {call}[1]"
            writer.line(f"{code.trail} = {inline_trail}")
        else:
            return known
        writer.reads.remember(owner.value, key, code)
        return code

    def _write_lookup(self, guard: str, inline: str, inline_trail: str, call: str) -> Code:
        """Write the inline form of a lookup, and the runtime call for all other owners; its trail unless that is ""."""
        line, value = self.writer.line, self.writer.temporary()
        if not inline_trail:
            if guard:
                inline = f"({inline}) if {guard} else {call}[0]"
            line(f"{value} = {inline}")
            return Code(value)
        code = Code(value, trail_of(value))
        assignments = f"{value} = {inline}; {code.trail} = {inline_trail}"
        if guard:
            line(f"if {guard}: {assignments}")
            line(f"else: {code.pair} = {call}")
        else:
            line(assignments)
        return code
