"""Values written as text: printing, `%` and `{}` formatting, JSON.

Each is charged before it is done. A width is a few digits in a format but much memory in the
result, and a list that holds another list twice, which holds another twice, and so on ten times,
prints as a thousand lists. Values of the input are trees of a known size; containers that the
template built are measured here (`charge_container`).
"""

from __future__ import annotations

import json
import re
import string
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from json import encoder
from typing import Any

from turnwise.engine.provenance.container_rules import is_from_input
from turnwise.engine.provenance.text_rules import BLEND, JOINED, PADDED, PART
from turnwise.engine.provenance.trails import Trail
from turnwise.engine.provenance.written_values import JSON, REPR, JsonStyle
from turnwise.engine.runtime.limits import Runtime
from turnwise.engine.runtime.measures import (
    ELEMENT_BYTES,
    RESULT_BYTES,
    char_bytes,
    charge_value,
    text_bytes,
)
from turnwise.engine.runtime.values import (
    Denied,
    Failure,
    NamedPairs,
    Namespace,
    Pair,
    Safe,
    Undefined,
    ValueFailure,
    View,
    check_defined,
)
from turnwise.errors import short_repr

# It matches at every `%`, a format that is broken off included, so that none is looked at twice.
PERCENT = re.compile(
    r"%(?:\(([^)]*+)(?:\)|\Z))?+([#0\- +]*+)(\*|\d++)?+(?:\.(\*|\d++)?+)?+[hlL]?+(.?)", re.S
)
FILL = re.compile(r"[^ 0][<>=^]", re.S)  # at the start of a format: what numbers are padded with
DIGITS = re.compile(r"\d+")
FIELD_STEPS = 40  # of one conversion or field
FIELD_BYTES = 400  # of its parts and their trails
WIDTH_BYTES = 4  # of a character that fills a width or precision
PRINT_BYTES = 120  # of printing a value that is no text, and of its place in the output
REPR_BYTES = 4  # for each character: a control character is written as \x00
CONVERSIONS = {"r": repr, "a": ascii}


def to_text(rt: Runtime, value: Any, trail: Trail) -> Pair:
    """Return what `{{ value }}` prints."""
    kind = type(value)
    if kind is str:
        return value, trail
    rt.charge_bytes(PRINT_BYTES)
    if kind is Safe:
        rt.charge_bytes(text_bytes(value))  # a copy, unlike that of plain text
        return str(value), trail
    if kind is Undefined:
        return "", None
    if kind in (dict, list, tuple, View):
        return _to_repr(rt, value, trail), (REPR, value, trail)
    if kind is Namespace:  # it can change, so the origins of its parts are not recorded
        return _to_repr(rt, value, trail), None
    if kind in PLACEHOLDERS:
        return f"<{kind.__name__}>", trail
    charge_value(rt, value)
    return str(value), trail  # of a function or stream, raises the error that it cannot be printed


def _to_repr(rt: Runtime, value: Any, trail: Trail) -> str:
    """Return Python's `repr` of a container; templates print some by mistake."""
    is_cacheable = id(value) in rt.tools.cacheable_ids
    text: str | None = rt.tools.json_cache.get((id(value), "repr")) if is_cacheable else None
    if text is None:
        if not is_from_input(trail):
            charge_value(rt, value, REPR_BYTES)
        text = repr(value)
        if is_cacheable:
            rt.tools.json_cache.add((id(value), "repr"), text, len(text))
    rt.charge_bytes(len(text))
    return text


def to_texts(rt: Runtime, parts: tuple[Any, ...]) -> list[Any]:
    """Return flat values and trails with every value as text."""
    texts: list[Any] = []
    for value, trail in zip(parts[::2], parts[1::2], strict=True):
        texts += (value, trail) if type(value) is str else to_text(rt, value, trail)
    return texts


def concatenate(rt: Runtime, parts: tuple[Any, ...]) -> Pair:
    """`a ~ b ~ c`, given flat: value, trail, value, trail."""
    return join_parts(rt, to_texts(rt, parts))


def join_parts(rt: Runtime, parts: Any) -> Pair:
    """Join flat texts and trails to one text."""
    texts = parts[::2]
    rt.charge_bytes(RESULT_BYTES + sum(map(len, texts)))
    result = "".join(texts)
    if not result.isascii():  # as wide as its widest character
        rt.charge_bytes((char_bytes(result) - 1) * len(result))
    return result, (JOINED, parts)


# ---- % ----


def charge_format(rt: Runtime, form: str, opener: str) -> None:
    """Pay for reading a format, whose fields begin with `opener`."""
    count = form.count(opener)
    rt.charge_steps(FIELD_STEPS * count)
    rt.charge_bytes(2 * text_bytes(form) + FIELD_BYTES * count)


