"""Adapter for `tiktoken.Encoding`: ranks of byte strings, and special tokens by name.

tiktoken separates plain and special text itself (`encode_ordinary`). Its tokens are bytes; in the spelling of a token,
bytes that are not text are written as escapes.
"""

from __future__ import annotations

from typing import Any

import tiktoken

from turnwise.tokens.tokenizers.base import BaseTokenizer
from turnwise.tokens.tokenizers.protocol import Added, Tokenizer

END_OF_TEXT = "<|endoftext|>"


class Tiktoken(BaseTokenizer):
    backend = "tiktoken"

    def __init__(self, encoding: tiktoken.Encoding) -> None:
        self._encoding = encoding
        ids = {text: encoding.encode_single_token(text) for text in encoding.special_tokens_set}
        rows = [Added(text, ids[text]) for text in sorted(ids, key=lambda text: ids[text])]
        super().__init__(
            encoding.name, rows, {"eos_token": END_OF_TEXT} if END_OF_TEXT in ids else {}
        )

    def encode_plain(self, text: str, position: int) -> list[int]:
        return self._encoding.encode_ordinary(text)

    def token_bytes(self, id: int) -> bytes | None:
        try:
            return self._encoding.decode_single_token_bytes(id)
        except (KeyError, OverflowError):
            return None

    def token(self, id: int) -> str | None:
        data = self.token_bytes(id)
        return None if data is None else data.decode("utf-8", "backslashreplace")

    def id(self, text: str) -> int | None:
        try:
            return self._encoding.encode_single_token(text)
        except (KeyError, UnicodeEncodeError):
            return None


def adapt(given: Any, backend: str | None) -> Tokenizer | None:
    """Wrap a `tiktoken.Encoding`."""
    return Tiktoken(given) if isinstance(given, tiktoken.Encoding) else None
