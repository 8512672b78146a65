"""Parts of hosts that cannot be installed whole: without CUDA, or without a hundred other packages.

`import_part` imports a module of a package without running the `__init__` files above it; `load_functions` runs some
functions of a file and nothing else. Both take the code that pip installed, so it is the host's own.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def find_package(name: str) -> Path:
    """Return the folder of an installed package, without importing it; skip the test if there is none."""
    if name in sys.modules:
        return Path(sys.modules[name].__path__[0])
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{name} is not installed: see `make integrations`")
    return Path(spec.submodule_search_locations[0])


def import_part(module: str, bare: int) -> Any:
    """Import a module; the first `bare` packages of its name are only folders."""
    parts = module.split(".")
    folder = find_package(parts[0])
    for depth in range(1, bare + 1):
        name = ".".join(parts[:depth])
        if name not in sys.modules:
            made = ModuleType(name)
            made.__path__ = [str(folder.joinpath(*parts[1:depth]))]
            sys.modules[name] = made
    return importlib.import_module(module)


def load_functions(package: str, file: str, *names: str) -> dict[str, Any]:
    """Return functions of a file, run without its imports but for those of `typing`."""
    path = find_package(package) / file
    tree = ast.parse(path.read_text(encoding="utf-8"))
    wanted = [
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in names
    ]
    assert {node.name for node in wanted} == set(names)
    code = ast.Module([*ast.parse("from __future__ import annotations").body, *wanted], [])
    namespace: dict[str, Any] = {}
    exec(compile(code, str(path), "exec"), namespace)
    return namespace
