"""Compute the offsets of tokens in a text from the tokens alone.

A token spells some bytes. Its *width* is how many characters begin in it, and whether it begins inside a character (a
byte-level vocabulary may split an emoji in four). Adding up widths gives the spans of the tokens. Tokens that share a
character all have it in their spans, as in `tokenizers`.

The sum must be the number of characters in the text; where it is not, the tokens do not spell this text and no offsets
are returned (`alignment.py` finds them then).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

# How many characters begin in the token; whether the token begins inside a character.
Width = tuple[int, bool]
Offsets = tuple[int, int]  # the first character of a token and the one after its last

BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


def _byte_alphabet() -> dict[str, int]:
    """Return the byte that each printable character means in byte-level vocabularies.

    Visible Latin-1 characters mean themselves; the other bytes are numbered from 256 on, in order."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in set(visible)]
    return {chr(byte): byte for byte in visible} | {
        chr(256 + n): byte for n, byte in enumerate(hidden)
    }


BYTE_ALPHABET = _byte_alphabet()


def bytes_of_alphabet(spelling: str) -> bytes | None:
    """Return the bytes of a token of a byte-level vocabulary; None if it is not in its alphabet."""
    try:
        return bytes([BYTE_ALPHABET[character] for character in spelling])
    except KeyError:
        return None


def bytes_of_piece(spelling: str) -> bytes:
    """Return the bytes of a SentencePiece token: `<0x0A>` is a byte, `▁` is one character like any other."""
    byte = BYTE_TOKEN.fullmatch(spelling)
    return bytes([int(byte[1], 16)]) if byte else spelling.encode("utf-8", "replace")


class TokenWidths(dict[int, Width | None]):
    """Widths by id, computed when first asked for; None where the bytes of an id are not known."""

    def __init__(self, token_bytes: Callable[[int], bytes | None]) -> None:
        super().__init__()
        self.token_bytes = token_bytes

    def __missing__(self, id: int) -> Width | None:
        data, width = self.token_bytes(id), None
        if data is not None:
            begins = [byte & 0xC0 != 0x80 for byte in data]  # no continuation byte of UTF-8
            width = sum(begins), not all(begins[:1])
        self[id] = width
        return width

    def offsets(
        self, ids: Iterable[int], length: int, prefix_length: int = 0
    ) -> list[Offsets] | None:
        """Return the spans of `ids` in a text of `length` characters, before which a prefix may have been put.

        None if the ids do not spell such a text.
        """
        offsets: list[Offsets] = []
        end = 0
        for id in ids:
            width = self[id]
            if width is None:
                return None
            begun, is_inside = width
            start = end - 1 if is_inside and end else end
            end += begun
            offsets.append((start, end))
        prefix = end - length
        if not prefix:
            return offsets
        if prefix != prefix_length or not length:
            return None
        # What was put before the text shares its first character.
        return [(max(0, start - prefix), max(1, end - prefix)) for start, end in offsets]


def ends_of_starts(starts: Iterable[int], length: int) -> list[int]:
    """Return where tokens end from where a library says that they start: each ends where the next one starts.

    Tokens that share a character all start at it, so it belongs to the last of them here too."""
    ends: list[int] = []
    for start in starts:
        ends.append(max(start, ends[-1] if ends else 0))
    return [*ends[1:], length] if ends else []
