r"""Translate the regular expressions of a `tokenizer.json` to Python's `re`.

They are written for Oniguruma, and split text by Unicode categories (`\p{L}`), which `re` does not have. So every set
of characters is computed here as a list of ranges, from the tables of `unicodedata`, and written out in full. The rest
of the syntax that tokenizers use means the same in `re` of Python 3.11 on: alternatives, groups, lookahead, greedy,
lazy and possessive quantifiers. What may mean something else is refused.

A character that Unicode assigned after the version of Python's tables has no category here (`unidata_version`).
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable, Iterator
from functools import lru_cache

from pure_tokenizer.components import refuse
from turnwise.errors import TokenizerError

# The first and last code point of each, sorted, apart from each other.
Ranges = tuple[tuple[int, int], ...]

WHITE_SPACE: Ranges = (
    *((0x9, 0xD), (0x20, 0x20), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A)),
    *((0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)),
)
CONTROL_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a", "e": "\x1b"}
LONG_NAMES = {
    "letter": "L",
    "mark": "M",
    "number": "N",
    "punctuation": "P",
    "symbol": "S",
    "separator": "Z",
    "other": "C",
}
# Of the script Han: what is named otherwise than an ideograph or a radical.
HAN_SIGNS = {0x3005, 0x3007, *range(0x3021, 0x302A), *range(0x3038, 0x303C), 0x16FE2, 0x16FE3}
HAN_NAMES = ("CJK UNIFIED", "CJK COMPATIBILITY IDEOGRAPH", "CJK RADICAL", "KANGXI RADICAL")
HAN_MARKS = {0x16FF0, 0x16FF1}

_GROUP = re.compile(r"\((?:\?(?::|=|!|>|<=|<!|i:))?")
_REPEAT = re.compile(r"\{(\d*+)(,?)(\d*+)\}")
_PROPERTY = re.compile(r"\{(\^?)([A-Za-z_ ]+)\}")
_CODE_POINT = re.compile(r"x\{([0-9A-Fa-f]{1,6})\}|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{4})")


@lru_cache(maxsize=64)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Return the pattern for `re`.

    Raises:
        TokenizerError: it has a construct that may mean something else in `re`.
    """
    translated = _Translator(pattern).translate()
    try:
        return re.compile(translated)
    except (re.error, OverflowError, RecursionError) as problem:
        raise refuse(f"the regular expression {pattern!r} ({problem})") from None


