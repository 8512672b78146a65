"""The tokens of replies: ids that were sampled become text, and replies given as text become ids.

Sampled ids are never encoded again. They are checked to be ids of the tokenizer, and decoded as what follows the ids
before them, because some decoders drop a space at the start of a text. A reply that is given as text may have the
special tokens that an assistant may write (`attribution.py`); other spellings of special tokens stay text.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from turnwise.errors import TokenizerError
from turnwise.token_ids import to_token_ids
from turnwise.tokens.attribution import Trust, parse_trust
from turnwise.tokens.encode import EncodeRequest, find_turn_delimiters
from turnwise.tokens.text_encoder import encoder_for
from turnwise.tokens.tokenizers.protocol import WITHIN, Added, Tokenizer

INCOMPLETE = "\ufffd"  # what a decoder writes for bytes that are no whole character
MAX_WINDOW = 16  # ids that may be parts of one character


class ReplyTokens:
    """Reads the tokens of replies with one tokenizer.

    Args:
        request: the tokenizer and who may write which tokens.
        stops: the texts that end a reply.

    Attributes:
        added_ids: those of added tokens.
        stop_ids: those of the stops that are tokens, in the same order.
    """

    def __init__(self, request: EncodeRequest, stops: Sequence[str]) -> None:
        self._request = request
        self._tokenizer = request.tokenizer
        self._stops = stops
        self._longest_stop = max(map(len, stops), default=0)
        self._decoded_lengths: dict[int, int] = {}  # of ids that were last before a reply
        added = self._tokenizer.added
        self.added_ids = frozenset(token.id for token in added.values())
        self.stop_ids = [added[text].id for text in stops if text in added]
        self._spelled_stops = tuple(text for text in stops if text not in added)

    def validate(self, ids: Any) -> list[int]:
        """Return the ids as a list, if all are ids of this tokenizer.

        Raises:
            TokenizerError: they are not ids, or the tokenizer does not have one of them.
        """
        numbers = to_token_ids(ids, "a reply is text or a list of ids")
        valid = encoder_for(self._tokenizer).valid_ids
        new = set(numbers) - valid
        for number in new:
            if self._tokenizer.token(number) is None:
                raise TokenizerError(
                    f"ids[{numbers.index(number)}] is {number}, which {self._tokenizer.name} does not have",
                    hint="were they sampled with another tokenizer?",
                )
        valid |= new
        return numbers

    def decode(self, ids: Sequence[int], before: Sequence[int]) -> str:
        """Return the text of ids that follow others."""
        if not before:
            return self._tokenizer.decode(ids)
        last = before[-1]
        length = self._decoded_lengths.get(last)
        if length is None:
            length = self._decoded_lengths[last] = len(self._tokenizer.decode([last]))
        return self._tokenizer.decode([last, *ids])[length:]

    def encode(self, text: str) -> list[int]:
        """Return the ids of a reply given as text, with the special tokens that an assistant may write."""
        encoder = encoder_for(self._tokenizer)
        level = parse_trust(self._request.trust).get(("role", "assistant"), Trust.NONE)
        specials = encoder.matcher.find(text, partial(self._may_write, text, level))
        return encoder.encode_spans(text, specials, position=WITHIN)[0]

    def _may_write(self, text: str, level: Trust, token: Added, start: int, end: int) -> bool:
        """Return whether an assistant may write this token: a stop at the end, or what its trust level allows."""
        if level == Trust.ALL or not token.control:
            return True
        if len(text) - start <= self._longest_stop and text[start:] in self._stops:
            return True
        if level == Trust.NONE or token.special:
            return False
        return token.text not in find_turn_delimiters(self._request)

    def as_text_or_ids(self, text: str, ids: list[int]) -> str | list[int]:
        """Return the text if all special tokens that it spells are real: it is parsed alike, and faster than ids."""
        spelled = [match.token.id for match in encoder_for(self._tokenizer).matcher.find(text)]
        return text if spelled == [id for id in ids if id in self.added_ids] else ids

    def is_finished(self, text: str, ids: Sequence[int]) -> bool:
        """Return whether a reply ends with a stop, which is a token if the tokenizer has one for it."""
        has_token = bool(ids) and ids[-1] in self.stop_ids
        return has_token or text.endswith(self._spelled_stops)


def find_token_ends(tokenizer: Tokenizer, before: Sequence[int], ids: Sequence[int]) -> list[int]:
    """Return the character at which each of some ids ends in their text, whatever they are.

    Ids that a model sampled need not be those that their text is encoded to, and need not spell whole characters; a
    character that is spelled by several ids ends in the last of them. Each id is decoded after a few others, because
    decoders treat the start of a text differently.

    Args:
        tokenizer: decodes the ids.
        before: ids that come before them, as far as they matter: the last one.
        ids: the ids.
    """
    window = [*before, *ids]
    ends: list[int] = []
    # The ids from `start` on are decoded, and those before `done` are counted.
    start, done = 0, len(before)
    length = len(tokenizer.decode(window[:done])) if done else 0
    end = 0
    for index in range(len(before), len(window)):
        text = tokenizer.decode(window[start : index + 1])
        if not text.endswith(INCOMPLETE) or index - done >= MAX_WINDOW:
            end += max(0, len(text) - length)
            start, done = done, index + 1
            length = len(tokenizer.decode(window[start:done]))
        ends.append(end)
    return ends
