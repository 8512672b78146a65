"""The decoders of a `tokenizer.json`: functions from the spellings of tokens to pieces of text."""

from __future__ import annotations

from collections.abc import Callable

from pure_tokenizer.components import read_field, read_parts, refuse
from pure_tokenizer.normalizers import read_replace
from turnwise.tokens.tokenizers.normalization import Component
from turnwise.tokens.tokenizers.offsets import BYTE_TOKEN, bytes_of_alphabet

Pieces = list[str]
Decode = Callable[[Pieces], Pieces]

REPLACEMENT_CHARACTER = "\ufffd"


def read_decoder(component: Component | None) -> Callable[[Pieces], str]:
    """Return the function from the spellings of tokens to their text.

    Raises:
        TokenizerError: a part of the decoder is not known here.
    """
    steps = [_read_step(part) for part in read_parts(component, "decoders")]
    separator = " " if component is None else ""  # without a decoder, tokens are words

    def decode(pieces: Pieces) -> str:
        for step in steps:
            pieces = step(pieces)
        return separator.join(pieces)

    return decode


def _read_step(component: Component) -> Decode:
    reader = READERS.get(component["type"])
    if reader is None:
        raise refuse(f"the decoder {component['type']}")
    return reader(component)


def _decode_bytes(pieces: Pieces) -> Pieces:
    """Return the text of tokens in the byte alphabet; a token that is not in it, such as an added one, is text."""
    data = b""
    for piece in pieces:
        spelled = bytes_of_alphabet(piece)
        data += piece.encode("utf-8") if spelled is None else spelled
    return [data.decode("utf-8", "replace")]


def _decode_byte_tokens(pieces: Pieces) -> Pieces:
    """Return the pieces with runs of `<0x0A>` as text; a run that is not UTF-8 gives one sign for each byte."""
    decoded: Pieces = []
    run = b""
    for piece in [*pieces, ""]:
        byte = BYTE_TOKEN.fullmatch(piece)
        if byte:
            run += bytes([int(byte[1], 16)])
            continue
        if run:
            try:
                decoded.append(run.decode("utf-8"))
            except UnicodeDecodeError:
                decoded += [REPLACEMENT_CHARACTER] * len(run)
            run = b""
        decoded.append(piece)
    return decoded[:-1]


def _read_strip(component: Component) -> Decode:
    character: str = read_field(component, "content", str)
    start: int = read_field(component, "start", int)
    stop: int = read_field(component, "stop", int)

    def strip(piece: str) -> str:
        left = 0
        while left < min(start, len(piece)) and piece[left] == character:
            left += 1
        right = len(piece)
        while right > max(left, len(piece) - stop) and piece[right - 1] == character:
            right -= 1
        return piece[left:right]

    return lambda pieces: [strip(piece) for piece in pieces]


def _read_metaspace(component: Component) -> Decode:
    sign: str = read_field(component, "replacement", str)
    has_prefix = read_field(component, "add_prefix_space", bool, True)
    scheme = read_field(component, "prepend_scheme", str, "always" if has_prefix else "never")

    def decode(pieces: Pieces) -> Pieces:
        decoded = [piece.replace(sign, " ") for piece in pieces]
        if decoded and scheme != "never":
            decoded[0] = pieces[0].replace(sign, "")
        return decoded

    return decode


def _read_replace(component: Component) -> Decode:
    replace = read_replace(component)
    return lambda pieces: [replace(piece) for piece in pieces]


READERS: dict[str, Callable[[Component], Decode]] = {
    "ByteFallback": lambda component: _decode_byte_tokens,
    "ByteLevel": lambda component: _decode_bytes,
    "Fuse": lambda component: lambda pieces: ["".join(pieces)],
    "Metaspace": _read_metaspace,
    "Replace": _read_replace,
    "Strip": _read_strip,
}
