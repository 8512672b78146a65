"""What the operations of the table in `costs.py` charge, from the sizes of their arguments.

A function `pay_...` takes the same arguments as its operation and is called before it. It accepts
anything: an argument of a wrong type costs nothing, and the operation then refuses it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turnwise.engine.provenance.trails import Trail
from turnwise.engine.runtime.limits import MAX_INTEGER_BITS, Runtime, limit_error
from turnwise.engine.runtime.measures import (
    ELEMENT_BYTES,
    ITEM_BYTES,
    PART_BYTES,
    bound_integer,
    char_bytes,
    charge_key,
    charge_keys,
    charge_search,
    charge_value,
    count_lines,
    list_elements,
    search_bytes,
    text_bytes,
)
from turnwise.engine.runtime.values import FALSE, NONE, Loop, Pair, Stream, View

# ---- strings: `value` is a str, arguments are pairs of value and trail ----


def pay_whole(rt: Runtime, value: Any, trail: Trail, *_: Pair, **__: Pair) -> None:
    """Each character is looked at, at most once."""
    rt.charge_bytes(text_bytes(value))


def pay_case(rt: Runtime, value: str, trail: Trail) -> None:
    """Text that is not ASCII goes through a buffer of three wide characters for each."""
    rt.charge_bytes(len(value) * (2 if value.isascii() else 24))


def charge_cases(rt: Runtime, values: list[Any]) -> None:
    """Pay for changing the case of the texts among some values."""
    texts = [value for value in values if isinstance(value, str)]
    rt.charge_bytes(2 * sum(map(len, texts)))
    if not all(map(str.isascii, texts)):
        rt.charge_bytes(24 * sum(map(len, texts)))


def pay_strip(rt: Runtime, value: str, trail: Trail, chars: Pair = NONE) -> None:
    """Each character is looked up among `chars`, which are few: the operation drops repetitions."""
    letters = chars[0]
    each = 1
    if isinstance(letters, str) and len(letters) > 8:
        rt.charge_bytes(12 * len(letters))
        each += len(set(letters)) // 8
    rt.charge_bytes(each * text_bytes(value))


def pay_split(
    rt: Runtime, value: str, trail: Trail, sep: Pair = NONE, maxsplit: Pair = (-1, None)
) -> None:
    """The search (twice: to count and to cut), a copy, and an object for each part."""
    _charge_split(rt, value, sep[0], backwards=False)


def pay_rsplit(
    rt: Runtime, value: str, trail: Trail, sep: Pair = NONE, maxsplit: Pair = (-1, None)
) -> None:
    _charge_split(rt, value, sep[0], backwards=True)


def _charge_split(rt: Runtime, value: str, separator: Any, backwards: bool) -> None:
    parts = len(value) // 2 + 1
    if isinstance(separator, str) and separator:
        rt.charge_bytes(2 * search_bytes(value, separator, backwards))
        parts = value.count(separator) + 1
    rt.charge_bytes(text_bytes(value) + PART_BYTES * parts)


def pay_splitlines(rt: Runtime, value: str, trail: Trail, keepends: Pair = FALSE) -> None:
    rt.charge_bytes(2 * text_bytes(value))
    rt.charge_bytes(PART_BYTES * count_lines(value))


def pay_partition(rt: Runtime, value: str, trail: Trail, sep: Pair) -> None:
    rt.charge_bytes(search_bytes(value, sep[0]) + text_bytes(value))


def pay_rpartition(rt: Runtime, value: str, trail: Trail, sep: Pair) -> None:
    rt.charge_bytes(search_bytes(value, sep[0], backwards=True) + text_bytes(value))


def pay_replace(
    rt: Runtime, value: str, trail: Trail, old: Pair, new: Pair, count: Pair = (-1, None)
) -> None:
    """The search (twice: to count and to cut), and the result."""
    needle, other = old[0], new[0]
    if not isinstance(needle, str) or not isinstance(other, str):
        return
    rt.charge_bytes(2 * search_bytes(value, needle) + len(value))
    found = value.count(needle)
    if isinstance(count[0], int) and count[0] >= 0:
        found = min(found, count[0])
    length = len(value) + found * max(len(other) - len(needle), 0)
    width = max(char_bytes(value), char_bytes(other)) if other else char_bytes(value)
    rt.charge_bytes(length * width + 2 * found)


def pay_padding(
    rt: Runtime, value: Any, trail: Trail, width: Pair, fill: Pair = (" ", None)
) -> None:
    each = max(char_bytes(text) for text in (value, fill[0], " ") if isinstance(text, str) and text)
    size = width[0] if isinstance(width[0], int) else 0
    rt.charge_bytes(each * max(size, len(value)))


def pay_expandtabs(rt: Runtime, value: str, trail: Trail, tabsize: Pair = (8, None)) -> None:
    size = tabsize[0] if isinstance(tabsize[0], int) else 8
    rt.charge_bytes(char_bytes(value) * (2 * len(value) + value.count("\t") * max(size, 1)))


def pay_format(rt: Runtime, value: str, trail: Trail, /, *args: Pair, **kwargs: Pair) -> None:
    """Reading the format; its fields are paid for one by one."""
    rt.charge_bytes(2 * text_bytes(value))
    rt.charge_steps(FIELD_STEPS * value.count("{"))
    rt.charge_bytes(FIELD_BYTES * value.count("{"))


def pay_format_map(rt: Runtime, value: str, trail: Trail, mapping: Pair) -> None:
    pay_format(rt, value, trail)
    rt.charge_bytes(ELEMENT_BYTES * len(list_elements(mapping[0])))


def pay_join_method(rt: Runtime, value: str, trail: Trail, items: Pair) -> None:
    """Listing the elements and checking each; the join itself is paid by `join_with_separator`."""
    pay_elements(rt, items[0], None)


def pay_find(rt: Runtime, value: str, trail: Trail, *args: Pair) -> None:
    rt.charge_bytes(search_bytes(value, args[0][0] if args else ""))


def pay_find_backwards(rt: Runtime, value: str, trail: Trail, *args: Pair) -> None:
    rt.charge_bytes(search_bytes(value, args[0][0] if args else "", backwards=True))


def pay_affix(rt: Runtime, value: str, trail: Trail, *args: Pair) -> None:
    """The affix is compared, or each of a tuple of them."""
    for argument in args:
        charge_value(rt, argument[0])


# ---- dicts, lists, loops ----


def pay_entries(rt: Runtime, value: Any, trail: Trail) -> None:
    """A new pair or reference, and a trail, for each entry."""
    rt.charge_bytes(ELEMENT_BYTES * len(list_elements(value)))


def pay_references(rt: Runtime, value: Any, trail: Trail, *_: Pair, **__: Pair) -> None:
    """A copy of the list of elements."""
    elements = list_elements(value)
    rt.charge_steps(len(elements) // 4)
    rt.charge_bytes((ITEM_BYTES if type(elements) is not range else 40) * len(elements))


def pay_key(
    rt: Runtime, value: dict[Any, Any], trail: Trail, key: Pair, default: Pair = NONE
) -> None:
    charge_key(rt, key[0], len(value))


def pay_search(rt: Runtime, value: Any, trail: Trail, wanted: Pair) -> None:
    charge_search(rt, value, wanted[0])


def pay_change(rt: Runtime, loop: Loop, trail: Trail, *values: Pair) -> None:
    """The values are compared with those of the round before."""
    for pair in values:
        charge_value(rt, pair[0])


# ---- filters: `value` is anything ----


def printed_length(rt: Runtime, value: Any) -> int:
    """Return how long the printed value is at most; measuring a container is paid for."""
    return len(value) if isinstance(value, str) else charge_value(rt, value, 4)


def pay_printed(rt: Runtime, value: Any, trail: Trail, *_: Pair, **__: Pair) -> None:
    """The printed value is looked at, and a copy of it made."""
    size = printed_length(rt, value)
    rt.charge_bytes(size * (char_bytes(value) if isinstance(value, str) else 1))


def pay_escape(rt: Runtime, value: Any, trail: Trail) -> None:
    """A quote becomes five characters."""
    rt.charge_bytes(6 * printed_length(rt, value))


def pay_title(rt: Runtime, value: Any, trail: Trail) -> None:
    """Every second character may be a word, which becomes a text of its own."""
    size = printed_length(rt, value)
    rt.charge_steps(2 * size)
    rt.charge_bytes(2 * PART_BYTES * size)


def pay_wordcount(rt: Runtime, value: Any, trail: Trail) -> None:
    size = printed_length(rt, value)
    rt.charge_steps(2 * size)
    rt.charge_bytes(size)


def pay_striptags(rt: Runtime, value: Any, trail: Trail) -> None:
    """markupsafe copies the text for each tag and comment."""
    size = printed_length(rt, value)
    tags = value.count("<") if isinstance(value, str) else size
    rt.charge_steps(2 * size)
    rt.charge_bytes(PART_BYTES * size + tags * size)


def pay_urlencode(rt: Runtime, value: Any, trail: Trail) -> None:
    """Each byte becomes a text, then three characters; a sequence consists of many such values."""
    if isinstance(value, (dict, list, tuple)):
        rt.charge_steps(80 * len(value))
        rt.charge_bytes(charge_value(rt, value, 60) + ELEMENT_BYTES * len(value))
    else:
        size = printed_length(rt, value)
        rt.charge_steps(size)
        rt.charge_bytes(60 * size)


def pay_indent(
    rt: Runtime,
    value: Any,
    trail: Trail,
    width: Pair = (4, None),
    first: Pair = FALSE,
    blank: Pair = FALSE,
) -> None:
    """Each line becomes a text, with the margin before it."""
    if not isinstance(value, str):
        return
    rt.charge_bytes(2 * text_bytes(value))
    margin = width[0]
    size = margin if isinstance(margin, int) else text_bytes(margin)
    wide = char_bytes(value) if isinstance(margin, int) else max(char_bytes(value), 1)
    rt.charge_bytes(count_lines(value + "\n") * (2 * max(size, 0) * wide + ELEMENT_BYTES))


def pay_truncate(rt: Runtime, value: Any, trail: Trail, *_: Pair, **__: Pair) -> None:
    rt.charge_bytes(2 * text_bytes(value))


def pay_wordwrap(
    rt: Runtime,
    value: Any,
    trail: Trail,
    width: Pair = (79, None),
    break_long_words: Pair = (True, None),
    wrapstring: Pair = NONE,
    break_on_hyphens: Pair = (True, None),
) -> None:
    """A regular expression cuts the words; a long word is copied for every line that it fills."""
    size = len(value) if isinstance(value, str) else 0
    columns = width[0] if isinstance(width[0], int) else 1
    rt.charge_steps(16 * size)
    rt.charge_bytes(PART_BYTES * size + size * size // (16 * max(columns, 1)))


def pay_number(rt: Runtime, value: Any, trail: Trail, *_: Pair, **__: Pair) -> None:
    """Reading a text as a number."""
    rt.charge_bytes(2 * text_bytes(value))


def pay_from_json(rt: Runtime, value: Any, trail: Trail) -> None:
    """Three characters may become a list or a dict."""
    rt.charge_bytes(32 * len(value) if isinstance(value, str) else 0)


def pay_percent_filter(rt: Runtime, value: Any, trail: Trail, *args: Pair, **kwargs: Pair) -> None:
    rt.charge_bytes(FIELD_BYTES * (len(args) + len(kwargs)))


# ---- filters of sequences ----


def pay_elements(rt: Runtime, value: Any, trail: Trail, *_: Pair, **__: Pair) -> None:
    """A list of the elements is made, and each is looked at."""
    count = len(list_elements(value))
    rt.charge_steps(8 * count)
    rt.charge_bytes(ITEM_BYTES * count)


def pay_new_elements(rt: Runtime, value: Any, trail: Trail, *_: Pair, **__: Pair) -> None:
    """Each element is passed on with a trail of its own."""
    count = len(list_elements(value))
    rt.charge_steps(10 * count)
    rt.charge_bytes(ELEMENT_BYTES * count)


def pay_batch(
    rt: Runtime, value: Any, trail: Trail, linecount: Pair, fill_with: Pair = NONE
) -> None:
    pay_new_elements(rt, value, trail)
    rows = len(list_elements(value))
    size = linecount[0]
    if isinstance(size, int) and size > 0:
        rows = rows // size + 1
        rt.charge_bytes(ITEM_BYTES * size)
    rt.charge_bytes(3 * ELEMENT_BYTES * rows)


def pay_slice(rt: Runtime, value: Any, trail: Trail, slices: Pair, fill_with: Pair = NONE) -> None:
    pay_new_elements(rt, value, trail)
    rows = slices[0] if isinstance(slices[0], int) else 0
    rt.charge_bytes(4 * ELEMENT_BYTES * max(rows, 0))
    rt.charge_steps(10 * max(rows, 0))


def pay_keys(rt: Runtime, value: Any, trail: Trail, *_: Pair, **__: Pair) -> None:
    """Each element is listed, and its key looked up and folded; sorting the keys is paid apart."""
    count = len(list_elements(value))
    rt.charge_steps(14 * count)
    rt.charge_bytes(ELEMENT_BYTES * count)


def charge_sort(rt: Runtime, keys: list[Any]) -> None:
    """Pay for sorting keys: each is read about log n times, a text sixteen characters at once."""
    count = len(keys)
    rounds = count.bit_length()
    rt.charge_steps(count * (2 + rounds))
    texts = sum([len(key) for key in keys if isinstance(key, str)])
    rt.charge_bytes(texts * rounds >> 3)
    for key in keys:
        if isinstance(key, (list, tuple, dict, View)):
            rt.charge_bytes(rounds * charge_value(rt, key))


# ---- functions ----


def pay_call(rt: Runtime, /, *args: Pair, **kwargs: Pair) -> None:
    """Each argument is kept."""
    rt.charge_bytes(ELEMENT_BYTES * (len(args) + len(kwargs)))


def pay_dict(rt: Runtime, /, *args: Pair, **kwargs: Pair) -> None:
    """Each entry is copied, with a trail; the keys are paid for as they are found."""
    count = len(kwargs)
    if args:
        count += sum([len(list_elements(value)) for value, _ in args])
    rt.charge_steps(6 * count)
    rt.charge_bytes(2 * ELEMENT_BYTES * count)


def pay_strftime(rt: Runtime, form: Pair) -> None:
    """`%c` becomes some thirty characters."""
    rt.charge_bytes(40 * text_bytes(form[0]))


def pay_from_keys(rt: Runtime, keys: Pair, value: Pair = NONE) -> None:
    """Three dicts are made: of the values, of their trails, and of those of the keys."""
    names = list_elements(keys[0])
    rt.charge_steps(4 * len(names))
    rt.charge_bytes(3 * ELEMENT_BYTES * len(names))
    for _ in range(3):
        charge_keys(rt, names)


# ---- operators ----


def pay_arithmetic(
    rt: Runtime, left: Any, left_trail: Trail, right: Any, right_trail: Trail
) -> None:
    """Numbers take constant time, since integers are bounded."""
    bound_integer(left)
    bound_integer(right)


def pay_product(rt: Runtime, left: Any, left_trail: Trail, right: Any, right_trail: Trail) -> None:
    """Repeating a text or list pays for the result, a number for its bits."""
    if isinstance(left, int) and isinstance(right, (str, list, tuple)):
        left, right = right, left
    if isinstance(left, (str, list, tuple)) and isinstance(right, int):
        each = char_bytes(left) if isinstance(left, str) and left else ITEM_BYTES // 2
        rt.charge_bytes(each * len(left) * max(int(right), 0))
    elif isinstance(left, int) and isinstance(right, int):
        _refuse_bits(left.bit_length() + right.bit_length())


def pay_power(rt: Runtime, left: Any, left_trail: Trail, right: Any, right_trail: Trail) -> None:
    pay_arithmetic(rt, left, left_trail, right, right_trail)
    if isinstance(left, int) and isinstance(right, int):
        _refuse_bits(left.bit_length() * max(right, 0))


def _refuse_bits(bits: int) -> None:
    if bits > MAX_INTEGER_BITS:
        raise limit_error("bytes")


def pay_modulo(rt: Runtime, left: Any, left_trail: Trail, right: Any, right_trail: Trail) -> None:
    """Of texts it is a format, which pays for itself."""
    if not isinstance(left, str):
        pay_arithmetic(rt, left, left_trail, right, right_trail)


# ---- tests: `value` and arguments without trails ----


def pay_membership(rt: Runtime, value: Any, container: Any) -> None:
    """`value in container`, by what the container is."""
    if isinstance(container, str):
        rt.charge_bytes(search_bytes(container, value))
    elif isinstance(container, dict):
        charge_key(rt, value, len(container))
    elif type(container) is range:
        rt.charge_steps(1 if type(value) in (int, bool) else 3 * len(container))
    elif isinstance(container, (list, tuple, View, Stream)):
        charge_search(rt, list_elements(container), value)


def pay_division(rt: Runtime, value: Any, *by: Any, **__: Any) -> None:
    bound_integer(value)
    for number in by:
        bound_integer(number)


def pay_printed_test(rt: Runtime, value: Any) -> None:
    rt.charge_bytes(printed_length(rt, value))


# ---- formats ----

FIELD_STEPS = 40  # of one conversion or field
FIELD_BYTES = 400  # of its parts and their trails


def pay_width(rt: Runtime, size: int) -> None:
    """A width or precision is filled with characters."""
    rt.charge_bytes(4 * abs(size))


def pay_percent(rt: Runtime, form: str, value: Any) -> None:
    """Reading the format, and a list of the values."""
    count = form.count("%")
    rt.charge_bytes(2 * text_bytes(form) + FIELD_BYTES * count)
    rt.charge_steps(FIELD_STEPS * count)
    if isinstance(value, tuple):
        rt.charge_bytes(2 * ELEMENT_BYTES * len(value))


def pay_str(rt: Runtime, value: Any) -> None:
    """`%s`, `!s`: text is taken as it is, other values pay when they are printed."""


def pay_repr(rt: Runtime, value: Any) -> None:
    """`%r`, `!r`: a control character becomes four, a private one ten."""
    charge_value(rt, value, 4 if not isinstance(value, str) or value.isascii() else 10)


def pay_ascii(rt: Runtime, value: Any) -> None:
    """`%a`, `!a`: any character beyond ASCII becomes up to ten."""
    charge_value(rt, value, 10)


def pay_written_number(rt: Runtime, value: Any) -> None:
    """`%d`, `{:b}`: integers of the input may be long."""
    charge_value(rt, value, 2)


FORMAT_COSTS: dict[str, Callable[[Runtime, Any], None]] = {
    "s": pay_str,
    "r": pay_repr,
    "a": pay_ascii,
    **dict.fromkeys("diouxXeEfFgGcbn%", pay_written_number),
    "": pay_written_number,  # `{}` of a number
}
