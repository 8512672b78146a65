"""A `tokenizer.json`, encoded in pure Python: for places where no native library loads, such as a browser.

The same steps as in the `tokenizers` library, each in a module that can be read on its own:

    added_vocabulary.py   finds the added tokens in a text
    normalizers.py        change the plain text between them
    pre_tokenizers.py     split it into words; regex.py translates the patterns
    bpe.py                encodes each word
    decoders.py           turn tokens back into text

It gives the same ids as the library, for models of the kind BPE. A file with a part that is not known here is refused,
with the name of the part. It is two to ten times slower than the library. `build_site.py` puts it beside the engine in
the browser, where turnwise finds it (`tokens/tokenizers/files.py`); the package itself does not have it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pure_tokenizer.added_vocabulary import (
    AddedVocabulary,
    read_added_tokens,
)
from pure_tokenizer.bpe import BytePairModel
from pure_tokenizer.components import read_field, read_parts, refuse
from pure_tokenizer.decoders import read_decoder
from pure_tokenizer.normalizers import read_normalizer
from pure_tokenizer.pre_tokenizers import read_pre_tokenizer
from turnwise.errors import TokenizerError
from turnwise.token_ids import to_token_ids
from turnwise.tokens.tokenizers.alignment import align_tokens
from turnwise.tokens.tokenizers.base import BaseTokenizer
from turnwise.tokens.tokenizers.file_checks import check_tokenizer_file
from turnwise.tokens.tokenizers.foreign_errors import check_text, wrap_errors
from turnwise.tokens.tokenizers.normalization import (
    Component,
    analyse_pipeline,
    flatten_component,
    remove_prefix,
)
from turnwise.tokens.tokenizers.offsets import Offsets, bytes_of_alphabet, bytes_of_piece
from turnwise.tokens.tokenizers.protocol import START, WHOLE
from turnwise.tokens.tokenizers.special_tokens_config import DeclaredTokens

__all__ = ["PurePython"]

NOTHING_DECLARED = DeclaredTokens()
DROPPING_NORMALIZERS = ("Strip", "StripAccents")


class _PlainEncoder:
    """Encodes plain text: the normalizer, the pre-tokenizer and the model."""

    def __init__(
        self, normalizer: Component | None, pre_tokenizer: Component | None, model: BytePairModel
    ) -> None:
        self.normalize = read_normalizer(normalizer)
        self._split = read_pre_tokenizer(pre_tokenizer)
        self._model = model

    def encode(self, text: str, is_first: bool) -> list[int]:
        return self.encode_normalised(self.normalize(text), is_first)

    def encode_normalised(self, text: str, is_first: bool) -> list[int]:
        ids: list[int] = []
        for word in self._split(text, is_first):
            ids += self._model.encode(word)
        return ids


class PurePython(BaseTokenizer):
    """A tokenizer from a `tokenizer.json`, without any library.

    Args:
        source: the text of the file.
        name: what errors call it.
        declared: the tokens that are declared beside the file.

    Raises:
        TokenizerError: it is not such a file, or has a part that is not known here.
    """

    backend = "python"

    def __init__(
        self,
        source: str,
        *,
        name: str = "tokenizer.json",
        declared: DeclaredTokens = NOTHING_DECLARED,
    ) -> None:
        with wrap_errors(f"{name} is not a tokenizer.json"):
            check_tokenizer_file(source)
            data = _read_json(source)
            self._model = BytePairModel(read_field(data, "model", dict))
        normalizer, pre_tokenizer = data.get("normalizer"), data.get("pre_tokenizer")
        self._plain = _PlainEncoder(normalizer, pre_tokenizer, self._model)
        _check_first_prefix(normalizer, pre_tokenizer)
        self._without_prefix = _PlainEncoder(
            remove_prefix(normalizer), remove_prefix(pre_tokenizer), self._model
        )
        self._decode_tokens = read_decoder(data.get("decoder"))
        self._pipeline = analyse_pipeline(normalizer, pre_tokenizer)
        rows = read_field(data, "added_tokens", list, [])
        tokens = read_added_tokens(rows, declared, self._model.vocabulary)
        self._added_vocabulary = AddedVocabulary(tokens.values(), self._plain.normalize)
        native = [
            token.id
            for token in tokens.values()
            if token.control and token.id in self._model.encode(token.text)
        ]
        # The library shows a token that it matches in normalised text as the normalizer spells it.
        self._added_spellings = {
            token.id: self._plain.normalize(token.text) if token.normalized else token.text
            for token in tokens.values()
        }
        if not any(flatten_component(normalizer)):
            tokens = {text: replace(token, normalized=False) for text, token in tokens.items()}
        super().__init__(name, tokens.values(), declared.named, native)

    def encode_plain(self, text: str, position: int) -> list[int]:
        prefixed = self._pipeline.prefixed
        has_prefix = not prefixed or position in prefixed
        encoder = self._plain if has_prefix else self._without_prefix
        return encoder.encode(text, position == START)

    def whole(self, text: str) -> list[int]:
        check_text(text)
        ids: list[int] = []
        for part in self._added_vocabulary.split(text):
            if part.token is not None:
                ids.append(part.token.id)
            else:
                ids += self._plain.encode_normalised(part.text, part.is_first)
        return ids

    def offsets(self, text: str, ids: Sequence[int], position: int = START) -> list[Offsets]:
        if position != WHOLE and self._pipeline.keeps(text):
            # The tokens spell the text, so their widths give the offsets.
            is_prefixed = position in self._pipeline.prefixed
            prefix_length = len(self._pipeline.prefix) if is_prefixed else 0
            offsets = self._widths.offsets(ids, len(text), prefix_length)
            if offsets is not None:
                return offsets
        check_text(text)
        return align_tokens(text, ids, self.added.values(), self.token_bytes)

    def decode(self, ids: Sequence[int]) -> str:
        spellings = map(self.token, to_token_ids(ids, "a tokenizer decodes a list of ids"))
        return self._decode_tokens([spelling for spelling in spellings if spelling is not None])

    def token_bytes(self, id: int) -> bytes | None:
        spelling = self._model.spellings.get(id)
        if spelling is None or spelling == self._model.unknown:
            return None
        is_bytelevel = self._pipeline.is_bytelevel
        return bytes_of_alphabet(spelling) if is_bytelevel else bytes_of_piece(spelling)

    def token(self, id: int) -> str | None:
        spelling = self._added_spellings.get(id)
        return self._model.spellings.get(id) if spelling is None else spelling

    def id(self, text: str) -> int | None:
        added = self.added.get(text)
        return added.id if added else self._model.vocabulary.get(text)

    def __repr__(self) -> str:
        size = len(self._model.spellings.keys() | self._added_spellings.keys())
        return f"<tokenizer {self.name} ({self.backend}, {size} tokens)>"


def _check_first_prefix(normalizer: Component | None, pre_tokenizer: Component | None) -> None:
    """Refuse a prefix before the very first text if something may drop that text's first character.

    Whether a text is the first one depends on the place of its first character in the original, which is not kept here.
    """
    parts = read_parts(pre_tokenizer, "pretokenizers")
    if not any(part.get("prepend_scheme") == "first" for part in parts):
        return
    dropping = [part["type"] for part in parts if part.get("behavior") == "Removed"]
    for part in read_parts(normalizer, "normalizers"):
        may_replace = part["type"] == "Replace" and not part["content"]
        if part["type"] in DROPPING_NORMALIZERS or may_replace:
            dropping.append(part["type"])
    if dropping:
        raise refuse(f"a {dropping[0]} before a Metaspace with the scheme 'first'")


def _read_json(source: str) -> dict[str, Any]:
    data = json.loads(source)
    if not isinstance(data, dict):
        raise TokenizerError("a tokenizer.json is a JSON object")
    return data
