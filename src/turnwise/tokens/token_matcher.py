r"""Find the added tokens of a tokenizer in a text.

Matching is leftmost and longest, as the tokenizer libraries do it, but a caller may reject single matches (because a
user wrote the text, see `attribution.py`). All texts of the table become one regular expression in the form of a trie
(`<(?:\|im_(?:start|end)\|>|think>)`), so a text is scanned once, however many tokens there are. After a rejected match
the scan tries a shorter token at the same place, then goes on one character later: a forged token may overlap a real
one. The rest of what the same author wrote is scanned for the tokens that this author may write, mostly none.

Limit: a token that its library matches after normalisation is matched here in the text as it is.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from os.path import commonprefix
from typing import NamedTuple

from turnwise.engine.provenance.written_values import JSON_PUNCTUATION
from turnwise.tokens.tokenizers.protocol import Added

# The characters that `lstrip` and `rstrip` strip: white space as Rust defines it.
SPACE = "[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
SPACES = re.compile(rf"{SPACE}+")
MAX_NESTING = 40
MAX_PATTERN_LENGTH = 128  # characters of one token: compiling takes some microseconds for each
RARE = 500  # a character is rare if it is less than one in so many

Filter = Callable[[Added, int, int], bool]  # may this token count at characters start to end?
# From a character on: the tokens that may count, and up to which character; None if all may.
Narrow = Callable[[int], tuple["TokenMatcher", int] | None]


class TokenMatch(NamedTuple):
    """An added token in a text: characters `start` to `end`, with the white space that it strips."""

    start: int
    end: int
    token: Added
    text_start: int  # where the token's own text begins

    def shift(self, by: int) -> TokenMatch:
        """Return the same token in a text that has so many more characters before it."""
        return make_match((self.start + by, self.end + by, self.token, self.text_start + by))


# Faster than calling the class, which happens four times for every message.
make_match: Callable[[tuple[int, int, Added, int]], TokenMatch] = partial(tuple.__new__, TokenMatch)


class TokenMatcher:
    """Finds the added tokens of one tokenizer."""

    def __init__(self, added: Mapping[str, Added]) -> None:
        self.added = {text: token for text, token in added.items() if text}
        self._texts = sorted(self.added)
        self.longest = max(map(len, self._texts), default=0)
        self._first = commonprefix(self._texts)[:1]  # the character with which all begin, if any
        self._shorter = _link_prefixes(self._texts)
        trie = _TriePattern(self._texts)
        self.pattern = re.compile(trie.pattern)
        self._is_exact = trie.is_exact
        # True if every match of the pattern is a match: no token looks at its surroundings.
        self.is_simple = self._is_exact and not any(
            token.lstrip or token.rstrip or token.single_word for token in self.added.values()
        )

    @cached_property
    def is_separable(self) -> bool:
        """Whether two tokens in a text never overlap, and none looks at its surroundings or has another spelling."""
        has_spellings = any(token.normalized for token in self.added.values())
        if not self.is_simple or self._shorter or has_spellings:
            return False
        beginnings = {text[:end] for text in self._texts for end in range(1, len(text) + 1)}
        match = self.pattern.match
        return not any(
            text[start:] in beginnings or match(text, start)
            for text in self._texts
            for start in range(1, len(text))
            if text[start] in beginnings
        )

    def is_in(self, text: str) -> bool:
        """Return whether there is a token in a text, or what looks like one.

        Python finds a character in a twentieth of the time of a pattern, so a few places where all tokens would
        begin are looked at one by one.
        """
        place = 0
        if self._first:
            for _ in range(len(text) // RARE):
                place = text.find(self._first, place)
                if place < 0 or self.pattern.match(text, place):
                    return place >= 0
                place += 1
        return self.pattern.search(text, place) is not None

    def can_join(self, before: str, after: str) -> bool:
        """Return whether a token may begin in the text before something unknown, or end in the text after it."""
        return any(
            before.endswith(text[:cut]) or after.startswith(text[cut:])
            for text in self._texts
            for cut in range(1, len(text))
        )

    def is_inside(self, text: str) -> bool:
        """Return whether a text may be in a token, between what is before and after it."""
        return any(text in token for token in self._texts)

    @cached_property
    def blank(self) -> TokenMatcher:
        """A matcher of the tokens that are only white space: they can steer nothing, so anybody may write them."""
        return TokenMatcher(
            {text: token for text, token in self.added.items() if not token.control}
        )

    @cached_property
    def ordinary(self) -> TokenMatcher:
        """A matcher of the tokens that are not special, and of white space."""
        return TokenMatcher(
            {
                text: token
                for text, token in self.added.items()
                if not (token.special and token.control)
            }
        )

    @cached_property
    def has_punctuation(self) -> bool:
        """Whether a token is nothing but the punctuation of JSON, which templates write around the texts of others."""
        return any(
            token.control and JSON_PUNCTUATION.issuperset(text)
            for text, token in self.added.items()
        )

    def find(
        self,
        text: str,
        is_allowed: Filter | None = None,
        narrow: Narrow | None = None,
        begin: int = 0,
    ) -> list[TokenMatch]:
        """Return the tokens of the text in order.

        Args:
            text: the text.
            is_allowed: accepts or rejects a token; all count if it is not given.
            narrow: which tokens may count from a rejected one on, and up to which character. So a text of thousands
                of look-alikes is asked about once.
            begin: the character to start from.
        """
        matches: list[TokenMatch] = []
        matcher, limit, position = self, len(text), begin
        while True:
            candidate = matcher._search(text, position, limit)
            if candidate is None:
                if matcher is self:
                    return matches
                matcher, limit, position = self, len(text), max(position, limit)
                continue
            start, content = candidate
            position = start + 1
            while content is not None:
                token, end = self.added[content], start + len(content)
                content = matcher._shorter.get(content)
                if is_allowed is not None and not is_allowed(token, start, end):
                    continue
                if token.single_word and _is_inside_word(text, start, end):
                    continue
                previous_end = matches[-1].end if matches else begin
                match = _with_stripped_space(text, start, end, token, previous_end)
                matches.append(match)
                position = match.end
                break
            else:
                narrowed = narrow(start) if narrow is not None and matcher is self else None
                if narrowed is not None:
                    matcher, limit = narrowed

    def _search(self, text: str, position: int, limit: int) -> tuple[int, str | None] | None:
        """Return the first place before `limit` where a token begins, and the longest token there."""
        if not self.added:
            return None
        # A token may reach beyond the limit.
        candidate = self.pattern.search(text, position, limit + self.longest)
        if candidate is None or candidate.start() >= limit:
            return None
        start = candidate.start()
        return start, candidate.group() if self._is_exact else self._longest_at(text, start)

    def _longest_at(self, text: str, start: int) -> str | None:
        """Return the longest token that the text has at this place, None if there is none.

        All texts that sort between a prefix of a text and the text itself begin with that prefix. So the token that
        sorts just before the text is the one, or begins with it.
        """
        following = text[start : start + self.longest]
        index = bisect_right(self._texts, following)
        known = self._texts[index - 1] if index else None
        while known is not None and not following.startswith(known):
            known = self._shorter.get(known)
        return known


def _with_stripped_space(
    text: str, start: int, end: int, token: Added, previous_end: int
) -> TokenMatch:
    """Return the match with the white space that the token strips (`lstrip`, `rstrip`)."""
    text_start = start
    if token.lstrip:
        while start > previous_end and SPACES.match(text, start - 1):
            start -= 1
    if token.rstrip:
        space = SPACES.match(text, end)
        end = space.end() if space else end
    return TokenMatch(start, end, token, text_start)


def _is_inside_word(text: str, start: int, end: int) -> bool:
    """Return whether a letter, digit or underscore touches the characters from `start` to `end`."""
    neighbours = text[max(start - 1, 0) : start] + text[end : end + 1]
    return any(character.isalnum() or character == "_" for character in neighbours)


def _link_prefixes(texts: Sequence[str]) -> dict[str, str]:
    """Return for each text the longest other one that it begins with, where there is one; `texts` are sorted."""
    links: dict[str, str] = {}
    prefixes: list[str] = []  # of the text before, each the beginning of the next
    for text in texts:
        while prefixes and not text.startswith(prefixes[-1]):
            prefixes.pop()
        if prefixes:
            links[text] = prefixes[-1]
        prefixes.append(text)
    return links


class _TriePattern:
    """A regular expression for the longest of some texts, which are sorted.

    Texts that share a beginning are neighbours, so a branch of the trie is a range of the list, and its shared
    beginning is that of the first and the last text. Chains without branches are written at once, which keeps nesting
    shallow. Where it is deep all the same (tokens that begin with each other), or long, the pattern ends with the
    shared beginning, and is not exact: `re` has a limit of nesting, and a list of what may follow has the square of
    its size.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self.is_exact = True
        self._texts = texts
        self.pattern = self._write_branch(0, len(texts), 0, 0) if texts else "(?!)"

    def _write_branch(self, first: int, last: int, offset: int, depth: int) -> str:
        """Return the pattern of what follows `offset` characters in the texts from `first` to `last`."""
        texts = self._texts
        ends_here = len(texts[first]) == offset
        if ends_here and last - first == 1:
            return ""
        if depth == MAX_NESTING or offset == MAX_PATTERN_LENGTH:
            self.is_exact = False
            return ""
        alternatives = []
        start = first + ends_here
        while start < last:
            # After the last text that has the same character there.
            character = texts[start][offset]
            end = bisect_right(texts, character, start, last, key=lambda text: text[offset])
            shared = texts[start][:MAX_PATTERN_LENGTH]
            if end - start > 1:
                shared = commonprefix([shared, texts[end - 1]])
            branch = self._write_branch(start, end, len(shared), depth + 1)
            alternatives.append(re.escape(shared[offset:]) + branch)
            start = end
        if ends_here:
            return f"(?:{'|'.join(alternatives)})?"
        return alternatives[0] if len(alternatives) == 1 else f"(?:{'|'.join(alternatives)})"
