"""Methods of strings, dicts and lists that a template may call.

A method is `(rt, value, trail, *arguments) -> (value, trail)`; an argument is a pair of value and
trail, so Python's own rules for positional and keyword arguments apply. Methods that would change a
list or dict only raise an error.
"""

from __future__ import annotations

from typing import Any

from turnwise.engine.provenance.container_rules import ITEMS, KEYS, PAIRS, SPLIT
from turnwise.engine.provenance.text_rules import BLEND, JOINED, PADDED, PART, RECASED, REPLACED
from turnwise.engine.provenance.trails import Trail
from turnwise.engine.runtime.costs import charge_call
from turnwise.engine.runtime.formatting import (
    FormatFields,
    charge_format,
    format_braces,
)
from turnwise.engine.runtime.limits import Runtime
from turnwise.engine.runtime.measures import (
    ELEMENT_BYTES,
    ITEM_BYTES,
    PART_BYTES,
    char_bytes,
    charge_key,
    charge_search,
    charge_value,
    count_lines,
    list_elements,
    search_bytes,
    text_bytes,
)
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
    check_defined,
)

UNLIMITED: Pair = (-1, None)


def require_defined(argument: Pair) -> Any:
    """Return the value of an argument.

    An undefined one is an error here rather than inside Python.
    """
    return check_defined(argument[0])


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
        each = 1
        if letters is not None and len(letters) > 8:
            rt.charge_bytes(12 * len(letters))
            letters = "".join(dict.fromkeys(letters))
            each += len(letters) // 8  # each character is looked up among them
        rt.charge_bytes(each * text_bytes(value))
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
        count = len(value) // 2 + 1
        if isinstance(separator, str):
            if not separator:
                raise Failure("empty separator")
            # the search is made twice: to count and to cut
            rt.charge_bytes(2 * search_bytes(value, separator, backwards=name == "rsplit"))
            count = value.count(separator) + 1
        elif separator is not None:
            raise Failure(f"must be str or None, not {type(separator).__name__}")
        rt.charge_bytes(text_bytes(value) + PART_BYTES * count)
        parts = getattr(value, name)(separator, limit)
        return parts, (SPLIT, value, trail, parts)

    return run


def splitlines(rt: Runtime, value: str, trail: Trail, keepends: Pair = FALSE) -> Pair:
    rt.charge_bytes(2 * text_bytes(value) + PART_BYTES * count_lines(value))
    parts = value.splitlines(bool(require_defined(keepends)))
    return parts, (SPLIT, value, trail, parts)


def make_partition(name: str) -> Builtin:
    def run(rt: Runtime, value: str, trail: Trail, sep: Pair) -> Pair:
        separator = require_defined(sep)
        found = search_bytes(value, separator, backwards=name == "rpartition")
        rt.charge_bytes(found + text_bytes(value))
        parts = getattr(value, name)(separator)
        return parts, (SPLIT, value, trail, parts)

    return run


def make_affix_remover(name: str) -> Builtin:
    def run(rt: Runtime, value: str, trail: Trail, affix: Pair) -> Pair:
        rt.charge_bytes(text_bytes(value))
        result = getattr(value, name)(require_defined(affix))
        start = len(value) - len(result) if name == "removeprefix" else 0
        return result, (PART, value, trail, start)

    return run


# ---- strings: other text ----


def make_case_change(name: str) -> Builtin:
    change = getattr(str, name)

    def run(rt: Runtime, value: str, trail: Trail) -> Pair:
        # text that is not ASCII goes through a buffer of three wide characters for each
        rt.charge_bytes(len(value) * (2 if value.isascii() else 24))
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
    rt.charge_bytes(2 * search_bytes(value, needle) + len(value))  # to count and to cut
    found = value.count(needle) if limit < 0 else min(value.count(needle), limit)
    length = len(value) + found * max(len(other) - len(needle), 0)
    width = max(char_bytes(text) for text in (value, other))
    rt.charge_bytes(length * width + 2 * found)
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
        each = max(char_bytes(text) for text in (value, fill[0]) if isinstance(text, str))
        rt.charge_bytes(each * max(size, len(value)))
        arguments = (size,) if name == "zfill" else (size, require_defined(fill))
        return getattr(value, name)(*arguments), (PADDED, value, trail)

    return run


def expandtabs(rt: Runtime, value: str, trail: Trail, tabsize: Pair = (8, None)) -> Pair:
    size = require_integer(tabsize)
    rt.charge_bytes(char_bytes(value) * (2 * len(value) + value.count("\t") * max(size, 1)))
    return value.expandtabs(size), (BLEND, value, trail)


def format_with_braces(
    rt: Runtime, value: str, trail: Trail, /, *args: Pair, **kwargs: Pair
) -> Pair:
    charge_format(rt, value, "{")
    return format_braces(rt, value, trail, FormatFields(args, kwargs))


def format_map(rt: Runtime, value: str, trail: Trail, mapping: Pair) -> Pair:
    fields = require_defined(mapping)
    if not isinstance(fields, dict):
        raise Failure("format_map() needs a mapping")
    charge_format(rt, value, "{")
    rt.charge_bytes(ELEMENT_BYTES * len(fields))
    named = {key: (item, (mapping[1], key)) for key, item in fields.items() if type(key) is str}
    return format_braces(rt, value, trail, FormatFields((), named))


def join_texts(rt: Runtime, value: str, trail: Trail, items: Pair) -> Pair:
    rt.charge_each(len(list_elements(items[0])), 8, ITEM_BYTES)
    elements, trails = _to_joinable_list(items)
    for number, element in enumerate(elements):
        if not isinstance(element, str):
            raise Failure(
                f"sequence item {number}: expected str instance, {type(element).__name__} found"
            )
    return join_with_separator(rt, elements, trails, value, trail)