def find_matches(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    """Yield where the matches are, as in the library.

    After an empty match the search goes on one character later; in an empty text nothing is found.
    """
    position, previous_end = 0, -1
    if not text:
        return
    while position <= len(text):
        match = pattern.search(text, position)
        if match is None:
            return
        start, end = match.span()
        position = end
        if start == end:
            position += 1
            if end == previous_end:
                continue
        previous_end = end
        yield start, end


class _Translator:
    """Reads a pattern from left to right."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.position = 0
        self._folding: list[bool] = [False]  # for each open group: whether case is ignored

    def translate(self) -> str:
        written = []
        while self.position < len(self.pattern):
            written.append(self._translate_next())
        return "".join(written)

    def _translate_next(self) -> str:
        character = self.pattern[self.position]
        if character == "(":
            return self._open_group()
        if character == "[":
            self.position += 1
            return self._write_set(self._read_set())
        if character == "\\":
            found = self._read_escape()
            return re.escape(found) if isinstance(found, str) else self._write_set(found)
        if character == "{":
            return self._translate_repeat()
        self.position += 1
        if character in "^$":
            raise self._refuse(f"{character!r}")
        if character == ")" and len(self._folding) > 1:
            self._folding.pop()
        return character if character in ".|)?*+" else re.escape(character)

    def _open_group(self) -> str:
        opening = _GROUP.match(self.pattern, self.position)
        after = opening.end() if opening else self.position
        if opening is None or self.pattern[after : after + 1] == "?":
            raise self._refuse(f"the group {self.pattern[self.position : self.position + 4]!r}")
        self.position = after
        self._folding.append(opening.group() == "(?i:" or self._folding[-1])
        return "(?:" if opening.group() == "(" else opening.group()

    def _translate_repeat(self) -> str:
        repeat = _REPEAT.match(self.pattern, self.position)
        if repeat is None or not (repeat[1] or repeat[3]):
            self.position += 1
            return r"\{"
        self.position = repeat.end()
        # behind a number, `+` repeats again and `?` is not always lazy
        if self.pattern[self.position : self.position + 1] in ("+", "?", "*"):
            raise self._refuse(f"{self.pattern[repeat.start() : self.position + 1]!r}")
        return repeat.group()

    def _write_set(self, ranges: Ranges) -> str:
        if self._folding[-1]:
            raise self._refuse("a set of characters in a part that ignores case")
        if not ranges:
            return "(?!)"
        return f"[{''.join(map(_write_range, ranges))}]"

    def _read_escape(self) -> str | Ranges:
        """Return the character or the set that an escape stands for."""
        self.position += 1
        name = self.pattern[self.position : self.position + 1]
        self.position += 1
        if name in ("p", "P"):
            return self._read_property(is_negated=name == "P")
        if name in SETS:
            return SETS[name]()
        if name in CONTROL_ESCAPES:
            return CONTROL_ESCAPES[name]
        code_point = _CODE_POINT.match(self.pattern, self.position - 1)
        if code_point:
            self.position = code_point.end()
            return self._to_character(int(next(filter(None, code_point.groups())), 16))
        if not name or name.isalnum() or not name.isascii():
            raise self._refuse(f"the escape {chr(92) + name!r}")
        return name

    def _to_character(self, code: int) -> str:
        if code > sys.maxunicode:
            raise self._refuse(f"the character {code:x}")
        return chr(code)

    def _read_property(self, *, is_negated: bool) -> Ranges:
        found = _PROPERTY.match(self.pattern, self.position)
        if found is None:
            raise self._refuse("\\p without a name in braces")
        self.position = found.end()
        ranges = _find_property(found[2])
        if ranges is None:
            raise self._refuse(f"the property {found[2]!r}")
        return complement(ranges) if is_negated != bool(found[1]) else ranges

    def _read_set(self) -> Ranges:
        """Return the characters of a set in brackets, whose `[` was read."""
        is_negated = self._skip("^")
        required: list[Ranges] = []  # sets before `&&`
        ranges: list[tuple[int, int]] = []
        if self.pattern[self.position : self.position + 1] == "]":
            raise self._refuse("a set that begins with ']'")
        while not self._skip("]"):
            if self.position >= len(self.pattern):
                raise self._refuse("a set without an end")
            if self._skip("&&"):
                required.append(merge_ranges(ranges))
                ranges = []
                continue
            ranges += self._read_item()
        result = merge_ranges(ranges)
        for other in required:
            result = intersect(result, other)
        return complement(result) if is_negated else result

    def _read_item(self) -> Ranges:
        """Return a nested set, the set of an escape, a range or a character."""
        if self._skip("[:"):
            raise self._refuse("a POSIX class")
        if self._skip("["):
            return self._read_set()
        first = self._read_set_character()
        if not isinstance(first, str):
            return first
        last: str | Ranges = first
        has_range = self.pattern[self.position : self.position + 1] == "-"
        if has_range and self.pattern[self.position + 1 : self.position + 2] != "]":
            self.position += 1
            last = self._read_set_character()
        if not isinstance(last, str) or last < first:
            raise self._refuse("a range that does not end in a later character")
        return ((ord(first), ord(last)),)

    def _read_set_character(self) -> str | Ranges:
        character = self.pattern[self.position : self.position + 1]
        if character == "\\":
            return self._read_escape()
        if character in ("[", ""):
            raise self._refuse("a range that ends in a set")
        self.position += 1
        return character

    def _skip(self, expected: str) -> bool:
        is_there = self.pattern.startswith(expected, self.position)
        self.position += len(expected) * is_there
        return is_there

    def _refuse(self, what: str) -> TokenizerError:
        return refuse(f"{what} in the regular expression {self.pattern!r}")


def _write_range(ends: tuple[int, int]) -> str:
    first, last = ends
    return f"\\U{first:08x}" if first == last else f"\\U{first:08x}-\\U{last:08x}"


def merge_ranges(ranges: list[tuple[int, int]]) -> Ranges:
    """Return the ranges sorted, those that touch each other as one."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(last, merged[-1][1])
        else:
            merged.append((first, last))
    return tuple(merged)


def complement(ranges: Ranges) -> Ranges:
    """Return all other characters."""
    others = []
    start = 0
    for first, last in ranges:
        if first > start:
            others.append((start, first - 1))
        start = last + 1
    if start <= sys.maxunicode:
        others.append((start, sys.maxunicode))
    return tuple(others)


def intersect(left: Ranges, right: Ranges) -> Ranges:
    """Return the characters that are in both."""
    return complement(merge_ranges([*complement(left), *complement(right)]))


@lru_cache(maxsize=1)
def _categories() -> dict[str, Ranges]:
    """Return the characters of each general category (Lu, Nd, ...), read from Python's tables once."""
    runs: dict[str, list[tuple[int, int]]] = {}
    start, current = 0, unicodedata.category("\0")
    for code in range(1, sys.maxunicode + 2):
        category = unicodedata.category(chr(code)) if code <= sys.maxunicode else ""
        if category != current:
            runs.setdefault(current, []).append((start, code - 1))
            start, current = code, category
    return {category: tuple(ranges) for category, ranges in runs.items()}


@lru_cache(maxsize=64)
def find_category(name: str) -> Ranges | None:
    """Return the characters of a category (`Lu`) or of a group of them (`L`); None if there is none."""
    found = [ranges for category, ranges in _categories().items() if category.startswith(name)]
    return merge_ranges([ends for ranges in found for ends in ranges]) if found else None


def _find_property(name: str) -> Ranges | None:
    """Return the characters with a property, by its name as people write it."""
    plain = name.lower().replace("_", "").replace(" ", "")
    if plain in ("han", "script=han"):
        return _find_han()
    if plain == "any":
        return ((0, sys.maxunicode),)
    if plain in LONG_NAMES:
        return find_category(LONG_NAMES[plain])
    return find_category(plain.capitalize()) if len(plain) <= 2 else None


@lru_cache(maxsize=1)
def _find_han() -> Ranges:
    """Return the characters of the script Han, which their names tell."""
    ideographs = [
        (code, code)
        for code in (*range(0x2E80, 0x2FE0), *range(0x3400, 0xA000), *range(0xF900, 0xFB00))
        if unicodedata.name(chr(code), "").startswith(HAN_NAMES)
    ]
    ideographs += [
        (code, code)
        for code in range(0x20000, 0x33480)
        if unicodedata.name(chr(code), "").startswith(HAN_NAMES)
    ]
    return merge_ranges([*ideographs, *((code, code) for code in HAN_SIGNS | HAN_MARKS)])


# Oniguruma's white space is Unicode's, without the separators of files (1C to 1F) that Python counts.
SETS: dict[str, Callable[[], Ranges]] = {
    "s": lambda: WHITE_SPACE,
    "S": lambda: complement(WHITE_SPACE),
    "d": lambda: find_category("Nd") or (),
    "D": lambda: complement(find_category("Nd") or ()),
}
