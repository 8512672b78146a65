"""Methods of strings, dicts and lists that a template may call, and the origin rule of each.

A method is `run(rt, value, trail, *arguments) -> (value, trail)`; an argument is a pair of value and trail, so
Python's own rules for positional and keyword arguments apply. Anything that would change a list or dict is not here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turnwise.engine.provenance.trails import (
    AROUND,
    BLEND,
    ITEMS,
    JOINED,
    KEYS,
    PAIRS,
    PART,
    RECASED,
    REPLACED,
    SPLIT,
    Trail,
)
from turnwise.engine.runtime.formatting import Fields, braces, hashable, measure
from turnwise.engine.runtime.limits import Runtime
from turnwise.engine.runtime.values import (
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

NONE: Pair = (None, None)
UNLIMITED: Pair = (-1, None)
Method = Callable[..., Pair]


def plain(argument: Pair) -> Any:
    """The value of an argument; one that is undefined fails here rather than inside Python."""
    value = argument[0]
    if type(value) is Undefined:
        raise value.failure()
    return value


def whole_number(argument: Pair) -> int:
    value = plain(argument)
    if not isinstance(value, int):
        raise Failure(f"{type(value).__name__!r} object cannot be interpreted as an integer")
    return int(value)


# ---- strings: parts of the text keep their place in it ----


def stripped(start: bool, end: bool) -> Method:
    def run(rt: Runtime, value: str, trail: Trail, chars: Pair = NONE) -> Pair:
        letters = chars[0]
        if letters is not None and not isinstance(letters, str):
            raise Failure(f"strip arg must be None or str, not {type(plain(chars)).__name__}")
        rest = value.lstrip(letters) if start else value
        result = rest.rstrip(letters) if end else rest
        if len(result) == len(value):  # nothing was copied
            return value, trail
        rt.take(2 * len(value))
        return result, (PART, value, trail, len(value) - len(rest))

    return run


def split(
    rt: Runtime, value: str, trail: Trail, sep: Pair = NONE, maxsplit: Pair = UNLIMITED
) -> Pair:
    return pieces(rt, value, trail, value.split, sep, maxsplit)


def rsplit(
    rt: Runtime, value: str, trail: Trail, sep: Pair = NONE, maxsplit: Pair = UNLIMITED
) -> Pair:
    return pieces(rt, value, trail, value.rsplit, sep, maxsplit)


def pieces(
    rt: Runtime, value: str, trail: Trail, cut: Callable[..., list[str]], sep: Pair, maxsplit: Pair
) -> Pair:
    separator, limit = sep[0], maxsplit[0]
    if isinstance(separator, str) and separator:
        rt.take(2 * len(value) + 60 * value.count(separator) + 60)
    else:
        separator, limit = plain(sep), whole_number(maxsplit)
        if separator is not None:
            raise Failure(
                "empty separator"
                if separator == ""
                else f"must be str or None, not {type(separator).__name__}"
            )
        rt.take(30 * len(value) + 60)
    parts = cut(separator, limit if maxsplit is UNLIMITED else whole_number(maxsplit))
    return parts, (SPLIT, value, trail, parts)


def splitlines(rt: Runtime, value: str, trail: Trail, keepends: Pair = (False, None)) -> Pair:
    rt.take(60 * value.count("\n") + 2 * len(value) + 60)
    parts = value.splitlines(bool(plain(keepends)))
    return parts, (SPLIT, value, trail, parts)


def partitioned(name: str) -> Method:
    def run(rt: Runtime, value: str, trail: Trail, sep: Pair) -> Pair:
        rt.take(2 * len(value))
        try:
            parts = getattr(value, name)(plain(sep))
        except (TypeError, ValueError) as error:
            raise Failure(str(error)) from None
        return parts, (SPLIT, value, trail, parts)

    return run


def without(name: str) -> Method:
    def run(rt: Runtime, value: str, trail: Trail, affix: Pair) -> Pair:
        rt.take(len(value))
        try:
            result = getattr(value, name)(plain(affix))
        except TypeError as error:
            raise Failure(str(error)) from None
        return result, (
            PART,
            value,
            trail,
            len(value) - len(result) if name == "removeprefix" else 0,
        )

    return run


# ---- strings: other text ----


def recased(change: Callable[[str], str]) -> Method:
    def run(rt: Runtime, value: str, trail: Trail) -> Pair:
        rt.take(3 * len(value))
        return change(value), (RECASED, value, trail, change)

    return run


def replace(
    rt: Runtime, value: str, trail: Trail, old: Pair, new: Pair, count: Pair = (-1, None)
) -> Pair:
    needle, other, limit = plain(old), plain(new), whole_number(count)
    if not isinstance(needle, str) or not isinstance(other, str):
        raise Failure(
            f"replace() arguments must be str, not {type(needle).__name__} and {type(other).__name__}"
        )
    rt.take(len(value))
    found = value.count(needle) if limit < 0 else min(value.count(needle), limit)
    rt.take(len(value) + found * max(len(other) - len(needle), 0) + found)
    return value.replace(needle, other, limit), (
        REPLACED,
        value,
        trail,
        needle,
        other,
        new[1],
        limit,
    )


def padded(name: str) -> Method:
    def run(rt: Runtime, value: str, trail: Trail, width: Pair, fill: Pair = (" ", None)) -> Pair:
        size = whole_number(width)
        rt.take(max(size, len(value)))
        try:
            result = (
                getattr(value, name)(size, plain(fill)) if name != "zfill" else value.zfill(size)
            )
        except TypeError as error:
            raise Failure(str(error)) from None
        return result, (AROUND, value, trail)

    return run


def expandtabs(rt: Runtime, value: str, trail: Trail, tabsize: Pair = (8, None)) -> Pair:
    size = whole_number(tabsize)
    rt.take(len(value) + value.count("\t") * max(size, 1))
    return value.expandtabs(size), (BLEND, value, trail)


def format_text(rt: Runtime, value: str, trail: Trail, /, *args: Pair, **kwargs: Pair) -> Pair:
    return braces(rt, value, trail, Fields(args, kwargs))


def format_map(rt: Runtime, value: str, trail: Trail, mapping: Pair) -> Pair:
    fields = plain(mapping)
    if not isinstance(fields, dict):
        raise Failure("format_map() needs a mapping")
    named = {str(key): (item, (mapping[1], key)) for key, item in fields.items()}
    return braces(rt, value, trail, Fields((), named))


def joined(rt: Runtime, value: str, trail: Trail, items: Pair) -> Pair:
    elements, trails = listed(items)
    for number, element in enumerate(elements):
        if not isinstance(element, str):
            raise Failure(
                f"sequence item {number}: expected str instance, {type(element).__name__} found"
            )
    return interleaved(rt, elements, trails, value, trail)


def listed(items: Pair) -> tuple[list[Any], Trail]:
    """Whatever can be walked over, as a list."""
    value, trail = items
    if isinstance(value, Stream):
        return value.taken(), value.trail
    if isinstance(value, View):
        return value.items, value.trail
    if isinstance(value, dict):
        return list(value), (KEYS, trail, list(value))
    if not isinstance(value, (str, list, tuple, range, Undefined)):
        raise Failure("can only join an iterable")
    return list(value), trail


def interleaved(
    rt: Runtime, texts: list[str], trail: Trail, separator: str, separator_trail: Trail
) -> Pair:
    """`separator.join(texts)`, charged before it is built."""
    rt.take(sum(map(len, texts)) + len(separator) * len(texts) + len(texts))
    parts: list[Any] = []
    for number, text in enumerate(texts):
        if number and separator:
            parts += (separator, separator_trail)
        parts += (text, (trail, number))
    return separator.join(texts), (JOINED, parts)


# ---- strings: questions ----


def question(name: str) -> Method:
    def run(rt: Runtime, value: str, trail: Trail, *args: Pair) -> Pair:
        rt.take(len(value))
        try:
            return getattr(value, name)(*map(plain, args)), None
        except (TypeError, ValueError) as error:
            raise Failure(str(error)) from None

    return run


# ---- dicts and lists ----


def get(rt: Runtime, value: dict[Any, Any], trail: Trail, key: Pair, default: Pair = NONE) -> Pair:
    try:
        if hashable(rt, key[0]) in value:
            return value[key[0]], (trail, key[0])
    except TypeError as error:
        raise Failure(str(error)) from None
    return default


def items(rt: Runtime, value: dict[Any, Any], trail: Trail) -> Pair:
    rt.take(16 * len(value))
    return View("dict_items", list(value.items()), (PAIRS, trail, list(value))), None


def keys(rt: Runtime, value: dict[Any, Any], trail: Trail) -> Pair:
    names = list(value)
    rt.take(8 * len(names))
    return View("dict_keys", names, (KEYS, trail, names)), None


def values(rt: Runtime, value: dict[Any, Any], trail: Trail) -> Pair:
    rt.take(8 * len(value))
    return View("dict_values", list(value.values()), (ITEMS, [(trail, key) for key in value])), None


def copy(rt: Runtime, value: Any, trail: Trail) -> Pair:
    rt.take(16 * len(value))
    return value.copy(), trail


def pay_for_search(rt: Runtime, value: Any, wanted: Any) -> None:
    rt.step(len(value))
    if isinstance(wanted, (list, tuple, dict)):
        measure(rt, wanted, None)


def index(rt: Runtime, value: Any, trail: Trail, wanted: Pair) -> Pair:
    pay_for_search(rt, value, wanted[0])
    try:
        return value.index(wanted[0]), None
    except ValueError as error:
        raise Failure(str(error)) from None


def count(rt: Runtime, value: Any, trail: Trail, wanted: Pair) -> Pair:
    pay_for_search(rt, value, wanted[0])
    return value.count(wanted[0]), None


def changes(name: str) -> Method:
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


def changed(rt: Runtime, loop: Loop, trail: Trail, *values: Pair) -> Pair:
    seen = tuple(pair[0] for pair in values)
    measure(rt, seen, None)
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


QUESTIONS = [
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

METHODS: dict[type, dict[str, Method]] = {
    str: {
        "strip": stripped(True, True),
        "lstrip": stripped(True, False),
        "rstrip": stripped(False, True),
        "split": split,
        "rsplit": rsplit,
        "splitlines": splitlines,
        "partition": partitioned("partition"),
        "rpartition": partitioned("rpartition"),
        "removeprefix": without("removeprefix"),
        "removesuffix": without("removesuffix"),
        "replace": replace,
        "format": format_text,
        "format_map": format_map,
        "join": joined,
        "expandtabs": expandtabs,
        **{name: padded(name) for name in ("center", "ljust", "rjust", "zfill")},
        **{
            name: recased(getattr(str, name))
            for name in ["capitalize", "casefold", "lower", "swapcase", "title", "upper"]
        },
        **{name: question(name) for name in QUESTIONS},
    },
    dict: {
        "get": get,
        "items": items,
        "keys": keys,
        "values": values,
        "copy": copy,
        **{name: changes(name) for name in ("clear", "pop", "popitem", "setdefault", "update")},
    },
    list: {
        "index": index,
        "count": count,
        "copy": copy,
        **{
            name: changes(name)
            for name in ["append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"]
        },
    },
    tuple: {"index": index, "count": count},
    Loop: {"cycle": cycle, "changed": changed},
    Cycler: {"next": next_item, "reset": reset},
}
METHODS[Safe] = METHODS[str]


def bound(rt: Runtime, value: Any, trail: Trail, name: str) -> Pair:
    """A method as a value: what `content.strip` is before it is called."""
    run = METHODS[type(value)][name]
    return Function(
        name, lambda meter, *args, **kwargs: run(meter, value, trail, *args, **kwargs)
    ), None


__all__ = ["METHODS", "bound", "interleaved", "plain", "whole_number"]
