"""How much of a given text was written, in any script.

A template may trim a text, escape it, change its case, cut it, or put its own tags around parts of it. So two texts are
compared by their *significant* characters: letters and digits of any script, marks, symbols, emoji; without case, white
space, tags and punctuation. A text of punctuation alone is compared as it is.

Text whose trail leads to the field is known to be a part of it, so the question is what of the field it covers. In text
that was computed from several fields each is looked for in order, and what one has claimed is not another's.

All of it takes time in proportion to the texts: the number of searches that start again from the beginning is bounded.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

MAX_RETURNS = 200  # searches through a whole text: for parts that are out of order
NEAR = 1_000  # characters
MAX_ESCAPES = 2  # JSON within JSON
IGNORED_CATEGORIES = frozenset(
    [*("Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po"), *("Zs", "Zl", "Zp", "Cc"), *("Sm", "Sc", "Sk")]
)

_TAG = re.compile(r"</?[^<>\s]{1,60}>|\[/?[A-Z_]{1,30}\]")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROL = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class _IgnoredCharacters(dict[int, int | None]):
    """A table for `str.translate` that drops white space, punctuation and signs of any script, as it meets them."""

    def __missing__(self, code: int) -> int | None:
        # "So" is what emoji are; a joiner ("Cf") and a variation ("Mn") are parts of one, or of a letter.
        is_ignored = unicodedata.category(chr(code)) in IGNORED_CATEGORIES
        self[code] = None if is_ignored else code
        return self[code]


_IGNORED = _IgnoredCharacters()


def is_covered(given: str, texts: Sequence[str]) -> bool:
    """Whether texts that were made of a given one have all of it between them."""
    stripped = given.strip()
    if not stripped or any(text.strip() == stripped for text in texts):
        return True
    wanted, is_plain = _find_significant(given)
    for written in _decode_steps(texts):
        parts = [_reduce(text, is_plain) for text in written]
        if _covers(wanted, parts) or _is_subsequence(wanted, "".join(parts)):
            return True
    return False


def _covers(wanted: str, parts: Iterable[str]) -> bool:
    """Whether parts of a text leave nothing of it out."""
    missing = bytearray(b"\1") * len(wanted)
    place, returns = 0, MAX_RETURNS
    for part in parts:
        found = wanted.find(part, place)
        if found < 0:
            returns -= 1
            if not returns:
                return False
            found = wanted.find(part)
        if found >= 0:
            place = found + len(part)
            missing[found:place] = bytes(len(part))
    return 1 not in missing


def _is_subsequence(wanted: str, text: str) -> bool:
    """Whether all characters are in a text, in order: a part of it may have been replaced."""
    if len(wanted) > len(text):
        return False
    characters = iter(text)
    return all(character in characters for character in wanted)


class ComputedText:
    """A text that was made of several fields, in which they are looked for.

    Args:
        text: the text.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0  # where the last field ended
        self._returns = MAX_RETURNS

    def claim(self, given: str) -> bool:
        """Look for a field, word by word in order; what is found belongs to it. Return whether all of it is there."""
        wanted, is_plain = _find_significant(given)
        if not is_plain:
            return given.strip() in self._text
        words = [_reduce(word, True) for word in re.split(r"\s+", _TAG.sub(" ", given))]
        for level, text in enumerate(self._forms):
            if self._find([wanted], level, text) or self._find(
                list(filter(None, words)), level, text
            ):
                return True
        return False

    def _find(self, words: Sequence[str], level: int, text: str) -> bool:
        taken = self._taken[level]
        for start in (self._place, 0):
            # Without searches left, only what is near is found.
            end = len(text) if self._returns > 0 else start + NEAR
            self._returns -= 1
            spans, place = [], start
            for word in words:
                place = text.find(word, place, end)
                while place >= 0 and 1 in taken[place : place + len(word)] and self._returns > 0:
                    self._returns -= 1
                    place = text.find(word, place + 1, end)
                if place < 0 or 1 in taken[place : place + len(word)]:
                    break
                spans.append((place, place + len(word)))
                place += len(word)
            else:
                for begin, stop in spans:
                    taken[begin:stop] = b"\1" * (stop - begin)
                self._place = place
                self._returns += 1
                return True
        return False

    @cached_property
    def _forms(self) -> list[str]:
        """The significant characters of the text, as it is and with its escapes decoded."""
        return [_reduce(text, True) for (text,) in _decode_steps([self._text])]

    @cached_property
    def _taken(self) -> list[bytearray]:
        return [bytearray(len(text)) for text in self._forms]


def _find_significant(text: str) -> tuple[str, bool]:
    """Return the significant characters of a text; if it has none, all but white space, and False."""
    reduced = _reduce(text, True)
    return (reduced, True) if reduced else (_reduce(text, False), False)


def _reduce(text: str, is_plain: bool) -> str:
    if not is_plain:
        return "".join(text.split())
    if "<" in text or "[" in text:
        text = _TAG.sub(" ", text)
    return text.upper().casefold().translate(_IGNORED)  # a Turkish ı is an I in upper case


def _decode_steps(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield texts as they are, then without the escapes of JSON, Python and HTML, once and again."""
    yield texts
    for _ in range(MAX_ESCAPES):
        decoded = [_decode(text) for text in texts]
        if decoded == texts:
            return
        yield decoded
        texts = decoded


def _decode(text: str) -> str:
    if "\\" in text:
        text = _ESCAPE.sub(_decode_escape, text)
        if _SURROGATE.search(text):
            # Characters beyond the first 65,536 are two escapes each.
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if "&" not in text:
        return text
    from html import unescape  # slow to import, and rarely needed

    return unescape(text)


def _decode_escape(match: re.Match[str]) -> str:
    code = match[1] or match[2] or match[3]
    if code is None:
        return _CONTROL.get(match[4], match[4])
    number = int(code, 16)
    return chr(number) if number <= sys.maxunicode else ""
