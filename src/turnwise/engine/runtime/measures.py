"""The sizes of values, and what reading, searching, hashing or comparing a value of that size costs.

Charges are in two units. A step stands for at most 100 ns of work, a byte for at most 5 ns and for at
least one byte of memory. Values of the input are trees of a known size; a template can build others:
a list that holds a list twice, which holds another twice, and so on forty times, is small in memory
and endless to read. So a value is walked before it is read as a whole, a part that is shared counts
as often as it would be read, and the walk pays as it goes: it ends when the budget does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from sys import getsizeof
from typing import Any

from turnwise.engine.runtime.limits import MAX_INTEGER_BITS, Runtime, limit_error
from turnwise.engine.runtime.values import Loop, Namespace, Safe, Stream, View

RESULT_BYTES = 60  # of a value that an operation makes, and of its trail
ITEM_BYTES = 16  # of an element that is read, or of a reference that is copied
ELEMENT_BYTES = 100  # of an element that is made, with its trail
PART_BYTES = 60  # of a short text that is cut from another
NESTED_TYPES = (dict, list, tuple, Namespace, View)  # values that are read with what they hold
SMALL_BITS = 60  # integers of as many are hashed without collisions and printed at once
MAX_FREE_LENGTH = 1024  # characters that can be compared or hashed within one step
# Below it the product itself is charged; counting places costs more than it saves.
MAX_SMALL_PRODUCT = 1 << 16
MAX_FREE_PRODUCT = 1024  # characters of a text times those of one that is searched in it
WALK_STEPS = 10  # of starting to walk a container
LINE_BREAKS = "\n\r\v\f\x1c\x1d\x1e"  # where `splitlines` cuts
WIDE_LINE_BREAKS = "\x85\u2028\u2029"


# ---- numbers ----


def bound_integer(value: Any) -> Any:
    """Return a number that an operation takes or made; a longer integer than allowed is an error."""
    if isinstance(value, int) and value.bit_length() > MAX_INTEGER_BITS:
        raise limit_error("bytes")
    return value


def integer_bytes(value: int) -> int:
    """Return what writing an integer costs, which is quadratic in its length; nothing for a small one."""
    bits = value.bit_length()
    return (bits >> 2) + (bits >> 5) ** 2 if bits > SMALL_BITS else 0


# ---- texts ----


def char_bytes(text: str) -> int:
    """Return how many bytes a character of this text takes: 1, 2 or 4."""
    if text.isascii():  # an empty one too
        return 1
    return max(1, min(4, (getsizeof(text) - 56) // len(text)))


def text_bytes(text: Any) -> int:
    """Return the size of a text; anything else has none."""
    return len(text) * char_bytes(text) if isinstance(text, str) else 0


def search_bytes(text: str, wanted: Any, backwards: bool = False) -> int:
    """Return what searching a text costs.

    Python compares at every place where one end of the wanted text fits, so the product of those
    places and its length is the bound. It has a linear algorithm only forwards, for long texts.
    """
    size = len(text)
    if not isinstance(wanted, str):
        return size
    length = len(wanted)
    if length > size:
        return 1
    if length < 8 or size * length < MAX_SMALL_PRODUCT:
        return size + (size * length >> 3) + 1
    if not backwards and size >= 2500 and length >= 100:
        return 4 * size
    if not backwards and size >= 30_000:  # linear, but for the rest behind the last match
        return 4 * size + 30_000 * length // 8
    places = text.count(wanted[0] if backwards else wanted[-1])
    return size + places * min(length, size - length + 1) // 8


def free_search_length(length: int) -> int:
    """Return how long a text may be in which a text of `length` is searched without charging."""
    return min(MAX_FREE_LENGTH, MAX_FREE_PRODUCT // max(length, 1))


def count_lines(text: str) -> int:
    """Return how many lines `splitlines` makes of a text, or more."""
    breaks = sum(map(text.count, LINE_BREAKS))
    if not text.isascii():
        breaks += sum(map(text.count, WIDE_LINE_BREAKS))
    return breaks + 1


# ---- values ----


def charge_value(rt: Runtime, value: Any, per_character: int = 1, indent: int = 0) -> int:
    """Pay for reading a value whole, and return how many bytes were paid.

    Args:
        rt: the budgets.
        value: any value of a template.
        per_character: bytes for each character of the texts inside.
        indent: bytes that are written before each element, times its depth.
    """
    if isinstance(value, str):
        paid = per_character * len(value)
        rt.charge_bytes(paid)
        return paid
    if not isinstance(value, NESTED_TYPES):
        paid = integer_bytes(value) if type(value) is int else 0
        rt.charge_bytes(paid)
        return paid or ITEM_BYTES
    rt.charge_steps(WALK_STEPS)
    paid = 0
    level: list[Any] = [value]
    for depth in range(rt.limits.depth):
        each = ITEM_BYTES + indent * (depth + 1)
        inner: list[Any] = []
        for container in level:
            items = _list_parts(container)
            rt.charge_bytes(each * (len(items) + 1))
            inner += items
        paid += each * (len(inner) + len(level))
        level = []
        size = 0
        for item in inner:
            kind = type(item)
            if kind is str or kind is Safe:
                size += len(item)
            elif kind is int:
                size += integer_bytes(item)
            elif isinstance(item, NESTED_TYPES):
                level.append(item)
        rt.charge_bytes(per_character * size)
        paid += per_character * size
        if not level:
            return paid
    raise limit_error("depth")


def _list_parts(container: Any) -> Collection[Any]:
    if isinstance(container, dict):
        return [*container.keys(), *container.values()]
    if isinstance(container, Namespace):
        return [part for name, pair in container.pairs.items() for part in (name, pair[0])]
    if isinstance(container, View):
        return container.items
    return container  # type: ignore[no-any-return]


def list_elements(value: Any) -> Collection[Any]:
    """Return the elements that iterating over a value would give; a stream is not used up."""
    if isinstance(value, (View, Stream)):
        return value.items
    if isinstance(value, Loop):
        return range(len(value.items))
    if isinstance(value, (str, list, tuple, dict, range)):
        return value
    return ()


# ---- equality ----


def charge_comparison(rt: Runtime, left: Any, right: Any) -> None:
    """Pay for comparing two values: no more is read than the smaller of the two."""
    if left is right and not isinstance(left, View):
        return
    if isinstance(left, str) and isinstance(right, str):
        rt.charge_bytes(min(len(left), len(right)) >> 2)
    elif isinstance(left, NESTED_TYPES) and isinstance(right, NESTED_TYPES):
        charge_value(rt, left if _count_parts(left) <= _count_parts(right) else right)


def _count_parts(container: Any) -> int:
    return len(container.pairs) if isinstance(container, Namespace) else len(container)


def charge_search(rt: Runtime, elements: Collection[Any], wanted: Any) -> None:
    """Pay for comparing a value with each element of a sequence."""
    rt.charge_steps(1 + len(elements))
    if isinstance(wanted, str):
        size = len(wanted)
        if size > 64:
            same = sum([len(item) == size for item in elements if isinstance(item, str)])
            rt.charge_bytes(same * size >> 2)
    elif isinstance(wanted, NESTED_TYPES):
        size = charge_value(rt, wanted)
        rt.charge_bytes(size * sum([isinstance(item, NESTED_TYPES) for item in elements]))


# ---- hashes ----


def may_collide(key: Any) -> bool:
    """Return whether keys of this kind can be chosen so that all have the same hash."""
    if type(key) is int:
        return integer_bytes(key) > 0
    return type(key) in (tuple, float)


def charge_key(rt: Runtime, key: Any, size: int) -> Any:
    """Pay for finding a key in a dict of `size` entries, and return the key.

    The hash of a text is read once and kept; a tuple is read every time, and keys that may collide
    are compared with every other.
    """
    if type(key) is str:
        if len(key) > MAX_FREE_LENGTH:
            rt.charge_bytes(len(key) >> 2)
    elif may_collide(key):
        rt.charge_steps(size)
        rt.charge_bytes(size * charge_value(rt, key))
    return key


def charge_keys(rt: Runtime, keys: Iterable[Any]) -> None:
    """Pay for making a dict of these keys: those that may collide are compared with each other."""
    collisions = size = 0
    for key in keys:
        if may_collide(key):
            collisions += 1
            size += charge_value(rt, key)
    rt.charge_bytes(collisions * size)