def _to_joinable_list(items: Pair) -> Pair:
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
    size = sum(map(len, texts)) + len(separator) * len(texts)
    rt.charge_bytes(width * size + ELEMENT_BYTES * len(texts))
    return separator.join(texts), trace_joined(texts, trail, separator, separator_trail)


def trace_joined(texts: list[str], trail: Trail, separator: str, separator_trail: Trail) -> Trail:
    """Return the trail of texts of a list that were joined."""
    parts: list[Any] = []
    for number, text in enumerate(texts):
        if number and separator:
            parts += (separator, separator_trail)
        parts += (text, (trail, number))
    return JOINED, parts


# ---- strings: questions ----


def make_query(name: str) -> Builtin:
    is_search, is_backwards = name in TEXT_SEARCHES, name.startswith("r")

    def run(rt: Runtime, value: str, trail: Trail, *args: Pair) -> Pair:
        if is_search:
            rt.charge_bytes(search_bytes(value, args[0][0] if args else "", is_backwards))
        elif name in AFFIX_QUERIES:
            for affix, _ in args:  # one, or a tuple of them
                charge_value(rt, affix)
        else:
            rt.charge_bytes(text_bytes(value))
        return getattr(value, name)(*map(require_defined, args)), None

    return run


# ---- dicts and lists ----


def get(rt: Runtime, value: Any, trail: Trail, key: Pair, default: Pair = NONE) -> Pair:
    if charge_key(rt, key[0], len(value)) in value:
        return value[key[0]], (trail, key[0])
    return default


def items(rt: Runtime, value: Any, trail: Trail) -> Pair:
    return View("dict_items", list(value.items()), (PAIRS, trail, list(value))), None


def keys(rt: Runtime, value: Any, trail: Trail) -> Pair:
    names = list(value)
    return View("dict_keys", names, (KEYS, trail, names)), None


def values(rt: Runtime, value: Any, trail: Trail) -> Pair:
    return View("dict_values", list(value.values()), (ITEMS, [(trail, key) for key in value])), None


def copy(rt: Runtime, value: Any, trail: Trail) -> Pair:
    return value.copy(), trail


def charge_references(rt: Runtime, value: Any) -> None:
    """Pay for a copy of the list of elements."""
    elements = list_elements(value)
    rt.charge_steps(len(elements) // 4)
    rt.charge_bytes((ITEM_BYTES if type(elements) is not range else 40) * len(elements))


def copy_list(rt: Runtime, value: Any, trail: Trail) -> Pair:
    charge_references(rt, value)
    return value.copy(), trail


def make_search(name: str) -> Builtin:
    def run(rt: Runtime, value: Any, trail: Trail, wanted: Pair) -> Pair:
        charge_search(rt, value, wanted[0])
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
    for value in seen:  # each is compared with that of the round before
        charge_value(rt, value)
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


STRING_QUERIES = (
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
)
AFFIX_QUERIES = ("startswith", "endswith")
TEXT_SEARCHES = ("count", "find", "index", "rfind", "rindex")
DICT_CHANGES = ("clear", "pop", "popitem", "setdefault", "update")
LIST_CHANGES = ("append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort")
LIST_SEARCHES = {name: charge_call(make_search(name), 100) for name in ("index", "count")}
ENTRY = (0, ELEMENT_BYTES)  # a new pair or reference, and a trail
# Methods of strings by the function that makes one of its name.
NAMED = {
    make_split: ("split", "rsplit"),
    make_partition: ("partition", "rpartition"),
    make_affix_remover: ("removeprefix", "removesuffix"),
    make_padding: ("center", "ljust", "rjust", "zfill"),
    make_case_change: ("capitalize", "casefold", "lower", "swapcase", "title", "upper"),
    make_query: (*STRING_QUERIES, *AFFIX_QUERIES, *TEXT_SEARCHES),
}
METHODS: dict[type, dict[str, Builtin]] = {
    str: {
        "strip": charge_call(make_strip(True, True), 50),
        "lstrip": charge_call(make_strip(True, False), 50),
        "rstrip": charge_call(make_strip(False, True), 50),
        "splitlines": charge_call(splitlines, 200),
        "replace": charge_call(replace, 100),
        "format": charge_call(format_with_braces, 500),
        "format_map": charge_call(format_map, 500),
        "join": charge_call(join_texts, 200),
        "expandtabs": charge_call(expandtabs, 100),
        **{name: charge_call(make(name), 100) for make, names in NAMED.items() for name in names},
    },
    dict: {
        "get": get,
        "items": charge_call(items, 200, ENTRY),
        "keys": charge_call(keys, 200, ENTRY),
        "values": charge_call(values, 200, ENTRY),
        "copy": charge_call(copy, 100, ENTRY),
        **{name: make_refusal(name) for name in DICT_CHANGES},
    },
    list: {
        **LIST_SEARCHES,
        "copy": charge_call(copy_list, 100),
        **{name: make_refusal(name) for name in LIST_CHANGES},
    },
    tuple: LIST_SEARCHES,
    Loop: {"cycle": cycle, "changed": charge_call(has_changed, 100)},
    Cycler: {"next": next_item, "reset": reset},
}
METHODS[Safe] = METHODS[str]
"""The methods that a template may call, by the type of their value: the function, and the bytes of one call."""


def bind_method(value: Any, trail: Trail, name: str) -> Pair:
    """Return a method as a value: what `content.strip` is before it is called."""
    run = METHODS[type(value)][name]
    return Function(
        name, lambda meter, *args, **kwargs: run(meter, value, trail, *args, **kwargs)
    ), None
