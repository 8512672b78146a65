"""Pickle tokenizers by the source they were loaded from.

A vocabulary has megabytes, and sessions are sent to other processes by the thousand. So a tokenizer that was loaded
from a file is pickled as the path of the file, and loaded there, once for each process. A fingerprint tells whether it
is the same tokenizer. One that was made from an object has no such source and is pickled whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary
from zlib import crc32

from turnwise.errors import TokenizerError
from turnwise.tokens.tokenizers.protocol import Tokenizer
from turnwise.tokens.tokenizers.selfcheck import TEXTS

REMEDY = (
    "A tokenizer that was loaded from a file is pickled as the path of the file: it must be there, and unchanged. "
    "One that was made from an object of transformers or tokenizers is pickled whole."
)

_fingerprints: WeakKeyDictionary[Tokenizer, int] = WeakKeyDictionary()


def load_again(load: Callable[[], Tokenizer], fingerprint: int) -> Tokenizer:
    """Load the tokenizer that was pickled.

    Raises:
        TokenizerError: it is not there, or another one is.
    """
    try:
        found = load()
    except TokenizerError as error:
        raise TokenizerError(
            f"the tokenizer that was pickled cannot be loaded here: {error.message}", hint=REMEDY
        ) from error
    if compute_fingerprint(found) != fingerprint:
        raise TokenizerError(
            f"{found.name} is not the tokenizer that was pickled: its tokens differ", hint=REMEDY
        )
    return found


def compute_fingerprint(tokenizer: Any) -> int:
    """Return a checksum of the added tokens, the named tokens and the ids of a fixed set of texts."""
    known = _fingerprints.get(tokenizer)
    if known is None:
        ids = [tokenizer.encode(text) for text in TEXTS]
        shown = repr((sorted(tokenizer.added.items()), sorted(tokenizer.named.items()), ids))
        known = _fingerprints[tokenizer] = crc32(shown.encode("utf-8", "surrogatepass"))
    return known
