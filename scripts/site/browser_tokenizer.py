"""A `tokenizer.json` in a browser: tokenizers.js encodes plain text, and the rest is that of every other adapter.

No native library loads in Pyodide, so `vocabulary.mjs` reads the file with a library for JavaScript and is asked for
ids through Pyodide's bridge. The library is not `tokenizers`, and for some parts of a file it gives other ids; a file
with a part that is not in the tables below is refused, with the name of the part: ids that are shown are right.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from turnwise.errors import TokenizerError
from turnwise.tokens.tokenizers.alignment import align_tokens
from turnwise.tokens.tokenizers.base import BaseTokenizer
from turnwise.tokens.tokenizers.foreign_errors import check_text, wrap_errors
from turnwise.tokens.tokenizers.normalization import (
    Component,
    analyse_pipeline,
    flatten_component,
    remove_prefix,
)
from turnwise.tokens.tokenizers.offsets import Offsets, bytes_of_alphabet, bytes_of_piece
from turnwise.tokens.tokenizers.protocol import START, WHOLE, Added
from turnwise.tokens.tokenizers.special_tokens_config import (
    DeclaredTokens,
    TokenRow,
    check_token_length,
)

NORMALIZERS = ("NFC", "NFD", "NFKC", "NFKD", "Replace", "Prepend")
PRE_TOKENIZERS = ("Split", "ByteLevel", "Metaspace", "Digits")
AFFIXES = ("continuing_subword_prefix", "end_of_word_suffix")
HINT = "The command line reads every tokenizer.json: turnwise serve FOLDER"


class BrowserTokenizer(BaseTokenizer):
    """A tokenizer from a `tokenizer.json` that JavaScript has read.

    Args:
        vocabulary: what `readVocabulary` of vocabulary.mjs returned.
        name: what errors call it.
        declared: the tokens that are declared beside the file.

    Raises:
        TokenizerError: the file is broken, or has a part that the library does not read as `tokenizers` does.
    """

    backend = "tokenizers.js"

    def __init__(self, vocabulary: Any, *, name: str, declared: DeclaredTokens) -> None:
        self._vocabulary = vocabulary
        with wrap_errors(f"{name} is not a tokenizer.json that can be read here", HINT):
            parts = json.loads(vocabulary.parts)
            normalizer, pre_tokenizer = parts["normalizer"], parts["pre_tokenizer"]
            _check_parts(normalizer, pre_tokenizer, parts["model"])
            self._pipeline = analyse_pipeline(normalizer, pre_tokenizer)
            self._with_prefix = _make_encoder(vocabulary, normalizer, pre_tokenizer)
            self._without_prefix = _make_encoder(
                vocabulary, remove_prefix(normalizer), remove_prefix(pre_tokenizer)
            )
            tokens = self._read_added(parts["added_tokens"], declared, parts["model"]["size"])
            if not any(flatten_component(normalizer)):
                tokens = [token._replace(normalized=False) for token in tokens]
            native = [token.id for token in tokens if token.control and self._is_native(token)]
        self._unknown = parts["model"].get("unk_token")
        super().__init__(name, tokens, declared.named, native)

    def _read_added(
        self, rows: Iterable[TokenRow], declared: DeclaredTokens, size: int
    ) -> list[Added]:
        """Return the added tokens in the order of ids: those of the file, and those declared beside it."""
        table: dict[str, Added] = {}
        listed = [*rows, *declared.rows]
        texts = {row["content"] for row in listed}
        for row in (*listed, *(one for one in declared.specials if one["content"] not in texts)):
            text = row["content"]
            check_token_length(text)
            present = table.get(text)
            id = present.id if present else self._vocabulary.id(text)
            if id is None:  # the next one
                id = max(size, 1 + max((token.id for token in table.values()), default=-1))
            special = row.get("special", False)
            flags = {flag: row.get(flag, False) for flag in ("lstrip", "rstrip", "single_word")}
            normalized = row.get("normalized", not special)
            table[text] = Added(text, id, special, normalized=normalized, **flags)
        return sorted(table.values(), key=lambda token: token.id)

    def _is_native(self, token: Added) -> bool:
        return token.id in self._vocabulary.encodeWord(token.text).to_py()

    def encode_plain(self, text: str, position: int) -> list[int]:
        prefixed = self._pipeline.prefixed
        has_prefix = not prefixed or position in prefixed
        encode = self._with_prefix if has_prefix else self._without_prefix
        ids: list[int] = encode(text).to_py()
        return ids

    def offsets(self, text: str, ids: Sequence[int], position: int = START) -> list[Offsets]:
        keeps = self._pipeline.keeps(text) or self.decode_plain(ids) == text
        if position != WHOLE and keeps:
            # The tokens spell the text, so their widths give the offsets.
            is_prefixed = position in self._pipeline.prefixed
            prefix_length = len(self._pipeline.prefix) if is_prefixed else 0
            offsets = self._widths.offsets(ids, len(text), prefix_length)
            if offsets is not None:
                return offsets
        check_text(text)
        return align_tokens(text, ids, self.added.values(), self.token_bytes)

    def token_bytes(self, id: int) -> bytes | None:
        spelling = self._vocabulary.token(id)
        if spelling is None or spelling == self._unknown:
            return None
        is_bytelevel = self._pipeline.is_bytelevel
        return bytes_of_alphabet(spelling) if is_bytelevel else bytes_of_piece(spelling)

    def token(self, id: int) -> str | None:
        spelling: str | None = self._added_texts.get(id) or self._vocabulary.token(id)
        return spelling

    def id(self, text: str) -> int | None:
        added = self.added.get(text)
        id: int | None = added.id if added else self._vocabulary.id(text)
        return id


def _make_encoder(
    vocabulary: Any, normalizer: Component | None, pre_tokenizer: Component | None
) -> Any:
    return vocabulary.makeEncoder(json.dumps(normalizer), json.dumps(pre_tokenizer))


def _check_parts(
    normalizer: Component | None, pre_tokenizer: Component | None, model: Component
) -> None:
    """Refuse what tokenizers.js does not know, or reads in another way than `tokenizers`."""
    odd = [f"the model {kind}" for kind in [model.get("type") or "BPE"] if kind != "BPE"]
    odd += [f"{affix} of the model" for affix in AFFIXES if model.get(affix)]
    for part in flatten_component(normalizer):
        if part["type"] not in NORMALIZERS:
            odd.append(f"the normalizer {part['type']}")
    for part in flatten_component(pre_tokenizer):
        if part["type"] not in PRE_TOKENIZERS:
            odd.append(f"the pre-tokenizer {part['type']}")
        elif part.get("invert") and part["behavior"] != "Removed":
            odd.append(f"a Split that is inverted and {part['behavior']}")
    if odd:
        raise TokenizerError(f"the encoder in the browser does not know {odd[0]}", hint=HINT)
