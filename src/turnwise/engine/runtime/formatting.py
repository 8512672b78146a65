"""Values written as text: printing, `%` and `{}` formatting, JSON.

Each is charged before it is done: a width is digits in a format but memory when it is obeyed, and a small list that
contains itself twice, ten times over, prints as a thousand lists. Values that came in with the conversation were
measured at the door (they are trees of a known size); values that the template built are measured here.
"""

from __future__ import annotations

import json
import re
import string
from collections import deque
from collections.abc import Callable
from json import encoder
from typing import Any

from turnwise.engine.provenance.container_rules import is_from_input
from turnwise.engine.provenance.text_rules import BLEND, JOINED, PADDED, PART
from turnwise.engine.provenance.trails import Trail
from turnwise.engine.provenance.written_values import JSON, REPR, JsonStyle
from turnwise.engine.runtime.limits import Runtime, limit_error
from turnwise.engine.runtime.values import (
    Denied,
    Failure,
    Function,
    Namespace,
    Pair,
    Safe,
    Stream,
    Undefined,
    View,
)
from turnwise.errors import short_repr

PERCENT = re.compile(r"%(?:\(([^)]*)\))?([#0\- +]*)(\*|\d+)?(?:\.(\*|\d+)?)?[hlL]?(.)", re.S)
DIGITS = re.compile(r"\d+")
CONVERSIONS: dict[str | None, Callable[[Any], str]] = {"s": str, "r": repr, "a": ascii}


def to_text(rt: Runtime, value: Any, trail: Trail) -> Pair:
    """What `{{ value }}` prints."""
    kind = type(value)
    if kind is str:
        return value, trail
    if kind is Safe:
        return str(value), trail
    if kind is Undefined:
        return "", None
    if kind in (dict, list, tuple, View):
        return to_repr(rt, value, trail), (REPR, value, trail)
    if kind is Namespace:  # it can change, so where its parts came from is not kept
        return to_repr(rt, value, trail), None
    if kind in (Function, Stream):
        repr(value)  # says that it cannot be printed
    return f"<{kind.__name__}>" if kind in PLACEHOLDERS else str(value), trail


def to_repr(rt: Runtime, value: Any, trail: Trail) -> str:
    """Python's own spelling of a container; templates print some by mistake."""
    known: str | None = (
        rt.json_cache.get((id(value), "repr")) if id(value) in rt.cacheable_ids else None
    )
    if known is None:
        charge_container(rt, value, trail)
        known = repr(value)
        if id(value) in rt.cacheable_ids:
            rt.json_cache[id(value), "repr"] = known
    rt.take(len(known))
    return known


def charge_container(rt: Runtime, value: Any, trail: Trail) -> None:
    """Charge a container for being written out, unless it is part of the input."""
    if is_from_input(trail):
        return
    level: list[Any] = [value]
    for _ in range(rt.limits.depth):
        inner: list[Any] = []
        for container in level:
            if isinstance(container, dict):
                inner += container.keys()
                inner += container.values()
            elif isinstance(container, Namespace):
                inner += [pair[0] for pair in container.pairs.values()]
            elif isinstance(container, View):
                inner += container.items
            else:
                inner += container
            rt.take(8 * len(inner))
        rt.take(sum(len(item) for item in inner if isinstance(item, str)))
        level = [item for item in inner if isinstance(item, (dict, list, tuple, Namespace, View))]
        if not level:
            return
    raise limit_error("depth")


def charge_key(rt: Runtime, key: Any) -> Any:
    """A key, after paying for its hash: that of a tuple is as deep as the tuple."""
    if type(key) is tuple:
        charge_container(rt, key, None)
    return key


def to_texts(rt: Runtime, parts: tuple[Any, ...]) -> list[Any]:
    """Values and trails, flat, with every value as text."""
    texts: list[Any] = []
    for value, trail in zip(parts[::2], parts[1::2], strict=True):
        texts += (value, trail) if type(value) is str else to_text(rt, value, trail)
    return texts


def concatenate(rt: Runtime, parts: tuple[Any, ...]) -> Pair:
    """`a ~ b ~ c`, given flat: value, trail, value, trail."""
    return join_parts(rt, to_texts(rt, parts))


def join_parts(rt: Runtime, parts: Any) -> Pair:
    """Texts and trails, flat, as one text."""
    pieces = parts[::2]
    rt.take(sum(map(len, pieces)))
    return "".join(pieces), (JOINED, parts)


# ---- % ----


