"""Adapter for tokenizer objects of transformers.

Fast tokenizers hold a `tokenizers.Tokenizer`: its vocabulary is shared, and the object is only asked for its named
tokens. The others are written in Python:
their own methods are called, `_tokenize` for plain text, which is the part that knows no added tokens.
"""

from __future__ import annotations

from typing import Any

from turnwise.errors import TokenizerError
from turnwise.tokens.tokenizers.base import BaseTokenizer
from turnwise.tokens.tokenizers.foreign_errors import check_text, wrap_errors
from turnwise.tokens.tokenizers.lazy import import_adapter
from turnwise.tokens.tokenizers.offsets import bytes_of_alphabet, bytes_of_piece
from turnwise.tokens.tokenizers.protocol import WITHIN, Added, Tokenizer
from turnwise.tokens.tokenizers.special_tokens_config import FLAGS, DeclaredTokens, named_tokens

SPACE = "▁"


class PythonTokenizer(BaseTokenizer):
    """A tokenizer that transformers runs in Python."""

    backend = "transformers"

    def __init__(self, given: Any, name: str) -> None:
        self._given = given
        self._vocabulary: dict[str, int] = given.get_vocab()
        rows = [
            Added(token.content, id, **{flag: getattr(token, flag) for flag in FLAGS})
            for id, token in sorted(given.added_tokens_decoder.items())
        ]
        self.prefix_length = int("".join(given._tokenize("a")).startswith(SPACE))
        # Its code may give any of them.
        super().__init__(
            name, rows, named_tokens(given.special_tokens_map), native=[row.id for row in rows]
        )

    def encode_plain(self, text: str, position: int) -> list[int]:
        if position == WITHIN and self.prefix_length:
            raise TokenizerError(
                f"{self.name} puts a space before every text, and this text was split",
                hint="Use the fast version of this tokenizer, or its file (tokenizer.json, tokenizer.model).",
            )
        ids: list[int] = self._given.convert_tokens_to_ids(self._given._tokenize(text))
        return ids

    def whole(self, text: str) -> list[int]:
        check_text(text)
        with wrap_errors(f"{self.name} cannot encode a text of {len(text)} characters"):
            ids: list[int] = self._given.encode(text, add_special_tokens=False)
            return ids

    def token_bytes(self, id: int) -> bytes | None:
        spelling = self.token(id)
        if spelling is None or spelling == self.named.get("unk_token"):
            return None
        data = bytes_of_alphabet(spelling) if "Ġ" in self._vocabulary else None
        if data:
            return data
        # In vocabularies made of bytes, a character below 256 is a byte.
        has_bytes = "\x80" in self._vocabulary
        if has_bytes and len(spelling) == 1 and "\x80" <= spelling <= "\xff":
            return spelling.encode("latin-1")
        return bytes_of_piece(spelling)

    def decode_plain(self, ids: Any) -> str:
        if not len(ids):
            return ""
        return str(self._given.convert_tokens_to_string([self.token(id) or "" for id in ids]))

    def token(self, id: int) -> str | None:
        if not 0 <= id < len(self._given):
            return None
        token: str | None = self._given.convert_ids_to_tokens(int(id))
        return token

    def id(self, text: str) -> int | None:
        return self._vocabulary.get(text)


def adapt(given: Any, backend: str | None) -> Tokenizer | None:
    """Wrap a tokenizer."""
    name = str(getattr(given, "name_or_path", "") or f"a {type(given).__name__}")
    inner: Any = getattr(given, "backend_tokenizer", None)
    if hasattr(inner, "to_str"):
        huggingface = import_adapter("huggingface")
        is_original = isinstance(inner, huggingface.library.Tokenizer)  # no stand-in of fastokens
        source = inner if is_original else inner.to_str()
        declared = DeclaredTokens(named_tokens(given.special_tokens_map))
        fast: Tokenizer = huggingface.HuggingFace(
            source, name=name, declared=declared, backend=backend
        )
        return fast
    if callable(getattr(given, "_tokenize", None)) and hasattr(given, "added_tokens_decoder"):
        return PythonTokenizer(given, name)
    return None
