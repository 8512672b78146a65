"""A SentencePiece model: the processor object, or its file.

Control symbols (`<s>`) are never found in text by the library, and are the added tokens. *User-defined* symbols are
found in any text, whoever wrote it: they are added tokens too, and `native`, so that whoever encodes untrusted text
knows. The library says of no piece that it is user-defined, so the types are read from the model itself.

Most models put a space before the text. A text that was cut gets none: from a second processor that is told so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import sentencepiece

from turnwise.errors import TokenizerError
from turnwise.tokens.tokenizers.base import Plain, names
from turnwise.tokens.tokenizers.foreign_errors import check_text, guarded
from turnwise.tokens.tokenizers.offsets import bytes_of_piece, ends_of_starts
from turnwise.tokens.tokenizers.protocol import START, WITHIN, Added, Tokenizer

CONTROL, USER_DEFINED = 3, 4
NAMES = ("bos", "eos", "pad", "unk")
SPACE = "▁"


class SentencePiece(Plain):
    backend = "sentencepiece"

    def __init__(self, processor: Any, name: str) -> None:
        self._processor = processor
        self._model: bytes = processor.serialized_model_proto()
        types = {
            id: kind
            for id, kind in enumerate(kinds(self._model))
            if kind in (CONTROL, USER_DEFINED)
        }
        rows = [Added(processor.id_to_piece(id), id, kind == CONTROL) for id, kind in types.items()]
        ids = {f"{word}_token": getattr(processor, f"{word}_id")() for word in NAMES}
        native = [id for id, kind in types.items() if kind == USER_DEFINED]
        self.prefix = int(processor.normalize("a").startswith(SPACE))
        super().__init__(name, rows, names(ids, processor.id_to_piece), native)

    @cached_property
    def _bare(self) -> Any:
        made = sentencepiece.SentencePieceProcessor(model_proto=self._model)
        made.override_normalizer_spec(add_dummy_prefix=False)
        return made

    def _at(self, at: int) -> Any:
        return self._bare if self.prefix and at == WITHIN else self._processor

    def ids_of(self, text: str, at: int) -> list[int]:
        ids: list[int] = self._at(at).encode(text)
        return ids

    def ends(self, text: str, ids: Sequence[int], at: int = START) -> list[int]:
        check_text(text)
        mapped: Callable[[str], Any] | None = getattr(
            self._at(at), "encode_as_offset_mapping", None
        )
        if mapped is None:  # an older library: pieces are as wide as they are spelled
            return super().ends(text, ids, at)
        found = mapped(text)
        if list(found["ids"]) != list(ids):
            raise TokenizerError(f"these {len(ids)} ids are not those of this text: {text[:40]!r}")
        return ends_of_starts((start for start, _ in found["offsets"]), len(text))

    def bytes_of(self, id: int) -> bytes | None:
        spelling = self.token(id)
        return (
            None if spelling is None or self._processor.is_unknown(id) else bytes_of_piece(spelling)
        )

    def text_of(self, ids: Sequence[int]) -> str:
        text: str = self._processor.decode([int(id) for id in ids]) if ids else ""
        return text

    def token(self, id: int) -> str | None:
        return (
            self._processor.id_to_piece(id) if 0 <= id < self._processor.get_piece_size() else None
        )

    def id(self, text: str) -> int | None:
        found: int = self._processor.piece_to_id(text)  # of the unknown piece, where there is none
        return found if self.token(found) == text else None


def kinds(model: bytes) -> Iterator[int]:
    """The types of all pieces, in the order of ids: field 3 of each field 1 of the model."""
    for field, value in fields(model):
        if field == 1 and isinstance(value, bytes):
            yield next(
                (kind for number, kind in fields(value) if number == 3 and isinstance(kind, int)), 1
            )


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protocol buffer: numbers as numbers, everything else as bytes."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        size = SIZES.get(key & 7, 0)
        if key & 7 in (0, 2):
            number, at = varint(data, at)
            if key & 7 == 0:
                yield key >> 3, number
                continue
            size = number
        yield key >> 3, data[at : at + size]
        at += size


SIZES = {1: 8, 5: 4}
"""Bytes of a field by its wire type, where that is fixed."""


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits to the byte, and where it ends."""
    number, shift = 0, 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at


def adapt(given: Any, backend: str | None) -> Tokenizer | None:
    if not isinstance(given, sentencepiece.SentencePieceProcessor):
        return None
    if not given.get_piece_size():
        raise TokenizerError(
            "the SentencePieceProcessor has no model",
            hint="Load one first: SentencePieceProcessor(model_file=…).",
        )
    return SentencePiece(given, "a SentencePieceProcessor")


def read(file: Path, name: str) -> Tokenizer:
    with guarded(f"{name} is not a SentencePiece model"):
        return SentencePiece(sentencepiece.SentencePieceProcessor(model_file=str(file)), name)
