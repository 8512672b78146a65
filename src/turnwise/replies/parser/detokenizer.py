"""Incremental detokenizer: token ids become text in which control tokens cannot be mistaken.

A marker such as `<tool_call>` is one token of the vocabulary, but the same characters can be
written with ordinary tokens, for instance by a model that explains its own format. Token ids tell
the two apart: every added token that occurs in a marker is *masked*, that is replaced by one code
point that no text can hold (half of a surrogate pair). Markers and stream are masked alike; on the
way out each mask becomes the token's text again.

Ids are decoded as they come. A character may be spread over several tokens: incomplete UTF-8 is
buffered until it is complete. An id that the vocabulary does not have (models are wider than their
vocabularies) is short_repr as U+FFFD.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from itertools import accumulate
from typing import Any

_FIRST_MASK, _LAST_MASK = 0xD800, 0xDFFF
_INCOMPLETE = "\ufffd"  # what a tokenizer decodes an incomplete character to
_MAX_TOKENS_OF_CHARACTER = 4  # a character has at most four bytes, each of which may be a token
_CONTEXT_SIZE = 2  # tokens that are decoded again with the next one, for the spaces between them


class IncrementalDetokenizer:
    """The text of one stream of ids. Without a tokenizer nothing is masked."""

    def __init__(self, tokenizer: Any = None, texts: Iterable[str] = ()) -> None:
        """Prepare to decode.

        Args:
            tokenizer: The tokenizer of the ids; None for a stream of text.
            texts: The texts of a grammar; added tokens that occur in them are masked.
        """
        self.tokenizer = tokenizer
        self._added: dict[int, str] = {}  # id -> its text, or its mask
        self._masks: dict[str, str] = {}  # text of an added token -> its mask
        self._texts: dict[int, str] = {}  # code point of a mask -> text
        self._json_texts: dict[int, str] = {}  # the same, escaped for a JSON string
        self._pattern: re.Pattern[str] | None = None
        self._context: list[int] = []
        self._incomplete: list[int] = []
        self._known_ids: set[int] = set()
        if tokenizer is not None:
            self._choose_masks(tokenizer.added, "\0".join(texts))

    def fork(self) -> IncrementalDetokenizer:
        """Return a detokenizer for another stream, with the same masks."""
        other = copy(self)
        other._context, other._incomplete = [], []
        return other

    def _choose_masks(self, added: Mapping[str, Any], markers: str) -> None:
        # Longest first, so that the pattern prefers a token to another one that it starts with.
        for text, token in sorted(added.items(), key=lambda row: (-len(row[0]), row[0])):
            code = _FIRST_MASK + len(self._masks)
            if text.strip() and text in markers and code <= _LAST_MASK:
                self._masks[text] = chr(code)
                self._texts[code] = text
                self._json_texts[code] = text.replace("\\", "\\\\").replace('"', '\\"')
            self._added[token.id] = self._masks.get(text, text)
        if self._masks:
            self._pattern = re.compile("|".join(map(re.escape, self._masks)))

    # -- masks

    @property
    def has_masks(self) -> bool:
        return bool(self._masks)

    def is_mask(self, char: str) -> bool:
        return ord(char) in self._texts

    def mask_specials(self, text: str) -> str:
        """Return the text of a marker or a prompt with its control tokens masked."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda match: self._masks[match.group()], text)

    def unmask(self, text: str) -> str:
        """Return masked text with the texts of its control tokens."""
        return text.translate(self._texts) if self._texts else text

    def unmask_json(self, text: str) -> str:
        """Return masked JSON with the texts of its control tokens, which are within strings."""
        return text.translate(self._json_texts) if self._texts else text

    def offset_mapper(self, text: str) -> Callable[[int], int]:
        """Return a function from offsets in masked text to offsets in the same text unmasked."""
        if not self._texts:
            return lambda offset: offset
        masks = [offset for offset, char in enumerate(text) if self.is_mask(char)]
        growth = [0, *accumulate(len(self._texts[ord(text[offset])]) - 1 for offset in masks)]
        return lambda offset: offset + growth[bisect_left(masks, offset)]

    # -- ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the masked text of the next ids, as far as its characters are complete."""
        out: list[str] = []
        ordinary: list[int] = []
        for id in ids:
            if id not in self._added and self._is_known(id):
                ordinary.append(id)
                continue
            # An added or unknown token: what came before it will not be completed any more.
            out += (self._decode_ordinary(ordinary), self.flush())
            out.append(self._added.get(id, _INCOMPLETE))
            ordinary = []
            if id in self._added:
                self._context.clear()
        out.append(self._decode_ordinary(ordinary))
        return "".join(out)

    def flush(self) -> str:
        """Return the text of ids whose missing bytes will not come."""
        return self._decode_incomplete(is_last=True) if self._incomplete else ""

    def _is_known(self, id: int) -> bool:
        if id in self._known_ids:
            return True
        if self.tokenizer.token(id) is None:
            return False
        self._known_ids.add(id)
        return True

    def _decode_ordinary(self, ids: list[int]) -> str:
        """Decode all ids at once if every character is complete, else one by one: the text is the same."""
        if len(ids) > 1 and not self._incomplete:
            text = self._decode_in_context(ids)
            if _INCOMPLETE not in text:
                return self._accept(ids, text)
        return "".join(map(self._decode_one, ids))

    def _decode_one(self, id: int) -> str:
        self._incomplete.append(id)
        return self._decode_incomplete()

    def _decode_incomplete(self, is_last: bool = False) -> str:
        text = self._decode_in_context(self._incomplete)
        may_be_completed = len(self._incomplete) < _MAX_TOKENS_OF_CHARACTER and not is_last
        if text.endswith(_INCOMPLETE) and may_be_completed:
            return ""
        ids, self._incomplete = self._incomplete, []
        return self._accept(ids, text)

    def _decode_in_context(self, ids: list[int]) -> str:
        before = self.tokenizer.decode(self._context) if self._context else ""
        text: str = self.tokenizer.decode(self._context + ids)
        return text[len(before) :]

    def _accept(self, ids: list[int], text: str) -> str:
        """Remember ids as context, and drop lone surrogates from their text: only masks may be some."""
        self._context = (self._context + ids)[-_CONTEXT_SIZE:]
        if not self._texts:
            return text
        return "".join(char for char in text if not _FIRST_MASK <= ord(char) <= _LAST_MASK)


NO_TOKENIZER = IncrementalDetokenizer()  # for text that is only looked at; a stream has its own
