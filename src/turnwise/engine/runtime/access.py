"""Reading a value out of another: `a.b`, `a[b]`, `a[b:c]`, and iterating.

Access is a white list: items of dicts and lists, characters of strings, the methods in the tables
of `methods.py`, and the few attributes below. The order is jinja2's: `a.b` looks for a method first
and an item second, `a['b']` the other way round.

The functions return a pair: the value and its trail.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any

from turnwise.engine.provenance.container_rules import (
    EACH,
    ITEMS,
    KEYS,
    LETTERS,
    PAIRS,
    PICK,
    SPLIT,
    is_from_input,
    pick_trail,
)
from turnwise.engine.provenance.text_rules import BLEND, PART
from turnwise.engine.provenance.trails import ROOT, Trail, root_trail
from turnwise.engine.runtime.costs import charge_call
from turnwise.engine.runtime.limits import Runtime
from turnwise.engine.runtime.measures import (
    ELEMENT_BYTES,
    ITEM_BYTES,
    char_bytes,
    charge_key,
    charge_keys,
    list_elements,
)
from turnwise.engine.runtime.methods import METHODS, bind_method
from turnwise.engine.runtime.values import (
    Cycler,
    Denied,
    Failure,
    Function,
    Loop,
    Macro,
    NamedPairs,
    Namespace,
    Pair,
    Stream,
    Undefined,
    ValueFailure,
    View,
    check_defined,
)
from turnwise.errors import did_you_mean, short_repr

MACRO_ATTRIBUTES = ("name", "arguments", "catch_kwargs", "catch_varargs", "caller")
# The usual word for a dict, told by its keys.
TYPICAL_KEYS = {
    "role": "message",
    "arguments": "call",
    "type": "part",
    "parameters": "function",
}
GROUP_ATTRIBUTES = {"grouper": 0, "list": 1}  # of the pairs that `groupby` makes
# `loop` as expressions over the variables of loop {0}: the counter i, the elements t, their trails o
LOOP_ATTRIBUTES = {
    "index0": "i{0}",
    "index": "(i{0} + 1)",
    "first": "(i{0} == 0)",
    "last": "(i{0} + 1 == len(t{0}))",
    "length": "len(t{0})",
    "revindex": "(len(t{0}) - i{0})",
    "revindex0": "(len(t{0}) - i{0} - 1)",
    "depth": "1",
    "depth0": "0",
}
LOOP_NEIGHBOURS = {
    "previtem": "get_neighbour(t{0}, o{0}, i{0} - 1, NO_PREVIOUS)",
    "nextitem": "get_neighbour(t{0}, o{0}, i{0} + 1, NO_NEXT)",
}
# The same for a `loop` that is an object.
LOOP_READERS = {
    name: eval(f"lambda i, t, o: {form.format('')}")
    for name, form in (LOOP_ATTRIBUTES | LOOP_NEIGHBOURS).items()
}
NO_PREVIOUS = Undefined("there is no previous item")
NO_NEXT = Undefined("there is no next item")


def get_attribute(rt: Runtime, value: Any, trail: Trail, name: str) -> Pair:
    """`value.name`"""
    rt.charge_bytes(MISS_BYTES)
    kind = type(value)
    if name in METHODS.get(kind, ()):
        return bind_method(value, trail, name)
    if kind is dict:
        found = (value[name], (trail, name)) if name in value else None
    elif kind is Namespace:
        # By `get`, nothing would be recorded (`StatePairs`).
        found = value.pairs[name] if name in value.pairs else None  # noqa: SIM401
    else:
        check_defined(value)
        found = _get_engine_attribute(value, trail, name)
    return make_undefined(value, name) if found is None else found


def _get_engine_attribute(value: Any, trail: Trail, name: str) -> Pair | None:
    """Return an attribute of a value that only the engine makes.

    None if it has no such attribute.
    """
    if type(value) is Loop:
        if name in ("depth", "depth0"):  # only such a loop may be recursive
            return value.depth0 + (name == "depth"), None
        if name in LOOP_READERS:
            found = LOOP_READERS[name](value.index0, value.items, value.trails)
            return found if name in LOOP_NEIGHBOURS else (found, None)
    elif type(value) is Macro and name in MACRO_ATTRIBUTES:
        return getattr(value, name), None
    elif type(value) is Function and (value.name, name) == ("dict", "fromkeys"):
        return FROM_KEYS, None
    elif type(value) is Cycler and name == "current":
        return value.items[value.position]
    elif type(value) is tuple and len(value) == 2 and name in GROUP_ATTRIBUTES:
        index = GROUP_ATTRIBUTES[name]
        return value[index], (trail, index)
    return None


def _from_keys(rt: Runtime, keys: Pair, value: Pair = (None, None)) -> Pair:
    """`dict.fromkeys(keys, value)`"""
    rt.charge_each(len(list_elements(keys[0])), 4, 3 * ELEMENT_BYTES)
    names, trail = to_sequence(rt, *keys)
    for _ in range(3):  # dicts: of the values, of their trails, and of those of the keys
        charge_keys(rt, names)
    key_trails = {key: (trail, index) for index, key in enumerate(names)}
    trails = (ITEMS, dict.fromkeys(names, value[1]), key_trails)
    return dict.fromkeys(names, value[0]), trails


FROM_KEYS = Function("fromkeys", charge_call(_from_keys, 250))


def get_neighbour(items: Any, trails: Any, index: int, otherwise: Undefined) -> Pair:
    """Return `loop.previtem` or `loop.nextitem`, which is at `index`."""
    if 0 <= index < len(items):
        return items[index], trails[index] if type(trails) is list else None
    return otherwise, None


def get_item(rt: Runtime, value: Any, trail: Trail, key: Any) -> Pair:
    """`value[key]`"""
    kind = type(value)
    if kind is dict:
        try:
            if charge_key(rt, key, len(value)) in value:
                return value[key], (trail, key)
        except TypeError:  # a key that cannot be hashed is in no dict
            pass
    elif kind is list or kind is tuple or kind is range or isinstance(value, str):
        size = len(value)
        if type(key) in (int, bool) and -size <= key < size:
            at = key % size
            return value[key], (PART, value, trail, at) if isinstance(value, str) else (trail, at)
    else:
        check_defined(value)
    if isinstance(key, str) and (kind is not dict or key in METHODS[dict]):
        return get_attribute(rt, value, trail, key)
    return make_undefined(value, key)


def get_slice(rt: Runtime, value: Any, trail: Trail, start: Any, stop: Any, step: Any) -> Pair:
    """`value[start:stop:step]`"""
    check_defined(value)
    if not isinstance(value, (str, list, tuple, range)):
        raise ValueFailure(f"{type_name(value)!r} object cannot be sliced", value)
    picked = range(len(value))[start:stop:step]
    rt.charge_bytes(
        len(picked) * (char_bytes(value) if isinstance(value, str) and value else ITEM_BYTES)
    )
    result = value[start:stop:step]
    if not isinstance(value, str):
        return result, pick_trail(trail, picked)
    if picked.step == 1:
        return result, (PART, value, trail, picked.start)
    return result, (BLEND, value, trail)  # other characters than the text's, in another order


def get_constant_slice(
    rt: Runtime, value: Any, trail: Trail, start: Any, stop: Any, step: Any
) -> Pair:
    """`value[start:stop:step]` in an output without names, which jinja2 evaluates while compiling.

    There, and only there, a slice that Python refuses is undefined.
    """
    try:
        return get_slice(rt, value, trail, start, stop, step)
    except (Failure, TypeError, ValueError):
        if type(value) is Undefined:
            raise
        return make_undefined(value, slice(start, stop, step))


def make_undefined(value: Any, key: Any) -> Pair:
    """Return an `Undefined` for a key that does not exist.

    Raise an error if it is a private Python name.
    """
    is_private = isinstance(key, str) and key.startswith("_")
    if is_private and (key.startswith("__") or type(value) is not dict):
        raise Denied(
            f"access to {short_repr(key)} is not possible: "
            "templates read fields and methods, not Python attributes"
        )
    return Undefined(lambda: (_describe_absence(value, key), describe_keys(value, key))), None


def _describe_absence(value: Any, key: Any) -> str:
    owner = "None" if value is None else f"{type_name(value)} object"
    if isinstance(key, str):
        return f"{owner!r} has no attribute {short_repr(key)}"
    return f"{owner} has no element {short_repr(key)}"


def describe_keys(value: Any, key: Any) -> str | None:
    """Return a hint that lists what the value has instead."""
    word = key if isinstance(key, str) else ""
    if type(value) is dict:
        usual = [name for typical, name in TYPICAL_KEYS.items() if typical in value]
        return did_you_mean(word, value, f"a {[*usual, 'dict'][0]} has")
    if type(value) is Namespace:
        return did_you_mean(word, value.pairs, "the namespace has")
    if isinstance(value, (list, tuple)):
        return f"the list has {len(value)} elements: {short_repr(value)}"
    if isinstance(value, str):
        return f"the value is text: {short_repr(value)}"
    return f"the value is {short_repr(value)}"


NO_TRAILS = repeat(None)
NO_MESSAGES = (PAIRS, KEYS, LETTERS, SPLIT)  # rules whose elements are neither messages nor parts
MISS_BYTES = 24  # of an attribute that is not a field of a dict; most of those do not exist
LOOP_START_COST = 24  # steps for starting a loop


def _root_trails(rt: Runtime, name: str, count: int) -> list[Trail]:
    """Return the trails of an input's elements: one list for all loops of a rendering, as one may be in another."""
    trails = rt.root_trails.get(name, [])
    if len(trails) < count:
        trails = rt.root_trails[name] = list(
            zip(repeat(root_trail(name)), range(count), strict=False)
        )
    return trails