def format_percent(rt: Runtime, form: str, trail: Trail, value: Any, value_trail: Trail) -> Pair:
    """Return `form % value`, one conversion at a time."""
    charge_format(rt, form, "%")
    if isinstance(value, tuple):
        rt.charge_bytes(2 * ELEMENT_BYTES * len(value))
    arguments = PercentArguments(value, value_trail)
    parts: list[Any] = []
    start = 0
    for spec in PERCENT.finditer(form):
        parts += (form[start : spec.start()], (PART, form, trail, start))
        parts += _format_conversion(rt, spec, arguments)
        start = spec.end()
    if arguments.rest and not arguments.has_keys:
        raise Failure("not all arguments converted during string formatting")
    return join_parts(rt, [*parts, form[start:], (PART, form, trail, start)])


class PercentArguments:
    """The values of one `%` format, which its conversions take in order or by name."""

    def __init__(self, value: Any, trail: Trail) -> None:
        self.mapping = value if isinstance(value, dict) else None
        # Python takes whatever could be asked for a key for a mapping, and those may have more than is written.
        self.has_keys = isinstance(value, (dict, list, range, Undefined))
        self.trail = trail
        pairs = [(value, trail)]
        if isinstance(value, tuple):
            pairs = [(item, (trail, index)) for index, item in enumerate(value)]
        self.rest = deque(pairs)

    def take_named(self, key: str) -> Pair:
        if self.mapping is None:
            raise Failure("format requires a mapping")
        if key not in self.mapping:
            raise Failure(f"the format asks for {short_repr(key)}, which the mapping does not have")
        return self.mapping[key], (self.trail, key)

    def take_next(self) -> Pair:
        if not self.rest:
            raise Failure("not enough arguments for format string")
        return self.rest.popleft()


def _format_conversion(rt: Runtime, spec: re.Match[str], arguments: PercentArguments) -> Pair:
    key, flags, width, precision, kind = spec.groups()
    if not kind:
        raise Failure("incomplete format")
    if kind == "%":
        return "%", None
    columns = _conversion_size(rt, width, arguments)
    digits = _conversion_size(rt, precision, arguments)
    value, trail = arguments.take_next() if key is None else arguments.take_named(key)
    if kind == "s":
        value, trail = to_text(rt, value, trail)
    else:
        if kind not in "ra":
            check_defined(value)
        _charge_conversion(rt, kind, value)
    dot = "." if "." in spec[0] else ""
    if precision is not None:
        dot += str(digits)
    result = f"%{flags}{columns or ''}{dot}{kind}" % (value,)
    return _trail_of_formatted(result, value, trail)


def _conversion_size(rt: Runtime, size: str | None, arguments: PercentArguments) -> int:
    """Return a width or precision, `*` takes it from the arguments, and pay for what it fills."""
    number = arguments.take_next()[0] if size == "*" else int(size or 0)
    if not isinstance(number, int):
        raise Failure("* wants int")
    rt.charge_bytes(WIDTH_BYTES * abs(number))
    return number


def _charge_conversion(rt: Runtime, kind: str, value: Any) -> None:
    """Pay for writing a value as `%d`, `{:b}`, `!r` and the like; integers of the input may be long."""
    each = 2
    if kind in CONVERSIONS:  # a control character becomes four, another one up to ten
        is_ascii = not isinstance(value, str) or value.isascii()
        each = 4 if kind == "r" and is_ascii else 10
    charge_value(rt, value, each)


def _trail_of_formatted(result: str, value: Any, trail: Trail) -> Pair:
    """Return the result with its trail: it is the value itself, padded, or changed."""
    if not isinstance(value, str) or result == value:
        return result, trail
    rule = PADDED if value in result else BLEND
    return result, (rule, value, trail)


# ---- {} ----


@dataclass
class FormatFields:
    """The arguments of one `format`, by position or by name; unnamed fields count up."""

    args: tuple[Pair, ...]
    kwargs: NamedPairs
    next: int = 0

    def find(self, name: str) -> Pair:
        """Return the value of a field such as `0.a[b]`: the argument, then item by item."""
        if not name or name[0] in ".[":
            name, self.next = f"{self.next}{name}", self.next + 1
        first, *rest = re.split(r"(\.|\[)", name)
        try:
            value, trail = self.args[int(first)] if first.isdigit() else self.kwargs[first]
        except (IndexError, KeyError):
            raise Failure(f"the format asks for {short_repr(first)}, which was not given") from None
        for sign, key in zip(rest[::2], rest[1::2], strict=True):
            step = key.removesuffix("]") if sign == "[" else key
            value, trail = self._get_item(value, trail, step, name)
        return value, trail

    def _get_item(self, value: Any, trail: Trail, step: str, name: str) -> Pair:
        if step.startswith("_"):
            raise Denied(
                f"access to {short_repr(step)} is not possible: "
                "a format reads items, not Python attributes"
            )
        check_defined(value)
        is_index = isinstance(value, (str, list, tuple)) and step.isdigit()
        key: Any = int(step) if is_index else step
        try:
            item = value[key]
        except (LookupError, TypeError):
            problem = f"the format asks for {short_repr(name)}, which does not exist"
            return Undefined(problem), None
        return item, (PART, value, trail, key) if isinstance(value, str) else (trail, key)


