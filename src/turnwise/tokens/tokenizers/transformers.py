"""A tokenizer object of transformers.

The fast ones carry a `tokenizers.Tokenizer`: it is copied, and the object is asked only what its named tokens are.
The ones around mistral-common, and processors around a tokenizer, are unwrapped. What is left are tokenizers written in
Python: their own methods are called, `_tokenize` for plain text (it is the part that knows no added tokens).
"""

from __future__ import annotations

from typing import Any

from turnwise.errors import TokenizerError
from turnwise.tokens.tokenizers.base import Plain
from turnwise.tokens.tokenizers.foreign_errors import check_text, guarded
from turnwise.tokens.tokenizers.lazy import adapter
from turnwise.tokens.tokenizers.offsets import bytes_of_alphabet, bytes_of_piece
from turnwise.tokens.tokenizers.protocol import WITHIN, Added, Tokenizer
from turnwise.tokens.tokenizers.special_tokens_config import Declared

INSIDE = {"transformers": "transformers", "tokenizers": "huggingface", "mistral_common": "mistral"}
"""Libraries whose tokenizers are found inside objects of transformers, with their adapters."""
FLAGS = ("special", "lstrip", "rstrip", "single_word")
SPACE = "▁"


class Slow(Plain):
    """A tokenizer that transformers runs in Python."""

    backend = "transformers"

    def __init__(self, given: Any, name: str) -> None:
        self._given = given
        self._vocabulary: dict[str, int] = given.get_vocab()
        rows = [
            Added(token.content, id, *(getattr(token, flag) for flag in FLAGS))
            for id, token in sorted(given.added_tokens_decoder.items())
        ]
        self.prefix = int("".join(given._tokenize("a")).startswith(SPACE))
        native = [
            row.id
            for row in rows
            if row.control and row.text != given.unk_token and row.id in self.plain(row.text)
        ]
        super().__init__(name, rows, named(given), native)

    def plain(self, text: str) -> list[int]:
        ids: list[int] = self._given.convert_tokens_to_ids(self._given._tokenize(text))
        return ids

    def ids_of(self, text: str, at: int) -> list[int]:
        if at == WITHIN and self.prefix:
            raise TokenizerError(
                f"{self.name} puts a space before every text, and this text was cut",
                hint="Use the fast version of this tokenizer, or its file (tokenizer.json, tokenizer.model).",
            )
        return self.plain(text)

    def whole(self, text: str) -> list[int]:
        check_text(text)
        with guarded(f"{self.name} cannot encode a text of {len(text)} characters"):
            ids: list[int] = self._given.encode(text, add_special_tokens=False)
            return ids

    def bytes_of(self, id: int) -> bytes | None:
        spelling = self.token(id)
        if spelling is None or spelling == self.named.get("unk_token"):
            return None
        # a character below 256 that is one token is a byte in the vocabularies that are made of bytes
        alphabet = bytes_of_alphabet(spelling) if "Ġ" in self._vocabulary else None
        return alphabet or (
            spelling.encode("latin-1") if self._bytes(spelling) else bytes_of_piece(spelling)
        )

    def _bytes(self, spelling: str) -> bool:
        return len(spelling) == 1 and "\x80" <= spelling <= "\xff" and "\x80" in self._vocabulary

    def text_of(self, ids: Any) -> str:
        text: str = (
            self._given.convert_tokens_to_string([self.token(id) or "" for id in ids])
            if len(ids)
            else ""
        )
        return text

    def token(self, id: int) -> str | None:
        if not 0 <= id < len(self._given):
            return None
        token: str | None = self._given.convert_ids_to_tokens(int(id))
        return token

    def id(self, text: str) -> int | None:
        return self._vocabulary.get(text)


def named(given: Any) -> dict[str, str]:
    return {
        key: str(text)
        for key, text in given.special_tokens_map.items()
        if key.endswith("_token") and text
    }


def adapt(given: Any, backend: str | None) -> Tokenizer | None:
    name = str(getattr(given, "name_or_path", "") or f"a {type(given).__name__}")
    inner = getattr(given, "backend_tokenizer", None)
    if inner is not None and hasattr(inner, "to_str"):
        fast: Tokenizer = adapter("huggingface").HuggingFace(
            inner.to_str(), name=name, declared=Declared(named(given)), backend=backend
        )
        return fast
    if callable(getattr(given, "_tokenize", None)) and hasattr(given, "added_tokens_decoder"):
        return Slow(given, name)
    inner = getattr(given, "tokenizer", None)
    library = INSIDE.get(type(inner).__module__.partition(".")[0])
    return adapter(library).adapt(inner, backend) if library else None
