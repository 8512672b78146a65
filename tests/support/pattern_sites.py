"""Every regular expression of the package: where it is written, and how it is used.

A pattern that is a constant is evaluated where it is written. One that is built while the package runs is recorded by
`record_patterns`, so a test can ask whether it has seen every place in the source that makes one.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from typing import Any

from sources import PACKAGE, package

METHODS = ("search", "match", "fullmatch", "finditer", "findall", "sub", "subn", "split")
SCANS = {
    "finditer",
    "findall",
    "sub",
    "subn",
    "split",
}  # one after the other, to the end of the text


@dataclass(frozen=True)
class Site:
    """A call of `re` in the source.

    Attributes:
        path: the file.
        line, last_line: where the call stands.
        pattern: the pattern, None if it is made at run time.
        methods: how it is applied.
    """

    path: str
    line: int
    last_line: int
    pattern: re.Pattern[Any] | None
    methods: frozenset[str]

    @property
    def place(self) -> str:
        return f"{self.path.removeprefix(str(PACKAGE))}:{self.line}"


@cache
def find_sites() -> list[Site]:
    """Find every call of `re` that takes a pattern."""
    methods = _find_methods()
    sites = []
    for source in package():
        calls = [node for node in source.nodes if _is_call_of_re(node)]
        if not calls:
            continue
        parents = {child: node for node in source.nodes for child in ast.iter_child_nodes(node)}
        for node in calls:
            used = _find_use(node, parents, methods, source.module)
            path = str(source.path)
            pattern = _evaluate(node, path, source.module)
            sites.append(Site(path, node.lineno, node.end_lineno or 0, pattern, frozenset(used)))
    return sites


def _is_call_of_re(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "re"
        and node.func.attr in ("compile", *METHODS)
    )


def _find_use(
    node: Any, parents: dict[Any, Any], methods: dict[str, set[str]], module: str
) -> set[str]:
    """Return the methods that are called on a pattern; all of them where that is not plain."""
    if node.func.attr != "compile":
        return {node.func.attr}
    parent = parents[node]
    if isinstance(parent, ast.Attribute):
        return {parent.attr}
    targets: list[Any] = []
    if isinstance(parent, ast.Assign):
        targets = parent.targets
    elif isinstance(parent, ast.AnnAssign):
        targets = [parent.target]
    names = [getattr(target, "id", f".{getattr(target, 'attr', '')}") for target in targets]
    names = [name if name.startswith(".") else f"{module}.{name}" for name in names]
    if isinstance(parent, ast.keyword):
        names = [f".{parent.arg}"]
    if not names:  # in a table, over which a loop runs
        names = [f"{module}."]
    return set().union(*(methods.get(name, set()) for name in names)) & set(METHODS) or set(METHODS)


@cache
def _find_methods() -> dict[str, set[str]]:
    """Return which methods are called on names: `module.NAME`, `.attribute`, and `module.` for variables of loops.

    All of them are on a name that is also passed on.
    """
    found: dict[str, set[str]] = defaultdict(set)
    for source in package():
        owners = {}  # of names that are imported
        read, called = [], set()
        for node in source.nodes:
            if isinstance(node, ast.ImportFrom):
                owners.update({alias.asname or alias.name: node.module for alias in node.names})
            elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
                read.append(node)
        for node in read:
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
                called.add(node.value)
                found[_name_of(node.value, owners, source.module)].add(node.attr)
                name = getattr(node.value, "id", "")
                if name.islower() and name != "re" and node.attr != "split":  # which texts have too
                    found[f"{source.module}."].add(node.attr)
        for node in read:
            if node not in called:
                found[_name_of(node, owners, source.module)].update(METHODS)
    return found


def _name_of(node: Any, owners: dict[str, Any], module: str) -> str:
    if isinstance(node, ast.Attribute):
        return f".{node.attr}"
    return f"{owners.get(node.id, module)}.{node.id}"


class _Literals(ast.NodeTransformer):
    """Puts literals in place of `re.escape(...)` and `map(re.escape, ...)`, whose values exist at run time only."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "escape":
            return ast.Constant(re.escape("<|ab|>"))
        if getattr(node.func, "id", "") == "map" and ast.unparse(node.args[0]) == "re.escape":
            texts = map(re.escape, ("ab", "abab", "<|ab|>", "<"))
            return ast.List([ast.Constant(text) for text in texts], ast.Load())
        return node


def _evaluate(node: Any, path: str, module: str) -> re.Pattern[Any] | None:
    """Return the pattern of a call, if its module's names and some literals are enough to make it."""
    flags = [word.value for word in node.keywords if word.arg == "flags"]
    flags += node.args[1:2] if node.func.attr == "compile" else []
    call = ast.Call(ast.parse("re.compile", mode="eval").body, [node.args[0], *flags], [])
    try:
        names = {**vars(importlib.import_module(module)), "re": re}
    except ImportError:
        return None  # of a library that is not installed here
    for tree in (call, _Literals().visit(deepcopy(call))):
        whole = ast.fix_missing_locations(ast.Expression(tree))
        with suppress(NameError, TypeError):
            return eval(compile(whole, path, "eval"), names)  # type: ignore[no-any-return]
    return None


@contextmanager
def record_patterns() -> Iterator[dict[tuple[str, int], set[re.Pattern[Any]]]]:
    """Record the patterns that the package makes, by file and line of the call."""
    recorded: dict[tuple[str, int], set[re.Pattern[Any]]] = defaultdict(set)
    original = re._compile  # type: ignore[attr-defined]

    def record(pattern: Any, flags: int) -> re.Pattern[Any]:
        made: re.Pattern[Any] = original(pattern, flags)
        frame = sys._getframe(2)
        if frame.f_code.co_filename.startswith(str(PACKAGE)):
            recorded[frame.f_code.co_filename, frame.f_lineno].add(made)
        return made

    re._compile = record  # type: ignore[attr-defined]
    try:
        yield recorded
    finally:
        re._compile = original  # type: ignore[attr-defined]
