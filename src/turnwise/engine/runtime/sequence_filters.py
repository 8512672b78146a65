"""Filters over sequences: first and last, sorting, selecting, grouping.

The result consists of elements of the input; its trail says which, mostly as a `PICK` of indices. A
filter reads every element, so it pays for each before it starts.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

from turnwise.engine.provenance.container_rules import ITEMS, PAIRS, pick_trail
from turnwise.engine.provenance.text_rules import BLEND
from turnwise.engine.provenance.trails import Trail
from turnwise.engine.runtime.access import get_item, to_sequence, type_name
from turnwise.engine.runtime.formatting import charge_container
from turnwise.engine.runtime.jinja_tests import TESTS
from turnwise.engine.runtime.limits import Runtime
from turnwise.engine.runtime.methods import require_integer
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
)


def charge_elements(rt: Runtime, value: Any, trail: Trail) -> tuple[list[Any], Trail]:
    """Return a list of the elements, and pay for reading each."""
    found, found_trail = to_sequence(rt, value, trail)
    rt.charge_steps(8 * len(found))
    rt.charge_bytes(8 * len(found))
    return list(found), found_trail


# ---- sequences ----


def count_elements(rt: Runtime, value: Any, trail: Trail) -> Pair:
    try:
        return len(value), None
    except TypeError:
        raise ValueFailure(f"object of type {type_name(value)!r} has no len()", value) from None


def to_list(rt: Runtime, value: Any, trail: Trail) -> Pair:
    found, found_trail = to_sequence(rt, value, trail)
    rt.charge_steps(len(found))
    rt.charge_bytes(8 * len(found))
    return list(found), found_trail


def make_end_filter(last: bool) -> Builtin:
    def run(rt: Runtime, value: Any, trail: Trail) -> Pair:
        if last and isinstance(value, Stream):
            raise Failure("'generator' object is not reversible", "add |list before |last")
        found, found_trail = to_sequence(rt, value, trail)
        if not found:
            return Undefined(f"No {'last' if last else 'first'} item, sequence was empty."), None
        index = len(found) - 1 if last else 0
        return found[index], (found_trail, index)

    return run


def reverse_elements(rt: Runtime, value: Any, trail: Trail) -> Pair:
    if isinstance(value, str):
        rt.charge_bytes(len(value))
        return value[::-1], (BLEND, value, trail)
    found, found_trail = charge_elements(rt, value, trail)
    return Stream(found[::-1], pick_trail(found_trail, range(len(found) - 1, -1, -1))), None


def item_pairs(rt: Runtime, value: Any, trail: Trail) -> Pair:
    if isinstance(value, Undefined):
        return Stream([], None), None
    if not isinstance(value, dict):
        raise ValueFailure("Can only get item pairs from a mapping.", value)
    rt.charge_bytes(16 * len(value))
    return Stream(list(value.items()), (PAIRS, trail, list(value))), None


def _fold_case(keys: list[Any], case_sensitive: Pair) -> list[Any]:
    """Return the keys as they are compared: in lower case, unless case matters."""
    if case_sensitive[0]:
        return keys
    return [key.lower() if isinstance(key, str) else key for key in keys]


def sort_dict(
    rt: Runtime,
    value: Any,
    trail: Trail,
    case_sensitive: Pair = FALSE,
    by: Pair = ("key", None),
    reverse: Pair = FALSE,
) -> Pair:
    if isinstance(value, Undefined):
        raise value.failure()
    if not isinstance(value, dict):
        raise ValueFailure(
            f"{type_name(value)!r} object has no attribute 'items'",
            value,
        )
    if by[0] not in ("key", "value"):
        raise Failure('You can only sort by either "key" or "value"')
    column = 0 if by[0] == "key" else 1
    keys = _fold_case([pair[column] for pair in value.items()], case_sensitive)
    order = _sort_indices(rt, keys, reverse)
    pairs = list(value.items())
    return [pairs[i] for i in order], pick_trail((PAIRS, trail, list(value)), order)


def _sort_indices(rt: Runtime, keys: list[Any], reverse: Pair = FALSE) -> list[int]:
    """Return the indices of the keys in sorted order."""
    is_reversed = bool(require_integer(reverse))
    rt.charge_steps(len(keys) * (2 + len(keys).bit_length()))
    _charge_containers(rt, keys)
    try:
        return sorted(range(len(keys)), key=keys.__getitem__, reverse=is_reversed)
    except TypeError as error:
        for key in keys:
            if type(key) is Undefined:
                raise key.failure() from None
        raise Failure(str(error)) from None


def _charge_containers(rt: Runtime, keys: list[Any]) -> None:
    """Pay for comparing or hashing containers.

    Each is read as a whole, as often as it is shared.
    """
    for key in keys:
        charge_container(rt, key)


def sort_elements(
    rt: Runtime,
    value: Any,
    trail: Trail,
    reverse: Pair = FALSE,
    case_sensitive: Pair = FALSE,
    attribute: Pair = NONE,
) -> Pair:
    found, found_trail = charge_elements(rt, value, trail)
    names = attribute[0].split(",", 16) if isinstance(attribute[0], str) else [attribute[0]]
    if len(names) > 16:
        raise Failure("sort: too many attributes")
    keys = _fold_case(found, case_sensitive)
    if names != [None]:
        rt.charge_steps(8 * len(found) * len(names))
        keys = [
            _fold_case([get_by_path(rt, entry, None, name)[0] for name in names], case_sensitive)
            for entry in found
        ]
    order = _sort_indices(rt, keys, reverse)
    return [found[i] for i in order], pick_trail(found_trail, order)


def drop_duplicates(
    rt: Runtime, value: Any, trail: Trail, case_sensitive: Pair = FALSE, attribute: Pair = NONE
) -> Pair:
    found, found_trail = charge_elements(rt, value, trail)
    keys = _fold_case(_get_keys(rt, found, attribute), case_sensitive)
    _charge_containers(rt, keys)
    first_indices: dict[Any, int] = {}
    for index, key in enumerate(keys):
        first_indices.setdefault(key, index)
    order = list(first_indices.values())
    return Stream([found[i] for i in order], pick_trail(found_trail, order)), None


def make_extreme_filter(name: str) -> Builtin:
    def run(
        rt: Runtime, value: Any, trail: Trail, case_sensitive: Pair = FALSE, attribute: Pair = NONE
    ) -> Pair:
        found, found_trail = charge_elements(rt, value, trail)
        if not found:
            return Undefined("No aggregated item, sequence was empty."), None
        keys = _fold_case(_get_keys(rt, found, attribute), case_sensitive)
        best = _sort_indices(rt, keys)[0]
        if name == "max":  # the last in order need not be the first of equals
            best = max(range(len(keys)), key=keys.__getitem__)
        return found[best], (found_trail, best)

    return run


def sum_elements(
    rt: Runtime, value: Any, trail: Trail, attribute: Pair = NONE, start: Pair = (0, None)
) -> Pair:
    found, found_trail = charge_elements(rt, value, trail)
    total, total_trail = start
    for number, entry in enumerate(found):
        part = get_by_path(rt, entry, (found_trail, number), attribute[0])
        if isinstance(total, str):
            raise Failure("sum() can't sum strings", "use |join")
        total, total_trail = add_pair(rt, total, total_trail, *part)
    return total, total_trail


def split_into_batches(
    rt: Runtime, value: Any, trail: Trail, linecount: Pair, fill_with: Pair = NONE
) -> Pair:
    found, found_trail = charge_elements(rt, value, trail)
    size = require_integer(linecount)
    rt.charge_bytes(8 * max(size, 0))
    rows: list[list[Any]] = []
    trails: list[list[Trail]] = []
    row: list[Any] = []
    row_trails: list[Trail] = []
    for number, entry in enumerate(found):
        if len(row) == size:
            rows.append(row)
            trails.append(row_trails)
            row, row_trails = [], []
        row.append(entry)
        row_trails.append((found_trail, number))
    if row:
        missing = size - len(row) if fill_with[0] is not None else 0
        rows.append(row + [fill_with[0]] * missing)
        trails.append(row_trails + [fill_with[1]] * missing)
    return Stream(rows, (ITEMS, [(ITEMS, row_trails) for row_trails in trails])), None


def split_into_slices(
    rt: Runtime, value: Any, trail: Trail, slices: Pair, fill_with: Pair = NONE
) -> Pair:
    found, found_trail = charge_elements(rt, value, trail)
    count = require_integer(slices)
    if count < 1:
        raise Failure("slice: the number of slices is at least 1")
    rt.charge_bytes(64 * count)
    each, extra = divmod(len(found), count)
    rows, trails, at = [], [], 0
    for number in range(count):
        stop = at + each + (number < extra)
        row, row_trails = found[at:stop], [(found_trail, index) for index in range(at, stop)]
        if fill_with[0] is not None and number >= extra:
            row, row_trails = [*row, fill_with[0]], [*row_trails, fill_with[1]]
        rows.append(row)
        trails.append((ITEMS, row_trails))
        at = stop
    return Stream(rows, (ITEMS, trails)), None


def group_elements(
    rt: Runtime,
    value: Any,
    trail: Trail,
    attribute: Pair,
    default: Pair = NONE,
    case_sensitive: Pair = FALSE,
) -> Pair:
    found, found_trail = charge_elements(rt, value, trail)
    keys = _get_keys(rt, found, attribute, default)
    compared = _fold_case(keys, case_sensitive)
    order = _sort_indices(rt, compared)
    groups, trails = [], []
    for _, indices in groupby(order, key=compared.__getitem__):
        members = list(indices)
        first = members[0]
        groups.append((keys[first], [found[i] for i in members]))
        _, key_trail = get_by_path(rt, found[first], (found_trail, first), attribute[0], default)
        trails.append((ITEMS, (key_trail, pick_trail(found_trail, members))))
    return groups, (ITEMS, trails)


# ---- choosing elements ----


def get_by_path(rt: Runtime, value: Any, trail: Trail, path: Any, default: Pair = NONE) -> Pair:
    """Return the value at the `attribute=` of many filters.

    `a.b.0`, an index, or None for the value itself.
    """
    if path is None:
        return value, trail
    steps = path.split(".") if isinstance(path, str) else [path]
    for step in steps:
        key = int(step) if isinstance(step, str) and step.isdigit() else step
        value, trail = get_item(rt, value, trail, key)
        if type(value) is Undefined and default[0] is not None:
            return default
    return value, trail


def _get_keys(rt: Runtime, elements: list[Any], attribute: Pair, default: Pair = NONE) -> list[Any]:
    """Return the value of each element that a filter compares."""
    return [get_by_path(rt, element, None, attribute[0], default)[0] for element in elements]


def make_selection(keep: bool, by_attribute: bool) -> Builtin:
    def run(rt: Runtime, value: Any, trail: Trail, *args: Pair, **kwargs: Pair) -> Pair:
        if by_attribute and not args:
            raise Failure("Missing parameter for attribute name")
        found, found_trail = to_sequence(rt, value or (), trail)
        rt.charge_steps(8 * len(found))
        path, rest = (args[0][0], args[1:]) if by_attribute else (None, args)
        test = find_by_name(TESTS, rest[0][0], "test") if rest else None
        arguments = [pair[0] for pair in rest[1:]]
        order = []
        for index, entry in enumerate(found):
            if type(entry) is dict and type(path) is str and path in entry:
                tested = entry[path]  # the common case
            else:
                tested = get_by_path(rt, entry, None, path)[0]
            passes = tested if test is None else test(rt, tested, *arguments)
            if bool(passes) is keep:
                order.append(index)
        rt.charge_bytes(8 * len(order))
        return Stream([found[i] for i in order], pick_trail(found_trail, order)), None

    return run


def find_by_name(table: dict[str, Any], name: Any, what: str) -> Any:
    if not isinstance(name, str) or name not in table:
        raise Failure(f"No {what} named {name!r}.")
    return table[name]