def format_percent(rt: Runtime, form: str, trail: Trail, value: Any, value_trail: Trail) -> Pair:
    """`form % value`, one conversion at a time."""
    arguments = PercentArguments(value, value_trail)
    parts: list[Any] = []
    at = 0
    rt.step(16 * form.count("%"))
    for spec in PERCENT.finditer(form):
        parts += (form[at : spec.start()], (PART, form, trail, at))
        parts += format_conversion(rt, spec, arguments)
        at = spec.end()
    rest = form[at:]
    if "%" in rest:
        raise Failure("incomplete format")
    arguments.finish()
    return join_parts(rt, [*parts, rest, (PART, form, trail, at)])


class PercentArguments:
    """What the conversions of one format take from, in order or by name."""

    def __init__(self, value: Any, trail: Trail) -> None:
        self.mapping = value if isinstance(value, dict) else None
        self.trail = trail
        several = isinstance(value, tuple)
        self.rest = deque(
            [(item, (trail, i)) for i, item in enumerate(value)] if several else [(value, trail)]
        )

    def named(self, key: str) -> Pair:
        if self.mapping is None:
            raise Failure("format requires a mapping")
        if key not in self.mapping:
            raise Failure(f"the format asks for {short_repr(key)}, which the mapping does not have")
        return self.mapping[key], (self.trail, key)

    def next(self) -> Pair:
        if not self.rest:
            raise Failure("not enough arguments for format string")
        return self.rest.popleft()

    def finish(self) -> None:
        if self.rest and self.mapping is None:
            raise Failure("not all arguments converted during string formatting")


def format_conversion(rt: Runtime, spec: re.Match[str], arguments: PercentArguments) -> Pair:
    key, flags, width, precision, kind = spec.groups()
    if kind == "%":
        return "%", None
    sizes = [arguments.next()[0] if size == "*" else int(size or 0) for size in (width, precision)]
    if not all(isinstance(size, int) for size in sizes):
        raise Failure("* wants int")
    rt.take(sum(abs(size) for size in sizes))
    value, trail = arguments.named(key) if key is not None else arguments.next()
    if type(value) is Undefined and kind not in "sra":
        raise value.failure()
    plain, plain_trail = to_text(rt, value, trail) if kind == "s" else (value, trail)
    if kind in "ra" and isinstance(value, (dict, list, tuple)):
        charge_container(rt, value, None)
    dot = f".{sizes[1]}" if precision is not None else ("." if "." in spec[0] else "")
    try:
        result = f"%{flags}{sizes[0] or ''}{dot}{kind}" % (plain,)
    except (TypeError, ValueError, OverflowError) as error:
        raise Failure(str(error)) from None
    return trail_of_formatted(result, plain, plain_trail)


def trail_of_formatted(result: str, value: Any, trail: Trail) -> Pair:
    """The trail of a value that was formatted: itself, padded, or changed."""
    if not isinstance(value, str):
        return result, trail
    if result == value:
        return result, trail
    return result, (PADDED, value, trail) if value in result else (BLEND, value, trail)


# ---- {} ----


class FormatFields:
    """The arguments of one `format`, by position or by name; unnamed fields count up."""

    def __init__(self, args: tuple[Pair, ...], kwargs: dict[str, Pair]) -> None:
        self.args = args
        self.kwargs = kwargs
        self.next = 0

    def find(self, name: str) -> Pair:
        """`0.a[b]`: the argument, then item by item."""
        if not name or name[0] in ".[":
            name, self.next = f"{self.next}{name}", self.next + 1
        first, *rest = re.split(r"(\.|\[)", name)
        try:
            value, trail = self.args[int(first)] if first.isdigit() else self.kwargs[first]
        except (IndexError, KeyError):
            raise Failure(f"the format asks for {short_repr(first)}, which was not given") from None
        for sign, key in zip(rest[::2], rest[1::2], strict=True):
            step: Any = key.removesuffix("]") if sign == "[" else key
            if step.startswith("_"):
                raise Denied(
                    f"access to {short_repr(step)} is not possible: a format reads items, not Python attributes"
                )
            if isinstance(value, (str, list, tuple)) and step.isdigit():
                step = int(step)
            if isinstance(value, Undefined):
                raise value.failure()
            try:
                value, trail = (
                    value[step],
                    (PART, value, trail, step) if isinstance(value, str) else (trail, step),
                )
            except (LookupError, TypeError):
                value, trail = (
                    Undefined(f"the format asks for {short_repr(name)}, which is not there"),
                    None,
                )
        return value, trail


