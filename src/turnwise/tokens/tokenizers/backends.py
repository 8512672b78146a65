"""What encodes a `tokenizer.json`: fastokens or tokenizers."""

from __future__ import annotations

import os
from collections.abc import Sequence

from turnwise.errors import TokenizerError
from turnwise.schema import check_name

EAGER = "eager"  # fastokens if it agrees with tokenizers, loaded at once instead of when it pays
BACKENDS = ("fastokens", "tokenizers", EAGER)
VARIABLE = "TURNWISE_BACKEND"
# The ids of many texts, as 32-bit numbers one after another, and where those of each text begin; the last is the end.
FlatIds = tuple[bytes, Sequence[int]]


def choose_backend(backend: str | None) -> str | None:
    """Return the back end given as an argument or by the environment; None if neither is."""
    wanted = backend or os.environ.get(VARIABLE) or None
    if wanted is not None:
        check_name(wanted, BACKENDS, "unknown back end", "Back ends", TokenizerError)
    return wanted
