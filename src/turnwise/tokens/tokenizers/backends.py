"""What encodes a `tokenizer.json`: fastokens, tokenizers, or where neither can be loaded, our own code in Python."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module

from turnwise.errors import TokenizerError, did_you_mean

PYTHON = "python"
EAGER = "eager"  # fastokens if it agrees with tokenizers, loaded at once instead of when it pays
BACKENDS = ("fastokens", "tokenizers", PYTHON, EAGER)
VARIABLE = "TURNWISE_BACKEND"
# The ids of many texts, as 32-bit numbers one after another, and where those of each text begin; the last is the end.
FlatIds = tuple[bytes, Sequence[int]]


def choose_backend(backend: str | None) -> str | None:
    """Return the back end given as an argument or by the environment; None if neither is."""
    wanted = backend or os.environ.get(VARIABLE) or None
    if wanted is not None and wanted not in BACKENDS:
        raise TokenizerError(
            f"unknown back end {wanted!r}", hint=did_you_mean(wanted, BACKENDS, "Back ends")
        )
    return wanted


def uses_python(backend: str | None) -> bool:
    """Return whether a `tokenizer.json` is encoded in pure Python: if asked for, or if the library is missing."""
    if backend not in (None, EAGER):
        return backend == PYTHON
    try:
        import_module("tokenizers")
    except ImportError:
        return True
    return False
