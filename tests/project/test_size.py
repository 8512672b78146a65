"""The package stays readable: sizes, names and density, measured by `scripts/readability.py`.

The bounds are those of the code bases we learnt from. A function that must branch more has a row in BRANCHY with the
reason, and the row goes when the reason does.
"""

from __future__ import annotations

import statistics
from collections import Counter

import pytest
import readability
from readability import NOT_COUNTED

from sources import PACKAGE, Function, everything, package

pytestmark = pytest.mark.once

MAX_FILE_LINES = 600
MAX_TEST_FILE_LINES = 750
MAX_FUNCTION_LINES_P90 = 40
MAX_PARTICIPLE_PERCENT = 1.0
MAX_METHODS = 25  # of a class, with those it inherits
MAX_NODES_PER_LINE = 6.0
# Syntax nodes of each room: only ever lowered. A feature that needs more pays with a deletion.
MIN_USED = 0.97  # of a budget
BUDGETS = {
    "errors": 1_504,
    "immutable": 74,
    "languages": 747,
    "sized_cache": 371,
    "processes": 391,
    "schema": 523,
    "token_ids": 165,
    "local_files": 465,
    "hub_cache": 303,
    "notebook": 394,
    "messages": 4_304,
    "shapes": 14_334,
    "engine": 62_446,
    "analysis": 23_397,
    "dialects": 22_173,
    "tokens": 33_190,
    "replies": 61_337,
    "normalisation": 11_109,
    "conversion": 5_217,
    "training": 1_963,
    "batch": 1_968,
    "template": 1_751,
    "registry": 11_765,
    "data": 24_919,
    "evidence": 26_009,
    "isolation": 2_782,
    "oracles": 2_378,
    "repair": 12_873,
    "publishing": 2_731,
    "turnwise": 321,
    "compat": 15_042,
    "integrations": 10_263,
    "serve": 22_496,
    "cli": 15_551,
    "__main__": 14,
}

BRANCHY: dict[str, str] = {}
"""`file.py function` -> why it is easier to read in one piece."""


def test_files_are_short() -> None:
    long = [
        f"{source.place}: {source.lines} lines"
        for source in everything()
        if source.lines
        > (MAX_FILE_LINES if source.place.startswith("src") else MAX_TEST_FILE_LINES)
    ]
    assert not long, "\n".join(long)


def test_functions_are_short() -> None:
    sizes = sorted(
        (length(function), f"{source.place}:{function.lineno}")
        for source in package()
        for function in source.functions()
    )
    p90 = statistics.quantiles([size for size, _ in sizes], n=10, method="inclusive")[-1]
    longest = "\n".join(f"{place}: {size} lines" for size, place in sizes[-10:])
    assert p90 <= MAX_FUNCTION_LINES_P90, f"p90 is {p90}\n{longest}"


def test_functions_branch_little() -> None:
    branchy = {}
    for place, count in readability.measure(PACKAGE).branchy.items():
        path, _, name = place.partition(" ")
        branchy[f"{path.rpartition('/')[2].partition(':')[0]} {name}"] = count
    new = [f"{name}: {count} branches" for name, count in branchy.items() if name not in BRANCHY]
    assert not new, "\n".join(new)
    assert set(BRANCHY) <= set(branchy), f"no longer needed: {sorted(set(BRANCHY) - set(branchy))}"


def test_functions_are_named_by_verbs() -> None:
    found = readability.measure(PACKAGE)
    assert found.participle_percent < MAX_PARTICIPLE_PERCENT, "\n".join(found.participles)


def test_a_type_name_exists_once() -> None:
    found = readability.measure(PACKAGE)
    assert not found.duplicate_types, found.duplicate_types


def test_classes_are_small() -> None:
    sizes = readability.measure(PACKAGE).class_sizes()
    large = {name: count for name, count in sizes.items() if count > MAX_METHODS}
    assert not large, large


def test_lines_are_plain() -> None:
    found = readability.measure(PACKAGE)
    assert found.nodes_per_line <= MAX_NODES_PER_LINE, found.nodes_per_line


def test_rooms_keep_their_budgets() -> None:
    """A budget that is not needed any more is lowered, so that what was deleted does not grow back."""
    sizes = Counter[str]()
    for source in package():
        counted = [node for node in source.nodes if not isinstance(node, NOT_COUNTED)]
        sizes[source.room] += len(counted)
    over = [
        f"{room}: {size:,} syntax nodes, {BUDGETS.get(room, 0):,} allowed; delete something in this room"
        for room, size in sizes.items()
        if size > BUDGETS.get(room, 0)
    ]
    assert not over, "\n".join(over)
    slack = {room: sizes[room] for room, most in BUDGETS.items() if sizes[room] < MIN_USED * most}
    assert not slack, f"lower these budgets: {slack}"


def length(function: Function) -> int:
    first = min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])
    assert function.end_lineno is not None
    return function.end_lineno - first + 1


def test_participles_are_recognised() -> None:
    assert all(map(readability.is_participle, ("kept", "said", "_checked", "parsed")))
    assert not any(map(readability.is_participle, ("feed", "parse", "is_kept", "read", "red")))
