"""Expressions without operators: constants, containers and names."""

from __future__ import annotations

import re

from jinja2 import nodes

from turnwise.engine.compiler.codegen import NO_TRAIL, Code, Kind
from turnwise.engine.compiler.context import CompilerPart
from turnwise.engine.compiler.syntax import CompileError
from turnwise.engine.runtime.limits import MAX_INTEGER_BITS

SURROGATE = re.compile("[\ud800-\udfff]")
FREE_KEYS = (Kind.LITERAL, Kind.TEXT)  # their hashes do not collide


class ValueCompiler(CompilerPart):
    """Compiles constants, lists, tuples, dicts and names."""

    def visit_Const(self, node: nodes.Const | nodes.TemplateData, trail: bool) -> Code:
        value = node.data if isinstance(node, nodes.TemplateData) else node.value
        source = self.writer.quote(value) if isinstance(value, str) else repr(value)
        position = self.writer.add_text_position(node.lineno)
        if isinstance(value, str):
            if not value.isascii() and SURROGATE.search(value):
                message = "half of a surrogate pair cannot be written as UTF-8"
                raise CompileError(message, node.lineno)
            frame = self.context.variables.frame
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
        codes = [self.context.compile(item, trail) for item in node.items]
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
            key = writer.name_value(self.context.compile(item.key))
            if key.kind not in FREE_KEYS:
                charged = f"charge_key(rt, {key.value}, {3 * len(node.items)})"  # three dicts
                key = writer.store_value(Code(charged, key.trail))
            value = self.context.compile(item.value, trail)
            values.append(f"{key.value}: {value.value}")
            value_trails.append(f"{key.value}: {value.trail}")
            key_trails.append(f"{key.value}: {key.trail}")
        if not values:
            return Code("{}")
        trails = f"(ITEMS, {{{', '.join(value_trails)}}}, {{{', '.join(key_trails)}}})"
        return Code(f"{{{', '.join(values)}}}", trails if trail else NO_TRAIL)

    def visit_Name(self, node: nodes.Name, trail: bool) -> Code:
        variables = self.context.variables
        variables.used_as_values.add(node.name)
        return variables.read(node.name)
