"""A `tokenizer.json` as the `tokenizers` library reads it: the reference for its ids, added tokens and offsets.

Two jobs need another tokenizer than the one in the file: plain text needs one without added tokens, and text that was
split needs one that also puts no prefix before it. Both share the model of the first, so they cost nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import tokenizers as library

from turnwise.tokens.tokenizers.normalization import (
    Component,
    analyse_pipeline,
    flatten_component,
    remove_prefix,
)
from turnwise.tokens.tokenizers.offsets import bytes_of_alphabet, bytes_of_piece
from turnwise.tokens.tokenizers.protocol import WHOLE, Added
from turnwise.tokens.tokenizers.special_tokens_config import DeclaredTokens

UNKNOWN_CHARACTER = "\U0010fffd"  # that no vocabulary has
BYTE_TOKENS = frozenset(f"<0x{byte:02X}>" for byte in range(256))
EMPTY = {"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {}, "merges": []}}


class ReferenceBackend:
    """The `tokenizers` library on one file, and what it knows about the file.

    Args:
        source: the text of the file, which was checked, or a tokenizer of the library, which is not changed.
        declared: the tokens that are declared beside the file.
        early: the file as fastokens reads it, which may be loading.
    """

    def __init__(
        self,
        source: str | library.Tokenizer,
        declared: DeclaredTokens,
        early: Any = None,
    ) -> None:
        self._source = source
        self.early = early
        if isinstance(source, str):
            self.full = library.Tokenizer.from_str(source)
        else:
            self.full = share_model(source) or library.Tokenizer.from_str(source.to_str())
        self.full.no_truncation()
        self.full.no_padding()
        self.full.post_processor = None  # it adds bos and eos, and moves offsets
        if getattr(self.full.model, "dropout", None):
            self.full.model.dropout = None  # the same text must have the same ids
            self._source, self.early = self.full, None
        self.extra = self._find_missing(declared)
        self.full.add_tokens(self.extra)
        self.normalizer = _to_json(self.full.normalizer)
        self.pre_tokenizer = _to_json(self.full.pre_tokenizer)
        self.pipeline = analyse_pipeline(self.normalizer, self.pre_tokenizer)
        self.plain = self._with_same_model(self.full.normalizer, self.full.pre_tokenizer)

    def to_text(self) -> str:
        """Return a file that gives the same ids, declared tokens apart."""
        # Writing it anew takes a sixth of a second.
        return self._source if isinstance(self._source, str) else self.full.to_str()

    def _find_missing(self, declared: DeclaredTokens) -> list[library.AddedToken]:
        """Return the declared tokens that the file does not have, or has with other flags."""
        table = self.full.get_added_tokens_decoder().values()
        rows = [library.AddedToken(**row) for row in declared.rows]
        present = set(map(repr, table))
        texts = {token.content for token in (*table, *rows)}
        missing = [token for token in rows if repr(token) not in present]
        specials = [row for row in declared.specials if row["content"] not in texts]
        return missing + [library.AddedToken(**row) for row in specials]

    def _with_same_model(self, normalizer: Any, pre_tokenizer: Any) -> library.Tokenizer:
        """Return a tokenizer with the same model and no added tokens."""
        made = library.Tokenizer(self.full.model)
        made.normalizer, made.pre_tokenizer = normalizer, pre_tokenizer
        return made

    @cached_property
    def _without_prefix(self) -> library.Tokenizer:
        """The plain tokenizer that puts nothing before the text."""
        parts = {
            "normalizer": remove_prefix(self.normalizer),
            "pre_tokenizer": remove_prefix(self.pre_tokenizer),
        }
        donor = library.Tokenizer.from_str(json.dumps({**EMPTY, **parts}))
        return self._with_same_model(donor.normalizer, donor.pre_tokenizer)

    def encode(self, text: str, position: int) -> list[int]:
        ids: list[int] = self.encode_with_offsets(text, position).ids
        return ids

    def encode_with_offsets(self, text: str, position: int) -> library.Encoding:
        """Return ids and offsets of the text at this position, or with its added tokens (WHOLE)."""
        prefixed, used = self.pipeline.prefixed, self.plain
        if position == WHOLE:
            used = self.full
        elif prefixed and position not in prefixed:
            used = self._without_prefix
        return used.encode(text, add_special_tokens=False)

    def decode(self, ids: Sequence[int]) -> str:
        return str(self.full.decode(ids, skip_special_tokens=False))

    def list_added(self) -> list[Added]:
        """Return the added tokens in the order of ids."""
        has_normalizer = bool(flatten_component(self.normalizer))
        return [
            Added(
                token.content,
                id,
                token.special,
                token.lstrip,
                token.rstrip,
                token.single_word,
                token.normalized and has_normalizer,
            )
            for id, token in sorted(self.full.get_added_tokens_decoder().items())
        ]

    def find_native(self) -> frozenset[int]:
        """Return the control ids that the model has too, so that plain text may give them under some spelling.

        Merges give a token for no text if they do not give it for its own: they are the same inside of any word.
        """
        model = self.full.model
        known = {
            token.id: text
            for token in self.list_added()
            if token.control and (text := model.id_to_token(token.id)) is not None
        }
        affixes = ("continuing_subword_prefix", "end_of_word_suffix")
        if isinstance(model, library.models.BPE) and not any(getattr(model, a) for a in affixes):
            return frozenset(
                id
                for id, text in known.items()
                if any(piece.id == id for piece in model.tokenize(text))
            )
        return frozenset(known)

    @cached_property
    def _unknown_ids(self) -> frozenset[int]:
        """The ids that stand for whatever the vocabulary does not have."""
        pieces = self.full.model.tokenize(UNKNOWN_CHARACTER)
        return frozenset(piece.id for piece in pieces if piece.value not in BYTE_TOKENS)

    def token_bytes(self, id: int) -> bytes | None:
        """Return the bytes that an id stands for, None if that is not known."""
        spelling = self.full.model.id_to_token(id)
        if spelling is None or id in self._unknown_ids:
            return None
        to_bytes = bytes_of_alphabet if self.pipeline.is_bytelevel else bytes_of_piece
        return to_bytes(spelling)


def share_model(given: library.Tokenizer) -> library.Tokenizer | None:
    """Return a copy that shares the vocabulary of a tokenizer, so that it costs nothing.

    None if that is not possible: its added tokens would get other ids, or its model must be changed.
    """
    if getattr(given.model, "dropout", None):
        return None
    made = library.Tokenizer(given.model)
    for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        component = getattr(given, part)
        if component is not None:
            setattr(made, part, component)
    rows = sorted(given.get_added_tokens_decoder().items())
    made.add_tokens([token for _, token in rows])
    copied = sorted(made.get_added_tokens_decoder().items())
    return made if repr(copied) == repr(rows) else None


def _to_json(component: Any) -> Component | None:
    """Return a component of the library as the JSON that it was read from."""
    state: Component | None = json.loads(component.__getstate__()) if component else None
    return state
