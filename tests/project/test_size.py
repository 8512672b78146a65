"""Files and functions stay small.

The numbers are those of the codebases we learnt from; what separates them from the ones that are hard to change is
the length of the longer functions. A function that must branch more has a row in BRANCHY with the reason, and the
row goes when the reason does.
"""

from __future__ import annotations

import ast
import statistics
from collections.abc import Iterator

import sources
from sources import Function, Source

FILE_LINES = 600
FUNCTION_LINES_P90 = 40
BRANCHES = 15

BRANCHY: dict[str, str] = {}
"""`turnwise.module.function` -> why a table would be worse."""

BRANCH = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.match_case)


def test_files_are_short() -> None:
    long = [
        f"{source.place}: {source.lines} lines"
        for source in sources.everything()
        if source.lines > FILE_LINES
    ]
    assert not long, "\n".join(long)


def test_functions_are_short() -> None:
    sizes = sorted(
        (length(function), f"{source.place}:{function.lineno}") for source, function in functions()
    )
    lengths = [size for size, _ in sizes]
    p90 = statistics.quantiles(lengths, n=10, method="inclusive")[-1] if len(lengths) > 1 else 0
    longest = "\n".join(f"{place}: {size} lines" for size, place in sizes[-10:])
    assert p90 <= FUNCTION_LINES_P90, f"p90 is {p90}\n{longest}"


def test_functions_branch_little() -> None:
    found = {
        f"{source.module}.{function.name}": branches(function) for source, function in functions()
    }
    branchy = {name: count for name, count in found.items() if count > BRANCHES}
    new = [f"{name}: {count} branches" for name, count in branchy.items() if name not in BRANCHY]
    assert not new, "\n".join(new)
    assert set(BRANCHY) <= set(branchy), f"no longer needed: {sorted(set(BRANCHY) - set(branchy))}"


def functions() -> Iterator[tuple[Source, Function]]:
    return ((source, function) for source in sources.package() for function in source.functions())


def length(function: Function) -> int:
    first = min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])
    assert function.end_lineno is not None
    return function.end_lineno - first + 1


def branches(function: Function) -> int:
    """Places where the path forks; a condition of a comprehension is one. A function inside counts for itself."""
    count, open_nodes = 0, list(ast.iter_child_nodes(function))
    while open_nodes:
        node = open_nodes.pop()
        if isinstance(node, Function):
            continue
        count += isinstance(node, BRANCH)
        count += len(node.ifs) if isinstance(node, ast.comprehension) else 0
        open_nodes.extend(ast.iter_child_nodes(node))
    return count
