r"""Find the added tokens of a tokenizer in a text.

Matching is leftmost and longest, as the tokenizer libraries do it, but a caller may reject single matches (because a
user wrote the text, see `attribution.py`). All texts of the table become one regular expression in the form of a trie
(`<(?:\|im_(?:start|end)\|>|think>)`), so a text is scanned once, however many tokens there are. After a rejected match
the scan tries a shorter token at the same place, then goes on one character later: a forged token may overlap a real
one.

Limit: a token that its library matches after normalisation is matched here in the text as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from turnwise.tokens.tokenizers.protocol import Added

# The characters that `lstrip` and `rstrip` strip: white space as Rust defines it.
SPACE = "[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
SPACES = re.compile(rf"{SPACE}+")
MAX_NESTING = 40

Filter = Callable[[Added, int, int], bool]  # may this token count at characters start to end?


class TokenMatch(NamedTuple):
    """An added token in a text: characters `start` to `end`, with the white space that it strips."""

    start: int
    end: int
    token: Added
    text_start: int  # where the token's own text begins


# Faster than calling the class, which happens four times for every message.
make_match: Callable[[tuple[int, int, Added, int]], TokenMatch] = partial(tuple.__new__, TokenMatch)


class TokenMatcher:
    """Finds the added tokens of one tokenizer."""

    def __init__(self, added: Mapping[str, Added]) -> None:
        self.added = {text: token for text, token in added.items() if text}
        self.pattern = re.compile(_trie_pattern(self.added) if self.added else "(?!)")
        # True if no token looks at its surroundings: then every match of the pattern is a match.
        self.is_simple = not any(
            token.lstrip or token.rstrip or token.single_word for token in self.added.values()
        )
        sizes = sorted({len(text) for text in self.added}, reverse=True)
        prefixes = {text: _known_prefixes(text, self.added, sizes) for text in self.added}
        self._shorter = {text: known for text, known in prefixes.items() if known}

    def find(self, text: str, is_allowed: Filter | None = None) -> list[TokenMatch]:
        """Return the tokens of the text in order; only those that `is_allowed` accepts, if it is given."""
        matches: list[TokenMatch] = []
        position, search = 0, self.pattern.search
        while (candidate := search(text, position)) is not None:
            start, longest = candidate.start(), candidate.group()
            position = start + 1
            for content in (longest, *self._shorter.get(longest, ())):
                token, end = self.added[content], start + len(content)
                if is_allowed is not None and not is_allowed(token, start, end):
                    continue
                if token.single_word and _is_inside_word(text, start, end):
                    continue
                previous_end = matches[-1].end if matches else 0
                match = _with_stripped_space(text, start, end, token, previous_end)
                matches.append(match)
                position = match.end
                break
        return matches


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


def _known_prefixes(text: str, known: Mapping[str, Any], sizes: list[int]) -> tuple[str, ...]:
    """Return the other tokens that this one starts with, longest first; `sizes` are those of all tokens."""
    prefixes = (text[:size] for size in sizes if size < len(text))
    return tuple(prefix for prefix in prefixes if prefix in known)


def _trie_pattern(texts: Iterable[str]) -> str:
    """Return a regular expression for the longest of these texts that fits."""
    trie: dict[str, Any] = {}
    for text in texts:
        branch = trie
        for character in text:
            branch = branch.setdefault(character, {})
        branch[""] = {}  # a text ends here
    return _branch_pattern(trie)


def _branch_pattern(trie: dict[str, Any], depth: int = 0) -> str:
    """Return the pattern of one level.

    Chains without branches are written at once, which keeps nesting shallow. Where it is deep all the same (tokens
    that begin with each other), the rest is a list of texts, the longest first: `re` has a limit of nesting.
    """
    if depth == MAX_NESTING:
        return "(?:" + "|".join(map(re.escape, _texts_below(trie))) + ")"
    alternatives = []
    for character, branch in sorted(trie.items()):
        if not character:
            continue
        chain = character
        while len(branch) == 1 and "" not in branch:
            ((following, branch),) = branch.items()
            chain += following
        has_more = branch.keys() - {""}
        alternatives.append(
            re.escape(chain) + (_branch_pattern(branch, depth + 1) if has_more else "")
        )
    if "" in trie:
        return f"(?:{'|'.join(alternatives)})?"
    return alternatives[0] if len(alternatives) == 1 else f"(?:{'|'.join(alternatives)})"


def _texts_below(trie: dict[str, Any]) -> list[str]:
    """Return what may follow at this level, the longest first."""
    texts: list[str] = []
    waiting = [("", trie)]
    while waiting:
        text, branch = waiting.pop()
        for character, following in branch.items():
            if character:
                waiting.append((text + character, following))
            else:
                texts.append(text)
    return sorted(texts, key=len, reverse=True)
