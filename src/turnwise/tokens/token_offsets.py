"""Map characters of an encoded text to tokens and back.

Ids come without offsets. But the text was encoded in spans (`text_encoder.py`), and for each span its first character
and its first id are known. Most questions are about the borders of spans and are answered from these; only a question
about a character inside a plain span asks the tokenizer where each token of that span ends.

A character that was split into several tokens belongs to the last of them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from turnwise.tokens.text_encoder import SpanTable, encoder_for
from turnwise.tokens.tokenizers.protocol import Tokenizer


class TokenOffsets:
    """The tokens of one text; without `spans`, every added token in the text counts as one."""

    __slots__ = ("_ends", "_spans", "ids", "text", "tokenizer")

    def __init__(
        self,
        text: str,
        ids: list[int],
        tokenizer: Tokenizer | None,
        spans: SpanTable | None,
        ends: list[int] | None = None,
    ) -> None:
        self.text = text
        self.ids = ids
        self.tokenizer = tokenizer  # None in a copy from another process, which knows all ends
        self._spans = spans
        self._ends = ends

    @property
    def spans(self) -> SpanTable:
        """The plain spans and added tokens, in order."""
        if self._spans is None and self.tokenizer is not None:
            self._spans = encode_joint(self.tokenizer, self.text)[1]
        assert self._spans is not None
        return self._spans

    @property
    def ends(self) -> list[int]:
        """The character at which each token ends."""
        if self._ends is None:
            ends: list[int] = []
            for index in range(len(self.spans.starts)):
                ends += self._ends_in_span(index)
            self._ends = ends
        return self._ends

    def first_at(self, character: int) -> int:
        """Return the index of the first token that holds this character, or a part of it."""
        if character >= len(self.text):
            return len(self.ids)
        starts, first_ids, _, tokens = self.spans.columns
        index = bisect_right(starts, character) - 1
        first = int(first_ids[index])
        if tokens[index] is not None or character == starts[index]:
            return first
        ends = self._ends_in_span(index)
        inside = bisect_left(ends, character)
        if ends[inside] == character:
            inside += 1  # that token ends before the character
        return first + inside

    def last_at(self, character: int) -> int:
        """Return the index after the last token that begins before this character."""
        if character <= 0:
            return 0
        starts, first_ids, _, tokens = self.spans.columns
        index = bisect_left(starts, character) - 1  # the span that holds the character before
        end, end_id = self._span_end(index)
        if character == end or tokens[index] is not None:
            return end_id
        return int(first_ids[index]) + bisect_left(self._ends_in_span(index), character) + 1

    def _ends_in_span(self, index: int) -> list[int]:
        """Return the character at which each token of a span ends."""
        spans = self.spans
        end, end_id = self._span_end(index)
        if spans.tokens[index] is not None:
            return [end]
        start, first = spans.starts[index], spans.first_ids[index]
        if self._ends is not None:
            return self._ends[first:end_id]
        assert self.tokenizer is not None
        lengths = self.tokenizer.ends(
            self.text[start:end], self.ids[first:end_id], spans.positions[index]
        )
        return [start + length for length in lengths]

    def _span_end(self, index: int) -> tuple[int, int]:
        """Return where a span ends: the character, and the index into the ids."""
        spans, following = self.spans, index + 1
        if following < len(spans.starts):
            return spans.starts[following], spans.first_ids[following]
        return len(self.text), len(self.ids)


def encode_joint(tokenizer: Tokenizer, text: str) -> tuple[list[int], SpanTable]:
    """Encode a text in which every added token counts, whoever wrote it, as transformers does."""
    encoder = encoder_for(tokenizer)
    return encoder.encode_spans(text, encoder.matcher.find(text), may_spell_specials=False)
