"""Byte-pair encoding: a word becomes tokens by merging neighbours, the earliest learnt pair first.

A word starts as its characters. The file lists the pairs that were merged in training, in the order in which they were
learnt: their rank. Again and again, the pair of the lowest rank is merged, the leftmost first, until no neighbours are
a known pair. The pairs wait in a heap, so a word of n characters takes n log n steps: some vocabularies do not split a
text at all, and their word is the whole text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from heapq import heapify, heappop, heappush
from typing import Any

from pure_tokenizer.components import read_field, refuse
from turnwise.errors import TokenizerError
from turnwise.tokens.tokenizers.normalization import Component

MAX_CACHED_WORD = 256  # characters; longer words seldom come again
CACHE_SIZE = 20_000  # words
MAX_ID = 1 << 32
UNSUPPORTED = ("continuing_subword_prefix", "end_of_word_suffix")

# The rank of a pair, the position of its first symbol, and what they merge to.
Waiting = tuple[int, int, str]


class BytePairModel:
    """The model of a `tokenizer.json`: the vocabulary, the pairs with their ranks, and what unknown characters become.

    Raises:
        TokenizerError: the model is of another kind, or does not fit together.
    """

    def __init__(self, model: Component) -> None:
        kind = model.get("type", "BPE")
        if kind != "BPE":
            raise refuse(f"the model {kind}")
        for field in UNSUPPORTED:
            if model.get(field):
                raise refuse(f"the field {field} of the model BPE")
        self.vocabulary: Mapping[str, int] = read_field(model, "vocab", dict)
        self.spellings = {id: spelling for spelling, id in self.vocabulary.items()}
        if not all(type(id) is int and 0 <= id < MAX_ID for id in self.spellings):
            raise TokenizerError("the vocabulary has ids that are not numbers")
        self._ranks = dict(_read_merges(read_field(model, "merges", list), self.vocabulary))
        self.unknown: str | None = read_field(model, "unk_token", str, "") or None
        if self.unknown is not None and self.unknown not in self.vocabulary:
            raise TokenizerError(f"the vocabulary does not have its unk_token {self.unknown!r}")
        self._fuses_unknown = read_field(model, "fuse_unk", bool, False)
        self._has_byte_tokens = read_field(model, "byte_fallback", bool, False)
        self._ignores_merges = read_field(model, "ignore_merges", bool, False)
        self._encode_cached = lru_cache(maxsize=CACHE_SIZE)(self._encode)

    def encode(self, word: str) -> Sequence[int]:
        """Return the ids of a word."""
        return self._encode_cached(word) if len(word) <= MAX_CACHED_WORD else self._encode(word)

    def _encode(self, word: str) -> Sequence[int]:
        if self._ignores_merges and word in self.vocabulary:
            return (self.vocabulary[word],)
        symbols = self._merge(list(self._read_symbols(word)))
        return tuple([self.vocabulary[symbol] for symbol in symbols])

    def _read_symbols(self, word: str) -> Iterator[str]:
        """Yield the characters of a word; one that has no token becomes its bytes, the unknown token, or nothing."""
        waits = (
            False  # whether an unknown token waits for more characters, or for the next known one
        )
        for character in word:
            if character in self.vocabulary:
                if waits and self.unknown:
                    yield self.unknown
                waits = False
                yield character
                continue
            tokens = [f"<0x{byte:02X}>" for byte in character.encode("utf-8")]
            if self._has_byte_tokens and all(token in self.vocabulary for token in tokens):
                yield from tokens  # also before an unknown token that waits, as the library has it
                continue
            if waits and not self._fuses_unknown and self.unknown:
                yield self.unknown
            waits = True
        if waits and self.unknown:
            yield self.unknown

    def _merge(self, symbols: list[str]) -> Iterable[str]:
        """Return the symbols after all merges.

        A merged symbol takes the place of its left part; the place of the right part becomes empty.
        """
        following = [*range(1, len(symbols)), -1]
        previous = list(range(-1, len(symbols) - 1))
        waiting: list[Waiting] = []
        for position in range(len(symbols) - 1):
            self._wait(waiting, symbols, position, position + 1, heapify_later=True)
        heapify(waiting)
        while waiting:
            _, left, merged = heappop(waiting)
            right = following[left]
            # Its symbols may have been merged with others since.
            if not symbols[left] or right < 0 or symbols[left] + symbols[right] != merged:
                continue
            if (symbols[left], symbols[right]) not in self._ranks:
                continue
            symbols[left], symbols[right] = merged, ""
            after, before = following[right], previous[left]
            following[left] = after
            if after >= 0:
                previous[after] = left
                self._wait(waiting, symbols, left, after)
            if before >= 0:
                self._wait(waiting, symbols, before, left)
        return filter(None, symbols)

    def _wait(
        self,
        waiting: list[Waiting],
        symbols: list[str],
        left: int,
        right: int,
        *,
        heapify_later: bool = False,
    ) -> None:
        """Put a pair of neighbours among those that wait, if it is known."""
        rank = self._ranks.get((symbols[left], symbols[right]))
        if rank is None:
            return
        pair = rank, left, symbols[left] + symbols[right]
        if heapify_later:
            waiting.append(pair)
        else:
            heappush(waiting, pair)


def _read_merges(
    merges: list[Any], vocabulary: Mapping[str, int]
) -> Iterator[tuple[tuple[str, str], int]]:
    """Yield pairs and ranks; a pair is a list of two, or one text with a space between."""
    for rank, merge in enumerate(merges):
        pair = tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge)
        if len(pair) != 2:
            raise TokenizerError(f"merge {rank} of the vocabulary is not a pair: {merge!r}")
        left, right = pair
        if left not in vocabulary or right not in vocabulary or left + right not in vocabulary:
            raise TokenizerError(
                f"merge {rank} has a token that the vocabulary does not: {merge!r}"
            )
        yield (left, right), rank
