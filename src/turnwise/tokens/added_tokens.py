"""Add special tokens to a tokenizer object of transformers or tokenizers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turnwise.errors import TokenizerError
from turnwise.tokens.tokenizers import library_of
from turnwise.tokens.tokenizers.foreign_errors import wrap_errors

CHANGEABLE = ("transformers", "tokenizers")


def add_special_tokens(tokenizer: Any, texts: Sequence[str]) -> None:
    """Add special tokens to a tokenizer; what was made of it before is not changed.

    Args:
        tokenizer: An object of transformers or tokenizers.
        texts: The tokens.

    Raises:
        TokenizerError: It is another tokenizer, or refuses the tokens.
    """
    library = library_of(tokenizer)
    if library not in CHANGEABLE:
        kind = "a file or name" if isinstance(tokenizer, str) else type(tokenizer).__name__
        raise TokenizerError(
            f"tokens cannot be added to {kind}",
            hint="Load it with transformers or tokenizers, and give the object.",
        )
    target = getattr(tokenizer, "tokenizer", tokenizer)  # a processor holds its tokenizer
    with wrap_errors("the tokenizer refuses new tokens"):
        if library == "transformers":
            target.add_tokens(list(texts), special_tokens=True)
        else:
            target.add_special_tokens(list(texts))
