"""Jinja expressions for fields of values, and for whether a value is true.

A field of a struct is a key of a message or tool, a field of a mapping one of its keys, and a field
of the root a variable of the Jinja. What has no such field fails when it is rendered, as in Go.
"""

from __future__ import annotations

from collections.abc import Mapping

from turnwise.dialects.ollama_go import refuse
from turnwise.dialects.ollama_print import GoPrinter, GoValue, as_list, get_field
from turnwise.dialects.ollama_types import KNOWN_NAMES, ROOT_FIELDS, TYPES, GoType
from turnwise.dialects.turns import literal
from turnwise.errors import did_you_mean


class GoFieldWriter:
    """Writes fields of values.

    Args:
        printer: writes values as text and JSON.
        root: the fields of the root.
    """

    def __init__(self, printer: GoPrinter, root: Mapping[str, GoValue]) -> None:
        self.printer = printer
        self.exact = printer.exact
        self.root = root
        # Ollama executes the last round of an older template without the functions that it adds to Go's.
        self.has_functions = True
        self.used_root: set[str] = set()  # fields of the root that were used

    def write_truth(self, value: GoValue) -> str:
        """Return the test whether Go takes a value for true."""
        if value.kind in ("struct", "root"):
            # Always true; but finding it may fail.
            return f"({value.jinja} is defined)" if "(" in value.jinja else "true"
        if value.kind == "pointer":
            return f"{value.jinja} is mapping"
        return value.jinja

    def write_field(self, value: GoValue, name: str, line: int) -> GoValue:
        """Return a field of a value, or what a method without arguments returns."""
        method = self._write_method(value, name, line)
        if method is not None:
            return method
        if value.kind == "root":
            return self._write_root_field(name, line)
        if value.kind == "struct":
            found = value.type.get_field(name)
            if found is None:
                self._check_name(name, value.type, line)
                return self._no_field(value.type, name, line)
            if value.type.name == "message":  # which has all of its keys
                return GoValue(f"{value.jinja}.{found.key}", TYPES[found.type])
            return GoValue(get_field(value.jinja, found), TYPES[found.type])
        if value.kind == "map":
            return self.write_entry(value, literal(name))
        if value.kind == "any":
            return self._write_entry_of_any(value, name, line)
        # The last round has none of Ollama's options either, so nil has every field.
        is_lenient = not self.exact or value.is_settled or not self.has_functions
        if value.kind == "nil" and is_lenient:
            return value
        return self._no_field(value.type, name, line)

    def write_entry(self, value: GoValue, key: str) -> GoValue:
        """Return the value of a key of a mapping; a missing one has the zero of its type."""
        element = TYPES[value.type.element]
        entry = f"({value.jinja} or {{}}).get({key})"
        return GoValue(f"({entry} or {{}})" if element.kind == "struct" else entry, element)

    def _write_entry_of_any(self, value: GoValue, name: str, line: int) -> GoValue:
        other = "none"
        if self.exact:
            other = self.printer.fail(line, f"this value has no field .{name}")
        if self.exact and value.is_settled:
            other = f"none if {value.jinja} is not defined or {value.jinja} is none else {other}"
        entry = f"{value.jinja}.get({literal(name)})"
        return GoValue(f"({entry} if {value.jinja} is mapping else {other})", value.type)

    def _write_method(self, value: GoValue, name: str, line: int) -> GoValue | None:
        """Return what a method of a type of Ollama returns; None if there is no such method."""
        has_text = value.type.prints_json or value.type.name == "property_type"
        if name == "String" and has_text:
            return GoValue(self.printer.print_value(value, line), TYPES["string"])
        if name == "ToTypeScriptType" and value.type.name == "property":
            return GoValue(self.printer.call("typescript", value.jinja), TYPES["string"])
        if name == "Len" and value.type.name == "nested":
            return GoValue(f"({as_list(value)} | length)", TYPES["int"])
        return None

    def _write_root_field(self, name: str, line: int) -> GoValue:
        if name in self.root:
            self.used_root.add(name)
            return self.root[name]
        self._check_name(name, TYPES["root"], line)
        return GoValue("none", TYPES["nil"])

    def _no_field(self, type_: GoType, name: str, line: int) -> GoValue:
        message = f"there is no field .{name} in a value of the type {type_.go_name}"
        if name in ROOT_FIELDS:
            message += f"; it is a field of the root, $.{name}"
        return GoValue(self.printer.fail(line, message), TYPES["any"])

    def _check_name(self, name: str, type_: GoType, line: int) -> None:
        """Refuse a name that is no field anywhere, which is probably misspelt."""
        if self.exact or name in KNOWN_NAMES:
            return
        known = ROOT_FIELDS if type_.kind == "root" else [each.name for each in type_.fields]
        refuse(line, f"there is no field .{name} here", did_you_mean(name, known, "Fields"))
