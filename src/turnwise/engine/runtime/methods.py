"""Methods of strings, dicts and lists that a template may call.

A method is `(rt, value, trail, *arguments) -> (value, trail)`; an argument is a pair of value and
trail, so Python's own rules for positional and keyword arguments apply. Methods that would change a
list or dict only raise an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turnwise.engine.provenance.container_rules import ITEMS, KEYS, PAIRS, SPLIT
from turnwise.engine.provenance.text_rules import BLEND, JOINED, PADDED, PART, RECASED, REPLACED
from turnwise.engine.provenance.trails import Trail
from turnwise.engine.runtime.costs import METHOD_COSTS, attach_costs
from turnwise.engine.runtime.formatting import (
    FormatFields,
    format_braces,
)
from turnwise.engine.runtime.limits import Runtime
from turnwise.engine.runtime.measures import ELEMENT_BYTES, char_bytes
from turnwise.engine.runtime.values import (
    FALSE,
    NONE,
    Builtin,
    Cycler,
    Denied,
    Failure,
    Function,
    Loop,
    Pair,
    Safe,
    Stream,
    Undefined,
    View,
)

UNLIMITED: Pair = (-1, None)


def require_defined(argument: Pair) -> Any:
    """Return the value of an argument.

    An undefined one is an error here rather than inside Python.
    """
    value = argument[0]
    if type(value) is Undefined:
        raise value.failure()
    return value


def require_integer(argument: Pair) -> int:
    value = require_defined(argument)
    if not isinstance(value, int):
        raise Failure(f"{type(value).__name__!r} object cannot be interpreted as an integer")
    return int(value)


# ---- strings: parts of the text keep their place in it ----


def make_strip(start: bool, end: bool) -> Builtin:
    def run(rt: Runtime, value: str, trail: Trail, chars: Pair = NONE) -> Pair:
        letters = chars[0]
        if letters is not None and not isinstance(letters, str):
            raise Failure(
                f"strip arg must be None or str, not {type(require_defined(chars)).__name__}"
            )
        if letters is not None and len(letters) > 8:
            letters = "".join(dict.fromkeys(letters))
        rest = value.lstrip(letters) if start else value
        result = rest.rstrip(letters) if end else rest
        if len(result) == len(value):  # nothing was copied
            return value, trail
        return result, (PART, value, trail, len(value) - len(rest))

    return run


def make_split(name: str) -> Builtin:
    def run(
        rt: Runtime, value: str, trail: Trail, sep: Pair = NONE, maxsplit: Pair = UNLIMITED
    ) -> Pair:
        separator = require_defined(sep)
        limit = require_integer(maxsplit)
        if isinstance(separator, str):
            if not separator:
                raise Failure("empty separator")
        elif separator is not None:
            raise Failure(f"must be str or None, not {type(separator).__name__}")
        parts = getattr(value, name)(separator, limit)
        return parts, (SPLIT, value, trail, parts)

    return run


def splitlines(rt: Runtime, value: str, trail: Trail, keepends: Pair = FALSE) -> Pair:
    parts = value.splitlines(bool(require_defined(keepends)))
    return parts, (SPLIT, value, trail, parts)


def make_partition(name: str) -> Builtin:
    def run(rt: Runtime, value: str, trail: Trail, sep: Pair) -> Pair:
        parts = getattr(value, name)(require_defined(sep))
        return parts, (SPLIT, value, trail, parts)

    return run


def make_affix_remover(name: str) -> Builtin:
    def run(rt: Runtime, value: str, trail: Trail, affix: Pair) -> Pair:
        result = getattr(value, name)(require_defined(affix))
        start = len(value) - len(result) if name == "removeprefix" else 0
        return result, (PART, value, trail, start)

    return run


# ---- strings: other text ----


def make_case_change(change: Callable[[str], str]) -> Builtin:
    def run(rt: Runtime, value: str, trail: Trail) -> Pair:
        return change(value), (RECASED, value, trail, change)

    return run


def replace(
    rt: Runtime, value: str, trail: Trail, old: Pair, new: Pair, count: Pair = UNLIMITED
) -> Pair:
    needle, other, limit = require_defined(old), require_defined(new), require_integer(count)
    if not isinstance(needle, str) or not isinstance(other, str):
        raise Failure(
            f"replace() arguments must be str, not {type(needle).__name__} and {type(other).__name__}"
        )
    return value.replace(needle, other, limit), (
        REPLACED,
        value,
        trail,
        needle,
        other,
        new[1],
        limit,
    )


def make_padding(name: str) -> Builtin:
    def run(rt: Runtime, value: str, trail: Trail, width: Pair, fill: Pair = (" ", None)) -> Pair:
        size = require_integer(width)
        arguments = (size,) if name == "zfill" else (size, require_defined(fill))
        result = getattr(value, name)(*arguments)
        return result, (PADDED, value, trail)

    return run


def expandtabs(rt: Runtime, value: str, trail: Trail, tabsize: Pair = (8, None)) -> Pair:
    size = require_integer(tabsize)
    return value.expandtabs(size), (BLEND, value, trail)


def format_with_braces(
    rt: Runtime, value: str, trail: Trail, /, *args: Pair, **kwargs: Pair
) -> Pair:
    return format_braces(rt, value, trail, FormatFields(args, kwargs))


def format_map(rt: Runtime, value: str, trail: Trail, mapping: Pair) -> Pair:
    fields = require_defined(mapping)
    if not isinstance(fields, dict):
        raise Failure("format_map() needs a mapping")
    named = {key: (item, (mapping[1], key)) for key, item in fields.items() if type(key) is str}
    return format_braces(rt, value, trail, FormatFields((), named))


def join_texts(rt: Runtime, value: str, trail: Trail, items: Pair) -> Pair:
    elements, trails = _to_joinable_list(items)
    for number, element in enumerate(elements):
        if not isinstance(element, str):
            raise Failure(
                f"sequence item {number}: expected str instance, {type(element).__name__} found"
            )
    return join_with_separator(rt, elements, trails, value, trail)


def _to_joinable_list(items: Pair) -> tuple[list[Any], Trail]:
    """Return the elements of any iterable value, and their trail."""
    value, trail = items
    if isinstance(value, Stream):
        return value.take_items(), value.trail
    if isinstance(value, View):
        return value.items, value.trail
    if isinstance(value, dict):
        return list(value), (KEYS, trail, list(value))
    if not isinstance(value, (str, list, tuple, range, Undefined)):
        raise Failure("can only join an iterable")
    return list(value), trail


def join_with_separator(
    rt: Runtime, texts: list[str], trail: Trail, separator: str, separator_trail: Trail
) -> Pair:
    """Return `separator.join(texts)`, paid for before it is built, with a trail for each text."""
    width = char_bytes(separator) if separator else 1
    if not all(map(str.isascii, texts)):
        width = 4
    rt.charge_bytes(width * (sum(map(len, texts)) + len(separator) * len(texts)))
    rt.charge_bytes(ELEMENT_BYTES * len(texts))
    parts: list[Any] = []
    for number, text in enumerate(texts):
        if number and separator:
            parts += (separator, separator_trail)
        parts += (text, (trail, number))
    return separator.join(texts), (JOINED, parts)


# ---- strings: questions ----


def make_query(name: str) -> Builtin:
    def run(rt: Runtime, value: str, trail: Trail, *args: Pair) -> Pair:
        return getattr(value, name)(*map(require_defined, args)), None

    return run


# ---- dicts and lists ----


def get(rt: Runtime, value: dict[Any, Any], trail: Trail, key: Pair, default: Pair = NONE) -> Pair:
    if key[0] in value:
        return value[key[0]], (trail, key[0])
    return default


def items(rt: Runtime, value: dict[Any, Any], trail: Trail) -> Pair:
    return View("dict_items", list(value.items()), (PAIRS, trail, list(value))), None


def keys(rt: Runtime, value: dict[Any, Any], trail: Trail) -> Pair:
    names = list(value)
    return View("dict_keys", names, (KEYS, trail, names)), None


def values(rt: Runtime, value: dict[Any, Any], trail: Trail) -> Pair:
    return View("dict_values", list(value.values()), (ITEMS, [(trail, key) for key in value])), None


def copy(rt: Runtime, value: Any, trail: Trail) -> Pair:
    return value.copy(), trail


def make_search(name: str) -> Builtin:
    def run(rt: Runtime, value: Any, trail: Trail, wanted: Pair) -> Pair:
        return getattr(value, name)(wanted[0]), None

    return run


def make_refusal(name: str) -> Builtin:
    def run(rt: Runtime, value: Any, trail: Trail, *args: Pair, **kwargs: Pair) -> Pair:
        kind = type(value).__name__
        raise Denied(
            f"access to attribute {name!r} of {kind!r} object is unsafe: a template cannot change its input",
            "build a new value instead: {% set items = items + [x] %}",
        )

    return run


# ---- what the engine makes ----


def cycle(rt: Runtime, loop: Loop, trail: Trail, *items: Pair) -> Pair:
    if not items:
        raise Failure("no items for cycling given")
    return items[loop.index0 % len(items)]


def has_changed(rt: Runtime, loop: Loop, trail: Trail, *values: Pair) -> Pair:
    seen = tuple(pair[0] for pair in values)
    if loop.last_seen == seen:
        return False, None
    loop.last_seen = seen
    return True, None


def next_item(rt: Runtime, cycler: Cycler, trail: Trail) -> Pair:
    pair = cycler.items[cycler.position]
    cycler.position = (cycler.position + 1) % len(cycler.items)
    return pair


def reset(rt: Runtime, cycler: Cycler, trail: Trail) -> Pair:
    cycler.position = 0
    return None, None


STRING_QUERIES = [
    "count",
    "endswith",
    "find",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "isidentifier",
    "islower",
    "isnumeric",
    "isprintable",
    "isspace",
    "istitle",
    "isupper",
    "rfind",
    "rindex",
    "startswith",
]

LIST_SEARCHES = {name: make_search(name) for name in ("index", "count")}
UNCHARGED_METHODS: dict[type, dict[str, Builtin]] = {
    str: {
        "strip": make_strip(True, True),
        "lstrip": make_strip(True, False),
        "rstrip": make_strip(False, True),
        "split": make_split("split"),
        "rsplit": make_split("rsplit"),
        "splitlines": splitlines,
        "partition": make_partition("partition"),
        "rpartition": make_partition("rpartition"),
        "removeprefix": make_affix_remover("removeprefix"),
        "removesuffix": make_affix_remover("removesuffix"),
        "replace": replace,
        "format": format_with_braces,
        "format_map": format_map,
        "join": join_texts,
        "expandtabs": expandtabs,
        **{name: make_padding(name) for name in ("center", "ljust", "rjust", "zfill")},
        **{
            name: make_case_change(getattr(str, name))
            for name in ["capitalize", "casefold", "lower", "swapcase", "title", "upper"]
        },
        **{name: make_query(name) for name in STRING_QUERIES},
    },
    dict: {
        "get": get,
        "items": items,
        "keys": keys,
        "values": values,
        "copy": copy,
        **{
            name: make_refusal(name) for name in ("clear", "pop", "popitem", "setdefault", "update")
        },
    },
    list: {
        **LIST_SEARCHES,
        "copy": copy,
        **{
            name: make_refusal(name)
            for name in ["append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"]
        },
    },
    tuple: LIST_SEARCHES,
    Loop: {"cycle": cycle, "changed": has_changed},
    Cycler: {"next": next_item, "reset": reset},
}
METHODS = {
    kind: attach_costs(METHOD_COSTS[kind], table) for kind, table in UNCHARGED_METHODS.items()
}
METHODS[Safe] = METHODS[str]


def bind_method(rt: Runtime, value: Any, trail: Trail, name: str) -> Pair:
    """Return a method as a value: what `content.strip` is before it is called."""
    run = METHODS[type(value)][name]
    return Function(
        name, lambda meter, *args, **kwargs: run(meter, value, trail, *args, **kwargs)
    ), None
