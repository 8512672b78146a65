"""Filters: jinja2's, transformers' `tojson`, and `from_json`, which templates in the wild expect.

A filter is one function `(rt, value, trail, *arguments) -> (value, trail)` under `@template_filter`, which states its
names and its cost (`costs.py`); an argument is a pair of value and trail. Its trail depends on the result:

    a part, padded text, another case    a rule that keeps the origin of every character
    an element of a sequence             a child of the sequence's trail
    a selection, another order           a `PICK` of indices
    a number, a boolean                  None: no origin

Left out on purpose: `random` (not reproducible), `urlize`, `pprint`, `xmlattr` (chat templates
write no HTML).
"""

from __future__ import annotations

import json
import math
import re
from textwrap import TextWrapper
from typing import Any
from urllib.parse import quote, quote_plus

from markupsafe import Markup

from turnwise.engine.provenance.container_rules import EACH
from turnwise.engine.provenance.text_rules import BLEND, INDENTED, PART, RECASED
from turnwise.engine.provenance.trails import Trail
from turnwise.engine.provenance.written_values import JsonStyle
from turnwise.engine.runtime.access import (
    get_attribute,
    list_pairs,
    make_undefined,
    name_pairs,
    to_sequence,
    type_name,
)
from turnwise.engine.runtime.costs import FILTERS, template_filter
from turnwise.engine.runtime.formatting import (
    DEFAULT_STYLE,
    FIELD_BYTES,
    concatenate,
    format_percent,
    to_json,
    to_text,
)
from turnwise.engine.runtime.limits import Runtime, limit_error
from turnwise.engine.runtime.measures import (
    ELEMENT_BYTES,
    ITEM_BYTES,
    PART_BYTES,
    bound_integer,
    char_bytes,
    charge_value,
    count_lines,
    text_bytes,
)
from turnwise.engine.runtime.methods import (
    METHODS,
    UNLIMITED,
    join_with_separator,
    require_defined,
    require_integer,
)
from turnwise.engine.runtime.operations import escape_html as html_escaped
from turnwise.engine.runtime.sequence_filters import find_by_name, read_fields
from turnwise.engine.runtime.values import (
    FALSE,
    NONE,
    Builtin,
    Failure,
    Pair,
    Safe,
    Stream,
    Undefined,
    ValueFailure,
    check_defined,
)
from turnwise.errors import short_repr

__all__ = ["FILTERS", "WITHHELD"]

STRINGS = METHODS[str]


def _require_text(value: Any, name: str) -> str:
    """Return the value of a filter that accepts only text."""
    check_defined(value)
    if not isinstance(value, str):
        raise ValueFailure(f"{name}: the value must be text, not {type_name(value)}", value)
    return value


def make_text_filter(name: str) -> Builtin:
    """Return a filter that prints its value and calls the string method of that name."""
    method = STRINGS[name]

    def run(rt: Runtime, value: Any, trail: Trail, *args: Pair) -> Pair:
        return method(rt, *to_text(rt, value, trail), *args)

    return run


TEXT_METHODS = {"capitalize": "capitalize", "lower": "lower", "trim": "strip", "upper": "upper"}
for _name, _method in TEXT_METHODS.items():
    template_filter(_name, cost=0, text=True)(make_text_filter(_method))
template_filter("string", cost=0, text=True)(to_text)


# ---- text ----


@template_filter("replace", cost=0, text=True)
def replace_text(
    rt: Runtime, value: Any, trail: Trail, old: Pair, new: Pair, count: Pair = NONE
) -> Pair:
    limit = UNLIMITED if count[0] is None else count
    return STRINGS["replace"](
        rt, *to_text(rt, value, trail), to_text(rt, *old), to_text(rt, *new), limit
    )


@template_filter("title", cost=500, text=True)
def change_to_title_case(rt: Runtime, value: Any, trail: Trail) -> Pair:
    written, source = to_text(rt, value, trail)
    # every second character may be a word, which becomes a text of its own
    rt.charge_each(len(written), 2, 2 * PART_BYTES)
    return _title_case(written), (RECASED, written, source, _title_case)


def _title_case(written: str) -> str:
    words = re.split(r"([-\s({\[<]+)", written)
    return "".join(word[:1].upper() + word[1:].lower() for word in words)


@template_filter("center", cost=0, text=True)
def centre_text(rt: Runtime, value: Any, trail: Trail, width: Pair = (80, None)) -> Pair:
    return STRINGS["center"](rt, *to_text(rt, value, trail), width)


