"""Adapter for mistral-common's tokenizers: Tekken (byte strings, after a block of special ids) and SentencePiece.

Accepted are the `MistralTokenizer` that encodes conversations, the instruct tokenizer inside it, and the text tokenizer
inside that. Only the last is used: conversations are this package's part.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mistral_common.tokens.tokenizers.sentencepiece import SentencePieceTokenizer
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

from turnwise.tokens.tokenizers.base import BaseTokenizer, find_named_tokens
from turnwise.tokens.tokenizers.foreign_errors import wrap_errors
from turnwise.tokens.tokenizers.lazy import import_adapter
from turnwise.tokens.tokenizers.protocol import Added, Tokenizer

NAMES = ("bos", "eos", "pad", "unk")


class Tekken(BaseTokenizer):
    backend = "mistral-common"

    def __init__(self, tekken: Tekkenizer, name: str) -> None:
        self._tekken = tekken
        rows = [Added(self.token(id) or "", id) for id in range(tekken.num_special_tokens)]
        ids = {f"{name}_token": getattr(tekken, f"{name}_id") for name in NAMES}
        self._special_ids = {token.text: token.id for token in rows}
        super().__init__(name, rows, find_named_tokens(ids, self.token))

    def encode_plain(self, text: str, position: int) -> list[int]:
        return self._tekken.encode(text, bos=False, eos=False)

    def token_bytes(self, id: int) -> bytes | None:
        if not self._tekken.num_special_tokens <= id < self._tekken.n_words:
            return None
        return self._tekken.id_to_byte_piece(id)

    def token(self, id: int) -> str | None:
        if not 0 <= id < self._tekken.n_words:
            return None
        # Special tokens are members of an enumeration there: their value is the text.
        return str.__str__(self._tekken.id_to_piece(id))

    def id(self, text: str) -> int | None:
        if text in self._special_ids:
            return self._special_ids[text]
        ids = self.encode(text)
        return ids[0] if len(ids) == 1 else None


def adapt(given: Any, backend: str | None) -> Tokenizer | None:
    """Wrap a tokenizer of mistral-common."""
    inner = getattr(given, "instruct_tokenizer", given)
    inner = getattr(inner, "tokenizer", inner)
    name = str(getattr(inner, "file_path", None) or f"a {type(inner).__name__}")
    if isinstance(inner, Tekkenizer):
        return Tekken(inner, name)
    if isinstance(inner, SentencePieceTokenizer):
        adapted: Tokenizer = import_adapter("sentencepiece").SentencePiece(inner._model, name)
        return adapted
    return None


def read(file: Path, name: str) -> Tokenizer:
    """Read a `tekken.json`."""
    with wrap_errors(f"{name} is not a tekken.json"):
        return Tekken(Tekkenizer.from_file(file), name)
