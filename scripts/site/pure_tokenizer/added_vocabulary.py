"""The added tokens of a `tokenizer.json`: which ids they have, and where they are in a text.

They are found before the model sees the text, in two rounds: those that are not `normalized` in the text as it is, the
others in what the normalizer made of the rest, spelled as the normalizer spells them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from pure_tokenizer.normalizers import SPACES, Normalize
from turnwise.errors import TokenizerError
from turnwise.tokens.tokenizers.protocol import Added
from turnwise.tokens.tokenizers.special_tokens_config import DeclaredTokens, TokenRow

JOINERS = "\u200c\u200d"
# Letters in circles and squares: symbols that count as alphabetic.
ALPHABETIC_SYMBOLS = (
    *range(0x24B6, 0x24EA),
    *(code for first in (0x1F130, 0x1F150, 0x1F170) for code in range(first, first + 26)),
)


def read_added_tokens(
    rows: Iterable[Any], declared: DeclaredTokens, vocabulary: Mapping[str, int]
) -> dict[str, Added]:
    """Return the added tokens by their texts: those of the file, and those that are declared beside it."""
    table: dict[str, Added] = {}
    for row in rows:
        if not isinstance(row, dict) or not isinstance(row.get("content"), str):
            raise TokenizerError("an added token of the tokenizer has no content")
        _add(table, row, vocabulary)
    for row in declared.rows:
        _add(table, row, vocabulary)
    for row in declared.specials:
        if row["content"] not in table:
            _add(table, row, vocabulary)
    return dict(sorted(table.items(), key=lambda item: item[1].id))


def _add(table: dict[str, Added], row: TokenRow, vocabulary: Mapping[str, int]) -> None:
    """Add a token: with the id that its text has already, else with the next one."""
    text = row["content"]
    if not text:
        return
    special = bool(row.get("special", False))
    present = table.get(text)
    id = present.id if present else vocabulary.get(text)
    if id is None:
        highest = max((token.id for token in table.values()), default=-1)
        id = max(highest + 1, len(vocabulary))
    table[text] = Added(
        text,
        id,
        special,
        bool(row.get("lstrip", False)),
        bool(row.get("rstrip", False)),
        bool(row.get("single_word", False)),
        bool(row.get("normalized", not special)),
    )


class TextPart(NamedTuple):
    """A part of a text: an added token, or the plain text between two of them."""

    text: str
    token: Added | None
    is_first: bool  # whether it begins where the text begins


class AddedVocabulary:
    """Splits texts at added tokens."""

    def __init__(self, tokens: Iterable[Added], normalize: Normalize) -> None:
        tokens = list(tokens)
        self._normalize = normalize
        self._verbatim = _Finder(token for token in tokens if not token.normalized)
        self._normalized = _Finder(
            replace(token, text=normalize(token.text)) for token in tokens if token.normalized
        )

    def split(self, text: str) -> Iterator[TextPart]:
        """Yield the parts of a text, plain ones normalised."""
        for part in self._verbatim.split(text):
            if part.token is not None:
                yield part
                continue
            for inner in self._normalized.split(self._normalize(part.text)):
                yield inner._replace(is_first=part.is_first and inner.is_first)


class _Finder:
    """Finds tokens in a text: the leftmost first, of several at one place the longest."""

    def __init__(self, tokens: Iterable[Added]) -> None:
        self._tokens = {token.text: token for token in tokens if token.text}
        texts = sorted(self._tokens, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, texts)) or "(?!)")

    def split(self, text: str) -> Iterator[TextPart]:
        done = 0
        for match in self._pattern.finditer(text):
            token = self._tokens[match.group()]
            start, end = match.span()
            if token.single_word and _touches_word(text, start, end):
                continue
            if token.lstrip:
                start = max(len(text[:start].rstrip(SPACES)), done)
            if token.rstrip:
                end = len(text) - len(text[end:].lstrip(SPACES))
            if done < start:
                yield TextPart(text[done:start], None, done == 0)
            yield TextPart(text[start:end], token, start == 0)
            done = end
        if done < len(text):
            yield TextPart(text[done:], None, done == 0)


def _touches_word(text: str, start: int, end: int) -> bool:
    """Return whether a character of a word is next to the characters from `start` to `end`."""
    return any(map(_is_word_character, text[max(start - 1, 0) : start] + text[end : end + 1]))


def _is_word_character(character: str) -> bool:
    category = unicodedata.category(character)
    return (
        category[0] in "LM"
        or category in ("Nd", "Nl", "Pc")
        or character in JOINERS
        or ord(character) in ALPHABETIC_SYMBOLS
    )
