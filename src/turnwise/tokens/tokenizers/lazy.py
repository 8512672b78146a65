"""Import adapters when they are needed: their libraries are slow to import, or not installed at all."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from turnwise.errors import TokenizerError

# Adapter to the extra of this package that installs its library.
EXTRAS = {
    "huggingface": "tokenizers",
    "mistral": "mistral",
    "sentencepiece": "spm",
    "tiktoken": "tiktoken",
}


def import_adapter(name: str) -> Any:
    """Return the module of an adapter."""
    try:
        return import_module(f"turnwise.tokens.tokenizers.{name}")
    except ImportError as problem:
        missing = problem.name or name
        requirement = f"'turnwise[{EXTRAS[name]}]'" if name in EXTRAS else missing
        raise TokenizerError(
            f"this tokenizer needs the library {missing}, which is not installed",
            hint=f"pip install {requirement}",
        ) from None
