"""Jinja expressions for how Go prints a value, and how it writes it as JSON.

Go prints by type (`ollama_types.py`):

    "a"     text, as it is                   1e+06   a number of the conversation, which is a float64
    map[a:1 b:[x y]]  a mapping in JSON      {f d {object <nil> <nil> [x] {"x":{}}}}  a function of a tool
    {"type":"function", ...}                 a type that has a method for it: tools, arguments

JSON has the fields of a struct in the order of the struct, and of a mapping in that of its keys; Go escapes `<`, `>`
and `&`. That is the exact reading: two macros, `show` and `json`, which get a value with the name of its type and
look its fields up in `layouts`. The other reading, for people who want what the author of a template meant, prints
everything that is not text as compact JSON, with the keys in the order in which they came, and nothing for a missing
value. Only the macros that a template needs are written.

Not covered: printing messages, images and properties of tools, which no published template does.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass

from turnwise.dialects.ollama_go import refuse
from turnwise.dialects.ollama_types import TYPES, GoType
from turnwise.dialects.turns import literal

SIMPLE = re.compile(r"\w+(?:\.\w+)*")
NO_VALUE = "<no value>"  # what a template prints for nothing
NIL = "<nil>"  # what nothing is inside of something else
UNPRINTED = (
    "root",
    "messages",
    "message",
    "images",
    "image",
    "property",
    "property_list",
    "nested",
)
"""Types of which Go prints an address, numbers of no use, or everything."""


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
    empty = "{}" if value.kind == "map" else "[]"
    return f"({value.jinja} or {empty})"


LAYOUTS = {
    name: {key: value for key, value in asdict(type_).items() if key not in ("name", "go_name")}
    for name, type_ in TYPES.items()
    if type_.kind in ("struct", "list", "map")
}
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
    "layouts": f"{{%- set layouts = {json.dumps(LAYOUTS)} -%}}",
    # A value by the layout of its type; inside of a value of JSON there is none.
    "json": """\
{%- macro json(value, type='any') -%}
{%- set layout = layouts.get(type) or {} -%}
{%- set is_missing = value is not defined or value is none -%}
{%- if layout.kind == 'struct' -%}
{%- set out = namespace(text='') -%}
{%- for field in layout.fields -%}
{%- set item = (value or {}).get(field.key) -%}
{%- if not field.omits_empty or ((item is not none) if field.type in ['any', 'nested'] else item) -%}
{%- set out.text = out.text ~ ',"' ~ (field.json or field.name) ~ '":' ~ json(item, field.type) -%}
{%- endif -%}
{%- endfor -%}
{{- '{' ~ out.text[1:] ~ '}' -}}
{%- elif type == 'string' or value is string -%}
{{- quote(value or '') -}}
{%- elif type == 'int' -%}
{{- value or 0 -}}
{%- elif is_missing or (layout.is_made and not value) -%}
{{- 'null' -}}
{%- elif value is boolean -%}
{{- 'true' if value else 'false' -}}
{%- elif value is number -%}
{{- number(value, -6, 21, 1) -}}
{%- elif value is mapping -%}
{{- '{' -}}
{%- for key, item in (value.items() if layout.is_ordered else value | dictsort(case_sensitive=true)) -%}
{{- ('' if loop.first else ',') ~ quote(key) ~ ':' ~ json(item, layout.element) -}}
{%- endfor -%}
{{- '}' -}}
{%- elif type == 'property_type' and value | length == 1 -%}
{{- quote(value[0]) -}}
{%- else -%}
{{- '[' -}}
{%- for item in value -%}
{{- ('' if loop.first else ',') ~ json(item, layout.element) -}}
{%- endfor -%}
{{- ']' -}}
{%- endif -%}
{%- endmacro -%}""",
    "show": """\
{%- macro show(value, type='any', missing='<nil>') -%}
{%- set layout = layouts.get(type) or {} -%}
{%- if layout.prints_json -%}
{{- json((value or {}) if layout.kind == 'map' else value, type) -}}
{%- elif layout.kind == 'struct' -%}
{{- '{' -}}
{%- for field in layout.fields -%}
{{- ('' if loop.first else ' ') ~ show((value or {}).get(field.key), field.type) -}}
{%- endfor -%}
{{- '}' -}}
{%- elif value is string -%}
{{- value -}}
{%- elif type == 'string' or (type == 'property_type' and not value) -%}
{{- '' -}}
{%- elif type == 'int' -%}
{{- value or 0 -}}
{%- elif layout.kind != 'list' and (value is not defined or value is none) -%}
{{- missing -}}
{%- elif value is boolean -%}
{{- 'true' if value else 'false' -}}
{%- elif value is number -%}
{{- number(value) -}}
{%- elif value is mapping -%}
{{- 'map[' -}}
{%- for key, item in value | dictsort(case_sensitive=true) -%}
{{- ('' if loop.first else ' ') ~ key ~ ':' ~ show(item) -}}
{%- endfor -%}
{{- ']' -}}
{%- elif type == 'property_type' and value | length == 1 -%}
{{- value[0] -}}
{%- else -%}
{{- '[' -}}
{%- for item in value or [] -%}
{{- ('' if loop.first else ' ') ~ show(item, layout.element) -}}
{%- endfor -%}
{{- ']' -}}
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
    "json": ("layouts", "quote", "number"),
    "show": ("json",),
}


class GoPrinter:
    """Writes values as text or JSON, and remembers the macros that this takes.

    Args:
        exact: print as Go does, not as compact JSON.
    """

    def __init__(self, exact: bool) -> None:
        self.exact = exact
        self._used: set[str] = set()

    def write_macros(self) -> list[str]:
        """Return the lines of all macros that were needed."""
        return [line for name in MACROS if name in self._used for line in MACROS[name].splitlines()]

    def call(self, name: str, *arguments: str) -> str:
        """Return the call of a macro, which is written, too."""
        self._add(name)
        return f"{name}({', '.join(arguments)})"

    def _add(self, name: str) -> None:
        self._used.add(name)
        for needed in NEEDS.get(name, ()):
            self._add(needed)

    def print_value(self, value: GoValue, line: int, missing: str = NO_VALUE) -> str:
        """Return the text that a value prints as; `missing` is what nothing prints as."""
        if value.kind == "string":
            return value.jinja
        if value.kind == "root" or (self.exact and value.type.name in UNPRINTED):
            message = f"printing a value of the type {value.type.go_name} is not supported"
            refuse(line, message, "Print its fields.")
        if not self.exact:
            return self.call("plain", value.jinja)
        return self.call("show", value.jinja, literal(value.type.name), literal(missing))

    def json_value(self, value: GoValue) -> str:
        """Return a value as JSON."""
        if not self.exact:
            return self.call("plain_json", value.jinja)
        return self.call("json", value.jinja, literal(value.type.name))


def fail(line: int, message: str) -> str:
    """Return the Jinja that stops the rendering."""
    return f"raise_exception({literal(f'line {line} of the template: {message}')})"