def format_braces(
    rt: Runtime, form: str, trail: Trail, fields: FormatFields, depth: int = 2
) -> Pair:
    """Return `form.format(*args, **kwargs)`; fields read items, never Python attributes."""
    if depth < 0:
        raise Failure("Max string recursion exceeded")
    parts: list[Any] = []
    start = 0
    for literal, name, spec, convert in list(string.Formatter().parse(form)):
        parts += (literal, (PART, form, trail, start))
        start += len(literal)
        if name is None:
            start += 1  # the literal ends with the first of two braces, or with the text
            continue
        start += len(f"{{{name}!{convert}") if convert else len(f"{{{name}")
        if form[start] == ":":
            start += 1 + len(spec or "")
        start += 1  # the closing brace
        pair = fields.find(name)
        if spec and "{" in spec:  # a width may be a field too
            rt.charge_steps(FIELD_STEPS * spec.count("{"))
            spec = format_braces(rt, spec, None, fields, depth - 1)[0]
        parts += _format_field(rt, pair, spec or "", convert)
    return join_parts(rt, parts)


def _format_field(rt: Runtime, pair: Pair, spec: str, convert: str | None) -> Pair:
    """Format one field of `{}`.

    Convert it with `!r`, `!a` or `!s`, then apply the format after `:`.
    """
    value, trail = pair
    for number in DIGITS.findall(spec):
        rt.charge_bytes(WIDTH_BYTES * int(number))
    if convert in ("r", "a"):
        _charge_conversion(rt, convert, value)
        value, trail = CONVERSIONS[convert](value), (REPR, value, trail)
    elif convert == "s" or not isinstance(value, (str, int, float)):
        if spec and convert is None:
            raise Failure(f"unsupported format string passed to {type(value).__name__}.__format__")
        value, trail = to_text(rt, value, trail)
    else:
        _charge_conversion(rt, spec[-1:], value)
    result = format(value, spec)
    if not isinstance(value, str) and FILL.match(spec):
        return result, (BLEND, str(value), trail, spec, None)  # the fill may be anybody's text
    return _trail_of_formatted(result, value, trail)


# ---- JSON ----

DEFAULT_STYLE = JsonStyle(ensure_ascii=False, indent=None, comma=", ", colon=": ", sort_keys=False)
JSON_BYTES = 6  # for each character: a control character is written as \u0000
PLACEHOLDERS = (bytes, complex, set, frozenset)  # types that are written as their name


def to_json(rt: Runtime, value: Any, trail: Trail, style: JsonStyle, node: int | None) -> Pair:
    """Return `value|tojson`.

    Tools that were rendered before are not written again (`PreparedTools`).
    """
    rt.charge_bytes(4 * RESULT_BYTES)
    cache = rt.tools.json_cache if id(value) in rt.tools.cacheable_ids else None
    if cache is not None:
        known = cache.get((id(value), style))
        if known is not None:
            rt.charge_bytes(len(known))
            return known, (JSON, value, trail, style, node)
    _charge_json(rt, value, trail, style)
    try:
        result = make_json_writer(style)(value)
    except TypeError as error:
        problem = str(error).replace("Stream", "generator").replace("View", "dict view")
        raise Failure(problem) from None
    except ValueError as error:
        problem = f"the value cannot be written as JSON: {error}"
        raise ValueFailure(problem, value) from None
    rt.charge_bytes(len(result))
    if cache is not None:
        cache.add((id(value), style), result, len(result))
    return result, (JSON, value, trail, style, node)


def _charge_json(rt: Runtime, value: Any, trail: Trail, style: JsonStyle) -> None:
    """Pay for writing JSON: for a value of the input the result is enough.

    A style with an indent is written by Python, element by element.
    """
    if style.indent is not None:
        paid = charge_value(rt, value, JSON_BYTES, len(style.indent) + len(style.comma))
        rt.charge_steps(paid // 4)
    elif not is_from_input(trail):
        punctuation = len(style.comma) + len(style.colon)
        charge_value(rt, value, JSON_BYTES, punctuation if punctuation > 4 else 0)


@lru_cache(maxsize=64)
def make_json_writer(style: JsonStyle) -> Callable[[Any], str]:
    """Return `json.dumps` with these options.

    Setting it up costs more than writing a small value.
    """
    c_make_encoder = getattr(encoder, "c_make_encoder", None)
    if c_make_encoder is None or style.indent is not None:
        return json.JSONEncoder(
            ensure_ascii=style.ensure_ascii,
            indent=style.indent,
            separators=(style.comma, style.colon),
            sort_keys=style.sort_keys,
            allow_nan=False,
            default=_write_placeholder,
        ).encode
    # What JSONEncoder calls inside, without what it does around it. The first argument would
    # detect values that contain themselves; none do.
    escape = encoder.encode_basestring_ascii if style.ensure_ascii else encoder.encode_basestring
    colon, comma = style.colon, style.comma
    encode = c_make_encoder(
        None, _write_placeholder, escape, None, colon, comma, style.sort_keys, False, False
    )
    return lambda value: "".join(encode(value, 0))


def _write_placeholder(value: Any) -> str:
    if type(value) in PLACEHOLDERS:
        return f"<{type(value).__name__}>"
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")
