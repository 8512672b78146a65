"""Token ids as text in which the control tokens cannot be mistaken.

A marker such as `<tool_call>` is one token of the vocabulary, and the same characters can be written with ordinary
tokens, for instance by a model that explains its own format. With ids the two can be told apart: every added token that
occurs in a marker is spelled as one character that no text can hold (half of a surrogate pair), in the markers that are
watched for and in the stream. On the way out it is written in full again.

Ids are decoded as they come. A character may be spread over several tokens: it is given out when it is whole. An id
that the vocabulary does not have (models are wider than their vocabularies) is shown as U+FFFD, not dropped.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from copy import copy
from itertools import accumulate
from operator import index
from typing import Any

from turnwise.errors import TokenizerError, short_repr

FIRST, LAST = 0xD800, 0xDFFF
BROKEN = "\ufffd"
BYTES = 4  # of a character, at most; as many tokens may be needed for it
CONTEXT = 2  # tokens that are decoded again with the next one, for the spaces between them


class Spelling:
    """One stream of ids, spelled."""

    def __init__(self, tokenizer: Any = None, texts: Iterable[str] = ()) -> None:
        self.tokenizer = tokenizer
        self.added: dict[int, str] = {}  # id -> how it is spelled
        self.full: dict[int, str] = {}  # a spelled character -> its text
        self.escaped: dict[int, str] = {}  # the same within a JSON string
        self.pattern: re.Pattern[str] | None = None
        self.signs: dict[str, str] = {}
        self.past: list[int] = []
        self.waiting: list[int] = []
        self.known: set[int] = set()  # ids that the vocabulary has
        if tokenizer is not None:
            self._name(tokenizer.added, "\0".join(texts))

    def again(self) -> Spelling:
        """Another stream, spelled the same way."""
        other = copy(self)
        other.past, other.waiting = [], []
        return other

    def _name(self, added: Mapping[str, Any], markers: str) -> None:
        for text, token in sorted(added.items(), key=lambda row: (-len(row[0]), row[0])):
            code = FIRST + len(self.signs)
            if text.strip() and text in markers and code <= LAST:
                self.signs[text] = chr(code)
                self.full[code] = text
                self.escaped[code] = text.replace("\\", "\\\\").replace('"', '\\"')
            self.added[token.id] = self.signs.get(text, text)
        if self.signs:
            self.pattern = re.compile("|".join(map(re.escape, self.signs)))

    def spell(self, text: str) -> str:
        """A marker, or a prompt, with its tokens spelled."""
        return (
            self.pattern.sub(lambda match: self.signs[match.group()], text)
            if self.pattern
            else text
        )

    def plain(self, text: str) -> str:
        """Spelled text as it is read."""
        return text.translate(self.full) if self.full else text

    def quoted(self, text: str) -> str:
        """Spelled JSON as it is read."""
        return text.translate(self.escaped) if self.full else text

    def places(self, text: str) -> Callable[[int], int]:
        """From places in spelled text to places in the text as it is read."""
        if not self.full:
            return lambda at: at
        signs = [at for at, char in enumerate(text) if ord(char) in self.full]
        sums = [0, *accumulate(len(self.full[ord(text[at])]) - 1 for at in signs)]
        return lambda at: at + sums[bisect_left(signs, at)]

    def read(self, ids: Sequence[int]) -> str:
        """The text of the next ids, as far as it is whole."""
        out: list[str] = []
        run: list[int] = []  # ids of ordinary text
        for id in ids:
            if id not in self.added and (id in self.known or self.has(id)):
                run.append(id)
                continue
            out += (self.ordinary(run), self.flush(), self.added.get(id, BROKEN))
            run = []
            if id in self.added:
                self.past.clear()
        out.append(self.ordinary(run))
        return "".join(out)

    def has(self, id: int) -> bool:
        if self.tokenizer.token(id) is None:
            return False
        self.known.add(id)
        return True

    def ordinary(self, ids: list[int]) -> str:
        """At once if every character of it is whole, else id by id: in both ways it is the same text."""
        if len(ids) > 1 and not self.waiting:
            text = self.decoded(ids)
            if BROKEN not in text:
                return self.said(ids, text)
        return "".join(map(self.next, ids))

    def next(self, id: int) -> str:
        self.waiting.append(id)
        return self.whole()

    def whole(self, last: bool = False) -> str:
        text = self.decoded(self.waiting)
        if text.endswith(BROKEN) and len(self.waiting) < BYTES and not last:
            return ""
        waiting, self.waiting = self.waiting, []
        return self.said(waiting, text)

    def decoded(self, ids: list[int]) -> str:
        """The text of ids, behind those before them."""
        before = self.tokenizer.decode(self.past) if self.past else ""
        text: str = self.tokenizer.decode(self.past + ids)
        return text[len(before) :]

    def said(self, ids: list[int], text: str) -> str:
        self.past = (self.past + ids)[-CONTEXT:]
        return (
            "".join(char for char in text if not FIRST <= ord(char) <= LAST) if self.full else text
        )

    def flush(self) -> str:
        """What was waiting for more of its bytes, which will not come."""
        return self.whole(last=True) if self.waiting else ""


PLAIN = Spelling()  # of text that is only looked at; a stream has its own


def ids_of(value: Any, what: str) -> list[int]:
    """Token ids, from whatever holds some: a number, a list, a tuple, an array."""
    if type(value) is int and value >= 0:
        return [value]  # as a stream mostly brings them
    rows = value.tolist() if hasattr(value, "tolist") else value
    rows = [rows] if isinstance(rows, int) else rows
    if isinstance(rows, (str, bytes, bytearray, Mapping, Set)) or not isinstance(rows, Iterable):
        raise TokenizerError(
            f"{what} is text or token ids, not {short_repr(value)}", hint=HINTS.get(type(value))
        )
    return [checked(id, what) for id in rows]


def checked(id: Any, what: str) -> int:
    try:
        number = -1 if isinstance(id, bool) else index(id)
    except TypeError:
        number = -1
    if number < 0:
        raise TokenizerError(
            f"{what} holds {short_repr(id)}, which is no token id",
            hint="an id is a number from 0 on",
        )
    return number


HINTS: Mapping[type, str] = {
    bytes: "decode it first: reply.decode()",
    bytearray: "decode it first: reply.decode()",
}


def markers(grammar: Any) -> list[str]:
    """All texts of a grammar, or of a part of one, wherever they stand in it."""
    found: list[str] = []

    def walk(value: Any) -> None:
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, tuple):
            for one in value:
                walk(one)
        elif hasattr(value, "__dataclass_fields__"):
            for name in value.__dataclass_fields__:
                walk(getattr(value, name))

    walk(grammar)
    return found