def format_braces(
    rt: Runtime, form: str, trail: Trail, fields: FormatFields, depth: int = 2
) -> Pair:
    """`form.format(*args, **kwargs)`; fields may reach items, never Python attributes."""
    if depth < 0:
        raise Failure("Max string recursion exceeded")
    parts: list[Any] = []
    at = 0
    rt.step(32 * form.count("{"))
    try:
        found = list(string.Formatter().parse(form))
    except ValueError as error:
        raise Failure(str(error)) from None
    for literal, name, spec, convert in found:
        at = max(form.find(literal, at), at)
        parts += (literal, (PART, form, trail, at))
        at += len(literal)
        if name is not None:
            value, value_trail = fields.find(name)
            inner = (
                format_braces(rt, spec, None, fields, depth - 1)[0]
                if spec and "{" in spec
                else spec or ""
            )
            parts += format_field(rt, value, value_trail, inner, convert)
    return join_parts(rt, parts)


def format_field(rt: Runtime, value: Any, trail: Trail, spec: str, convert: str | None) -> Pair:
    rt.take(sum(int(number[:12]) for number in DIGITS.findall(spec)))
    if convert in ("r", "a"):
        charge_container(rt, value, trail) if isinstance(value, (dict, list, tuple)) else None
        value, trail = CONVERSIONS[convert](value), (REPR, value, trail)
    elif convert == "s" or not isinstance(value, (str, int, float)):
        if spec and convert is None:
            raise Failure(f"unsupported format string passed to {type(value).__name__}.__format__")
        value, trail = to_text(rt, value, trail)
    try:
        result = format(value, spec)
    except (TypeError, ValueError, OverflowError) as error:
        raise Failure(str(error)) from None
    return trail_of_formatted(result, value, trail)


# ---- JSON ----

SEPARATORS = (", ", ": ")
DEFAULT_STYLE = JsonStyle(False, None, *SEPARATORS, False)
JSON_WRITERS: dict[JsonStyle, Any] = {}
MAX_CACHED_TEXTS = 512  # texts that are kept for one list of tools
PLACEHOLDERS = (bytes, complex, set, frozenset)


def to_json(
    rt: Runtime, value: Any, trail: Trail, style: JsonStyle = DEFAULT_STYLE, node: int | None = None
) -> Pair:
    """`value|tojson`. Tools that were rendered before are not written again: see `messages.Tools`."""
    lasting = id(value) in rt.cacheable_ids
    if lasting:
        known = rt.json_cache.get((id(value), style))
        if known is not None:
            rt.take(len(known))
            return known, (JSON, value, trail, style, node, rt.json_cache)
    if not is_from_input(trail) and isinstance(value, (dict, list, tuple)):
        charge_container(rt, value, trail)
    write = JSON_WRITERS.get(style) or make_json_writer(style)
    try:
        result = write(value)
    except TypeError as error:
        raise Failure(
            str(error).replace("Stream", "generator").replace("View", "dict view")
        ) from None
    except ValueError as error:
        raise Failure(
            f"JSON cannot say this value: {error}", f"the value is {short_repr(value)}"
        ) from None
    rt.take(len(result))
    if lasting and len(rt.json_cache) < MAX_CACHED_TEXTS:
        rt.json_cache[id(value), style] = result
    return result, (JSON, value, trail, style, node, rt.json_cache if lasting else None)


def make_json_writer(style: JsonStyle) -> Any:
    """`json.dumps` with these options, made once: its set-up costs more than a small value."""

    def refuse(value: Any) -> Any:
        if (
            type(value) in PLACEHOLDERS
        ):  # not JSON, but what the caller gave: its type's name stands for it
            return f"<{type(value).__name__}>"
        raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")

    separators = (style.comma, style.colon)
    slow = json.JSONEncoder(
        ensure_ascii=style.ensure_ascii,
        indent=style.indent,
        separators=separators,
        sort_keys=style.sort_keys,
        allow_nan=False,
        default=refuse,
    )
    write: Any = slow.encode
    make = getattr(encoder, "c_make_encoder", None)
    if make is not None and style.indent is None:
        escape = (
            encoder.encode_basestring_ascii if style.ensure_ascii else encoder.encode_basestring
        )
        fast = make(
            None, refuse, escape, None, style.colon, style.comma, style.sort_keys, False, False
        )

        def write(value: Any) -> str:
            return "".join(fast(value, 0))

    if len(JSON_WRITERS) < 64:
        JSON_WRITERS[style] = write
    return write
