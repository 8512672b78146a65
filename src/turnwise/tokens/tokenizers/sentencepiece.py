"""Adapter for SentencePiece: a processor object, or a model file.

The library never recognises control symbols (`<s>`) in text; they are the added tokens. It recognises *user-defined*
symbols in any text: they are added tokens too, and `native`. It does not tell which pieces are user-defined, so their
types are read from the model's protocol buffer.

Most models put a space before the text. A text that was split gets none: it is encoded by a second processor without
that prefix.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import sentencepiece

from turnwise.errors import TokenizerError
from turnwise.tokens.tokenizers.base import BaseTokenizer
from turnwise.tokens.tokenizers.foreign_errors import check_text, wrap_errors
from turnwise.tokens.tokenizers.offsets import Offsets, bytes_of_piece
from turnwise.tokens.tokenizers.protocol import START, WHOLE, WITHIN, Added, Tokenizer

NORMAL, CONTROL, USER_DEFINED = 1, 3, 4  # types of pieces
VARINT, LENGTH_DELIMITED = 0, 2  # wire types of protocol buffers
FIXED_SIZES = {1: 8, 5: 4}  # bytes of a field by its wire type
NAMES = ("bos", "eos", "pad", "unk")
SPACE = "▁"


class SentencePiece(BaseTokenizer):
    backend = "sentencepiece"

    def __init__(self, processor: Any, name: str) -> None:
        self._processor = processor
        self._model: bytes = processor.serialized_model_proto()
        rows = [
            Added(processor.id_to_piece(id), id, kind == CONTROL)
            for id, kind in enumerate(_piece_types(self._model))
            if kind in (CONTROL, USER_DEFINED)
        ]
        native = [row.id for row in rows if not row.special]
        named = {
            f"{name}_token": processor.id_to_piece(id)
            for name in NAMES
            if (id := getattr(processor, f"{name}_id")()) >= 0
        }
        self.prefix_length = int(processor.normalize("a").startswith(SPACE))
        super().__init__(name, rows, named, native)

    @cached_property
    def _without_prefix(self) -> Any:
        made = sentencepiece.SentencePieceProcessor(model_proto=self._model)
        made.override_normalizer_spec(add_dummy_prefix=False)
        return made

    def _processor_at(self, position: int) -> Any:
        is_split = self.prefix_length and position == WITHIN
        return self._without_prefix if is_split else self._processor

    def encode_plain(self, text: str, position: int) -> list[int]:
        ids: list[int] = self._processor_at(position).encode(text)
        return ids

    def offsets(self, text: str, ids: Sequence[int], position: int = START) -> list[Offsets]:
        check_text(text)
        processor = self._processor_at(position)
        if position != WHOLE and hasattr(processor, "encode_as_offset_mapping"):
            mapping = processor.encode_as_offset_mapping(text)
            if list(mapping["ids"]) == list(ids):
                return [(start, end) for start, end in mapping["offsets"]]
        return super().offsets(text, ids, position)

    def token_bytes(self, id: int) -> bytes | None:
        spelling = self.token(id)
        if spelling is None or self._processor.is_unknown(id):
            return None
        return bytes_of_piece(spelling)

    def decode_plain(self, ids: Sequence[int]) -> str:
        return str(self._processor.decode([int(id) for id in ids])) if ids else ""

    def token(self, id: int) -> str | None:
        return (
            self._processor.id_to_piece(id) if 0 <= id < self._processor.get_piece_size() else None
        )

    def id(self, text: str) -> int | None:
        id: int = self._processor.piece_to_id(text)  # that of the unknown piece, if there is none
        return id if self.token(id) == text else None


def _piece_types(model: bytes) -> Iterator[int]:
    """Yield the type of every piece in the order of ids: field 3 of each field 1 of the model."""
    for number, piece in _read_fields(model):
        if number == 1 and isinstance(piece, bytes):
            kind = dict(_read_fields(piece)).get(3)
            yield kind if isinstance(kind, int) else NORMAL


def _read_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of the fields of a protocol buffer: varints as integers, the others as bytes."""
    position = 0
    while position < len(data):
        key, position = _read_varint(data, position)
        number, wire_type = key >> 3, key & 7
        if wire_type == VARINT:
            value, position = _read_varint(data, position)
            yield number, value
            continue
        size = FIXED_SIZES.get(wire_type, 0)
        if wire_type == LENGTH_DELIMITED:
            size, position = _read_varint(data, position)
        yield number, data[position : position + size]
        position += size


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return an integer of seven bits to the byte, and where it ends."""
    number, shift = 0, 0
    while True:
        byte = data[position]
        number |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return number, position


def adapt(given: Any, backend: str | None) -> Tokenizer | None:
    """Wrap a SentencePieceProcessor."""
    if not isinstance(given, sentencepiece.SentencePieceProcessor):
        return None
    if not given.get_piece_size():
        raise TokenizerError(
            "the SentencePieceProcessor has no model",
            hint="Load one first: SentencePieceProcessor(model_file=…).",
        )
    return SentencePiece(given, "a SentencePieceProcessor")


def read(file: Path, name: str, data: bytes) -> Tokenizer:
    """Read a SentencePiece model file."""
    with wrap_errors(f"{name} is not a SentencePiece model"):
        return SentencePiece(sentencepiece.SentencePieceProcessor(model_proto=data), name)
