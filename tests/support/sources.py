"""The project's own Python files as syntax trees, for the tests that hold its shape."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import cast

import readability

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "turnwise"

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Source:
    path: Path
    module: str
    lines: int

    @property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All of its nodes, the module first."""
        return readability.list_nodes(self.path)

    @property
    def tree(self) -> ast.Module:
        return cast(ast.Module, self.nodes[0])

    @property
    def place(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @property
    def room(self) -> str:
        """The first name below the package: `engine` for `turnwise.engine.program`."""
        parts = self.module.split(".")
        return parts[1] if len(parts) > 1 else parts[0]

    def functions(self) -> Iterator[Function]:
        return (node for node in self.nodes if isinstance(node, Function))


def read(path: Path) -> Source:
    return Source(path, module_name(path), len(path.read_text(encoding="utf-8").splitlines()))


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
