"""The functions of Go's templates and of Ollama, as Jinja expressions.

A function gets the values of its arguments, with their Go types, and returns a value. `call` is
missing: no value of Ollama is a function. `index` of a text is, too: Jinja has no bytes. `printf`
is in `ollama_printf.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

from turnwise.dialects.ollama_fields import GoFieldWriter
from turnwise.dialects.ollama_go import GoTerm, refuse
from turnwise.dialects.ollama_print import MADE_LISTS, NIL, NO_VALUE, GoValue, as_list, is_simple
from turnwise.dialects.ollama_printf import write_printf
from turnwise.dialects.ollama_types import (
    BASIC_KINDS,
    DYNAMIC_KINDS,
    ORDERED_KINDS,
    TYPES,
    GoType,
    join_types,
)

Writer = Callable[[GoFieldWriter, list[GoValue], GoTerm], GoValue]


@dataclass(frozen=True, slots=True)
class GoFunction:
    """A function: how many arguments it takes, and how it is written."""

    least: int
    most: int | None  # None: any number
    write: Writer


# -- truth and comparison --------------------------------------------------------------------------


def _write_and(writer: GoFieldWriter, values: list[GoValue], term: GoTerm) -> GoValue:
    # A struct is always true, so it is never the result unless it is the last.
    kept = []
    for value in values[:-1]:
        if value.kind not in ("struct", "root"):
            kept.append(value)
        elif "(" in value.jinja:
            type_ = TYPES["bool"] if values[-1].kind == "nil" else values[-1].type
            kept.append(GoValue(writer.write_truth(value), type_))
    return _join(writer, [*kept, values[-1]], "and")


def _write_or(writer: GoFieldWriter, values: list[GoValue], term: GoTerm) -> GoValue:
    for index, value in enumerate(values):
        if value.kind in ("struct", "root"):
            return _join(writer, values[: index + 1], "or")
    return _join(writer, values, "or")


def _join(writer: GoFieldWriter, values: list[GoValue], word: str) -> GoValue:
    """Return the value of `and` or `or`, which is one of its arguments."""
    if len(values) == 1:
        return values[0]
    type_ = reduce(join_types, (value.type for value in values))
    joined = f"({f' {word} '.join(value.jinja for value in values)})"
    if type_.kind != "mixed":
        return GoValue(joined, type_)
    tests = [writer.write_truth(value) for value in values]
    if word == "and":
        tests = [f"not {test}" for test in tests]
    return GoValue(joined, type_, choices=tuple(zip(tests, values, strict=True)))


def _write_not(writer: GoFieldWriter, values: list[GoValue], term: GoTerm) -> GoValue:
    return GoValue(f"(not {writer.write_truth(values[0])})", TYPES["bool"])


def _write_eq(writer: GoFieldWriter, values: list[GoValue], term: GoTerm) -> GoValue:
    first, *others = values
    if not writer.exact and len(others) > 1:
        listed = ", ".join(other.jinja for other in others)
        return GoValue(f"({first.jinja} in [{listed}])", TYPES["bool"])
    tests = [_compare(writer, first, other, "==", term.line) for other in others]
    if len(tests) == 1:
        return GoValue(tests[0], TYPES["bool"])
    test = f"({' or '.join(tests)})"
    # Go evaluates all arguments before it compares the first two.
    later = zip(others[1:], term.arguments[2:], strict=True)
    failing = [other.jinja for other, argument in later if _may_fail(other, argument)]
    return GoValue(f"([{', '.join(failing)}] and {test})" if failing else test, TYPES["bool"])


def _may_fail(value: GoValue, argument: GoTerm) -> bool:
    return argument.kind == "call" or "raise_exception(" in value.jinja


def _write_ne(writer: GoFieldWriter, values: list[GoValue], term: GoTerm) -> GoValue:
    if not writer.exact or {value.kind for value in values} in ({"string"}, {"int"}):
        return GoValue(f"({values[0].jinja} != {values[1].jinja})", TYPES["bool"])
    test = _compare(writer, values[0], values[1], "==", term.line)
    return GoValue(f"(not {test})", TYPES["bool"])


def make_ordering(sign: str) -> Writer:
    """Return the writer of lt, le, gt or ge."""

    def write(writer: GoFieldWriter, values: list[GoValue], term: GoTerm) -> GoValue:
        return GoValue(_compare(writer, values[0], values[1], sign, term.line), TYPES["bool"])

    return write


def _compare(writer: GoFieldWriter, first: GoValue, second: GoValue, sign: str, line: int) -> str:
    """Return a comparison; Go compares texts with texts and numbers with numbers of the same type."""
    plain = f"({first.jinja} {sign} {second.jinja})"
    if not writer.exact:
        return plain
    stop = writer.printer.fail(line, "these types cannot be compared")
    kinds = {first.kind, second.kind}
    are_messages = first.type.is_pointer and second.type.is_pointer
    if "mixed" in kinds or are_messages:
        return writer.printer.fail(line, "these values cannot be compared here")
    if sign == "==" and kinds & {"nil"}:
        return _compare_to_nil(first, second)
    if kinds in ({"any"}, {"scalar"}):
        return _compare_any(writer, first, second, sign, line, stop)
    if kinds & set(DYNAMIC_KINDS):
        test = _test_comparable(first, second, sign)
        return f"({plain} if {test} else {stop})" if test else stop
    if sign == "==" and kinds in ({"list"}, {"map"}):
        # Go compares lists only with nothing.
        absent = [_test_nil(value) for value in (first, second)]
        return f"({absent[0]} == {absent[1]} if {absent[0]} or {absent[1]} else {stop})"
    comparable = BASIC_KINDS if sign == "==" else ORDERED_KINDS
    return plain if len(kinds) == 1 and first.kind in comparable else stop


def _test_comparable(first: GoValue, second: GoValue, sign: str) -> str:
    """Return the test whether a value can be compared with another, whose type is known; empty if it never can."""
    value, other = (first, second) if first.kind in DYNAMIC_KINDS else (second, first)
    if other.kind not in BASIC_KINDS:
        return ""
    test = _test_kind(value, other.kind)
    if sign == "==":
        nothing = f"{value.jinja} is not defined or {value.jinja} is none"
        return f"{test} or {nothing}" if test else nothing
    return "" if other.kind == "bool" else test


def _test_kind(value: GoValue, kind: str) -> str:
    """Return the test whether a value is of a basic kind when rendered; empty if it never is."""
    tests = {
        "string": f"{value.jinja} is string",
        "bool": f"{value.jinja} is boolean",
        "float" if value.kind == "any" else "int": (
            f"({value.jinja} is number and {value.jinja} is not boolean)"
        ),
    }
    return tests.get(kind, "")


def _compare_to_nil(first: GoValue, second: GoValue) -> str:
    value = second if first.kind == "nil" else first
    if value.kind == "nil":
        return "true"
    if value.kind in (*DYNAMIC_KINDS, "list", "map", "pointer", "bytes"):
        return _test_nil(value)
    # Never nil; but finding it may fail.
    return f"({value.jinja} is not defined)" if "raise_exception" in value.jinja else "false"


def _test_nil(value: GoValue) -> str:
    """Return the test whether a value is nothing."""
    if value.type.name in MADE_LISTS:
        return f"(not {value.jinja})"
    return f"({value.jinja} is not defined or {value.jinja} is none)"


def _compare_any(
    writer: GoFieldWriter, first: GoValue, second: GoValue, sign: str, line: int, stop: str
) -> str:
    if sign == "==":
        same = writer.printer.call("same", first.jinja, second.jinja, str(line))
        return f"({same} == 'yes')"
    kinds = [writer.printer.call("kind", value.jinja) for value in (first, second)]
    test = f"{kinds[0]} == {kinds[1]} and {kinds[0]} in ['string', 'number']"
    return f"({first.jinja} {sign} {second.jinja} if {test} else {stop})"


# -- lists and mappings ----------------------------------------------------------------------------


def _write_len(writer: GoFieldWriter, values: list[GoValue], term: GoTerm) -> GoValue:
    (value,) = values
    if value.kind in ("list", "map"):
        return GoValue(f"({as_list(value)} | length)", TYPES["int"])
    if value.kind == "string":
        return GoValue(f"({writer.printer.call('count_bytes', value.jinja)} | int)", TYPES["int"])
    if value.kind == "any":
        text = f"({writer.printer.call('count_bytes', value.jinja)} | int)"
        other = f"{value.jinja} | length"
        if writer.exact:
            stop = writer.printer.fail(term.line, "this value has no length")
            sized = f"{value.jinja} is mapping or {value.jinja} is sequence"
            other = f"{other} if {value.jinja} is defined and ({sized}) else {stop}"
        return GoValue(f"({text} if {value.jinja} is string else {other})", TYPES["int"])
    if value.kind == "root":
        return GoValue(str(len(writer.root)), TYPES["int"])
    stop = writer.printer.fail(term.line, f"a {value.type.go_name} has no length")
    return GoValue(stop, TYPES["int"])


def _write_index(writer: GoFieldWriter, values: list[GoValue], term: GoTerm) -> GoValue:
    value, *keys = values
    for argument, key in zip(term.arguments[1:], keys, strict=True):
        value = _index_once(writer, value, key, argument, term.line)
    return value


def _index_once(
    writer: GoFieldWriter, value: GoValue, key: GoValue, argument: GoTerm, line: int
) -> GoValue:
    if value.kind == "string":
        stop = writer.printer.stop(line, "index of a text, which is a byte, is not supported")
        return GoValue(stop, TYPES["int"])
    if value.kind == "root" and argument.kind == "constant":
        return writer.write_field(value, argument.value, line)
    if value.kind == "map" and key.kind == "string":
        return writer.write_entry(value, key.jinja)
    if value.kind == "map" and key.kind == "any" and not writer.exact:
        return writer.write_entry(value, key.jinja)
    if value.kind == "list" and key.kind == "int":
        listed = as_list(value)
        item = f"{listed}[{key.jinja}]"
        if writer.exact:
            stop = writer.printer.fail(line, "index beyond the end of the list")
            item = f"({item} if {_in_range(key.jinja, listed)} else {stop})"
        return GoValue(item, TYPES[value.type.element])
    if value.kind == "any":
        item = f"{value.jinja}[{key.jinja}]"
        if key.kind == "string":
            item = f"{value.jinja}.get({key.jinja})"
        if writer.exact:
            stop = writer.printer.fail(line, "this value has no such index")
            test = {
                "string": f"{value.jinja} is mapping",
                "int": f"{value.jinja} is sequence and {value.jinja} is not string and "
                f"{value.jinja} is not mapping and {_in_range(key.jinja, value.jinja)}",
            }.get(key.kind, "false")
            item = f"({item} if {test} else {stop})"
        return GoValue(item, value.type)
    stop = writer.printer.fail(line, f"a {value.type.go_name} has no such index")
    return GoValue(stop, TYPES["any"])


def _in_range(key: str, listed: str) -> str:
    test = f"{key} < {listed} | length"
    return test if key.isdigit() else f"0 <= {key} and {test}"


def _write_slice(writer: GoFieldWriter, values: list[GoValue], term: GoTerm) -> GoValue:
    value, *bounds = values
    line = term.line
    wrong = [bound for bound in bounds if bound.kind != "int"]
    if wrong and writer.exact:
        stop = writer.printer.fail(line, f"a {wrong[0].type.go_name} is no index")
        return GoValue(stop, value.type)
    if value.kind == "string":
        return _slice_text(writer, value, bounds, line)
    if value.kind != "list" and writer.exact:
        stop = writer.printer.fail(line, f"a {value.type.go_name} has no slice")
        return GoValue(stop, TYPES["any"])
    listed = as_list(value)
    ends = [bound.jinja for bound in bounds]
    part = f"{listed}[{':'.join([*ends[:2], '', ''][:2])}]"
    if writer.exact and is_simple(value.jinja):  # a part of nil is nil
        part = f"({part} if {value.jinja} else {value.jinja})"
    if writer.exact and ends:
        stop = writer.printer.fail(line, "slice beyond the end of the list")
        # Each index is at most the next one, and the last one at most the length.
        steps = ["0", *ends, f"{listed} | length"]
        tests = [f"{low} <= {high}" for low, high in itertools.pairwise(steps)]
        part = f"({part} if {' and '.join(tests)} else {stop})"
    return GoValue(part, value.type)


def _slice_text(writer: GoFieldWriter, value: GoValue, bounds: list[GoValue], line: int) -> GoValue:
    if len(bounds) > 2:
        stop = writer.printer.stop(line, "slice of a text takes two indexes")
        return GoValue(stop, value.type)
    start = bounds[0].jinja if bounds else "0"
    end = bounds[1].jinja if len(bounds) > 1 else "none"
    text = writer.printer.call("cut_text", value.jinja, start, end, str(line))
    return GoValue(text, TYPES["string"])


# -- text ------------------------------------------------------------------------------------------


def write_sprint(writer: GoFieldWriter, values: list[GoValue], line: int, missing: str) -> str:
    """Return values printed one after another, with a space between two that are not text."""
    parts: list[str] = []
    for index, value in enumerate(values):
        if index:
            parts += _write_space(values[index - 1], value, missing)
        parts.append(writer.printer.print_value(value, line, missing))
    return f"({' ~ '.join(parts)} ~ '')" if parts else "''"


def _write_space(first: GoValue, second: GoValue, missing: str) -> list[str]:
    """Return the space between two values that are not text; what is missing may be text, too."""
    tests = []
    for value in (first, second):
        if value.kind == "string" or (value.kind == "nil" and missing == NO_VALUE):
            return []
        if value.kind in DYNAMIC_KINDS:
            tests.append(f"{value.jinja} is not string")
            if missing == NO_VALUE:
                tests.append(f"{value.jinja} is defined and {value.jinja} is not none")
    return [f"(' ' if {' and '.join(tests)} else '')" if tests else "' '"]


def _write_print(writer: GoFieldWriter, values: list[GoValue], term: GoTerm) -> GoValue:
    return GoValue(write_sprint(writer, values, term.line, NIL), TYPES["string"])


def _write_println(writer: GoFieldWriter, values: list[GoValue], term: GoTerm) -> GoValue:
    parts = [writer.printer.print_value(value, term.line, NIL) for value in values]
    text = " ~ ' ' ~ ".join(parts) + " ~ " if parts else ""
    return GoValue(f"({text}'\\n')", TYPES["string"])


def make_escape(macro: str) -> Writer:
    """Return the writer of html, js or urlquery."""

    def write(writer: GoFieldWriter, values: list[GoValue], term: GoTerm) -> GoValue:
        if len(values) == 1 and values[0].kind == "string":
            text = values[0].jinja
        else:
            text = write_sprint(writer, values, term.line, NO_VALUE)
        return GoValue(writer.printer.call(macro, text), TYPES["string"])

    return write


def _write_json(writer: GoFieldWriter, values: list[GoValue], term: GoTerm) -> GoValue:
    (value,) = values
    if value.kind == "root":
        writer.used_root.update(writer.root)
        pairs = [
            f"'\"{name}\":' ~ {writer.printer.json_value(field, term.line)}"
            for name, field in sorted(writer.root.items())
        ]
        text = " ~ ',' ~ ".join(pairs)
        return GoValue(f"('{{' ~ {text} ~ '}}')", TYPES["string"])
    return GoValue(writer.printer.json_value(value, term.line), TYPES["string"])


def _write_date(writer: GoFieldWriter, values: list[GoValue], term: GoTerm) -> GoValue:
    if any(value.kind not in ("string", "any") for value in values):
        refuse(term.line, f"{term.name} takes texts")
    if term.name == "yesterdayDate":
        return GoValue(writer.printer.call("yesterday"), TYPES["string"])
    return GoValue("strftime_now('%Y-%m-%d')", TYPES["string"])


def _write_typescript(writer: GoFieldWriter, values: list[GoValue], term: GoTerm) -> GoValue:
    if values[0].type.name != "property":
        return GoValue(f"('any' if {values[0].jinja or 'true'} else 'any')", TYPES["string"])
    return GoValue(writer.printer.call("typescript", values[0].jinja), TYPES["string"])


FUNCTIONS = {
    "and": GoFunction(1, None, _write_and),
    "or": GoFunction(1, None, _write_or),
    "not": GoFunction(1, 1, _write_not),
    "eq": GoFunction(2, None, _write_eq),
    "ne": GoFunction(2, 2, _write_ne),
    "lt": GoFunction(2, 2, make_ordering("<")),
    "le": GoFunction(2, 2, make_ordering("<=")),
    "gt": GoFunction(2, 2, make_ordering(">")),
    "ge": GoFunction(2, 2, make_ordering(">=")),
    "len": GoFunction(1, 1, _write_len),
    "index": GoFunction(1, None, _write_index),
    "slice": GoFunction(1, 4, _write_slice),
    "print": GoFunction(0, None, _write_print),
    "printf": GoFunction(1, None, write_printf),
    "println": GoFunction(0, None, _write_println),
    "html": GoFunction(0, None, make_escape("escape_html")),
    "js": GoFunction(0, None, make_escape("escape_js")),
    "urlquery": GoFunction(0, None, make_escape("escape_url")),
    "json": GoFunction(1, 1, _write_json),
    "currentDate": GoFunction(0, None, _write_date),
    "yesterdayDate": GoFunction(0, None, _write_date),
    "toTypeScriptType": GoFunction(1, 1, _write_typescript),
}
OLLAMA_FUNCTIONS = ("json", "currentDate", "yesterdayDate", "toTypeScriptType")
"""Functions that Ollama adds to Go's."""


def element_of(type_: GoType) -> GoType:
    """Return the type of what a range goes through."""
    return TYPES[type_.element] if type_.element else TYPES["any"]
