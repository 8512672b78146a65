"""Reading a value out of another: `a.b`, `a[b]`, `a[b:c]`, and walking over one.

Access is a white list. Items of dicts and lists, characters of strings, the methods in the tables of `methods.py`, and
the few attributes below; nothing else has a name that a template can say. The order is jinja2's: `a.b` looks for a
method first and an item second, `a['b']` the other way round.

Every function here returns the value and its trail.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turnwise.engine.limits import Run
from turnwise.engine.methods import METHODS, bound
from turnwise.engine.trails import EACH, KEYS, PART, PICK, Trail
from turnwise.engine.values import Denied, Failure, Function, Loop, Macro, Namespace, Pair, Stream, Undefined
from turnwise.errors import shown, suggestion

LOOP_ATTRIBUTES: dict[str, Callable[[Loop], Any]] = {
    "index0": lambda loop: loop.index0,
    "index": lambda loop: loop.index0 + 1,
    "revindex0": lambda loop: len(loop.items) - loop.index0 - 1,
    "revindex": lambda loop: len(loop.items) - loop.index0,
    "first": lambda loop: loop.index0 == 0,
    "last": lambda loop: loop.index0 == len(loop.items) - 1,
    "length": lambda loop: len(loop.items),
    "depth0": lambda loop: loop.depth0,
    "depth": lambda loop: loop.depth0 + 1,
}
MACRO_ATTRIBUTES: dict[str, Callable[[Macro], Any]] = {
    "name": lambda macro: macro.name,
    "arguments": lambda macro: macro.arguments,
    "catch_kwargs": lambda macro: macro.catch_kwargs,
    "catch_varargs": lambda macro: macro.catch_varargs,
    "caller": lambda macro: macro.caller,
}
NO_PREVIOUS = Undefined("there is no previous item")
NO_NEXT = Undefined("there is no next item")


def attribute(rt: Run, value: Any, trail: Trail, name: str) -> Pair:
    """`value.name`"""
    kind = type(value)
    if kind is dict:
        if name in METHODS[dict]:
            return bound(rt, value, trail, name)
        if name in value:
            return value[name], (trail, name)
        return missing(value, name)
    if kind is Namespace:
        if name in value.values:
            return value.values[name], value.trails[name]
        return missing(value, name)
    if kind is Undefined:
        raise value.failure()
    found = special(value, name)
    if found is not None:
        return found
    if name in METHODS.get(kind, ()):
        return bound(rt, value, trail, name)
    return missing(value, name)


def special(value: Any, name: str) -> Pair | None:
    """Attributes of the values that only the engine makes."""
    if type(value) is Loop:
        if name in LOOP_ATTRIBUTES:
            return LOOP_ATTRIBUTES[name](value), None
        if name == "previtem":
            return neighbour(value.items, value.trail, value.index0 - 1, NO_PREVIOUS)
        if name == "nextitem":
            return neighbour(value.items, value.trail, value.index0 + 1, NO_NEXT)
    elif type(value) is Macro and name in MACRO_ATTRIBUTES:
        return MACRO_ATTRIBUTES[name](value), None
    return None


def neighbour(items: list[Any], trail: Trail, index: int, otherwise: Undefined) -> Pair:
    if 0 <= index < len(items):
        return items[index], (trail, index)
    return otherwise, None


def item(rt: Run, value: Any, trail: Trail, key: Any) -> Pair:
    """`value[key]`"""
    kind = type(value)
    if kind is dict:
        try:
            if key in value:
                return value[key], (trail, key)
        except TypeError:  # a key that cannot be hashed is in no dict
            pass
    elif kind is list or kind is tuple:
        if type(key) in (int, bool) and -len(value) <= key < len(value):
            return value[key], (trail, key % len(value))
    elif isinstance(value, str):
        if type(key) in (int, bool) and -len(value) <= key < len(value):
            return value[key], (PART, value, trail, key % len(value))
    elif kind is Undefined:
        raise value.failure()
    if isinstance(key, str):
        if kind is dict and key not in METHODS[dict]:
            return missing(value, key)
        return attribute(rt, value, trail, key)
    return missing(value, key)


def part(rt: Run, value: Any, trail: Trail, start: Any, stop: Any, step: Any) -> Pair:
    """`value[start:stop:step]`"""
    if type(value) is Undefined:
        raise value.failure()
    if not isinstance(value, (str, list, tuple)):
        return missing(value, slice(start, stop, step))
    try:
        picked = range(len(value))[start:stop:step]
    except (TypeError, ValueError) as error:
        raise Failure(str(error)) from None
    rt.take(len(picked))
    result = value[start:stop:step]
    if not isinstance(value, str):
        return result, (PICK, trail, picked)
    if picked.step == 1:
        return result, (PART, value, trail, picked.start)
    return result, trail


def missing(value: Any, key: Any) -> Pair:
    """The `Undefined` for a key that is not there, or a refusal when the key aims at Python itself."""
    if isinstance(key, str) and key.startswith("_") and (key.startswith("__") or type(value) is not dict):
        raise Denied(f"access to {shown(key)} is not possible: templates read fields and methods, not Python attributes")
    owner = "None" if value is None else f"{type(value).__name__} object"
    message = f"{owner!r} has no attribute {key!r}" if isinstance(key, str) else f"{owner} has no element {shown(key)}"
    return Undefined(message, lambda: known(value, key)), None


def known(value: Any, key: Any) -> str | None:
    """What the value has instead."""
    if type(value) is dict:
        return suggestion(str(key), value, f"a {described(value)} has")
    if type(value) is Namespace:
        return suggestion(str(key), value.values, "the namespace has")
    if isinstance(value, (list, tuple)):
        return f"the list has {len(value)} elements: {shown(value)}"
    if isinstance(value, str):
        return f"the value is text: {shown(value)}"
    return f"the value is {shown(value)}"


def described(value: dict[Any, Any]) -> str:
    """The word that people use for such a dict."""
    for word, key in (("message", "role"), ("call", "arguments"), ("part", "type"), ("function", "parameters")):
        if key in value:
            return word
    return "dict"


def walk(rt: Run, value: Any, trail: Trail, weight: int) -> tuple[Any, Trail]:
    """The elements of a value as a sequence, and the trail of that sequence; pays for a loop over it."""
    kind = type(value)
    if kind is dict:
        elements: Any = list(value)
        trail = (KEYS, trail, elements)
    elif kind is list or kind is tuple or kind is range:
        elements = value
    elif isinstance(value, str):
        elements = list(value)
        trail = (EACH, trail)
    elif kind is Stream:
        trail = value.trail
        elements = value.taken()
    elif kind is Undefined:
        return (), None
    elif kind is Loop:
        elements, trail = value.items[value.index0 + 1 :], (PICK, value.trail, range(value.index0 + 1, len(value.items)))
    else:
        raise Failure(f"{kind_name(value)!r} object is not iterable", f"the value is {shown(value)}")
    rt.steps -= len(elements) * weight
    if rt.steps < 0:
        rt.step(0)
    return elements, trail


def kind_name(value: Any) -> str:
    """The type's name as Python's own messages say it."""
    if isinstance(value, Function):
        return "function"
    return {"Stream": "generator", "Safe": "str"}.get(type(value).__name__, type(value).__name__)
