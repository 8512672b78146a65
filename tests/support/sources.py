"""The project's own Python files as syntax trees, for the tests that hold its shape."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "turnwise"

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Source:
    path: Path
    module: str
    tree: ast.Module
    lines: int

    @property
    def place(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @property
    def room(self) -> str:
        """The first name below the package: `engine` for `turnwise.engine.program`."""
        parts = self.module.split(".")
        return parts[1] if len(parts) > 1 else parts[0]

    def functions(self) -> Iterator[Function]:
        return (node for node in list_nodes(self.tree) if isinstance(node, Function))


def read(path: Path) -> Source:
    text = path.read_text(encoding="utf-8")
    return Source(path, module_name(path), ast.parse(text, str(path)), len(text.splitlines()))


@cache
def list_nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """Return all nodes of a tree; each of them is walked through once."""
    return tuple(ast.walk(tree))


def module_name(path: Path) -> str:
    if not path.is_relative_to(PACKAGE.parent):
        return path.stem
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def package() -> tuple[Source, ...]:
    return tuple(read(path) for path in sorted(PACKAGE.rglob("*.py")))


@cache
def everything() -> tuple[Source, ...]:
    beside = [
        path
        for name in ("tests", "benchmarks", "examples")
        for path in sorted((ROOT / name).rglob("*.py"))
    ]
    return package() + tuple(read(path) for path in beside)
