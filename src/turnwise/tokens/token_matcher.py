"""Finding added tokens in a text: leftmost, longest, as the tokenizer libraries do it, but asking who may use each.

All texts of the table become one regular expression in the shape of a tree (`<(?:\\|im_(?:start|end)\\|>|think>)`),
so a text is read once, however many tokens there are. A match that is not allowed stays ordinary text; then a shorter
token that starts at the same place is tried, and after it whatever starts one character later, for a forged token may
overlap a real one.

Limit: a token that is matched after normalisation by its library is looked for in the text as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from turnwise.tokens.tokenizers.protocol import Added

SPACE = "[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
SPACE_BEHIND = re.compile(rf"{SPACE}+")


class Hit(NamedTuple):
    """An added token in a text. `start` and `end` hold what it takes, white space included."""

    start: int
    end: int
    token: Added
    at: int  # where its own text begins


hit: Callable[[tuple[int, int, Added, int]], Hit] = partial(
    tuple.__new__, Hit
)  # four times for every message


class Scanner:
    """The added tokens of one tokenizer, ready to be looked for."""

    def __init__(self, added: Mapping[str, Added]) -> None:
        self.added = {text: token for text, token in added.items() if text}
        self.pattern = re.compile(pattern(self.added) if self.added else "(?!)")
        self.plain = not any(
            token.lstrip or token.rstrip or token.single_word for token in self.added.values()
        )
        self.shorter = {text: prefixes(text, self.added) for text in self.added}
        self.shorter = {text: found for text, found in self.shorter.items() if found}

    def hits(
        self, text: str, allowed: Callable[[Added, int, int], bool] | None = None
    ) -> list[Hit]:
        """The tokens of the text that are allowed, in order; without a judge all are."""
        found: list[Hit] = []
        at, search = 0, self.pattern.search
        while (match := search(text, at)) is not None:
            start, at = match.start(), match.start() + 1
            word = match.group()
            for candidate in (word, *self.shorter.get(word, ())):
                token, end = self.added[candidate], start + len(candidate)
                if allowed is not None and not allowed(token, start, end):
                    continue
                if token.single_word and inside_word(text, start, end):
                    continue
                taken = taking(text, start, end, token, found[-1].end if found else 0)
                found.append(taken)
                at = taken.end
                break
        return found


def taking(text: str, start: int, end: int, token: Added, left: int) -> Hit:
    """The hit with the white space that it takes along."""
    at = start
    if token.lstrip:
        while start > left and SPACE_BEHIND.match(text, start - 1):
            start -= 1
    if token.rstrip:
        behind = SPACE_BEHIND.match(text, end)
        end = behind.end() if behind else end
    return Hit(start, end, token, at)


def inside_word(text: str, start: int, end: int) -> bool:
    around = text[start - 1 : start] + text[end : end + 1] if start else text[end : end + 1]
    return any(character.isalnum() or character == "_" for character in around)


def prefixes(text: str, known: Mapping[str, Any]) -> tuple[str, ...]:
    """Other tokens that start like this one, longest first."""
    return tuple(text[:size] for size in range(len(text) - 1, 0, -1) if text[:size] in known)


def pattern(texts: Iterable[str]) -> str:
    """A regular expression for any of these texts, the longest that fits."""
    tree: dict[str, Any] = {}
    for text in texts:
        branch = tree
        for character in text:
            branch = branch.setdefault(character, {})
        branch[""] = {}
    return expression(tree)


def expression(tree: dict[str, Any]) -> str:
    """One level of the tree; a chain without branches is written in one go, so depth is the number of branchings."""
    written = []
    for character, branch in sorted(tree.items()):
        if character:
            chain = character
            while len(branch) == 1 and "" not in branch:
                (following, branch), *_ = branch.items()
                chain += following
            written.append(re.escape(chain) + (expression(branch) if branch.keys() - {""} else ""))
    whole = written[0] if len(written) == 1 and "" not in tree else f"(?:{'|'.join(written)})"
    return f"{whole}?" if "" in tree else whole
