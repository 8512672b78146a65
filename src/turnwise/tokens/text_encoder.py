"""Encode a text whose special tokens are known: split at them, encode the plain spans between.

A text is split at the added tokens that count (`attribution.py` decides which), and where the generation prompt of an
assistant turn ends, because a served model's first token never merges with the last token of its prompt. The text
between two splits is a *plain span*: template and message content together, encoded in one call as ordinary text, by an
encoder that knows no added tokens. So no content can become a special token.

Some vocabularies spell a special token with ordinary pieces all the same (`<s>` in SentencePiece models), and a
normalizer may make such a spelling of other letters. So the ids of each span are checked (`control_ids.py`). Where one
is forged, the span is split once more inside the letters that it stands for; if that does not help, it is an error.

Plain spans are cached by content, because system prompts and tool lists come again with every request.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from operator import attrgetter
from threading import Lock
from weakref import WeakKeyDictionary

from turnwise.errors import TokenizerError, short_repr
from turnwise.tokens.control_ids import ControlIds
from turnwise.tokens.token_matcher import TokenMatch, TokenMatcher
from turnwise.tokens.tokenizers.protocol import AFTER, START, WITHIN, Added, Tokenizer

CACHE_SIZE = 4_000_000  # characters and ids of plain spans that are cached for each tokenizer
MAX_CACHED_LENGTH = 100_000  # characters of a plain span that is worth caching
ENTRY_SIZE = 50  # what each span counts for besides: many are short
MAX_SPLITS = 8  # of a text inside forged ids, before every character is encoded alone

# Of a plain span or an added token, which together are the whole text: its first character, the index of its first id,
# START, AFTER or WITHIN as the tokenizer was told, and the added token, None for a plain span.
SpanRow = tuple[int, int, int, Added | None]
SpanKey = tuple[int, str]  # position (START, AFTER, WITHIN) and text of a plain span
# The ids of a plain span; character and id index of every place where it was split to avoid special ids.
EncodedSpan = tuple[list[int], Sequence[tuple[int, int]]]


_get_start = attrgetter("start")  # of a TokenMatch


class TextEncoder:
    """A tokenizer with the matcher of its added tokens and a cache of encoded plain spans."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.matcher = TokenMatcher(tokenizer.added)
        self.controls = ControlIds(tokenizer)
        self.valid_ids: set[int] = set()  # those that were looked up
        # Gemma has tokens for runs of line breaks: they match across the end of a prompt.
        self.has_blank_tokens = any(not token.control for token in tokenizer.added.values())
        # Read without the lock: an entry is whole, and never changed.
        self._cache: dict[SpanKey, EncodedSpan] = {}
        self._size = 0
        self._lock = Lock()

    def encode_spans(
        self,
        text: str,
        matches: Sequence[TokenMatch],
        seams: Sequence[int] = (),
        position: int = START,
        before: tuple[int, list[int]] | None = None,
    ) -> tuple[list[int], list[SpanRow]]:
        """Return the ids of the text and its spans.

        Args:
            text: the text.
            matches: its added tokens that count, in order.
            seams: further characters at which the text is split, in order.
            position: START of everything, AFTER an added token, or WITHIN a text.
            before: the character to start from, and the ids before it, to which the others are added.
        """
        if self.has_blank_tokens and seams:
            matches = self._split_blank_tokens(text, matches, seams)
        done, ids = before or (0, [])
        rows: list[SpanRow] = []
        # Every encoded conversation passes here once per span, so names are local and calls few.
        add_row, cached = rows.append, self._cache.get
        length, remaining_seams = len(text), iter(seams)
        seam = next(remaining_seams, length)
        for start, end, token, _ in (*matches, (length, length, None, 0)):
            while done < start:
                while seam <= done:
                    seam = next(remaining_seams, length)
                part = text[done : seam if seam < start else start]
                add_row((done, len(ids), position, None))
                part_ids, splits = cached((position, part)) or self._encode_span(part, position)
                for offset, first in splits:
                    add_row((done + offset, len(ids) + first, WITHIN, None))
                ids += part_ids
                done += len(part)
                position = WITHIN
            if token is not None:
                add_row((done, len(ids), AFTER, token))  # `start`, or where the text begins
                ids.append(token.id)
                done, position = end, AFTER
        return ids, rows

    def _split_blank_tokens(
        self, text: str, matches: Sequence[TokenMatch], seams: Sequence[int]
    ) -> Sequence[TokenMatch]:
        """Return the matches with those of white space that cross a seam looked for again on both sides of it."""
        for seam in seams:
            index = bisect_left(matches, seam, key=_get_start) - 1
            if index < 0 or matches[index].end <= seam or matches[index].token.control:
                continue
            after = matches[index + 1].start if index + 1 < len(matches) else len(text)
            found = [
                match.shift(start)
                for start, end in ((matches[index].start, seam), (seam, after))
                for match in self.matcher.blank.find(text[start:end])
            ]
            matches = [*matches[:index], *found, *matches[index + 1 :]]
        return matches

    def _encode_span(self, text: str, position: int) -> EncodedSpan:
        """Return the ids of a text as ordinary text, and where it was split to avoid control ids."""
        encoded: EncodedSpan = self.tokenizer.encode(text, position), ()
        if self.controls.may_come_from_text and not self.controls.are_exactly((), encoded[0]):
            encoded = self._encode_in_parts(text, position)
        if len(text) > MAX_CACHED_LENGTH:
            return encoded
        key = position, text
        with self._lock:
            if self._size > CACHE_SIZE:
                for old in list(self._cache)[: len(self._cache) // 2 + 1]:  # the older half
                    self._size -= _size_of(old, self._cache.pop(old))
            if self._cache.setdefault(key, encoded) is encoded:  # no other thread was first
                self._size += _size_of(key, encoded)
        return encoded

    def _encode_in_parts(self, text: str, position: int) -> EncodedSpan:
        """Encode a text whose usual ids contain control ids, by splitting inside the letters of each.

        Raises:
            TokenizerError: even a single character is encoded to a control id.
        """
        ids: list[int] = []
        splits: list[tuple[int, int]] = []
        done = 0
        waiting = [(text, 0)]  # parts from the last to the next, and how often they were split
        while waiting:
            part, count = waiting.pop()
            here = WITHIN if done else position
            part_ids = self.tokenizer.encode(part, here)
            if not self.controls.are_exactly((), part_ids):
                parts = list(part) if count == MAX_SPLITS else self._split(part, part_ids, here)
                waiting += [(smaller, count + 1) for smaller in reversed(parts)]
                continue
            if done:
                splits.append((done, len(ids)))
            ids += part_ids
            done += len(part)
        return ids, splits

    def _split(self, text: str, ids: Sequence[int], position: int) -> Sequence[str]:
        """Return a text in parts, split inside the letters of each control id among its ids.

        Raises:
            TokenizerError: the text is a single character.
        """
        if len(text) == 1:
            id = self.controls.select(ids)[0]
            raise TokenizerError(
                f"{self.tokenizer.name} encodes ordinary text, {short_repr(text)}, "
                f"as the control token {self.tokenizer.token(id)}",
                hint="refuse the text, or take the token from the vocabulary of the tokenizer's model",
            )
        offsets = self.tokenizer.offsets(text, ids, position)
        middles = {
            (start + end) // 2
            for id, (start, end) in zip(ids, offsets, strict=True)
            if id in self.controls.ids and start < (start + end) // 2
        }
        edges = [0, *sorted(middles), len(text)]
        if not middles:  # it is not known which letters these are, or it is a single one
            return list(text)
        return [text[start:end] for start, end in pairwise(edges)]


def _size_of(key: SpanKey, encoded: EncodedSpan) -> int:
    """Return what a cached span counts for: its characters, ids and splits, and something for itself."""
    return len(key[1]) + len(encoded[0]) + 2 * len(encoded[1]) + ENTRY_SIZE


_ENCODERS: WeakKeyDictionary[Tokenizer, TextEncoder] = WeakKeyDictionary()


def encoder_for(tokenizer: Tokenizer) -> TextEncoder:
    """Return the encoder of a tokenizer, which is made once."""
    encoder = _ENCODERS.get(tokenizer)
    if encoder is None:
        encoder = _ENCODERS.setdefault(tokenizer, TextEncoder(tokenizer))
    return encoder