def start_loop(
    rt: Runtime, value: Any, trail: Trail, weight: int, skips_texts: bool = False
) -> tuple[Any, Any, bool]:
    """Pay for a loop, unless it is over the letters of a text, and does nothing with them.

    Return its elements, the trail of each, and whether they may be messages, or parts of a content.
    """
    if skips_texts and isinstance(value, str):
        return (), (), False
    elements, trail = to_sequence(rt, value, trail)
    count = len(elements)
    rt.steps -= count * weight + LOOP_START_COST
    if rt.steps < 0:
        rt.charge_steps(0)
    if trail is None:
        return elements, NO_TRAILS, False
    if type(trail) is int or trail[0] is EACH:
        rt.charge_bytes(8 * count)
        return elements, [trail] * count, False
    if trail[0] is ROOT:
        return elements, _root_trails(rt, trail[1], count), trail[1] == "messages"
    if trail[0] is PICK and type(trail[1]) is tuple and trail[1][0] is ROOT:
        rt.charge_bytes(ITEM_BYTES * count)
        kept = _root_trails(rt, trail[1][1], max(trail[2], default=-1) + 1)
        return elements, [kept[index] for index in trail[2]], True
    rt.charge_bytes(ELEMENT_BYTES * count)
    return (
        elements,
        [(trail, number) for number in range(count)],
        trail[0] not in NO_MESSAGES and (_may_be_messages(trail) or are_parts(elements, trail)),
    )


