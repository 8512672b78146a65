"""Adapter for mistral-common's tokenizers: Tekken (byte strings, after a block of special ids) and SentencePiece.

Accepted are the `MistralTokenizer` that encodes conversations, the instruct tokenizer inside it, and the text tokenizer
inside that. Only the last is used: conversations are this package's part.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mistral_common.tokens.tokenizers.sentencepiece import SentencePieceTokenizer
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

from turnwise.tokens.tokenizers.foreign_errors import wrap_errors
from turnwise.tokens.tokenizers.lazy import import_adapter
from turnwise.tokens.tokenizers.protocol import Tokenizer

NAMES = ("bos", "eos", "pad", "unk")


def adapt_tekken(tekken: Tekkenizer, name: str) -> Tokenizer:
    """Wrap a Tekkenizer: ranks of tiktoken, whose ids begin after those of the special tokens."""
    adapter = import_adapter("tiktoken")
    count = tekken.num_special_tokens
    # Special tokens are members of an enumeration there: their value is the text.
    texts = [str.__str__(tekken.id_to_piece(id)) for id in range(count)]
    encoding = adapter.tiktoken.Encoding(
        name,
        pat_str=tekken._model._pat_str,
        mergeable_ranks={tekken.id_to_byte_piece(id): id for id in range(count, tekken.n_words)},
        special_tokens={text: id for id, text in enumerate(texts)},
    )
    named = {f"{name}_token": texts[getattr(tekken, f"{name}_id")] for name in NAMES}
    adapted: Tokenizer = adapter.Tiktoken(encoding, name, named)
    return adapted


def adapt(given: Any, backend: str | None) -> Tokenizer | None:
    """Wrap a tokenizer of mistral-common."""
    inner = getattr(given, "instruct_tokenizer", given)
    inner = getattr(inner, "tokenizer", inner)
    name = str(getattr(inner, "_file_path", None) or f"a {type(inner).__name__}")
    if isinstance(inner, Tekkenizer):
        return adapt_tekken(inner, name)
    if isinstance(inner, SentencePieceTokenizer):
        adapted: Tokenizer = import_adapter("sentencepiece").SentencePiece(inner._model, name)
        return adapted
    return None


def read(file: Path, name: str, data: bytes) -> Tokenizer:
    """Read a `tekken.json`."""
    with wrap_errors(f"{name} is not a tekken.json"):
        return adapt_tekken(Tekkenizer.from_file(file), name)
