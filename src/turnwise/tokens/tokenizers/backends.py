"""Which library encodes a `tokenizer.json`, where somebody has a wish about it."""

from __future__ import annotations

import os

from turnwise.errors import TokenizerError, did_you_mean

BACKENDS = ("fastokens", "tokenizers")
VARIABLE = "TURNWISE_BACKEND"


def chosen(backend: str | None) -> str | None:
    """The back end somebody asked for, by argument or by environment; None if nobody did."""
    wanted = backend or os.environ.get(VARIABLE) or None
    if wanted is not None and wanted not in BACKENDS:
        raise TokenizerError(
            f"there is no back end {wanted!r}", hint=did_you_mean(wanted, BACKENDS, "Back ends")
        )
    return wanted
