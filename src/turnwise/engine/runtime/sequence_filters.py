"""Filters over sequences: first and last, sorting, selecting, grouping.

The result consists of elements of the input; its trail says which, mostly as a `PICK` of indices. A
filter reads every element, so it pays for each before it starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from turnwise.engine.provenance.container_rules import ITEMS, PAIRS, pick_trail
from turnwise.engine.provenance.text_rules import BLEND
from turnwise.engine.provenance.trails import Trail
from turnwise.engine.runtime.access import get_item, to_sequence, type_name
from turnwise.engine.runtime.costs import template_filter
from turnwise.engine.runtime.jinja_tests import TESTS
from turnwise.engine.runtime.limits import Runtime
from turnwise.engine.runtime.measures import (
    ELEMENT_BYTES,
    ITEM_BYTES,
    PART_BYTES,
    charge_keys,
    charge_value,
)
from turnwise.engine.runtime.methods import charge_references, require_integer
from turnwise.engine.runtime.operations import add_pair
from turnwise.engine.runtime.values import (
    FALSE,
    NONE,
    Builtin,
    Failure,
    Pair,
    Stream,
    Undefined,
    ValueFailure,
    View,
    check_defined,
)
from turnwise.errors import short_repr

PATH_STEPS = 12  # of looking up one key of an `attribute=`
# Steps and bytes for each element that is
LISTED = (8, ITEM_BYTES)  # put in a list, and looked at
PASSED = (10, ELEMENT_BYTES)  # passed on with a trail of its own
COMPARED = (14, ELEMENT_BYTES)  # listed, and its key looked up and folded; sorting is paid apart


# ---- sequences ----


@template_filter("count", "length", cost=0)
def count_elements(rt: Runtime, value: Any, trail: Trail) -> Pair:
    try:
        return len(value), None
    except TypeError:
        raise ValueFailure(f"object of type {type_name(value)!r} has no len()", value) from None


@template_filter("list", cost=100)
def to_list(rt: Runtime, value: Any, trail: Trail) -> Pair:
    charge_references(rt, value)
    found, found_trail = to_sequence(rt, value, trail)
    return list(found), found_trail


def make_end_filter(name: str) -> Builtin:
    is_last = name == "last"

    def run(rt: Runtime, value: Any, trail: Trail) -> Pair:
        if is_last and isinstance(value, Stream):
            raise Failure("'generator' object is not reversible", "add |list before |last")
        found, found_trail = to_sequence(rt, value, trail)
        if not found:
            return Undefined(f"No {name} item, sequence was empty."), None
        index = len(found) - 1 if is_last else 0
        return found[index], (found_trail, index)

    return run


for _name in ("first", "last"):
    template_filter(_name, cost=0)(make_end_filter(_name))


@template_filter("reverse", cost=200)
def reverse_elements(rt: Runtime, value: Any, trail: Trail) -> Pair:
    if isinstance(value, str):
        charge_references(rt, value)
        return value[::-1], (BLEND, value, trail)
    found, found_trail = to_list(rt, value, trail)
    return Stream(found[::-1], pick_trail(found_trail, range(len(found) - 1, -1, -1))), None


@template_filter("items", cost=100, per_element=(0, ELEMENT_BYTES))
def item_pairs(rt: Runtime, value: Any, trail: Trail) -> Pair:
    if isinstance(value, Undefined):
        return Stream([], None), None
    if not isinstance(value, dict):
        raise ValueFailure("Can only get item pairs from a mapping.", value)
    return Stream(list(value.items()), (PAIRS, trail, list(value))), None


def _fold_case(rt: Runtime, keys: list[Any], case_sensitive: Pair) -> list[Any]:
    """Return the keys as they are compared: in lower case, unless case matters."""
    if case_sensitive[0]:
        return keys
    texts = [key for key in keys if isinstance(key, str)]
    each = 2 if all(map(str.isascii, texts)) else 26
    rt.charge_bytes(each * sum(map(len, texts)))
    return [key.lower() if isinstance(key, str) else key for key in keys]


@template_filter("dictsort", cost=750, per_element=COMPARED)
def sort_dict(
    rt: Runtime,
    value: Any,
    trail: Trail,
    case_sensitive: Pair = FALSE,
    by: Pair = ("key", None),
    reverse: Pair = FALSE,
) -> Pair:
    check_defined(value)
    if not isinstance(value, dict):
        raise ValueFailure(f"{type_name(value)!r} object has no attribute 'items'", value)
    if by[0] not in ("key", "value"):
        raise Failure('You can only sort by either "key" or "value"')
    pairs = list(value.items())
    given = list(value if by[0] == "key" else value.values())
    order = _sort_indices(rt, _fold_case(rt, given, case_sensitive), reverse)
    return [pairs[i] for i in order], pick_trail((PAIRS, trail, list(value)), order)


def _sort_indices(rt: Runtime, keys: list[Any], reverse: Pair = FALSE) -> list[int]:
    is_reversed = bool(require_integer(reverse))
    # each is read about log n times, a text sixteen characters at once
    count = len(keys)
    rounds = count.bit_length()
    rt.charge_steps(count * (2 + rounds))
    texts = sum([len(key) for key in keys if isinstance(key, str)])
    rt.charge_bytes(texts * rounds >> 3)
    for key in keys:
        if isinstance(key, (list, tuple, dict, View)):
            rt.charge_bytes(rounds * charge_value(rt, key))
    try:
        return sorted(range(count), key=keys.__getitem__, reverse=is_reversed)
    except TypeError as error:
        for key in keys:
            for part in key if type(key) is list else (key,):
                check_defined(part)
        raise Failure(str(error)) from None


@template_filter("sort", cost=500, per_element=COMPARED)
def sort_elements(
    rt: Runtime,
    value: Any,
    trail: Trail,
    reverse: Pair = FALSE,
    case_sensitive: Pair = FALSE,
    attribute: Pair = NONE,
) -> Pair:
    found, found_trail = to_sequence(rt, value, trail)
    names = attribute[0].split(",", 16) if isinstance(attribute[0], str) else [attribute[0]]
    if len(names) > 16:
        raise Failure("sort: too many attributes")
    # Lists of one element, as in jinja2: those with equal elements are equal, also where `<` is not defined.
    keys = [[key] for key in _fold_case(rt, found, case_sensitive)]
    if names != [None]:
        paths = [read_path(rt, name, len(found)) for name in names]
        keys = [
            _fold_case(
                rt, [get_by_path(rt, entry, None, path)[0] for path in paths], case_sensitive
            )
            for entry in found
        ]
    order = _sort_indices(rt, keys, reverse)
    return [found[i] for i in order], pick_trail(found_trail, order)


@template_filter("unique", cost=250, per_element=COMPARED)
def drop_duplicates(
    rt: Runtime, value: Any, trail: Trail, case_sensitive: Pair = FALSE, attribute: Pair = NONE
) -> Pair:
    found, found_trail = to_sequence(rt, value, trail)
    keys = _fold_case(rt, _get_keys(rt, found, attribute), case_sensitive)
    charge_keys(rt, keys)
    first_indices: dict[Any, int] = {}
    for index, key in enumerate(keys):
        first_indices.setdefault(key, index)
    order = list(first_indices.values())
    return Stream([found[i] for i in order], pick_trail(found_trail, order)), None


def make_extreme_filter(name: str) -> Builtin:
    def run(
        rt: Runtime, value: Any, trail: Trail, case_sensitive: Pair = FALSE, attribute: Pair = NONE
    ) -> Pair:
        found, found_trail = to_sequence(rt, value, trail)
        if not found:
            return Undefined("No aggregated item, sequence was empty."), None
        keys = _fold_case(rt, _get_keys(rt, found, attribute), case_sensitive)
        best = _sort_indices(rt, keys)[0]
        if name == "max":  # the last in order need not be the first of equals
            best = max(range(len(keys)), key=keys.__getitem__)
        return found[best], (found_trail, best)

    return run


for _name in ("max", "min"):
    template_filter(_name, cost=500, per_element=COMPARED)(make_extreme_filter(_name))


@template_filter("sum", cost=250, per_element=PASSED)
def sum_elements(
    rt: Runtime, value: Any, trail: Trail, attribute: Pair = NONE, start: Pair = (0, None)
) -> Pair:
    found, found_trail = to_sequence(rt, value, trail)
    total, total_trail = start
    for part in read_fields(rt, found, found_trail, attribute):
        if isinstance(total, str):
            raise Failure("sum() can't sum strings", "use |join")
        total, total_trail = add_pair(rt, total, total_trail, *part)
    return total, total_trail


@template_filter("batch", cost=500, per_element=PASSED)
def split_into_batches(
    rt: Runtime, value: Any, trail: Trail, linecount: Pair, fill_with: Pair = NONE
) -> Pair:
    found, found_trail = to_sequence(rt, value, trail)
    size, count = require_integer(linecount), len(found)
    row_count = count // size + 1 if size > 0 else count
    rt.charge_bytes(ITEM_BYTES * max(size, 0) + 3 * ELEMENT_BYTES * row_count)
    full = range(size, count, size) if size > 0 else [0] * (size == 0)
    ends = [*((end, 0) for end in full), (count, -count % max(size, 1))]
    return _cut_rows(found, found_trail, ends if found else [], fill_with)


@template_filter("slice", cost=500, per_element=PASSED)
def split_into_slices(
    rt: Runtime, value: Any, trail: Trail, slices: Pair, fill_with: Pair = NONE
) -> Pair:
    found, found_trail = to_sequence(rt, value, trail)
    count = require_integer(slices)
    if count < 1:
        raise Failure("slice: the number of slices is at least 1")
    rt.charge_each(count, 10, 4 * ELEMENT_BYTES)
    each, extra = divmod(len(found), count)
    numbers = range(1, count + 1)
    ends = [(number * each + min(number, extra), int(number > extra)) for number in numbers]
    return _cut_rows(found, found_trail, ends, fill_with)


def _cut_rows(found: Any, trail: Trail, ends: list[tuple[int, int]], filler: Pair) -> Pair:
    """Return rows that end at these places, each with so many fillers."""
    rows, trails, start = [], [], 0
    for end, missing in ends:
        fillers = missing if filler[0] is not None else 0
        rows.append([*found[start:end], *[filler[0]] * fillers])
        places = [(trail, index) for index in range(start, end)]
        trails.append((ITEMS, places + [filler[1]] * fillers))
        start = end
    return Stream(rows, (ITEMS, trails)), None


@template_filter("groupby", cost=750, per_element=COMPARED)
def group_elements(
    rt: Runtime,
    value: Any,
    trail: Trail,
    attribute: Pair,
    default: Pair = NONE,
    case_sensitive: Pair = FALSE,
) -> Pair:
    found, found_trail = to_sequence(rt, value, trail)
    keys = _get_keys(rt, found, attribute, default)
    path = read_path(rt, attribute[0], len(found))
    compared = _fold_case(rt, keys, case_sensitive)
    order = _sort_indices(rt, compared)
    groups, trails = [], []
    for _, indices in groupby(order, key=compared.__getitem__):
        members = list(indices)
        first = members[0]
        groups.append((keys[first], [found[i] for i in members]))
        _, key_trail = get_by_path(rt, found[first], (found_trail, first), path, default)
        trails.append((ITEMS, (key_trail, pick_trail(found_trail, members))))
    return groups, (ITEMS, trails)


# ---- choosing elements ----


def read_path(rt: Runtime, path: Any, count: int) -> list[Any]:
    """Return the keys of an `attribute=`, and pay for looking them up in `count` elements.

    A path is `a.b.0`, an index, or None for the element itself.
    """
    if path is None:
        return []
    if not isinstance(path, str):
        rt.charge_steps(PATH_STEPS * count)
        return [path]
    keys = path.count(".") + 1
    rt.charge_bytes(len(path) + PART_BYTES * keys)
    rt.charge_steps(PATH_STEPS * keys * (count + 1))
    return [int(key) if key.isdigit() else key for key in path.split(".")]


def get_by_path(
    rt: Runtime, value: Any, trail: Trail, path: list[Any], default: Pair = NONE
) -> Pair:
    """Return the value at the path of an element."""
    for key in path:
        value, trail = get_item(rt, value, trail, key)
        if type(value) is Undefined and default[0] is not None:
            return default
    return value, trail


def read_fields(
    rt: Runtime, elements: Sequence[Any], trail: Trail, attribute: Pair, default: Pair = NONE
) -> Iterator[Pair]:
    """Yield the value at the path of each element."""
    path = read_path(rt, attribute[0], len(elements))
    for number, element in enumerate(elements):
        yield get_by_path(rt, element, (trail, number), path, default)


def _get_keys(rt: Runtime, elements: list[Any], attribute: Pair, default: Pair = NONE) -> list[Any]:
    """Return the value of each element that a filter compares."""
    if attribute[0] is None:
        return elements
    return [value for value, _ in read_fields(rt, elements, None, attribute, default)]


def make_selection(keep: bool, by_attribute: bool) -> Builtin:
    def run(rt: Runtime, value: Any, trail: Trail, *args: Pair, **kwargs: Pair) -> Pair:
        if by_attribute and not args:
            raise Failure("Missing parameter for attribute name")
        found, found_trail = to_sequence(rt, value or (), trail)
        name, rest = (args[0][0], args[1:]) if by_attribute else (None, args)
        test = find_by_name(TESTS, rest[0][0], "test") if rest else None
        arguments = [pair[0] for pair in rest[1:]]
        order = [
            index
            for index, tested in enumerate(_get_fields(rt, value, found, name))
            if bool(tested if test is None else test(rt, tested, *arguments)) is keep
        ]
        return Stream([found[i] for i in order], pick_trail(found_trail, order)), None

    return run


for _name, _keep in (("select", True), ("reject", False)):
    template_filter(_name, cost=250, per_element=LISTED)(make_selection(_keep, False))
    template_filter(f"{_name}attr", cost=250, per_element=LISTED)(make_selection(_keep, True))


def _get_fields(rt: Runtime, value: Any, elements: Sequence[Any], name: Any) -> Sequence[Any]:
    """Return the value of each element that a selection tests; without a name it is the element."""
    if name is None or not elements:
        return elements
    if isinstance(value, str):
        # A template that expects parts was given text. All characters lack the same field.
        field = get_by_path(rt, elements[0], None, read_path(rt, name, 1))[0]
        if type(field) is Undefined:
            return [field] * len(elements)
    path = read_path(rt, name, len(elements))
    return [
        element[name]  # the common case
        if type(element) is dict and type(name) is str and name in element
        else get_by_path(rt, element, None, path)[0]
        for element in elements
    ]


def find_by_name(table: dict[str, Any], name: Any, what: str) -> Any:
    if not isinstance(name, str) or name not in table:
        raise Failure(f"No {what} named {short_repr(name)}.")
    return table[name]
