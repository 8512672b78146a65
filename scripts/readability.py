"""Measure how the package reads: names, density, branches and class sizes.

    python scripts/readability.py [PATH] [--list]

PATH is a file or folder, `src` if not given; `--list` names the offenders behind each figure. The bounds are held by
`tests/project/test_size.py`. What each figure counts:

* participles: functions called by one past participle (`kept`, `said`), in percent of all functions
* duplicate types: class names that are defined more than once
* methods: of the largest class, with what it inherits from classes of the package
* branches: functions with more than 15 forks (`if`, loops, handlers, ternaries, comprehensions, `and`/`or`)
* nodes per line: syntax nodes divided by the lines that hold code; operators and load/store contexts are not counted
"""

from __future__ import annotations

import argparse
import ast
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

MAX_BRANCHES = 15
IRREGULAR = frozenset(
    [
        "said",
        "kept",
        "held",
        "taken",
        "made",
        "asked",
        "written",
        "listed",
        "checked",
        "named",
        "given",
        "found",
        "begun",
        "sent",
        "known",
        "shown",
        "told",
        "met",
        "drawn",
        "bound",
        "left",
        "lost",
        "heard",
        "thought",
        "spoken",
        "stood",
    ]
)
NOT_PARTICIPLES = frozenset({"feed", "need", "seed", "speed"})
NOT_COUNTED = (
    ast.Load,
    ast.Store,
    ast.Del,
    ast.operator,
    ast.cmpop,
    ast.boolop,
    ast.unaryop,
)
FORKS = (ast.If, ast.For, ast.While, ast.ExceptHandler, ast.IfExp, ast.comprehension)
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Readability:
    """The figures of a set of files, with the places behind them."""

    lines: int = 0
    code_lines: int = 0
    nodes: int = 0
    functions: int = 0
    participles: list[str] = field(default_factory=list)
    types: dict[str, list[str]] = field(default_factory=dict)
    branches: dict[str, int] = field(default_factory=dict)
    methods: Counter[str] = field(default_factory=Counter)
    bases: dict[str, list[str]] = field(default_factory=dict)

    @property
    def participle_percent(self) -> float:
        return 100 * len(self.participles) / max(self.functions, 1)

    @property
    def nodes_per_line(self) -> float:
        return self.nodes / max(self.code_lines, 1)

    @property
    def duplicate_types(self) -> dict[str, list[str]]:
        return {name: places for name, places in self.types.items() if len(places) > 1}

    @property
    def branchy(self) -> dict[str, int]:
        return {place: count for place, count in self.branches.items() if count > MAX_BRANCHES}

    def class_sizes(self) -> Counter[str]:
        """Count the methods of every class, inherited ones included."""
        return Counter({name: self._with_inherited(name, frozenset()) for name in self.methods})

    def _with_inherited(self, name: str, seen: frozenset[str]) -> int:
        own = self.methods[name]
        parents = [base for base in self.bases[name] if base in self.methods and base not in seen]
        return own + sum(self._with_inherited(base, seen | {name}) for base in parents)


@cache
def measure(root: Path) -> Readability:
    """Measure a file, or all Python files below a folder."""
    found = Readability()
    for path in list_files(root):
        _measure_file(path, found)
    return found


@cache
def list_nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return the syntax nodes of a file, the module first; each file is parsed once."""
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))))


def count_comments(root: Path) -> int:
    """Count the comments of a file, or of all below a folder; to split them into tokens takes seconds."""
    count = 0
    for path in list_files(root):
        with path.open("rb") as file:
            tokens = tokenize.tokenize(file.readline)
            count += sum(token.type == tokenize.COMMENT for token in tokens)
    return count


def list_files(root: Path) -> list[Path]:
    return [root] if root.is_file() else sorted(root.rglob("*.py"))


def _measure_file(path: Path, found: Readability) -> None:
    nodes = list_nodes(path)
    found.lines += path.read_text(encoding="utf-8").count("\n")
    found.code_lines += len({node.lineno for node in nodes if hasattr(node, "lineno")})
    found.nodes += sum(not isinstance(node, NOT_COUNTED) for node in nodes)
    for node in nodes:
        if isinstance(node, Function):
            _measure_function(node, path, found)
        elif isinstance(node, ast.ClassDef):
            _measure_class(node, path, found)


def _measure_function(node: Function, path: Path, found: Readability) -> None:
    place = f"{path}:{node.lineno} {node.name}"
    found.functions += 1
    if is_participle(node.name):
        found.participles.append(place)
    found.branches[place] = count_branches(node)


def _measure_class(node: ast.ClassDef, path: Path, found: Readability) -> None:
    found.types.setdefault(node.name, []).append(f"{path}:{node.lineno}")
    found.methods[node.name] = sum(isinstance(child, ast.FunctionDef) for child in node.body)
    found.bases[node.name] = [base.id for base in node.bases if isinstance(base, ast.Name)]


def is_participle(name: str) -> bool:
    """Return True for a name that is one past participle and nothing else."""
    word = name.strip("_")
    if not word or "_" in word:
        return False
    regular = word.endswith("ed") and len(word) > 4 and word not in NOT_PARTICIPLES
    return regular or word in IRREGULAR


def count_branches(function: ast.AST) -> int:
    """Count the places where the path forks; a function inside counts for both."""
    count = 0
    for node in ast.walk(function):
        if isinstance(node, FORKS):
            count += 1
        elif isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
    return count


def report(found: Readability, comments: int) -> Iterator[str]:
    """Write the figures as lines of text."""
    largest = found.class_sizes().most_common(1)
    yield f"lines            {found.lines}"
    yield f"nodes            {found.nodes}"
    yield f"nodes per line   {found.nodes_per_line:.2f}"
    yield f"comments per 100 {100 * comments / max(found.code_lines, 1):.1f}"
    yield f"participles      {found.participle_percent:.1f}% of {found.functions} functions"
    yield f"duplicate types  {len(found.duplicate_types)}"
    yield f"largest class    {largest[0] if largest else None}"
    yield f"branchy          {len(found.branchy)} functions"


def list_offenders(found: Readability) -> Iterator[str]:
    """Name the places behind the figures."""
    for place in found.participles:
        yield f"participle: {place}"
    for name, places in sorted(found.duplicate_types.items()):
        yield f"type {name}: {', '.join(places)}"
    for name, count in found.class_sizes().most_common(5):
        yield f"class {name}: {count} methods"
    for place, count in sorted(found.branchy.items(), key=lambda item: -item[1]):
        yield f"branches: {place}: {count}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("path", nargs="?", type=Path, default=Path("src"))
    parser.add_argument("--list", action="store_true", help="name the places behind the figures")
    arguments = parser.parse_args()
    found = measure(arguments.path)
    lines = [
        *report(found, count_comments(arguments.path)),
        *(list_offenders(found) if arguments.list else ()),
    ]
    print("\n".join(lines))


if __name__ == "__main__":
    main()