@template_filter("indent", cost=250, text=True)
def indent_lines(
    rt: Runtime,
    value: Any,
    trail: Trail,
    width: Pair = (4, None),
    first: Pair = FALSE,
    blank: Pair = FALSE,
) -> Pair:
    written = _require_text(value, "indent")
    given = width[0] if isinstance(width[0], str) else None
    size = require_integer(width) if given is None else len(given)
    wide = max(char_bytes(written), char_bytes(given or ""))
    lines_bytes = count_lines(written + "\n") * (2 * max(size, 0) * wide + ELEMENT_BYTES)
    rt.charge_bytes(2 * text_bytes(written) + lines_bytes)
    margin = " " * size if given is None else given
    lines = (written + "\n").splitlines() if blank[0] else written.splitlines()
    if written.endswith("\n") and not blank[0]:
        lines.append("")
    rest = [margin + line if line or blank[0] else line for line in lines[1:]]
    result = "\n".join([*lines[:1], *rest])
    return (margin + result if first[0] else result), (INDENTED, written, trail)


@template_filter("truncate", cost=500)
def truncate_text(
    rt: Runtime,
    value: Any,
    trail: Trail,
    length: Pair = (255, None),
    killwords: Pair = FALSE,
    end: Pair = ("...", None),
    leeway: Pair = (5, None),
) -> Pair:
    rt.charge_bytes(2 * text_bytes(value))
    size, tail = require_integer(length), to_text(rt, require_defined(end), None)[0]
    spare = 5 if leeway[0] is None else require_integer(leeway)
    if size < len(tail) or spare < 0:
        raise Failure(
            f"truncate: expected length >= {len(tail)} and leeway >= 0, got {size} and {spare}"
        )
    if isinstance(value, (str, list, tuple, dict, Undefined)) and len(value) <= size + spare:
        return value, trail
    written = _require_text(value, "truncate")
    kept = written[: size - len(tail)]
    if not killwords[0]:
        kept = kept.rsplit(" ", 1)[0]
    return concatenate(rt, (kept, (PART, written, trail, 0), tail, end[1]))


