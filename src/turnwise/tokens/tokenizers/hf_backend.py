"""A `tokenizer.json` as the `tokenizers` library reads it: the definition of its ids, added tokens and offsets.

Two things need a tokenizer other than the one in the file: plain text, one without added tokens; text that was cut,
one that also puts nothing before it. Both share the model of the first, so they cost nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import tokenizers as library

from turnwise.tokens.tokenizers.normalization import Component, Shape, shape, unprefixed
from turnwise.tokens.tokenizers.offsets import bytes_of_alphabet, bytes_of_piece
from turnwise.tokens.tokenizers.protocol import Added
from turnwise.tokens.tokenizers.special_tokens_config import Declared

NOWHERE = "\U0010fffd"  # a character that no vocabulary has
BYTES = frozenset(f"<0x{byte:02X}>" for byte in range(256))
EMPTY = {"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {}, "merges": []}}


class Reference:
    """The `tokenizers` library on one file, and the facts it knows about it."""

    def __init__(self, text: str, declared: Declared) -> None:
        self.full = library.Tokenizer.from_str(text)
        self.full.no_truncation()
        self.full.no_padding()
        if getattr(self.full.model, "dropout", None):
            self.full.model.dropout = None  # the same text has the same ids
        self.extra = self.missing(declared)
        self.full.add_tokens(self.extra)
        self.normalizer, self.pre_tokenizer = (
            state(self.full.normalizer),
            state(self.full.pre_tokenizer),
        )
        self.shape: Shape = shape(self.normalizer, self.pre_tokenizer)
        self.plain = self.beside(self.full.normalizer, self.full.pre_tokenizer)

    def missing(self, declared: Declared) -> list[library.AddedToken]:
        """The declared tokens that the file does not have, or has with other flags."""
        table = self.full.get_added_tokens_decoder().values()
        texts, present = {token.content for token in table}, {repr(token) for token in table}
        rows = [library.AddedToken(**row) for row in declared.rows]
        texts |= {token.content for token in rows}
        others = [
            library.AddedToken(**row) for row in declared.others if row["content"] not in texts
        ]
        return [token for token in rows if repr(token) not in present] + others

    def beside(self, normalizer: Any, pre_tokenizer: Any) -> library.Tokenizer:
        """A tokenizer with the same model and no added tokens."""
        made = library.Tokenizer(self.full.model)
        made.normalizer, made.pre_tokenizer = normalizer, pre_tokenizer
        return made

    @cached_property
    def bare(self) -> library.Tokenizer:
        """Plain, and nothing is put before the text."""
        parts = {
            "normalizer": unprefixed(self.normalizer),
            "pre_tokenizer": unprefixed(self.pre_tokenizer),
        }
        donor = library.Tokenizer.from_str(json.dumps({**EMPTY, **parts}))
        return self.beside(donor.normalizer, donor.pre_tokenizer)

    def at(self, at: int) -> library.Tokenizer:
        return self.bare if self.shape.prefixed and at not in self.shape.prefixed else self.plain

    def encode(self, text: str, at: int) -> list[int]:
        ids: list[int] = self.at(at).encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self.full.decode(ids, skip_special_tokens=False)
        return text

    def whole(self, text: str) -> list[int]:
        ids: list[int] = self.full.encode(text, add_special_tokens=False).ids
        return ids

    def added(self) -> dict[str, Added]:
        rows = sorted(self.full.get_added_tokens_decoder().items())
        return {
            token.content: Added(
                token.content, id, token.special, token.lstrip, token.rstrip, token.single_word
            )
            for id, token in rows
        }

    def changed(self) -> frozenset[str]:
        """Added tokens that are looked for in the normalised text, under another spelling."""
        normalizer = self.full.normalizer
        rows = self.full.get_added_tokens_decoder().values() if normalizer else ()
        return frozenset(
            token.content
            for token in rows
            if token.normalized and normalizer.normalize_str(token.content) != token.content
        )

    def reached(self, token: Added) -> bool:
        """Whether the model gives this id for its own spelling: then it may do so wherever that stands in a text."""
        if self.full.model.token_to_id(token.text) != token.id:
            return False
        return any(found.id == token.id for found in self.full.model.tokenize(token.text))

    @cached_property
    def unknown(self) -> frozenset[int]:
        """Ids that stand for whatever the vocabulary does not have."""
        return frozenset(
            found.id for found in self.full.model.tokenize(NOWHERE) if found.value not in BYTES
        )

    def bytes_of(self, id: int) -> bytes | None:
        spelling = self.full.model.id_to_token(id)
        if spelling is None or id in self.unknown:
            return None
        return bytes_of_alphabet(spelling) if self.shape.bytelevel else bytes_of_piece(spelling)


def state(component: Any) -> Component | None:
    """A component of the library as the JSON it was read from."""
    found: Component | None = json.loads(component.__getstate__()) if component else None
    return found
