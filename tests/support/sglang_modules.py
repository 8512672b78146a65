"""SGLang's parsers without CUDA: its packages are imported without their own code, which loads kernels."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PACKAGES = (
    "",
    "srt",
    "srt.entrypoints",
    "srt.entrypoints.openai",
    "srt.function_call",
    "srt.parser",
    "srt.utils",
)
# What asks about processors and kernels.
OTHERS = (
    "sglang.srt.utils.common",
    "sglang.srt.arg_groups.muse_spark_hook",
    "sglang.srt.arg_groups.overrides",
)


class AnyFunctions(ModuleType):
    """A module in which every name is a function that returns False."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *arguments, **named: False


def load() -> None:
    """Make `sglang.srt.function_call` and `sglang.srt.parser` importable, or skip the test."""
    if "sglang" in sys.modules:
        return
    found = importlib.util.find_spec("sglang")
    if found is None or not found.submodule_search_locations:
        pytest.skip("sglang is not installed: see `make integrations`")
    root = Path(next(iter(found.submodule_search_locations)))
    for package in PACKAGES:
        name = f"sglang.{package}".rstrip(".")
        module = ModuleType(name)
        module.__path__ = [str(root.joinpath(*filter(None, package.split("."))))]
        module.__spec__ = ModuleSpec(name, None, is_package=True)
        sys.modules[name] = module
    for name in OTHERS:
        sys.modules[name] = AnyFunctions(name)
