"""Adapters are imported by name, when they are needed: their libraries are slow to import, or not installed at all."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from turnwise.errors import TokenizerError

EXTRAS = {"mistral": "mistral", "sentencepiece": "spm", "tiktoken": "tiktoken"}
"""Adapter to the extra of this package that installs its library."""


def adapter(name: str) -> Any:
    """The module of this adapter."""
    try:
        return import_module(f"turnwise.tokens.tokenizers.{name}")
    except ImportError as problem:
        missing = problem.name or name
        raise TokenizerError(
            f"this tokenizer needs the library {missing}, which is not installed",
            hint=f"pip install 'turnwise[{EXTRAS[name]}]'"
            if name in EXTRAS
            else f"pip install {missing}",
        ) from None
