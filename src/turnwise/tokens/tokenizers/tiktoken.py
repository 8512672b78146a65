"""A `tiktoken.Encoding`: ranks of byte strings, and special tokens by name.

tiktoken keeps plain and special text apart itself (`encode_ordinary`). Its tokens are bytes; where a token's spelling
is asked for, bytes that are not text are written as escapes.
"""

from __future__ import annotations

from typing import Any

import tiktoken

from turnwise.tokens.tokenizers.base import Plain
from turnwise.tokens.tokenizers.protocol import Added, Tokenizer

ENDING = "<|endoftext|>"


class Tiktoken(Plain):
    backend = "tiktoken"

    def __init__(self, encoding: tiktoken.Encoding) -> None:
        self._encoding = encoding
        ids = {text: encoding.encode_single_token(text) for text in encoding.special_tokens_set}
        rows = [Added(text, ids[text]) for text in sorted(ids, key=lambda text: ids[text])]
        super().__init__(encoding.name, rows, {"eos_token": ENDING} if ENDING in ids else {})

    def ids_of(self, text: str, at: int) -> list[int]:
        return self._encoding.encode_ordinary(text)

    def bytes_of(self, id: int) -> bytes | None:
        try:
            return self._encoding.decode_single_token_bytes(id)
        except (KeyError, OverflowError):
            return None

    def token(self, id: int) -> str | None:
        found = self.bytes_of(id)
        return None if found is None else found.decode("utf-8", "backslashreplace")

    def id(self, text: str) -> int | None:
        try:
            return self._encoding.encode_single_token(text)
        except (KeyError, UnicodeEncodeError):
            return None


def adapt(given: Any, backend: str | None) -> Tokenizer | None:
    return Tiktoken(given) if isinstance(given, tiktoken.Encoding) else None
