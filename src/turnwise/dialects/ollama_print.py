"""Jinja expressions for how Go prints a value, and how it writes it as JSON.

Go prints by type (`ollama_types.py`):

    "a"     text, as it is                   1e+06   a number of the conversation, which is a float64
    map[a:1 b:[x y]]  a mapping in JSON      {f d {object <nil> <nil> [x] {"x":{}}}}  a function of a tool
    {"type":"function", ...}                 a type that has a method for it: tools, arguments

JSON has the fields of a struct in the order of the struct, and of a mapping in that of its keys; Go escapes `<`, `>`
and `&`. That is the exact reading. The other reading, for people who want what the author of a template meant, prints
everything that is not text as compact JSON, with the keys in the order in which they came, and nothing for a missing
value. What takes more than an expression is a macro; only those that a template needs are written.

Not covered: printing messages, images and properties of tools, which no published template does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from turnwise.dialects.ollama_go import refuse
from turnwise.dialects.ollama_types import TYPES, GoField, GoType
from turnwise.dialects.turns import literal

SIMPLE = re.compile(r"\w+(?:\.\w+)*")
NO_VALUE = "<no value>"  # what a template prints for nothing
NIL = "<nil>"  # what nothing is inside of something else
DICT_METHODS = ("items",)  # keys that Jinja would take for a method
# Lists that Ollama makes, which are nil if there is nothing in them.
MADE_LISTS = ("messages", "calls")
UNPRINTED = (
    *("mixed", "pointer", "bytes", "root"),
    *("messages", "message", "images", "property", "property_list"),
)
"""Kinds and types of which Go prints an address, numbers of no use, or everything."""


@dataclass(frozen=True, slots=True)
class GoValue:
    """A Jinja expression that needs no parentheses, and the Go type of its value."""

    jinja: str
    type: GoType

    @property
    def kind(self) -> str:
        """The kind of the type."""
        return self.type.kind


def is_simple(jinja: str) -> bool:
    """Return True for a name, or a path of names."""
    return SIMPLE.fullmatch(jinja) is not None


def as_list(value: GoValue) -> str:
    """Return the Jinja of a list or mapping that may be missing."""
    if value.type.name == "property_type":  # a text, if there is one type
        return f"([{value.jinja}] if {value.jinja} is string else {value.jinja} or [])"
    empty = "[]" if value.kind == "list" else "{}"
    return f"({value.jinja} or {empty})"


def get_item(base: str, key: str) -> str:
    """Return the Jinja for the value of a key."""
    if key.isidentifier() and key not in DICT_METHODS:
        return f"{base}.{key}"
    return f"{base}.get({literal(key)})"


def get_field(base: str, field: GoField) -> str:
    """Return the Jinja for a field; what is missing has the zero of its type.

    Lists, mappings and the values of JSON may still be missing: those that use them know.
    """
    value = get_item(base, field.key)
    zeros = {"string": "''", "int": "0", "struct": "{}"}
    zero = zeros.get(TYPES[field.type].kind)
    return value if zero is None else f"({value} or {zero})"


MACROS = {
    "plain_json": """\
{%- macro plain_json(value) -%}
{{- value | tojson(separators=(',', ':')) -}}
{%- endmacro -%}""",
    "plain": """\
{%- macro plain(value) -%}
{{- value if value is string else plain_json(value) if value is defined and value is not none else '' -}}
{%- endmacro -%}""",
    "quote": """\
{%- macro quote(text) -%}
{{- text | tojson | replace('<', '\\\\u003c') | replace('>', '\\\\u003e') | replace('&', '\\\\u0026') \
| replace('\\u2028', '\\\\u2028') | replace('\\u2029', '\\\\u2029') -}}
{%- endmacro -%}""",
    # Digits and exponent of a number, as Python prints it; an exponent below or above is written as such.
    "number": """\
{%- macro number(value, below=-4, above=6, width=2) -%}
{%- set parts = ((value | float) | string).lstrip('-').split('e') -%}
{%- set halves = (parts[0] ~ '.').split('.') -%}
{%- set whole = halves[0].lstrip('0') -%}
{%- set fraction = halves[1].rstrip('0') -%}
{%- set shift = (parts[1] | int) if parts | length > 1 else 0 -%}
{%- set digits = (whole ~ fraction).lstrip('0').rstrip('0') -%}
{%- set zeros = fraction | length - fraction.lstrip('0') | length -%}
{%- set exponent = shift + (whole | length - 1 if whole else -1 - zeros) -%}
{{- '-' if ((value | float) | string).startswith('-') else '' -}}
{%- if not digits -%}
{{- '0' -}}
{%- elif exponent < below or exponent >= above -%}
{{- digits[0] ~ ('.' ~ digits[1:] if digits | length > 1 else '') ~ 'e' ~ ('-' if exponent < 0 else '+') -}}
{{- (exponent | abs | string).rjust(width, '0') -}}
{%- elif exponent < 0 -%}
{{- '0.' ~ '0' * (-1 - exponent) ~ digits -}}
{%- elif digits | length <= exponent + 1 -%}
{{- digits ~ '0' * (exponent + 1 - digits | length) -}}
{%- else -%}
{{- digits[:exponent + 1] ~ '.' ~ digits[exponent + 1:] -}}
{%- endif -%}
{%- endmacro -%}""",
    "json": """\
{%- macro json(value) -%}
{%- if value is not defined or value is none -%}
{{- 'null' -}}
{%- elif value is string -%}
{{- quote(value) -}}
{%- elif value is boolean -%}
{{- 'true' if value else 'false' -}}
{%- elif value is number -%}
{{- number(value, -6, 21, 1) -}}
{%- elif value is mapping -%}
{{- '{' -}}
{%- for key, item in value | dictsort(case_sensitive=true) -%}
{{- ('' if loop.first else ',') ~ quote(key) ~ ':' ~ json(item) -}}
{%- endfor -%}
{{- '}' -}}
{%- else -%}
{{- '[' -}}
{%- for item in value -%}
{{- ('' if loop.first else ',') ~ json(item) -}}
{%- endfor -%}
{{- ']' -}}
{%- endif -%}
{%- endmacro -%}""",
    "show": """\
{%- macro show(value, missing='<no value>') -%}
{%- if value is string -%}
{{- value -}}
{%- elif value is not defined or value is none -%}
{{- missing -}}
{%- elif value is boolean -%}
{{- 'true' if value else 'false' -}}
{%- elif value is number -%}
{{- number(value) -}}
{%- elif value is mapping -%}
{{- 'map[' -}}
{%- for key, item in value | dictsort(case_sensitive=true) -%}
{{- ('' if loop.first else ' ') ~ key ~ ':' ~ show(item, '<nil>') -}}
{%- endfor -%}
{{- ']' -}}
{%- else -%}
{{- '[' -}}
{%- for item in value -%}
{{- ('' if loop.first else ' ') ~ show(item, '<nil>') -}}
{%- endfor -%}
{{- ']' -}}
{%- endif -%}
{%- endmacro -%}""",
    "show_property_type": """\
{%- macro show_property_type(value) -%}
{%- if value is string -%}
{{- value -}}
{%- elif value and value | length == 1 -%}
{{- value[0] -}}
{%- elif value -%}
{{- show(value) -}}
{%- endif -%}
{%- endmacro -%}""",
    "json_property_type": """\
{%- macro json_property_type(value) -%}
{{- json(value[0] if value is not string and value and value | length == 1 else value) -}}
{%- endmacro -%}""",
    "json_nested": """\
{%- macro json_nested(value) -%}
{%- if value is mapping -%}
{{- '{' -}}
{%- for key, item in value.items() -%}
{{- ('' if loop.first else ',') ~ quote(key) ~ ':' ~ json_property(item) -}}
{%- endfor -%}
{{- '}' -}}
{%- else -%}
{{- 'null' -}}
{%- endif -%}
{%- endmacro -%}""",
    "count_bytes": """\
{%- macro count_bytes(text) -%}
{{- (text | urlencode | length) - 2 * (text | urlencode).count('%') -}}
{%- endmacro -%}""",
    "yesterday": """\
{%- macro yesterday() -%}
{%- set year = strftime_now('%Y') | int -%}
{%- set month = strftime_now('%m') | int -%}
{%- set day = strftime_now('%d') | int - 1 -%}
{%- if day == 0 and month == 1 -%}
{{- '%04d-12-31' | format(year - 1) -}}
{%- elif day == 0 -%}
{%- set leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) -%}
{%- set lengths = [31, 29 if leap else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] -%}
{{- '%04d-%02d-%02d' | format(year, month - 1, lengths[month - 2]) -}}
{%- else -%}
{{- '%04d-%02d-%02d' | format(year, month, day) -}}
{%- endif -%}
{%- endmacro -%}""",
    "typescript": """\
{%- macro typescript(value) -%}
{%- set names = {'string': 'string', 'number': 'number', 'integer': 'number', 'boolean': 'boolean', 'array': 'any[]', \
'object': 'Record<string, any>', 'null': 'null'} -%}
{%- if value.anyOf -%}
{%- for item in value.anyOf -%}
{{- ('' if loop.first else ' | ') ~ typescript(item) -}}
{%- endfor -%}
{%- else -%}
{%- for item in ([value.type] if value.type is string else value.type or ['any']) -%}
{{- ('' if loop.first else ' | ') ~ names.get(item, 'any') -}}
{%- endfor -%}
{%- endif -%}
{%- endmacro -%}""",
}
NEEDS = {
    "plain": ("plain_json",),
    "json": ("quote", "number"),
    "show": ("number",),
    "show_property_type": ("show",),
    "json_property_type": ("json",),
    "json_nested": ("quote", "json_property"),
}
MACRO_NAMES = {*MACROS, *(f"{verb}_{name}" for verb in ("show", "json") for name in TYPES)}


class GoPrinter:
    """Writes values as text or JSON, and remembers the macros that this takes.

    Args:
        exact: print as Go does, not as compact JSON.
    """

    def __init__(self, exact: bool) -> None:
        self.exact = exact
        self._macros: dict[str, str] = {}

    def write_macros(self) -> list[str]:
        """Return the lines of all macros that were needed."""
        return [line for text in self._macros.values() for line in text.splitlines()]

    def call(self, name: str, *arguments: str) -> str:
        """Return the call of a macro, which is written, too."""
        self._add(name)
        return f"{name}({', '.join(arguments)})"

    def print_value(self, value: GoValue, line: int, missing: str = NO_VALUE) -> str:
        """Return the text that a value prints as; `missing` is what nothing prints as."""
        if value.kind == "string":
            return value.jinja
        if value.kind != "root" and not self.exact:
            return self.call("plain", value.jinja)
        if value.kind == "int":
            return value.jinja
        if value.kind == "nil":
            return literal(missing)
        if value.kind in UNPRINTED or value.type.name in UNPRINTED:
            self._refuse_print(value, line)
        return self._show(value.jinja, value.type, missing)

    def json_value(self, value: GoValue, line: int) -> str:
        """Return a value as JSON."""
        if not self.exact:
            return self.call("plain_json", value.jinja)
        if value.kind == "mixed":
            self._refuse_print(value, line)
        text = self._json(value.jinja, value.type)
        return f"({text} | string)" if value.kind == "int" else text

    def fail(self, line: int, message: str) -> str:
        """Return the Jinja that stops the rendering."""
        return f"raise_exception({literal(f'line {line} of the template: {message}')})"

    def _refuse_print(self, value: GoValue, line: int) -> NoReturn:
        message = f"printing a value of the type {value.type.go_name} is not supported"
        refuse(line, message, "Print its fields.")

    # -- how each type prints

    def _show(self, value: str, type_: GoType, missing: str = NIL) -> str:
        """Return the text of a value by its type."""
        if type_.kind == "string" or type_.kind == "int":
            return value
        if type_.kind == "bool":
            return f"('true' if {value} else 'false')"
        if type_.kind == "float":
            return self.call("number", value)
        if type_.kind == "any":
            return self.call("show", value, *([] if missing == NO_VALUE else [literal(missing)]))
        if type_.name in ("strings", "anys"):
            return self.call("show", f"({value} or [])")
        if type_.prints_json:
            return self._json(f"({value} or {{}})" if type_.kind == "map" else value, type_)
        return self.call(f"show_{type_.name}", value)

    def _json(self, value: str, type_: GoType) -> str:
        if type_.kind == "string":
            return self.call("quote", value)
        if type_.kind == "int":
            return value
        if type_.kind == "bool":
            return f"('true' if {value} else 'false')"
        if type_.name in ("nil", "any", "float", "strings", "anys", "arguments", "images", "image"):
            return self.call("json", value)
        return self.call(f"json_{type_.name}", value)

    def _add(self, name: str) -> None:
        if name in self._macros:
            return
        self._macros[name] = ""  # so that a type within itself ends
        if name in MACROS:
            self._macros[name] = MACROS[name]
            for needed in NEEDS.get(name, ()):
                self._add(needed)
            return
        verb, _, type_name = name.partition("_")
        body = self._write_type(verb, TYPES[type_name])
        self._macros[name] = "\n".join(
            [f"{{%- macro {name}(value) -%}}", *body, "{%- endmacro -%}"]
        )

    def _write_type(self, verb: str, type_: GoType) -> list[str]:
        """Return the body of the macro that writes a list, a mapping or a struct."""
        if type_.kind == "struct":
            return self._json_struct(type_) if verb == "json" else self._show_struct(type_)
        write = self._json if verb == "json" else self._show
        element = TYPES[type_.element]
        item, items, brackets = write("item", element), "value or []", "[]"
        if type_.kind == "map":
            item = f"{self.call('quote', 'key')} ~ ':' ~ {item}"
            items, brackets = "value | dictsort(case_sensitive=true)", "{}"
        separator = "," if verb == "json" else " "
        lines = [
            f"{{{{- {literal(brackets[0])} -}}}}",
            f"{{%- for {'key, item' if type_.kind == 'map' else 'item'} in {items} -%}}",
            f"{{{{- ('' if loop.first else {literal(separator)}) ~ {item} -}}}}",
            "{%- endfor -%}",
            f"{{{{- {literal(brackets[1])} -}}}}",
        ]
        if verb == "json":
            # Ollama makes some lists only if there is something in them.
            test = "value is defined and value is not none"
            if type_.name in MADE_LISTS:
                test = "value"
            lines = [f"{{%- if {test} -%}}", *lines]
            lines += ["{%- else -%}", "{{- 'null' -}}", "{%- endif -%}"]
        return lines

    def _show_struct(self, type_: GoType) -> list[str]:
        fields = [
            self._show(get_field("value", field), TYPES[field.type]) for field in type_.fields
        ]
        return ["{{- '{' ~ " + " ~ ' ' ~ ".join(fields) + " ~ '}' -}}"]

    def _json_struct(self, type_: GoType) -> list[str]:
        lines = ["{%- set out = namespace(text='') -%}"]
        for field in type_.fields:
            written = self._json(get_field("value", field), TYPES[field.type])
            name = literal(f',"{field.json or field.name}":')
            line = f"{{%- set out.text = out.text ~ {name} ~ {written} -%}}"
            if field.omits_empty:
                line = f"{{%- if {_has_value('value', field)} -%}}\n{line}\n{{%- endif -%}}"
            lines.append(line)
        return [*lines, "{{- '{' ~ out.text[1:] ~ '}' -}}"]


def _has_value(base: str, field: GoField) -> str:
    """Return the test whether JSON has a field that is left out when empty."""
    value = get_item(base, field.key)
    if field.type == "property_type":
        return f"{value} is string or {value}"
    if TYPES[field.type].kind in ("any", "pointer"):
        return f"{value} is defined and {value} is not none"
    return value
