"""Map characters of an encoded text to tokens and back.

Ids come without offsets. But the text was encoded in spans (`text_encoder.py`), and for each span its first character
and its first id are known. Most questions are about the borders of spans and are answered from these; only a question
about a character inside a plain span asks the tokenizer where each token of that span ends.

`offsets` are the spans of the tokens, in which tokens may share a character (a byte-level vocabulary splits one), and
from which text may be missing that a normaliser drops. For labels and owners every character belongs to one token:
`ends` cuts the text where the next token starts, so a character that was split belongs to the last of its tokens.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter

from turnwise.tokens.text_encoder import SpanRow, encoder_for
from turnwise.tokens.tokenizers.offsets import Offsets, ends_of_starts
from turnwise.tokens.tokenizers.protocol import WHOLE, Added, Tokenizer

_get_start = itemgetter(0)  # of a SpanRow


class TokenOffsets:
    """The tokens of one text; without `spans`, the ids are those that the library itself gives for it."""

    __slots__ = ("_ends", "_offsets", "_spans", "ids", "text", "tokenizer")

    def __init__(
        self,
        text: str,
        ids: list[int],
        tokenizer: Tokenizer | None,
        spans: list[SpanRow] | None,
        offsets: list[Offsets] | None = None,
    ) -> None:
        self.text = text
        self.ids = ids
        self.tokenizer = tokenizer  # None in a copy from another process, which knows all offsets
        self._spans = spans
        self._offsets = offsets
        self._ends: list[int] | None = None

    @property
    def spans(self) -> list[SpanRow]:
        """The plain spans and added tokens, in order."""
        if self._spans is None:
            assert self.tokenizer is not None
            # Encode a text in which every added token counts, whoever wrote it, as transformers does.
            encoder = encoder_for(self.tokenizer)
            ids, spans = encoder.encode_spans(self.text, encoder.matcher.find(self.text))
            if ids != self.ids:
                self._offsets = _find_whole_offsets(self.tokenizer, self.text, self.ids)
                spans = _find_spans(self.ids, self._offsets, self.tokenizer.added.values())
            self._spans = spans
        return self._spans

    @property
    def offsets(self) -> list[Offsets]:
        """The first character of each token and the one after its last."""
        spans = range(len(self.spans))  # to find them may find the offsets too
        if self._offsets is None:
            self._offsets = [one for index in spans for one in self._offsets_in_span(index)]
        return self._offsets

    @property
    def ends(self) -> list[int]:
        """The character at which each token ends if every character belongs to one token."""
        if self._ends is None:
            spans = range(len(self.spans))
            self._ends = [end for index in spans for end in self._ends_in_span(index)]
        return self._ends

    def first_at(self, character: int) -> int:
        """Return the index of the first token that holds this character, or a part of it."""
        if character >= len(self.text):
            return len(self.ids)
        index = bisect_right(self.spans, character, key=_get_start) - 1
        start, first, _, token = self.spans[index]
        if token is not None or character == start:
            return first
        ends = self._ends_in_span(index)
        inside = bisect_left(ends, character)
        if inside < len(ends) and ends[inside] == character:
            inside += 1  # that token ends before the character
        return first + inside

    def last_at(self, character: int) -> int:
        """Return the index after the last token that begins before this character."""
        if character <= 0:
            return 0
        # The span that holds the character before.
        index = bisect_left(self.spans, character, key=_get_start) - 1
        _, first, _, token = self.spans[index]
        end, end_id = self.span_end(index)
        if character == end or token is not None:
            return end_id
        # A span may have no tokens at all.
        return min(first + bisect_left(self._ends_in_span(index), character) + 1, end_id)

    def _ends_in_span(self, index: int) -> list[int]:
        """Return where each token of a span ends, and the next one starts."""
        starts = (start for start, _ in self._offsets_in_span(index))
        return ends_of_starts(starts, self.span_end(index)[0])

    def _offsets_in_span(self, index: int) -> list[Offsets]:
        start, first, position, token = self.spans[index]
        end, end_id = self.span_end(index)
        if self._offsets is not None:
            return self._offsets[first:end_id]
        if token is not None:
            return [(start, end)]
        assert self.tokenizer is not None
        inside = self.tokenizer.offsets(self.text[start:end], self.ids[first:end_id], position)
        return [(start + token_start, start + token_end) for token_start, token_end in inside]

    def span_end(self, index: int) -> tuple[int, int]:
        """Return where a span ends: the character, and the index into the ids."""
        if index + 1 < len(self.spans):
            return self.spans[index + 1][:2]
        return len(self.text), len(self.ids)


def _find_whole_offsets(tokenizer: Tokenizer, text: str, ids: list[int]) -> list[Offsets]:
    """Return the offsets of ids that the library gives for a text, and of those that were added behind them.

    Such ids are not those of `encode_joint` where the library finds added tokens otherwise, for instance after
    normalising.
    """
    whole = tokenizer.whole(text)
    if ids[: len(whole)] != whole:
        whole = ids
    added_behind = len(ids) - len(whole)  # they have no text
    return tokenizer.offsets(text, whole, WHOLE) + [(len(text), len(text))] * added_behind


def _find_spans(
    ids: Sequence[int], offsets: Sequence[Offsets], added: Iterable[Added]
) -> list[SpanRow]:
    """Return the spans of a text of which only the offsets are known: its added tokens, and what is between them."""
    tokens = {token.id: token for token in added}
    rows: list[SpanRow] = [(0, 0, WHOLE, None)]  # may be empty
    for index, (id, (start, _)) in enumerate(zip(ids, offsets, strict=True)):
        token = tokens.get(id)
        if token is not None or rows[-1][3] is not None:
            rows.append((max(start, rows[-1][0]), index, WHOLE, token))
    return rows
