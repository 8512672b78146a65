"""Global functions of every template: the two of transformers, and those of jinja2 that are safe.

A function is `(rt, *arguments) -> (value, trail)`; an argument is a pair of value and trail.
`lipsum` is left out: it is not reproducible.
"""

from __future__ import annotations

import re
from datetime import datetime
from itertools import chain, repeat
from typing import Any

from turnwise.engine.provenance.container_rules import ITEMS
from turnwise.engine.provenance.trails import Trail
from turnwise.engine.runtime.access import to_sequence
from turnwise.engine.runtime.costs import charge_call
from turnwise.engine.runtime.formatting import to_text
from turnwise.engine.runtime.limits import Runtime
from turnwise.engine.runtime.measures import (
    ELEMENT_BYTES,
    charge_keys,
    list_elements,
    text_bytes,
)
from turnwise.engine.runtime.methods import require_defined, require_integer
from turnwise.engine.runtime.values import (
    Builtin,
    Cycler,
    Failure,
    Function,
    NamedPairs,
    Namespace,
    Pair,
    Raised,
    ValueFailure,
    check_defined,
)
from turnwise.errors import MAX_RAISED_LENGTH, short_repr

MAX_RANGE = 100_000  # as in jinja2's sandbox
MAX_BOUND = 1 << 62
STRFTIME_WIDTH = re.compile(r"%[_\-^0#]*\d")


def raise_exception(rt: Runtime, message: Pair) -> Pair:
    raise Raised(to_text(rt, *message)[0][:MAX_RAISED_LENGTH])


def strftime_now(rt: Runtime, form: Pair) -> Pair:
    """Format the time of the rendering, which the caller of `render` sets."""
    layout = require_defined(form)
    if not isinstance(layout, str):
        raise Failure(f"strftime_now: the format must be text, not {type(layout).__name__}")
    rt.charge_bytes(40 * text_bytes(layout))  # `%c` becomes some thirty characters
    if "\0" in layout or STRFTIME_WIDTH.search(layout):
        raise Failure(
            f"strftime_now: this format is not portable: {short_repr(layout)}",
            "use plain codes such as %Y-%m-%d",
        )
    try:
        now = rt.now if isinstance(rt.now, datetime) else rt.now()
        return now.strftime(layout), None
    except (ValueError, UnicodeError) as error:
        raise Failure(f"strftime_now: {error}") from None


def make_range(rt: Runtime, *bounds: Pair) -> Pair:
    numbers = [require_integer(bound) for bound in bounds]
    for number in numbers:
        if abs(number) >= MAX_BOUND:
            raise Failure(f"range: the bounds must be smaller than 2**62, not {short_repr(number)}")
    result = range(*numbers)
    if len(result) > MAX_RANGE:
        raise Failure(
            f"Range too big. The largest range is {MAX_RANGE} elements, this one has {len(result)}."
        )
    return result, None


def make_namespace(rt: Runtime, /, *args: Pair, **kwargs: Pair) -> Pair:
    if args:
        values, trails = _make_dict(rt, args, kwargs)
        kwargs = {to_text(rt, key, None)[0]: (item, trails[key]) for key, item in values.items()}
    return Namespace(kwargs), None


def dict_from_arguments(rt: Runtime, /, *args: Pair, **kwargs: Pair) -> Pair:
    values, trails = _make_dict(rt, args, kwargs)
    return values, (ITEMS, trails, {})


def _make_dict(
    rt: Runtime, args: tuple[Pair, ...], kwargs: NamedPairs
) -> tuple[dict[Any, Any], dict[Any, Trail]]:
    """`dict(mapping or pairs, **entries)`"""
    values: dict[Any, Any] = {}
    trails: dict[Any, Trail] = {}
    # each entry is copied, with a trail; the keys are paid for as they are found
    count = len(kwargs) + sum([len(list_elements(value)) for value, _ in args])
    rt.charge_each(count, 6, 2 * ELEMENT_BYTES)
    if len(args) > 1:
        raise Failure(f"dict expected at most 1 argument, got {len(args)}")
    for source, trail in args:
        check_defined(source)
        if isinstance(source, dict):
            entries = [(key, item, (trail, key)) for key, item in source.items()]
        else:
            found, found_trail = to_sequence(rt, source, trail)
            entries = [
                (*_require_entry(entry), ((found_trail, i), 1)) for i, entry in enumerate(found)
            ]
        for _ in range(2):  # two dicts are made
            charge_keys(rt, [entry[0] for entry in entries])
        for key, item, item_trail in entries:
            values[key], trails[key] = item, item_trail
    for key, pair in kwargs.items():
        values[key], trails[key] = pair
    return values, trails


def _require_entry(entry: Any) -> Any:
    if not isinstance(entry, (list, tuple)) or len(entry) != 2:
        raise ValueFailure("a dict is made of pairs", entry)
    return entry


def make_joiner(rt: Runtime, sep: Pair = (", ", None)) -> Pair:
    """Return a function that returns "" the first time and the separator from then on."""
    results = chain([("", None)], repeat(sep))
    return Function("joiner", lambda rt: next(results)), None


def make_cycler(rt: Runtime, *items: Pair) -> Pair:
    if not items:
        raise Failure("at least one item has to be provided")
    rt.charge_bytes(ELEMENT_BYTES * len(items))
    return Cycler(list(items)), None


TABLE: dict[str, Builtin] = {
    "cycler": charge_call(make_cycler, 100),
    "dict": charge_call(dict_from_arguments, 250),
    "joiner": charge_call(make_joiner, 200),
    "namespace": make_namespace,
    "raise_exception": raise_exception,
    "range": charge_call(make_range, 200),
    "strftime_now": charge_call(strftime_now, 1000),
}
FUNCTIONS = {name: Function(name, run) for name, run in TABLE.items()}
