"""Reference software that takes a second to import, loaded when a test first uses it."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import pytest


class LazyModule:
    """A module that is imported when something of it is read. A file that needs it is skipped where it is missing."""

    def __init__(self, name: str) -> None:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed", allow_module_level=True)
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith(("_", "pytest")):  # pytest asks every name of a file for its marks
            raise AttributeError(attribute)
        return getattr(importlib.import_module(self._name), attribute)
