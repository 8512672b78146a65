"""The tests that pages name: which exist, and which are expected to fail."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@cache
def names(file: str) -> frozenset[str]:
    """The tests of a file: functions at its top level, whatever they are parametrised with."""
    path = ROOT / file
    if not path.is_file():
        return frozenset()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


@cache
def expected_to_fail(file: str) -> frozenset[str]:
    """The tests whose own decorator is `xfail`: they show that something is missing."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    marked = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    return frozenset(
        node.name
        for node in marked
        if any("mark.xfail" in ast.unparse(d) for d in node.decorator_list)
    )