@template_filter("wordwrap", cost=5000)
def wrap_words(
    rt: Runtime,
    value: Any,
    trail: Trail,
    width: Pair = (79, None),
    break_long_words: Pair = (True, None),
    wrapstring: Pair = NONE,
    break_on_hyphens: Pair = (True, None),
) -> Pair:
    written = _require_text(value, "wordwrap")
    size = require_integer(width)
    if size < 1 and written:
        raise Failure(f"wordwrap: the width is at least 1, not {size}")
    # A regular expression cuts the words; a long word is copied for every line that it fills.
    count = len(written)
    rt.charge_steps(16 * count)
    rt.charge_bytes(PART_BYTES * count + count * count // (16 * max(size, 1)))
    wrapper = TextWrapper(
        size,
        expand_tabs=False,
        replace_whitespace=False,
        break_long_words=bool(break_long_words[0]),
        break_on_hyphens=bool(break_on_hyphens[0]),
    )
    newline = "\n" if wrapstring[0] is None else to_text(rt, require_defined(wrapstring), None)[0]
    lines = [part for line in written.splitlines() for part in wrapper.wrap(line) or [""]]
    rt.charge_bytes(len(written) + len(lines) * len(newline))
    return newline.join(lines), (BLEND, written, trail, newline, wrapstring[1])


@template_filter("e", "escape", "forceescape", cost=250)
def escape_text(rt: Runtime, value: Any, trail: Trail) -> Pair:
    if type(value) is Safe:
        return value, trail
    written, source = to_text(rt, value, trail)
    rt.charge_bytes(6 * len(written))  # a quote becomes five characters
    return Safe(html_escaped(written)), (RECASED, written, source, html_escaped)


@template_filter("striptags", cost=1000)
def strip_tags(rt: Runtime, value: Any, trail: Trail) -> Pair:
    written, source = to_text(rt, value, trail)
    # markupsafe copies the text for each tag and comment
    rt.charge_each(len(written), 2, PART_BYTES + written.count("<"))
    return Markup(written).striptags(), (BLEND, written, source)


@template_filter("urlencode", cost=1000)
def encode_url(rt: Runtime, value: Any, trail: Trail) -> Pair:
    # each byte becomes a text, then three characters; a sequence consists of many such values
    if isinstance(value, (dict, list, tuple)):
        rt.charge_steps(80 * len(value))
        rt.charge_bytes(charge_value(rt, value, 60) + ELEMENT_BYTES * len(value))
        pairs = value.items() if isinstance(value, dict) else map(_require_pair, value)
        parts = [
            "=".join([quote_plus(to_text(rt, one, None)[0]) for one in pair]) for pair in pairs
        ]
        return "&".join(parts), trail
    written, source = to_text(rt, value, trail)
    rt.charge_each(len(written), 1, 60)
    return quote(written, safe="/"), (RECASED, written, source, quote)


def _require_pair(entry: Any) -> tuple[Any, ...]:
    if not isinstance(entry, (list, tuple, str, dict)) or len(entry) != 2:
        raise ValueFailure("urlencode: a list must consist of pairs", entry)
    return tuple(entry)  # of a dict, its keys: jinja2 takes whatever has two elements


@template_filter("safe", cost=100)
def mark_safe(rt: Runtime, value: Any, trail: Trail) -> Pair:
    written, source = to_text(rt, value, trail)
    rt.charge_bytes(text_bytes(written))
    return Safe(written), source


@template_filter("join", cost=250, per_element=(8, ITEM_BYTES), text=True)
def join_elements(
    rt: Runtime, value: Any, trail: Trail, d: Pair = ("", None), attribute: Pair = NONE
) -> Pair:
    found, found_trail = to_sequence(rt, value, trail)
    separator, separator_trail = to_text(rt, *d)
    if attribute[0] is not None:
        found, found_trail = list_pairs([*read_fields(rt, found, found_trail, attribute)])
    if not all([type(entry) is str for entry in found]):
        found, found_trail = list_pairs(
            [to_text(rt, entry, (found_trail, i)) for i, entry in enumerate(found)]
        )
    return join_with_separator(rt, found, found_trail, separator, separator_trail)


@template_filter("format", cost=500, text=True)
def format_with_percent(rt: Runtime, value: Any, trail: Trail, *args: Pair, **kwargs: Pair) -> Pair:
    if args and kwargs:
        raise Failure("can't handle positional and keyword arguments at the same time")
    rt.charge_bytes(FIELD_BYTES * (len(args) + len(kwargs)))
    written, source = to_text(rt, value, trail)
    values, trails = name_pairs(kwargs) if kwargs else list_pairs(args)
    return format_percent(rt, written, source, values if kwargs else tuple(values), trails)


@template_filter("wordcount", cost=250)
def count_words(rt: Runtime, value: Any, trail: Trail) -> Pair:
    written, _ = to_text(rt, value, trail)
    rt.charge_each(len(written), 2, 1)
    return sum(1 for _ in re.finditer(r"\w+", written)), None


# ---- JSON ----

STYLE_BYTES = 400  # of a style other than the default
MAX_DIGITS = 308  # of an integer, as in a float
SEPARATORS = frozenset(" \t\r\n,:")  # characters of which separators and indents mostly are
MAX_INDENT = 64  # characters of an indent or a separator


@template_filter(
    "tojson", cost=0, text=True
)  # `to_json` pays, and less for tools that were written before
def filter_to_json(
    rt: Runtime,
    value: Any,
    trail: Trail,
    ensure_ascii: Pair = FALSE,
    indent: Pair = NONE,
    separators: Pair = NONE,
    sort_keys: Pair = FALSE,
    node: int | None = None,
) -> Pair:
    """Write JSON with transformers' defaults; `node` is the template node of the punctuation."""
    if ensure_ascii is FALSE and indent is NONE and separators is NONE and sort_keys is FALSE:
        return to_json(rt, value, trail, DEFAULT_STYLE, node)
    rt.charge_bytes(STYLE_BYTES)
    margin = _read_indent(indent[0])
    if separators[0] is not None:
        comma, colon = _read_separators(separators[0])
    else:
        comma, colon = ", " if margin is None else ",", ": "
    style = JsonStyle(bool(ensure_ascii[0]), margin, comma, colon, bool(sort_keys[0]))
    if not SEPARATORS.issuperset(f"{margin or ''}{comma}{colon}"):
        node = None  # a separator may be anybody's text
    return to_json(rt, value, trail, style, node)


def _read_indent(indent: Any) -> str | None:
    if isinstance(indent, int):
        if indent > MAX_INDENT:
            raise limit_error("bytes")
        return " " * indent
    if indent is None or (isinstance(indent, str) and len(indent) <= MAX_INDENT):
        return indent
    raise Failure(f"tojson: indent must be a number or a short text, not {short_repr(indent)}")


def _read_separators(separators: Any) -> tuple[str, str]:
    if isinstance(separators, (list, tuple, str)) and len(separators) == 2:
        texts = [one for one in separators if isinstance(one, str) and len(one) <= MAX_INDENT]
        if len(texts) == 2:
            return texts[0], texts[1]
    raise ValueFailure(
        "tojson: separators must be two short texts, such as (',', ':')",
        separators,
    )


@template_filter("from_json", "fromjson", cost=750)
def filter_from_json(rt: Runtime, value: Any, trail: Trail) -> Pair:
    """Parse JSON text. Every part of the value, however deep, has the origin of the text."""
    if not isinstance(value, str):
        raise ValueFailure(
            f"from_json: the value must be JSON text, not {type_name(value)}",
            value,
        )
    rt.charge_bytes(32 * len(value))  # three characters may become a list or a dict
    try:
        return json.loads(value, parse_int=_parse_integer), (EACH, trail)
    except ValueError as error:
        raise Failure(f"from_json: not JSON: {error}", f"the text is {short_repr(value)}") from None


def _parse_integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise limit_error("bytes")
    return int(digits)


@template_filter("map", cost=250, per_element=(10, ELEMENT_BYTES))
def map_elements(rt: Runtime, value: Any, trail: Trail, *args: Pair, **kwargs: Pair) -> Pair:
    # as in jinja2, a value that is false has no elements
    found, found_trail = to_sequence(rt, value or (), trail)
    if not args and "attribute" in kwargs:
        attribute, default = kwargs.pop("attribute"), kwargs.pop("default", NONE)
        if kwargs:
            raise Failure(f"Unexpected keyword argument {short_repr(next(iter(kwargs)))}")
        pairs = [*read_fields(rt, found, found_trail, attribute, default)]
    else:
        if not args:
            raise Failure("map requires a filter argument")
        run = find_by_name(FILTERS, args[0][0], "filter")
        pairs = [
            run(rt, entry, (found_trail, i), *args[1:], **kwargs) for i, entry in enumerate(found)
        ]
    return Stream(*list_pairs(pairs)), None


# ---- numbers and choices ----

NUMBER_ERRORS = (TypeError, ValueError, OverflowError)  # of Python's own functions of numbers


@template_filter("attr", cost=0)
def get_attribute_only(rt: Runtime, value: Any, trail: Trail, name: Pair) -> Pair:
    """Return `value|attr("name")`: a method or attribute, never an item."""
    key = to_text(rt, require_defined(name), None)[0]
    if isinstance(value, dict) and key not in METHODS[dict]:
        return make_undefined({}, key)
    return get_attribute(rt, value, trail, key)


@template_filter("d", "default", cost=0)
def use_default(
    rt: Runtime, value: Any, trail: Trail, default_value: Pair = ("", None), boolean: Pair = FALSE
) -> Pair:
    if type(value) is Undefined or (boolean[0] and not value):
        return default_value
    return value, trail


@template_filter("int", cost=300)
def as_integer(
    rt: Runtime, value: Any, trail: Trail, default: Pair = (0, None), base: Pair = (10, None)
) -> Pair:
    rt.charge_bytes(2 * text_bytes(value))
    try:
        if isinstance(value, str):
            number = int(value, require_integer(base))
            return bound_integer(number), _number_trail(value, trail)
        return int(value), trail
    except NUMBER_ERRORS:
        pass
    try:
        return int(float(value)), _number_trail(value, trail)
    except NUMBER_ERRORS:
        return default


@template_filter("float", cost=300)
def as_float(rt: Runtime, value: Any, trail: Trail, default: Pair = (0.0, None)) -> Pair:
    rt.charge_bytes(2 * text_bytes(value))
    try:
        return float(value), _number_trail(value, trail)
    except NUMBER_ERRORS:
        return default


def _number_trail(value: Any, trail: Trail) -> Trail:
    """Return the trail of the number that a text was read as: its digits are not those of the text."""
    return (BLEND, value, trail) if isinstance(value, str) else trail


@template_filter("round", cost=250)
def round_number(
    rt: Runtime,
    value: Any,
    trail: Trail,
    precision: Pair = (0, None),
    method: Pair = ("common", None),
) -> Pair:
    digits = require_integer(precision)
    if method[0] not in ("common", "ceil", "floor"):
        raise Failure("method must be common, ceil or floor")
    if abs(digits) > 300:
        raise Failure(f"round: {digits} digits are too many")
    try:
        if method[0] == "common":
            return bound_integer(round(bound_integer(value), digits)), None
        return getattr(math, method[0])(value * 10**digits) / 10**digits, None
    except NUMBER_ERRORS as error:
        raise ValueFailure(f"round: {error}", value) from None


@template_filter("abs", cost=0)
def take_absolute(rt: Runtime, value: Any, trail: Trail) -> Pair:
    try:
        return abs(bound_integer(value)), None
    except TypeError as error:
        raise ValueFailure(str(error), value) from None


@template_filter("filesizeformat", cost=500)
def format_file_size(rt: Runtime, value: Any, trail: Trail, binary: Pair = FALSE) -> Pair:
    size, base = as_float(rt, value, trail, (math.nan, None))[0], 1024 if binary[0] else 1000
    if math.isnan(size):
        raise ValueFailure("filesizeformat: the value is a number", value)
    if size == 1:
        return "1 Byte", None
    if size < base:
        return f"{int(size)} Bytes", None
    power = min(int(math.log(size, base)), 8)
    unit = "kMGTPEZY"[power - 1]
    return f"{size / base**power:.1f} {unit.upper() + 'i' if binary[0] else unit}B", None


WITHHELD = {
    "pprint": "use tojson(indent=2)",
    "random": "the result would not be reproducible",
    "urlize": "a chat template writes no HTML",
    "xmlattr": "a chat template writes no HTML",
}