def are_parts(elements: Any, trail: Trail) -> bool:
    """Return whether elements are the parts of a message's content."""
    return trail[1] == "content" and dict in map(type, elements)


def _may_be_messages(trail: Trail) -> bool:
    """Return whether elements may be whole messages.

    Not if the sequence is a part inside of the input.
    """
    while type(trail) is tuple and type(trail[0]) is tuple:
        trail = trail[0]
    return trail is not None and trail[0] is not ROOT


def start_count(elements: Any) -> int:
    """Return the index before the first, for a loop that counts only the elements that pass its test."""
    return -1


def pick_elements(elements: Any, trails: Any, chosen: list[int]) -> tuple[list[Any], Any]:
    """Return the elements of a loop that pass its test, and their trails."""
    kept = [trails[index] for index in chosen] if type(trails) is list else trails
    return [elements[index] for index in chosen], kept


def to_sequence(rt: Runtime, value: Any, trail: Trail) -> Pair:
    """Return the elements of a value, and the trail of that sequence."""
    kind = type(value)
    if kind is list or kind is tuple:
        return value, trail
    if kind is dict:
        rt.charge_bytes(ITEM_BYTES * len(value))
        keys = list(value)
        return keys, (KEYS, trail, keys)
    if isinstance(value, str):
        rt.charge_bytes((8 if value.isascii() else ELEMENT_BYTES) * len(value))
        whole = type(trail) is int or is_from_input(trail)
        return list(value), (EACH, trail) if whole else (LETTERS, value, trail)
    if kind is View:
        return value.items, value.trail
    if kind is Stream:
        return value.take_items(), value.trail
    if kind is range:
        return value, None
    if kind is Undefined:
        return (), None
    if kind is Loop:
        start = value.index0 + 1
        rt.charge_bytes(ITEM_BYTES * len(value))
        trails = value.trails if type(value.trails) is list else None
        return value.items[start:], (ITEMS, trails[start:]) if trails else None
    raise ValueFailure(f"{type_name(value)!r} object is not iterable", value)


def list_pairs(pairs: Sequence[Pair]) -> Pair:
    """Return a list of values that are given with their trails, with its own trail."""
    return [pair[0] for pair in pairs], (ITEMS, [pair[1] for pair in pairs])


def name_pairs(pairs: NamedPairs) -> Pair:
    """Return a dict of values that are given with their trails, with its own trail."""
    trails = {key: pair[1] for key, pair in pairs.items()}
    return {key: pair[0] for key, pair in pairs.items()}, (ITEMS, trails, {})


def type_name(value: Any) -> str:
    """Return the type's name as in Python's own messages."""
    if isinstance(value, View):
        return value.kind
    name = type(value).__name__
    return {"Function": "function", "Stream": "generator", "Safe": "str"}.get(name, name)
