"""fastokens without the reference: objects of the library, and the vocabulary that ships with the package.

An object does not give back the file it was made of, so there is no reference to check it against, and where it
puts a space before every text that cannot be switched off. The file is the better thing to give; the errors say so.

The vocabulary of the package was compared with the reference by our tests, so it needs no other library. A user's
`tokenizer.json` was not: what reads it is `tokenizers`, or an error says that it is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import fastokens  # type: ignore[import-untyped]

from turnwise.errors import TokenizerError
from turnwise.tokens.tokenizers.base import BaseTokenizer
from turnwise.tokens.tokenizers.offsets import bytes_of_alphabet, bytes_of_piece
from turnwise.tokens.tokenizers.protocol import Added, Tokenizer
from turnwise.tokens.tokenizers.special_tokens_config import FLAGS

REMEDY = "Give the tokenizer.json that it was made of, or its folder."
SPACES = ("▁", "Ġ")


class Fastokens(BaseTokenizer):
    backend = "fastokens"

    def __init__(
        self, given: Any, name: str, named: Mapping[str, str], has_native: bool = True
    ) -> None:
        self._given = given
        rows = [
            Added(row["content"], row["id"], **{flag: row[flag] for flag in FLAGS})
            for row in given.added_tokens()
        ]
        space = given.token_to_id("Ġ")
        is_bytelevel = space is not None and given.decode([space]) == " "
        self._to_bytes = bytes_of_alphabet if is_bytelevel else bytes_of_piece
        # Which of them its model has is not told: all, unless it is known to have none.
        super().__init__(name, rows, named, [row.id for row in rows if has_native])

    def encode_plain(self, text: str, position: int) -> list[int]:
        ids: list[int] = self._given.encode_ordinary(text).ids
        return ids

    def token_bytes(self, id: int) -> bytes | None:
        spelling = self.token(id)
        return None if spelling is None else self._to_bytes(spelling)

    def token(self, id: int) -> str | None:
        return self._given.id_to_token(id) if 0 <= id < 1 << 32 else None

    def id(self, text: str) -> int | None:
        id: int | None = self._given.token_to_id(text)
        return id

    def decode_plain(self, ids: Any) -> str:
        return str(self._given.decode(list(ids)))


def adapt(given: Any, backend: str | None) -> Tokenizer | None:
    """Wrap a `fastokens.Tokenizer`."""
    if not isinstance(given, fastokens.Tokenizer):
        return None
    if given.truncation or given.padding:
        raise TokenizerError(
            "the fastokens.Tokenizer truncates or pads what it encodes", hint=REMEDY
        )
    first = given.encode_ordinary("a").ids[:1]
    if first and (given.id_to_token(first[0]) or "").startswith(SPACES):
        raise TokenizerError(
            "the fastokens.Tokenizer puts a space before every text, which cannot be switched off",
            hint=REMEDY,
        )
    return Fastokens(given, "a fastokens.Tokenizer", {})


def read_shipped(text: str, name: str, named: Mapping[str, str]) -> Tokenizer:
    """Return the tokenizer that ships with the package; its model has none of the added tokens."""
    return Fastokens(fastokens.Tokenizer.from_json_str(text), name, named, has_native=False)
