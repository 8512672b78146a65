"""Where tokens end in a text, from the tokens alone.

A token spells some bytes. Its *width* is how many characters begin in it, and whether it begins inside a character (a
byte-level vocabulary may cut an emoji in four). Adding up widths gives the ends, with one rule for cut characters: a
character belongs to the last token that holds a byte of it. So ends never fall, and the last is the end of the text.

The sum must be the number of characters in the text; where it is not, the tokens do not spell this text and
there is no answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

Width = tuple[int, bool]
"""How many characters begin in the token; whether the token begins inside a character."""

BYTE = re.compile(r"<0x([0-9A-F]{2})>")


def byte_alphabet() -> dict[str, int]:
    """The printable character that stands for each byte in byte-level vocabularies, inverted.

    Visible Latin-1 characters stand for themselves; the rest are numbered from 256 on, in order."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in set(visible)]
    return {chr(byte): byte for byte in visible} | {
        chr(256 + n): byte for n, byte in enumerate(hidden)
    }


ALPHABET = byte_alphabet()


def bytes_of_alphabet(spelling: str) -> bytes | None:
    """The bytes of a token of a byte-level vocabulary; None for what is not in its alphabet."""
    try:
        return bytes([ALPHABET[character] for character in spelling])
    except KeyError:
        return None


def bytes_of_piece(spelling: str) -> bytes:
    """The bytes of a SentencePiece token: `<0x0A>` is a byte, `▁` is one character like any other."""
    byte = BYTE.fullmatch(spelling)
    return bytes([int(byte[1], 16)]) if byte else spelling.encode("utf-8", "replace")


def width(data: bytes) -> Width:
    return sum(byte & 0xC0 != 0x80 for byte in data), bool(data) and data[0] & 0xC0 == 0x80


class Widths(dict[int, Width | None]):
    """Widths by id, computed when first asked for. None: the id does not say what it stands for."""

    def __init__(self, data: Callable[[int], bytes | None]) -> None:
        super().__init__()
        self.data = data

    def __missing__(self, id: int) -> Width | None:
        data = self.data(id)
        found = self[id] = None if data is None else width(data)
        return found

    def ends(self, ids: Iterable[int], length: int, prefix: int = 0) -> list[int] | None:
        """The ends of `ids` in a text of `length` characters, before which `prefix` characters may have been put."""
        ends: list[int] = []
        position = 0
        for id in ids:
            found = self[id]
            if found is None:
                return None
            begun, inside = found
            if inside and ends:
                ends[-1] -= 1
            position += begun
            ends.append(position)
        put = position - length
        if put and put != prefix:
            return None
        return [max(0, end - put) for end in ends] if put else ends


def ends_of_starts(starts: Iterable[int], length: int) -> list[int]:
    """The same from the places where a library says that tokens start: each ends where the next one starts.

    Tokens that share a character all start at it, so the rule for cut characters holds here too."""
    ends: list[int] = []
    for start in starts:
        ends.append(max(start, ends[-1] if ends else 0))
    return [*ends[1:], length] if ends else []
