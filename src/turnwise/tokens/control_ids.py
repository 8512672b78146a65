"""The postcondition of every path to ids: control ids stand where a trusted author wrote their tokens, and only there.

A content may become a control id although it spells no control token: where a vocabulary has its special tokens as
ordinary pieces, a normalizer makes `</s>` of full-width letters, upper case or accents. So texts prove nothing, and the
ids are looked at. `TextEncoder` asks about every span of ordinary text, so prompts, growing prompts and sessions, whose
ids all come from there, have been asked about; `encode_batch` asks about every row that it encodes otherwise.

Two kinds of added tokens stand for text that a vocabulary lacks, and do not count: the unknown token, unless a
conversation may begin or end with it, and single bytes (`<0x0A>`).
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Iterable, Sequence

from turnwise.errors import TurnwiseError
from turnwise.tokens.tokenizers.protocol import WITHIN, Tokenizer

BYTE = re.compile("<0x[0-9A-Fa-f]{2}>")
# Of no script, of a rare one, and of one that is in no vocabulary: some normalizers remove the first.
RARE_CHARACTERS = ("\U0010fffd", "\U00013080", "\U00016a4f")
ALSO_UNKNOWN = ("unk_token", "pad_token")  # often the same token


class ControlIds:
    """The ids of a tokenizer that ordinary text must not give.

    Attributes:
        ids: the ids.
        may_come_from_text: whether the vocabulary has one of them, so that the tokenizer's library may give it.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        replaced = _find_unknown(tokenizer)
        self.ids = frozenset(
            token.id
            for token in tokenizer.added.values()
            if token.control and token.id not in replaced and not BYTE.fullmatch(token.text)
        )
        self.may_come_from_text = not self.ids.isdisjoint(tokenizer.native)
        lowest = [{id >> shift & 0xFF for id in self.ids} for shift in (0, 8)]
        self._tables = [bytes(byte in found for byte in range(256)) for found in lowest]

    def are_exactly(self, wanted: Sequence[int], ids: Iterable[int]) -> bool:
        """Return whether the control ids among `ids` are the wanted ones, in this order."""
        if not wanted:
            return self.ids.isdisjoint(ids)
        return self.select(ids) == list(wanted)

    def select(self, ids: Iterable[int]) -> list[int]:
        """Return the control ids among some ids."""
        return list(filter(self.ids.__contains__, ids))

    def find_places(self, ids: array[int]) -> list[int]:
        """Return the places of all control ids, and of a few others.

        The two lowest bytes of all ids are compared at once, in a fifth of the time that looking up each id takes.
        """
        data, size = ids.tobytes(), ids.itemsize
        low, high = (0, 1) if sys.byteorder == "little" else (size - 1, size - 2)
        flags = [
            int.from_bytes(data[start::size].translate(table), "big")
            for start, table in zip((low, high), self._tables, strict=True)
        ]
        both = (flags[0] & flags[1]).to_bytes(len(ids), "big")
        return [match.start() for match in re.finditer(b"\1", both)]


def _find_unknown(tokenizer: Tokenizer) -> set[int]:
    """Return the ids that a tokenizer gives for letters that it lacks, unless they mean something else too."""
    named = tokenizer.named
    others = {tokenizer.id(text) for name, text in named.items() if name not in ALSO_UNKNOWN}
    found = [tokenizer.id(named.get("unk_token", ""))]
    for character in RARE_CHARACTERS:
        try:
            found += tokenizer.encode(character, WITHIN)
        except TurnwiseError:  # without an unknown token, or for a text that was split
            continue
    return {id for id in found if id is not None} - others
