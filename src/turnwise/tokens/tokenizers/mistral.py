"""mistral-common's tokenizers: Tekken (byte strings, like tiktoken, behind a block of special ids) and SentencePiece.

Accepted at any level: the `MistralTokenizer` that encodes conversations, the instruct tokenizer inside it, or the
tokenizer of text inside that. Only the last is used: templates are this project's part.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mistral_common.tokens.tokenizers.sentencepiece import SentencePieceTokenizer
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

from turnwise.tokens.tokenizers.base import Plain, names
from turnwise.tokens.tokenizers.foreign_errors import guarded
from turnwise.tokens.tokenizers.lazy import adapter
from turnwise.tokens.tokenizers.protocol import Added, Tokenizer

NAMES = ("bos", "eos", "pad", "unk")


class Tekken(Plain):
    backend = "mistral-common"

    def __init__(self, tekken: Tekkenizer, name: str) -> None:
        self._tekken = tekken
        rows = [Added(self.token(id) or "", id) for id in range(tekken.num_special_tokens)]
        ids = {f"{word}_token": getattr(tekken, f"{word}_id") for word in NAMES}
        self._ids = {token.text: token.id for token in rows}
        super().__init__(name, rows, names(ids, self.token))

    def ids_of(self, text: str, at: int) -> list[int]:
        return self._tekken.encode(text, bos=False, eos=False)

    def bytes_of(self, id: int) -> bytes | None:
        if not self._tekken.num_special_tokens <= id < self._tekken.n_words:
            return None
        return self._tekken.id_to_byte_piece(id)

    def token(self, id: int) -> str | None:
        # special tokens are members of an enumeration there: their value is the text
        return str.__str__(self._tekken.id_to_piece(id)) if 0 <= id < self._tekken.n_words else None

    def id(self, text: str) -> int | None:
        if text in self._ids:
            return self._ids[text]
        ids = self.encode(text)
        return ids[0] if len(ids) == 1 else None


def adapt(given: Any, backend: str | None) -> Tokenizer | None:
    inner = getattr(given, "instruct_tokenizer", given)
    inner = getattr(inner, "tokenizer", inner)
    name = str(getattr(inner, "file_path", None) or f"a {type(inner).__name__}")
    if isinstance(inner, Tekkenizer):
        return Tekken(inner, name)
    if isinstance(inner, SentencePieceTokenizer):
        found: Tokenizer = adapter("sentencepiece").SentencePiece(inner._model, name)
        return found
    return None


def read(file: Path, name: str) -> Tokenizer:
    with guarded(f"{name} is not a tekken.json"):
        return Tekken(Tekkenizer.from_file(file), name)
