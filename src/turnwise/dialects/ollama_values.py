"""Jinja expressions for the terms of a Go template: paths, variables, constants and calls of functions.

    (index .Messages 0).Content      (chat or [])[0].content
    eq .Role "user" "tool"           (item.role in ['user', 'tool'])

Every expression has a Go type (`ollama_types.py`), from which it follows what a field or a function means: a field of
a struct is a key of a message or tool, a field of a mapping one of its keys, a field of the root a variable of the
Jinja. Where Go stops with an error while it renders (an index beyond the end, texts compared with numbers), Jinja's
answer is taken.

The functions are those that published templates use. Others of Go (`html`, `js`, `urlquery`, `print`, `println`,
`call`), parts of a text and verbs of `printf` but `%s`, `%d` and `%v` are refused, with the line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import NamedTuple

from turnwise.dialects.ollama_go import GoTerm, refuse
from turnwise.dialects.ollama_print import NIL, GoPrinter, GoValue, as_list, fail
from turnwise.dialects.ollama_types import KNOWN_NAMES, ROOT_FIELDS, TYPES, GoType, join_types
from turnwise.dialects.turns import literal
from turnwise.errors import did_you_mean, short_repr

# Characters of one expression: a value within a value is written more than once.
MAX_VALUE_LENGTH = 20_000
ROOT = GoValue("", TYPES["root"])
TYPE_OF_CONSTANT = {"text": "string", "int": "int", "float": "float", "bool": "bool", "nil": "nil"}
METHODS = ("String", "ToTypeScriptType", "Len")  # of Ollama's types
SIGNS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
ZEROS = {"string": "''", "int": "0", "struct": "{}"}


@dataclass(frozen=True, slots=True)
class OllamaScope:
    """What the dot, `$` and the variables mean at one place of the template."""

    dot: GoValue = ROOT
    root: GoValue = ROOT
    variables: Mapping[str, GoValue] = field(default_factory=dict)

    def with_variable(self, name: str, value: GoValue) -> OllamaScope:
        """Return the scope with one more variable."""
        return OllamaScope(self.dot, self.root, {**self.variables, name: value})

    def with_dot(self, dot: GoValue) -> OllamaScope:
        """Return the scope with another dot."""
        return OllamaScope(dot, self.root, self.variables)


class GoValueWriter:
    """Writes the terms of one template.

    Args:
        printer: writes values as text and JSON.
        root: the fields of the root.
    """

    def __init__(self, printer: GoPrinter, root: Mapping[str, GoValue]) -> None:
        self.printer = printer
        self.exact = printer.exact
        self.root = root
        self.used_root: set[str] = set()  # fields of the root that were used

    def write(self, term: GoTerm, scope: OllamaScope) -> GoValue:
        """Return the value of a term."""
        value = _check_length(self._write_base(term, scope), term.line)
        if term.kind != "call" or not term.name:
            for name in term.path:
                value = _check_length(self.write_field(value, name, term.line), term.line)
        return value

    def get_variable(self, name: str, line: int, scope: OllamaScope) -> GoValue:
        """Return a variable of the template."""
        if name not in scope.variables:
            hint = did_you_mean(name, scope.variables, "Declared")
            refuse(line, f"${name} is not declared", hint)
        return scope.variables[name]

    def _write_base(self, term: GoTerm, scope: OllamaScope) -> GoValue:
        if term.kind == "constant":
            jinja = literal(term.value) if term.name == "text" else term.value
            return GoValue(jinja, TYPES[TYPE_OF_CONSTANT[term.name]])
        if term.kind == "dot":
            return scope.dot
        if term.kind == "variable":
            return self.get_variable(term.name, term.line, scope) if term.name else scope.root
        if not term.name:  # parentheses
            return self.write(term.arguments[0], scope)
        return self._write_call(term, scope)

    def _write_call(self, term: GoTerm, scope: OllamaScope) -> GoValue:
        if term.name not in FUNCTIONS:
            hint = did_you_mean(term.name, FUNCTIONS, "Supported")
            refuse(term.line, f"the function {short_repr(term.name)} is not supported", hint)
        function = FUNCTIONS[term.name]
        count = len(term.arguments)
        if count < function.least or (function.most is not None and count > function.most):
            takes = f"at least {function.least}"
            if function.most is not None:
                takes = f"{function.least} to {function.most}"
            refuse(term.line, f"{term.name} takes {takes} values, not {count}")
        values = [self.write(argument, scope) for argument in term.arguments]
        if term.name != "index" and any(value.kind == "root" for value in values):
            refuse(term.line, f"the whole data as a value of {term.name} is not supported")
        return function.write(self, values, term)

    # -- fields and truth

    def write_truth(self, value: GoValue) -> str:
        """Return the test whether Go takes a value for true."""
        return "true" if value.kind in ("struct", "root") else value.jinja

    def write_field(self, value: GoValue, name: str, line: int) -> GoValue:
        """Return a field of a value."""
        if name in METHODS and "." in value.type.go_name:
            refuse(line, f"the method .{name} is not supported")
        if value.kind == "root":
            return self._write_root_field(name, line)
        if value.kind == "map":
            return self.write_entry(value, literal(name))
        if value.kind == "any":
            entry = f"{value.jinja}.get({literal(name)})"
            return GoValue(f"({entry} if {value.jinja} is mapping else none)", value.type)
        if value.kind == "nil":
            return value
        found = value.type.get_field(name)
        if found is None:
            return self._no_field(value.type, name, line)
        return GoValue(_get_item(value, found.key, TYPES[found.type]), TYPES[found.type])

    def write_entry(self, value: GoValue, key: str) -> GoValue:
        """Return the value of a key of a mapping; a missing one has the zero of its type."""
        element = TYPES[value.type.element]
        entry = f"({value.jinja} or {{}}).get({key})"
        return GoValue(f"({entry} or {{}})" if element.kind == "struct" else entry, element)

    def _write_root_field(self, name: str, line: int) -> GoValue:
        if name in self.root:
            self.used_root.add(name)
            return self.root[name]
        self._check_name(name, TYPES["root"], line)
        return GoValue("none", TYPES["nil"])

    def _no_field(self, type_: GoType, name: str, line: int) -> GoValue:
        """Return what fails when it is used: Ollama reads such templates, and fails where it comes to the field."""
        if type_.fields:
            self._check_name(name, type_, line)
        message = f"there is no field .{name} in a value of the type {type_.go_name}"
        if name in ROOT_FIELDS:
            message += f"; it is a field of the root, $.{name}"
        return GoValue(fail(line, message), TYPES["any"])

    def _check_name(self, name: str, type_: GoType, line: int) -> None:
        """Refuse a name that is no field anywhere, which is probably misspelt."""
        if self.exact or name in KNOWN_NAMES:
            return
        known = ROOT_FIELDS if type_.kind == "root" else [each.name for each in type_.fields]
        refuse(line, f"there is no field .{name} here", did_you_mean(name, known, "Fields"))


def _get_item(value: GoValue, key: str, type_: GoType) -> str:
    """Return the Jinja for a field of a struct; a missing text, number or struct has the zero of its type."""
    item = f"{value.jinja}.{key}"
    if not key.isidentifier() or key == "items":  # a method of mappings
        item = f"{value.jinja}.get({literal(key)})"
    if value.type.name == "message" or type_.kind not in ZEROS:  # a message has all of its keys
        return item
    return f"({item} or {ZEROS[type_.kind]})"


def _check_length(value: GoValue, line: int) -> GoValue:
    """Refuse an expression that grew with each function or field that was applied to it."""
    if len(value.jinja) > MAX_VALUE_LENGTH:
        refuse(line, "too many functions or fields of one value")
    return value


# -- truth and comparison --------------------------------------------------------------------------


def _write_logic(writer: GoValueWriter, values: list[GoValue], term: GoTerm) -> GoValue:
    # A struct is always true: never the result of `and` unless it is the last, and the end of an `or`.
    if term.name == "and":
        values = [*(value for value in values[:-1] if value.kind != "struct"), values[-1]]
    for index, value in enumerate(values):
        if value.kind == "struct":
            values = values[: index + 1]
            break
    if len(values) == 1:
        return values[0]
    joined = f" {term.name} ".join(value.jinja for value in values)
    return GoValue(f"({joined})", reduce(join_types, (value.type for value in values)))


def _write_not(writer: GoValueWriter, values: list[GoValue], term: GoTerm) -> GoValue:
    return GoValue(f"(not {writer.write_truth(values[0])})", TYPES["bool"])


def _write_comparison(writer: GoValueWriter, values: list[GoValue], term: GoTerm) -> GoValue:
    first, *others = (value.jinja for value in values)
    test = f"({first} {SIGNS[term.name]} {others[0]})"
    if len(others) > 1:
        test = f"({first} in [{', '.join(others)}])"
    return GoValue(test, TYPES["bool"])


# -- lists and mappings ----------------------------------------------------------------------------


def _write_len(writer: GoValueWriter, values: list[GoValue], term: GoTerm) -> GoValue:
    (value,) = values
    if value.kind not in ("list", "map", "string", "any"):
        refuse(term.line, f"the length of a {value.type.go_name} is not supported")
    size = f"({as_list(value)} | length)"
    if value.kind in ("string", "any"):  # Go counts the bytes of a text
        count = f"({writer.printer.call('count_bytes', value.jinja)} | int)"
        size = (
            count if value.kind == "string" else f"({count} if {value.jinja} is string else {size})"
        )
    return GoValue(size, TYPES["int"])


def _write_index(writer: GoValueWriter, values: list[GoValue], term: GoTerm) -> GoValue:
    value, *keys = values
    for argument, key in zip(term.arguments[1:], keys, strict=True):
        if value.kind == "root" and argument.kind == "constant":
            value = writer.write_field(value, argument.value, term.line)
        elif value.kind == "map" and key.kind in ("string", "any"):
            value = writer.write_entry(value, key.jinja)
        elif value.kind in ("list", "any") and key.kind in ("int", "string"):
            value = GoValue(f"{as_list(value)}[{key.jinja}]", TYPES[value.type.element or "any"])
        else:
            kinds = f"a {value.type.go_name} by a {key.type.go_name}"
            refuse(term.line, f"index of {kinds} is not supported")
    return value


def _write_slice(writer: GoValueWriter, values: list[GoValue], term: GoTerm) -> GoValue:
    value, *bounds = values
    if value.kind not in ("list", "any"):
        refuse(term.line, f"slice of a {value.type.go_name} is not supported")
    ends = [bound.jinja for bound in bounds]
    return GoValue(f"{as_list(value)}[{':'.join([*ends, '', ''][:2])}]", value.type)


# -- text ------------------------------------------------------------------------------------------


def _write_printf(writer: GoValueWriter, values: list[GoValue], term: GoTerm) -> GoValue:
    form = term.arguments[0]
    if form.kind != "constant" or form.name != "text":
        hint = 'Like printf "%s" .Role.'
        refuse(term.line, "the format of printf must be a text in quotes", hint)
    given = iter(values[1:])
    parts = []
    for text, verb in re.findall("([^%]*)(%.?)?", form.value, re.DOTALL):
        if text:
            parts.append(literal(text))
        if verb == "%%":
            parts.append(literal("%"))
        elif verb:
            parts.append(_write_verb(writer, verb, next(given, None), term.line))
    if next(given, None) is not None:
        refuse(term.line, "printf has more values than verbs")
    return GoValue(f"({' ~ '.join(parts)} ~ '')" if parts else "''", TYPES["string"])


def _write_verb(writer: GoValueWriter, verb: str, value: GoValue | None, line: int) -> str:
    if value is not None and (verb in ("%s", "%v") or (verb == "%d" and value.kind == "int")):
        return writer.printer.print_value(value, line, NIL)
    what = f"of a {value.type.go_name}" if value is not None else "without a value"
    hint = "Supported: %s, %d of an int, %v, %%; no flags and widths."
    refuse(line, f"printf {verb} {what} is not supported", hint)


def _write_json(writer: GoValueWriter, values: list[GoValue], term: GoTerm) -> GoValue:
    return GoValue(writer.printer.json_value(values[0]), TYPES["string"])


def _write_date(writer: GoValueWriter, values: list[GoValue], term: GoTerm) -> GoValue:
    if any(value.kind not in ("string", "any") for value in values):
        refuse(term.line, f"{term.name} takes texts")
    if term.name == "yesterdayDate":
        return GoValue(writer.printer.call("yesterday"), TYPES["string"])
    return GoValue("strftime_now('%Y-%m-%d')", TYPES["string"])


def _write_typescript(writer: GoValueWriter, values: list[GoValue], term: GoTerm) -> GoValue:
    if values[0].type.name != "property":
        return GoValue(f"('any' if {values[0].jinja} else 'any')", TYPES["string"])
    return GoValue(writer.printer.call("typescript", values[0].jinja), TYPES["string"])


class GoFunction(NamedTuple):
    """A function: how many arguments it takes, and how it is written."""

    least: int
    most: int | None  # None: any number
    write: Callable[[GoValueWriter, list[GoValue], GoTerm], GoValue]


FUNCTIONS = {
    **dict.fromkeys(("and", "or"), GoFunction(1, None, _write_logic)),
    "not": GoFunction(1, 1, _write_not),
    "eq": GoFunction(2, None, _write_comparison),
    **dict.fromkeys(("ne", "lt", "le", "gt", "ge"), GoFunction(2, 2, _write_comparison)),
    "len": GoFunction(1, 1, _write_len),
    "index": GoFunction(1, None, _write_index),
    "slice": GoFunction(1, 3, _write_slice),
    "printf": GoFunction(1, None, _write_printf),
    "json": GoFunction(1, 1, _write_json),
    **dict.fromkeys(("currentDate", "yesterdayDate"), GoFunction(0, None, _write_date)),
    "toTypeScriptType": GoFunction(1, 1, _write_typescript),
}
