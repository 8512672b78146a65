"""Expressions without operators: constants, containers and names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jinja2 import nodes

from turnwise.engine.compiler.codegen import NO_TRAIL, Code, Kind
from turnwise.engine.compiler.context import CompileContext, ExpressionHandlers
from turnwise.engine.compiler.scopes import CompileError, Frame

HASHABLE_KINDS = (Kind.LITERAL, Kind.CONSTANT, Kind.INT, Kind.TEXT)


class ValueCompiler:
    """Compiles constants, lists, tuples, dicts and names."""

    def __init__(self, context: CompileContext) -> None:
        self.context = context
        self.writer = context.writer

    def handlers(self) -> ExpressionHandlers:
        return {
            nodes.Const: self._compile_const,
            nodes.TemplateData: self._compile_template_data,
            nodes.List: self._compile_list,
            nodes.Tuple: self._compile_tuple,
            nodes.Dict: self._compile_dict,
            nodes.Name: self._compile_name,
        }

    def _compile_const(self, node: nodes.Const, frame: Frame, trail: bool) -> Code:
        return self._compile_constant(node.value, node.lineno)

    def _compile_template_data(self, node: nodes.TemplateData, frame: Frame, trail: bool) -> Code:
        return self._compile_constant(node.data, node.lineno)

    def _compile_constant(self, value: Any, lineno: int) -> Code:
        source = repr(value)
        if isinstance(value, str):
            if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
                raise CompileError("half of a surrogate pair cannot be written as UTF-8", lineno)
            return Code(source, self.writer.add_text_position(lineno), Kind.LITERAL, value)
        trail = self.writer.add_text_position(lineno)
        if type(value) is int:
            return Code(f"({source})", trail, Kind.INT, value)
        if isinstance(value, float) and source in ("inf", "-inf", "nan"):
            source = f"float({source!r})"
        return Code(source, trail, Kind.CONSTANT)

    def _compile_list(self, node: nodes.List, frame: Frame, trail: bool) -> Code:
        return self._compile_items(node.items, frame, trail, "[{}]", "[]")

    def _compile_tuple(self, node: nodes.Tuple, frame: Frame, trail: bool) -> Code:
        return self._compile_items(node.items, frame, trail, "({},)", "()")

    def _compile_items(
        self, items: Sequence[nodes.Expr], frame: Frame, trail: bool, form: str, empty: str
    ) -> Code:
        if not items:
            return Code(empty)
        codes = [self.context.compile(item, frame, trail) for item in items]
        value = form.format(", ".join(code.value for code in codes))
        if not trail:
            return Code(value)
        return Code(value, f"(ITEMS, ({', '.join(code.trail for code in codes)},))")

    def _compile_dict(self, node: nodes.Dict, frame: Frame, trail: bool) -> Code:
        writer = self.writer
        values, value_trails, key_trails = [], [], []
        for item in node.items:
            key = writer.name_value(self.context.compile(item.key, frame))
            if key.kind not in HASHABLE_KINDS:
                key = writer.store_value(Code(f"charge_key(rt, {key.value})", key.trail))
            value = self.context.compile(item.value, frame, trail)
            values.append(f"{key.value}: {value.value}")
            value_trails.append(f"{key.value}: {value.trail}")
            key_trails.append(f"{key.value}: {key.trail}")
        if not values:
            return Code("{}")
        trails = f"(ITEMS, {{{', '.join(value_trails)}}}, {{{', '.join(key_trails)}}})"
        return Code(f"{{{', '.join(values)}}}", trails if trail else NO_TRAIL)

    def _compile_name(self, node: nodes.Name, frame: Frame, trail: bool) -> Code:
        variables = self.context.variables
        variables.used_as_values.add(node.name)
        return variables.read(node.name, frame)
