"""Find rows that repeat an earlier one, word by word or nearly, in one pass and bounded memory.

Rows are *repeated* if their conversations are equal, in whatever shape and order of keys: 16 bytes of a digest are kept
of each, about 150 with the table around them.

Rows are *nearly repeated* if they share at least 80% of the groups of five words in a row that either has; a character
of a script without spaces is a word, and the system text does not count. Of a row, the 64 smallest hashes of its groups
are kept. The share of these that two rows have in common is that of their groups: exactly, if there are no more than
64, else with a standard deviation of 0.05 ("bottom-k sketches", Cohen and Kaplan 2007). A row is compared with those
that have one of its eight smallest hashes. Rows that share 80% have none of these in common once in 400,000 times:
each is shared by four in five.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Literal, get_args
from zlib import crc32

from turnwise.data.records import Record
from turnwise.messages import REASONING_KEYS, Path
from turnwise.messages.roles import SYSTEM_ROLES
from turnwise.schema import check, one_of

Repeats = Literal["exact", "near", "none"]
REPEATS = get_args(Repeats)
REPEATED, NEAR = "repeated", "nearly repeated"
# Thai, Lao, Tibetan and Burmese; Khmer; Han, kana and hangul, with the signs of their keyboards.
UNSPACED = re.compile(r"[\u0e00-\u109f\u1780-\u17ff\u2e80-\uffef\U00020000-\U0003ffff]")
GROUP_WORDS = 5
SKETCH_HASHES, KEY_HASHES = 64, 8
MIN_SHARED = 0.8
MAX_SKETCHES = 250_000  # rows with which later ones are compared: 120 MB
SLOTS = 1 << 22  # of 4 bytes; twice as many as keys, so that few are overwritten by other rows
TEXT_KEYS = ("content", *REASONING_KEYS, "tool_calls")


class RepeatFinder:
    """Finds rows that repeat an earlier one.

    Args:
        repeats: what is looked for.

    Raises:
        SourceError: there is no such value.
    """

    def __init__(self, repeats: Repeats) -> None:
        check(repeats, one_of(REPEATS), "repeats")
        self._repeats = repeats
        self._first: dict[bytes, int] = {}
        self._sketches: list[tuple[int, array[int]]] = []
        # The number from 1 of the last sketch with a hash that ends in these bits.
        self._slots = array("I", [0]) * (SLOTS if repeats == "near" else 0)

    def find(self, number: int, record: Record) -> Iterator[tuple[str, str, str]]:
        """Yield kind, field and text of what a row repeats, and remember the row."""
        if self._repeats == "none":
            return
        values = (record.messages, record.arguments, record.rejected, record.label)
        try:
            text = json.dumps(values, sort_keys=True, default=repr)
        except TypeError:  # keys that are no texts, in a row of Python
            text = repr(values)
        digest = blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
        first = self._first.setdefault(digest, number)
        if first != number:
            yield REPEATED, "", f"the same as row {first}"
        elif self._repeats == "near":
            texts = _list_texts([*record.messages, *(record.rejected or ())])
            yield from self._find_near(number, sketch_text("\n".join(texts)))

    def _find_near(self, number: int, sketch: array[int]) -> Iterator[tuple[str, str, str]]:
        slots = [key % SLOTS for key in sketch[:KEY_HASHES]]
        for place in sorted({self._slots[slot] for slot in slots} - {0}):
            first, other = self._sketches[place - 1]
            shared = estimate_shared(sketch, other)
            if shared >= MIN_SHARED:
                yield NEAR, "", f"{shared:.0%} the same as row {first}"
                return
        if len(self._sketches) < MAX_SKETCHES:
            self._sketches.append((number, sketch))
            for slot in slots:
                self._slots[slot] = len(self._sketches)


def sketch_text(text: str) -> array[int]:
    """Return the smallest hashes of the groups of words of a text, in order."""
    words = UNSPACED.sub(r" \g<0> ", text.casefold()).split()
    groups = zip(*(words[start:] for start in range(GROUP_WORDS)), strict=False)
    texts = [*map(" ".join, groups)] or [" ".join(words)]
    hashes = {crc32(one.encode("utf-8", "surrogatepass")) for one in texts if one}
    return array("I", sorted(hashes)[:SKETCH_HASHES])


def estimate_shared(sketch: array[int], other: array[int]) -> float:
    """Return which share of the groups that either of two texts has is in both."""
    smallest = sorted({*sketch, *other})[:SKETCH_HASHES]
    return len({*sketch} & {*other} & {*smallest}) / max(len(smallest), 1)


def _list_texts(messages: Sequence[Any]) -> Iterator[str]:
    """Yield what was said, but for the system texts that many rows have in common."""
    for message in messages:
        if message["role"] not in SYSTEM_ROLES:
            for key in TEXT_KEYS:
                yield from (text for _, text in find_texts(message.get(key), ()))


def find_texts(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """Yield every text in a value with its path; keys count as texts of the mapping."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if isinstance(key, str):
                yield path, key
            yield from find_texts(item, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from find_texts(item, (*path, index))
