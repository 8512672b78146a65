"""Go's `printf` as a Jinja expression.

The format must be a text of the template: it is read once, and every verb becomes an expression for
its value.

    printf "%s: %d" .Role (len .Content)      (item.role ~ ': ' ~ (count_bytes(item.content) | int))

Verbs: v s d q t f e g x X o c T; a width, a precision, and the flags `-` and `0`. A verb that does
not fit its value prints what Go prints: `%!d(string=a)`. Other verbs and flags are refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from turnwise.dialects.ollama_fields import GoFieldWriter
from turnwise.dialects.ollama_go import GoTerm, refuse
from turnwise.dialects.ollama_print import NIL, GoValue
from turnwise.dialects.ollama_types import TYPES
from turnwise.dialects.turns import literal

VERB = re.compile(
    r"%(?P<flags>[-0]*)(?P<width>\d{0,3})(?:\.(?P<precision>\d{0,2}))?(?P<verb>.|$)", re.DOTALL
)
KNOWN_VERBS = "vsdqtfFegGExXocT%"
INTEGER_VERBS = {"d": "%d", "x": "%x", "X": "%X", "o": "%o", "c": "%c"}


@dataclass(frozen=True, slots=True)
class FormatVerb:
    """One verb of a format."""

    letter: str
    flags: str = ""
    width: int = 0
    precision: int | None = None


def write_printf(writer: GoFieldWriter, values: list[GoValue], term: GoTerm) -> GoValue:
    """Return the text that a format and its values make."""
    form = _get_format(term)
    values = values[1:]
    parts: list[str] = []
    at, used = 0, 0
    for found in VERB.finditer(form):
        if found.start() > at:
            parts.append(literal(form[at : found.start()]))
        at = found.end()
        verb = _read_verb(found, term.line)
        if verb.letter == "%":
            parts.append("'%'")
        elif not verb.letter:
            parts.append("'%!(NOVERB)'")
        elif used == len(values):
            parts.append(literal(f"%!{verb.letter}(MISSING)"))
        else:
            parts.append(_write_verb(writer, verb, values[used], term.line))
            used += 1
    if at < len(form):
        parts.append(literal(form[at:]))
    if used < len(values):
        extra = " ~ ', ' ~ ".join(_describe(writer, value, term.line) for value in values[used:])
        parts.append(f"'%!(EXTRA ' ~ {extra} ~ ')'")
    return GoValue(f"({' ~ '.join(parts)} ~ '')" if parts else "''", TYPES["string"])


def _get_format(term: GoTerm) -> str:
    form = term.arguments[0]
    while form.kind == "call" and not form.name and not form.path:  # parentheses
        form = form.arguments[0]
    if form.kind != "constant" or form.name != "text":
        refuse(
            term.line, "the format of printf must be a text in quotes", 'Like printf "%s" .Role.'
        )
    return form.value


def _read_verb(found: re.Match[str], line: int) -> FormatVerb:
    letter = found["verb"]
    if letter and letter not in KNOWN_VERBS and not letter.isalpha():
        refuse(line, f"printf does not know {found[0]!r} here", f"Verbs: {' '.join(KNOWN_VERBS)}")
    precision = found["precision"]
    return FormatVerb(
        letter,
        found["flags"],
        int(found["width"] or 0),
        None if precision is None else int(precision or 0),
    )


def _write_verb(writer: GoFieldWriter, verb: FormatVerb, value: GoValue, line: int) -> str:
    """Return a value as one verb prints it."""
    if verb.letter == "T":
        return _write_type(writer, value, line)
    if verb.precision is not None and value.kind not in ("string", "float", "bool", "nil"):
        return writer.printer.stop(line, f"a precision of a {value.type.go_name} is not supported")
    if value.kind == "string" and verb.letter in "svq":
        text = value.jinja if verb.precision is None else f"{value.jinja}[:{verb.precision}]"
        if verb.letter == "q":
            text = writer.printer.call("quote_go", text)
        return _pad(text, verb, value)
    text = _write_fitting(writer, verb, value, line)
    if not text:
        return _write_misfit(writer, verb, value, line)
    has_parts = value.kind in ("list", "map", "struct", "any") and not value.type.prints_json
    if verb.width and has_parts and writer.exact:
        return writer.printer.stop(line, f"a width of a {value.type.go_name} is not supported")
    return _pad(text, verb, value)


def _write_fitting(writer: GoFieldWriter, verb: FormatVerb, value: GoValue, line: int) -> str:
    """Return a value that is no text, without padding; nothing if the verb does not fit it."""
    if verb.letter == "v" and verb.precision is None:
        return writer.printer.print_value(value, line, NIL)
    if verb.letter == "s":
        has_text = value.type.prints_json or value.type.name in ("property_type", "strings")
        if has_text or not writer.exact:
            return writer.printer.print_value(value, line, NIL)
        if value.kind == "any":
            return writer.printer.call("as_text", value.jinja, str(line))
    if verb.letter in INTEGER_VERBS and value.kind == "int":
        return f"({literal(INTEGER_VERBS[verb.letter])} | format({value.jinja}))"
    if verb.letter == "t" and value.kind == "bool":
        return f"('true' if {value.jinja} else 'false')"
    if verb.letter in "fFeEgG" and value.kind == "float":
        return _write_float(writer, verb, value)
    return ""


def _write_type(writer: GoFieldWriter, value: GoValue, line: int) -> str:
    if value.kind in ("any", "scalar", "mixed"):
        return writer.printer.stop(line, "the type of a value of JSON is not known")
    return literal(value.type.go_name)


def _write_float(writer: GoFieldWriter, verb: FormatVerb, value: GoValue) -> str:
    if verb.letter in "gG" and verb.precision is None:
        text = writer.printer.call("number", value.jinja)
        return f"({text} | upper)" if verb.letter == "G" else text
    precision = 6 if verb.precision is None else verb.precision
    return f"({literal(f'%.{precision}{verb.letter}')} | format({value.jinja}))"


def _write_misfit(writer: GoFieldWriter, verb: FormatVerb, value: GoValue, line: int) -> str:
    """Return what Go prints for a verb that the type of its value has not."""
    if value.kind == "any" and verb.letter in "dc" and writer.exact:
        number = f"{value.jinja} is number and {value.jinja} is not boolean"
        text = f"{literal(f'%!{verb.letter}(float64=')} ~ {writer.printer.call('number', value.jinja)} ~ ')'"
        stop = writer.printer.fail(line, f"%{verb.letter} of this value is not supported")
        return f"({text} if {number} else {stop})"
    if value.kind not in ("string", "int", "float", "bool", "nil"):
        if not writer.exact:
            return writer.printer.print_value(value, line, NIL)
        problem = f"printf cannot print a {value.type.go_name} with %{verb.letter}"
        return writer.printer.stop(line, problem, "Use %v.")
    fits = {"x": ("string", "float"), "X": ("string", "float"), "c": (), "o": (), "q": ("int",)}
    if value.kind in fits.get(verb.letter, ()):
        problem = f"printf with %{verb.letter} of a {value.type.go_name} is not supported"
        return writer.printer.stop(line, problem)
    described = _describe(writer, value, line, verb)
    return f"({literal(f'%!{verb.letter}(')} ~ {described} ~ ')')"


def _describe(
    writer: GoFieldWriter, value: GoValue, line: int, verb: FormatVerb | None = None
) -> str:
    """Return the type and the text of a value, as Go's complaints have them."""
    text = writer.printer.print_value(value, line, NIL)
    if value.kind == "nil":
        return text
    if verb is not None:
        text = _pad(text, verb, value)
    return f"{literal(value.type.go_name + '=')} ~ {text}"


def _pad(text: str, verb: FormatVerb, value: GoValue) -> str:
    if not verb.width:
        return text
    if "-" in verb.flags:
        return f"({text} ~ '').ljust({verb.width})"
    if "0" in verb.flags:
        if value.kind in ("int", "float"):
            return f"({text} ~ '').zfill({verb.width})"
        return f"({text} ~ '').rjust({verb.width}, '0')"
    return f"({text} ~ '').rjust({verb.width})"
