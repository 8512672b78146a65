"""Jinja expressions for the terms of a Go template: paths, variables, constants and calls of functions.

    (index .Messages 0).Content      (chat[0] if chat | length > 0 else raise_exception(...)).content
    eq .Role "user" "tool"           (item.role == 'user' or item.role == 'tool')

Every expression has a Go type (`ollama_types.py`), from which it follows what a field or a function means: a field of
a struct is a key of a message or tool, a field of a mapping one of its keys, a field of the root a variable of the
Jinja. Where Go stops with an error while it renders, the exact reading does so too, by `raise_exception`; the other
reading takes Jinja's answer.

The functions are those that published templates use. Others of Go (`html`, `js`, `urlquery`, `print`, `println`,
`call`), parts of a text, verbs of `printf` but `%s`, `%d` and `%v`, and comparisons of values whose types are not known
are refused, with the line.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import NamedTuple

from turnwise.dialects.ollama_go import GoTerm, refuse
from turnwise.dialects.ollama_print import (
    MADE_LISTS,
    NIL,
    GoPrinter,
    GoValue,
    as_list,
    get_field,
    is_simple,
)
from turnwise.dialects.ollama_types import KNOWN_NAMES, ROOT_FIELDS, TYPES, GoType, join_types
from turnwise.dialects.turns import literal
from turnwise.errors import did_you_mean, short_repr

# Characters of one expression: a value within a value is written more than once.
MAX_VALUE_LENGTH = 20_000
ROOT = GoValue("", TYPES["root"])
TYPE_OF_CONSTANT = {"text": "string", "int": "int", "float": "float", "bool": "bool", "nil": "nil"}
METHODS = ("String", "ToTypeScriptType", "Len")  # of Ollama's types
COMPARED_KINDS = {"==": ("string", "int", "float", "bool"), "<": ("string", "int", "float")}


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
        # Ollama executes the last round of an older template without the functions that it adds to Go's.
        self.has_functions = True
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
        if function.is_of_ollama and not self.has_functions:
            message = f"Ollama does not know {term.name} where it executes the last round"
            return GoValue(self.printer.fail(term.line, message), TYPES["string"])
        return function.write(self, values, term)

    # -- fields and truth

    def write_truth(self, value: GoValue) -> str:
        """Return the test whether Go takes a value for true."""
        if value.kind in ("struct", "root"):
            # Always true; but finding it may fail.
            return f"({value.jinja} is defined)" if "(" in value.jinja else "true"
        if value.kind == "pointer":
            return f"{value.jinja} is mapping"
        return value.jinja

    def write_field(self, value: GoValue, name: str, line: int) -> GoValue:
        """Return a field of a value."""
        if name in METHODS and "." in value.type.go_name:
            refuse(line, f"the method .{name} is not supported")
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
            other = "none"
            if self.exact:
                other = self.printer.fail(line, f"this value has no field .{name}")
            entry = f"{value.jinja}.get({literal(name)})"
            return GoValue(f"({entry} if {value.jinja} is mapping else {other})", value.type)
        if value.kind == "nil":
            # The last round has none of Ollama's options either, so nil has every field there.
            if self.exact and self.has_functions:
                refuse(line, f"the field .{name} of nothing is not supported with exact=True")
            return value
        return self._no_field(value.type, name, line)

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


def _check_length(value: GoValue, line: int) -> GoValue:
    """Refuse an expression that grew with each function or field that was applied to it."""
    if len(value.jinja) > MAX_VALUE_LENGTH:
        refuse(line, "too many functions or fields of one value")
    return value


# -- truth and comparison --------------------------------------------------------------------------


def _write_and(writer: GoValueWriter, values: list[GoValue], term: GoTerm) -> GoValue:
    # A struct is always true, so it is never the result unless it is the last.
    kept = []
    for value in values[:-1]:
        if value.kind != "struct":
            kept.append(value)
        elif "(" in value.jinja:
            type_ = TYPES["bool"] if values[-1].kind == "nil" else values[-1].type
            kept.append(GoValue(writer.write_truth(value), type_))
    return _join([*kept, values[-1]], "and")


def _write_or(writer: GoValueWriter, values: list[GoValue], term: GoTerm) -> GoValue:
    for index, value in enumerate(values):
        if value.kind == "struct":
            return _join(values[: index + 1], "or")
    return _join(values, "or")


def _join(values: list[GoValue], word: str) -> GoValue:
    if len(values) == 1:
        return values[0]
    type_ = reduce(join_types, (value.type for value in values))
    return GoValue(f"({f' {word} '.join(value.jinja for value in values)})", type_)


def _write_not(writer: GoValueWriter, values: list[GoValue], term: GoTerm) -> GoValue:
    return GoValue(f"(not {writer.write_truth(values[0])})", TYPES["bool"])


def _write_eq(writer: GoValueWriter, values: list[GoValue], term: GoTerm) -> GoValue:
    first, *others = values
    if not writer.exact and len(others) > 1:
        listed = ", ".join(other.jinja for other in others)
        return GoValue(f"({first.jinja} in [{listed}])", TYPES["bool"])
    if any(argument.kind == "call" for argument in term.arguments[2:]):
        refuse(term.line, "eq with a function as its third value is not supported")
    tests = [_compare(writer, first, other, "==", term.line) for other in others]
    return GoValue(tests[0] if len(tests) == 1 else f"({' or '.join(tests)})", TYPES["bool"])


def _write_ne(writer: GoValueWriter, values: list[GoValue], term: GoTerm) -> GoValue:
    if not writer.exact or {value.kind for value in values} in ({"string"}, {"int"}):
        return GoValue(f"({values[0].jinja} != {values[1].jinja})", TYPES["bool"])
    test = _compare(writer, values[0], values[1], "==", term.line)
    return GoValue(f"(not {test})", TYPES["bool"])


def _write_order(writer: GoValueWriter, values: list[GoValue], term: GoTerm) -> GoValue:
    sign = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}[term.name]
    return GoValue(_compare(writer, values[0], values[1], sign, term.line), TYPES["bool"])


def _compare(writer: GoValueWriter, first: GoValue, second: GoValue, sign: str, line: int) -> str:
    """Return a comparison; Go compares texts with texts and numbers with numbers of the same type."""
    plain = f"({first.jinja} {sign} {second.jinja})"
    if not writer.exact:
        return plain
    kinds = (first.kind, second.kind)
    if sign == "==" and "nil" in kinds:
        return _compare_to_nil(second if kinds[0] == "nil" else first)
    comparable = COMPARED_KINDS["==" if sign == "==" else "<"]
    if kinds[0] == kinds[1] and kinds[0] in comparable:
        return plain
    value, other = (first, second) if kinds[0] == "any" else (second, first)
    if value.kind == "any" and other.kind in comparable and other.kind != "int":
        test = {
            "string": f"{value.jinja} is string",
            "bool": f"{value.jinja} is boolean",
            "float": f"({value.jinja} is number and {value.jinja} is not boolean)",
        }[other.kind]
        if sign == "==":
            test += f" or {value.jinja} is not defined or {value.jinja} is none"
        return f"({plain} if {test} else {writer.printer.fail(line, 'these types cannot be compared')})"
    types = f"a {first.type.go_name} with a {second.type.go_name}"
    refuse(line, f"comparing {types} is not supported with exact=True")


def _compare_to_nil(value: GoValue) -> str:
    if value.kind == "nil":
        return "true"
    if value.type.name in MADE_LISTS:
        return f"(not {value.jinja})"
    if value.kind in ("any", "list", "map", "pointer", "bytes"):
        return f"({value.jinja} is not defined or {value.jinja} is none)"
    # Never nil; but finding it may fail.
    return f"({value.jinja} is not defined)" if "raise_exception" in value.jinja else "false"


# -- lists and mappings ----------------------------------------------------------------------------


def _write_len(writer: GoValueWriter, values: list[GoValue], term: GoTerm) -> GoValue:
    (value,) = values
    if value.kind in ("list", "map"):
        return GoValue(f"({as_list(value)} | length)", TYPES["int"])
    if value.kind not in ("string", "any"):
        refuse(term.line, f"the length of a {value.type.go_name} is not supported")
    size = f"({writer.printer.call('count_bytes', value.jinja)} | int)"
    if value.kind == "any":
        other = f"{value.jinja} | length"
        if writer.exact:
            stop = writer.printer.fail(term.line, "this value has no length")
            sized = f"{value.jinja} is mapping or {value.jinja} is sequence"
            other = f"{other} if {value.jinja} is defined and ({sized}) else {stop}"
        size = f"({size} if {value.jinja} is string else {other})"
    return GoValue(size, TYPES["int"])


def _write_index(writer: GoValueWriter, values: list[GoValue], term: GoTerm) -> GoValue:
    value, *keys = values
    for argument, key in zip(term.arguments[1:], keys, strict=True):
        value = _index_once(writer, value, key, argument, term.line)
    return value


def _index_once(
    writer: GoValueWriter, value: GoValue, key: GoValue, argument: GoTerm, line: int
) -> GoValue:
    if value.kind == "root" and argument.kind == "constant":
        return writer.write_field(value, argument.value, line)
    if value.kind == "map" and (key.kind == "string" or (key.kind == "any" and not writer.exact)):
        return writer.write_entry(value, key.jinja)
    if value.kind == "list" and key.kind == "int":
        listed = as_list(value)
        item = f"{listed}[{key.jinja}]"
        if writer.exact:
            stop = writer.printer.fail(line, "index beyond the end of the list")
            item = f"({item} if {_in_range(key.jinja, listed)} else {stop})"
        return GoValue(item, TYPES[value.type.element])
    if value.kind == "any" and key.kind in ("string", "int"):
        item = f"{value.jinja}[{key.jinja}]"
        test = (
            f"{value.jinja} is sequence and {value.jinja} is not string and "
            f"{value.jinja} is not mapping and {_in_range(key.jinja, value.jinja)}"
        )
        if key.kind == "string":
            item, test = f"{value.jinja}.get({key.jinja})", f"{value.jinja} is mapping"
        if writer.exact:
            item = f"({item} if {test} else {writer.printer.fail(line, 'this value has no such index')})"
        return GoValue(item, value.type)
    refuse(line, f"index of a {value.type.go_name} by a {key.type.go_name} is not supported")


def _in_range(key: str, listed: str) -> str:
    test = f"{key} < {listed} | length"
    return test if key.isdigit() else f"0 <= {key} and {test}"


def _write_slice(writer: GoValueWriter, values: list[GoValue], term: GoTerm) -> GoValue:
    value, *bounds = values
    are_known = value.kind == "list" and all(bound.kind == "int" for bound in bounds)
    if not are_known and (writer.exact or value.kind == "string"):
        refuse(term.line, f"slice of a {value.type.go_name} is not supported")
    listed = as_list(value)
    ends = [bound.jinja for bound in bounds]
    part = f"{listed}[{':'.join([*ends, '', ''][:2])}]"
    if writer.exact and is_simple(value.jinja):  # a part of nil is nil
        part = f"({part} if {value.jinja} else {value.jinja})"
    if writer.exact and ends:
        stop = writer.printer.fail(term.line, "slice beyond the end of the list")
        # Each index is at most the next one, and the last one at most the length.
        steps = ["0", *ends, f"{listed} | length"]
        tests = [f"{low} <= {high}" for low, high in itertools.pairwise(steps)]
        part = f"({part} if {' and '.join(tests)} else {stop})"
    return GoValue(part, value.type)


# -- text ------------------------------------------------------------------------------------------


def _write_printf(writer: GoValueWriter, values: list[GoValue], term: GoTerm) -> GoValue:
    form = term.arguments[0]
    if form.kind != "constant" or form.name != "text":
        hint = 'Like printf "%s" .Role.'
        refuse(term.line, "the format of printf must be a text in quotes", hint)
    text, *verbs = re.split("%(.?)", form.value)
    parts, used = [literal(text)] if text else [], 0
    for verb, text in zip(verbs[::2], verbs[1::2], strict=True):
        if verb == "%":
            text = f"%{text}"
        else:
            used += 1
            value = values[used] if used < len(values) else None
            parts.append(_write_verb(writer, verb, value, term.line))
        if text:
            parts.append(literal(text))
    if used + 1 < len(values):
        refuse(term.line, "printf has more values than verbs")
    return GoValue(f"({' ~ '.join(parts)} ~ '')" if parts else "''", TYPES["string"])


def _write_verb(writer: GoValueWriter, verb: str, value: GoValue | None, line: int) -> str:
    if value is not None:
        has_text = value.type.prints_json or value.type.name in (
            "string",
            "property_type",
            "strings",
        )
        is_fitting = (verb == "s" and (has_text or not writer.exact)) or verb == "v"
        if is_fitting or (verb == "d" and value.kind == "int"):
            return writer.printer.print_value(value, line, NIL)
        if verb == "s" and value.kind == "any":
            stop = writer.printer.fail(line, "printf %s of a value that is no text")
            return f"({value.jinja} if {value.jinja} is string else {stop})"
    what = f"of a {value.type.go_name}" if value is not None else "without a value"
    hint = "Supported: %s of text, %d of an int, %v, %%; no flags and widths."
    refuse(line, f"printf %{verb} {what} is not supported", hint)


def _write_json(writer: GoValueWriter, values: list[GoValue], term: GoTerm) -> GoValue:
    return GoValue(writer.printer.json_value(values[0], term.line), TYPES["string"])


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
    """A function: how many arguments it takes, how it is written, and whether Ollama adds it to Go's."""

    least: int
    most: int | None  # None: any number
    write: Callable[[GoValueWriter, list[GoValue], GoTerm], GoValue]
    is_of_ollama: bool = False


FUNCTIONS = {
    "and": GoFunction(1, None, _write_and),
    "or": GoFunction(1, None, _write_or),
    "not": GoFunction(1, 1, _write_not),
    "eq": GoFunction(2, None, _write_eq),
    "ne": GoFunction(2, 2, _write_ne),
    **dict.fromkeys(("lt", "le", "gt", "ge"), GoFunction(2, 2, _write_order)),
    "len": GoFunction(1, 1, _write_len),
    "index": GoFunction(1, None, _write_index),
    "slice": GoFunction(1, 3, _write_slice),
    "printf": GoFunction(1, None, _write_printf),
    "json": GoFunction(1, 1, _write_json, is_of_ollama=True),
    "currentDate": GoFunction(0, None, _write_date, is_of_ollama=True),
    "yesterdayDate": GoFunction(0, None, _write_date, is_of_ollama=True),
    "toTypeScriptType": GoFunction(1, 1, _write_typescript, is_of_ollama=True),
}
