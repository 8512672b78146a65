"""Texts become ids: cut at trusted added tokens, each run between them encoded as plain text.

The text is cut at the added tokens that were written by somebody who may (`trust.py`), and where an assistant's
opening ends, because a served model's first token never merges with the last of its prompt. What lies between two
cuts is a *run*, encoded at once, template and content together, as ordinary text. So no content can become a control
token: the encoder of runs does not know any. Some vocabularies spell a control token out of ordinary pieces all the
same (`<s>` in SentencePiece models); then the run is cut inside that spelling, and at the end nothing may be left of
it.

Runs are kept by content, as system prompts and tools come again with every request.

`compatible` encodes the text as one, forged tokens included, as transformers does.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

from turnwise.errors import TokenizerError
from turnwise.tokens.token_matcher import Hit, Scanner
from turnwise.tokens.tokenizers.protocol import AFTER, START, WITHIN, Added, Tokenizer

KEPT = 4_000_000  # characters and ids of runs that are kept for each tokenizer
LONGEST = 100_000  # characters of a run that is worth keeping
CUT_TEXTS = 10_000  # that are kept in mind
CUTS = 8  # rounds of cutting until no control token is spelled any more


Row = tuple[int, int, int, Added | None]


class Segments:
    """Runs and added tokens, which together are the whole text, in columns that are made when they are asked for."""

    __slots__ = ("_columns", "rows")

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        self._columns: tuple[tuple[Any, ...], ...] | None = None

    @property
    def columns(self) -> tuple[tuple[Any, ...], ...]:
        if self._columns is None:
            self._columns = tuple(zip(*self.rows, strict=True)) or ((), (), (), ())
        return self._columns

    @property
    def starts(self) -> tuple[int, ...]:
        """Where each begins in the text."""
        return self.columns[0]

    @property
    def firsts(self) -> tuple[int, ...]:
        """Where its ids begin."""
        return self.columns[1]

    @property
    def ats(self) -> tuple[int, ...]:
        """START, AFTER or WITHIN."""
        return self.columns[2]

    @property
    def tokens(self) -> tuple[Added | None, ...]:
        """The added token, or None for a run."""
        return self.columns[3]


class Encoder:
    """A tokenizer with what is learned of it: how its added tokens are found, and runs that were encoded before."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.scanner = Scanner(tokenizer.added)
        unknown = tokenizer.id(
            tokenizer.named.get("unk_token", "")
        )  # what a model says of letters that it lacks
        control = [
            token for token in tokenizer.added.values() if token.control and token.id != unknown
        ]
        self.control = frozenset(token.id for token in control)
        self.spellings = [token.text for token in control]
        self._runs: dict[tuple[int, str], list[int]] = {}
        self._cuts: dict[
            tuple[int, str], list[tuple[int, int]]
        ] = {}  # of runs that were cut: where, in text and ids
        self._size = 0
        self._lock = Lock()

    def segments(
        self,
        text: str,
        hits: Sequence[Hit],
        seams: Sequence[int] = (),
        guarded: bool = True,
        at: int = START,
    ) -> tuple[list[int], Segments]:
        """The ids of the text, with its added tokens at `hits`, cut at `seams` (in order) besides."""
        ids: list[int] = []
        rows: list[Row] = []
        write, known = rows.append, self._runs.get
        size, done, cuts = len(text), 0, iter(seams)
        seam = next(cuts, size)
        for start, end, token, _ in (*hits, (size, size, None, 0)):
            while done < start:
                while seam <= done:
                    seam = next(cuts, size)
                part = text[done : seam if seam < start else start]
                write((done, len(ids), at, None))
                found = known((at, part)) or self.run(part, at, guarded)
                if self._cuts and (at, part) in self._cuts:
                    rows += (
                        (done + place, len(ids) + first, WITHIN, None)
                        for place, first in self._cuts[at, part]
                    )
                ids += found
                done += len(part)
                at = WITHIN
            if token is not None:
                write((start, len(ids), AFTER, token))
                ids.append(token.id)
                done, at = end, AFTER
        return ids, Segments(rows)

    def run(self, text: str, at: int, guarded: bool = True) -> list[int]:
        """The ids of a run: plain text, whatever it says. A text that need not be guarded spells no added token."""
        found = self.tokenizer.encode(text, at)
        if (guarded or self.tokenizer.native) and not self.control.isdisjoint(found):
            found = self.unspelled(text, at)
        if len(text) <= LONGEST:
            self.keep((at, text), found)
        return found

    def unspelled(self, text: str, at: int) -> list[int]:
        """The ids of a text whose ordinary pieces spell control tokens: cut inside each spelling, or else anywhere."""
        parts = [text]
        for distance in range(1, CUTS):
            parts = [
                piece for part in parts for piece in cut_inside(part, self.spellings, distance)
            ]
            ids = self.joined(parts, at)
            if self.control.isdisjoint(ids):
                return ids
        ids = self.joined(list(text), at)
        if not self.control.isdisjoint(ids):
            raise TokenizerError(
                f"{self.tokenizer.name} makes a control token of ordinary text, which could not be kept apart",
                hint="refuse the text, or use another back end",
            )
        return ids

    def joined(self, parts: Sequence[str], at: int) -> list[int]:
        """The ids of a text that was cut into these parts; the places are kept in mind."""
        ids: list[int] = []
        cuts: list[tuple[int, int]] = []
        place = 0
        for index, part in enumerate(parts):
            if index:
                cuts.append((place, len(ids)))
            ids += self.tokenizer.encode(part, WITHIN if index else at)
            place += len(part)
        if len(self._cuts) > CUT_TEXTS:
            self._cuts.clear()
            self._runs.clear()
            self._size = 0
        self._cuts[at, "".join(parts)] = cuts
        return ids

    def keep(self, key: tuple[int, str], ids: list[int]) -> None:
        with self._lock:
            if self._size > KEPT:  # the older half goes
                for old in list(self._runs)[: len(self._runs) // 2 + 1]:
                    self._size -= len(old[1]) + len(self._runs.pop(old))
            self._runs[key] = ids
            self._size += len(key[1]) + len(ids)


_ENCODERS: WeakKeyDictionary[Tokenizer, Encoder] = WeakKeyDictionary()


def encoder(tokenizer: Tokenizer) -> Encoder:
    """The encoder of a tokenizer, made once."""
    found = _ENCODERS.get(tokenizer)
    if found is None:
        found = _ENCODERS.setdefault(tokenizer, Encoder(tokenizer))
    return found


def cut_inside(text: str, spellings: Sequence[str], distance: int) -> list[str]:
    """The text cut within every occurrence of a spelling, so many characters behind its start."""
    places: set[int] = set()
    for spelling in spellings:
        start = text.find(spelling)
        while start >= 0:
            places.add(start + min(distance, max(len(spelling) - 1, 1)))
            start = text.find(spelling, start + 1)
    edges = [0, *sorted(place for place in places if place < len(text)), len(text)]
    return [text[a:b] for a, b in zip(edges, edges[1:], strict=False) if a < b]
