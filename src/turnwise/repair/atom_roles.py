"""For each part of a template: is what it writes trained, never, sometimes, or only a piece of it?

Every atom (`observation.py`) is watched while the template writes conversations whose trained spans are known
(`trained_turns.py`). A span may begin or end in the middle of what an atom writes. The template's own text is then cut
at that character. Of another expression (`{{ content }}`, where the opening was joined before) it is remembered which
text stands before the trained one and which after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from os.path import commonprefix
from typing import NamedTuple

from turnwise.repair.observation import Atom, WrittenText
from turnwise.repair.source_tree import Data
from turnwise.repair.trained_turns import Span, TrainedText


class AtomPart(NamedTuple):
    """A part of what an atom writes: characters `start` to `end` of a literal, or all there is (`end` is None)."""

    start: int
    end: int | None
    is_inside: bool  # it was trained in some conversation
    is_outside: bool  # it was written for another role, and not trained, in some conversation

    @property
    def is_mixed(self) -> bool:
        return self.is_inside and self.is_outside


@dataclass
class AtomRole:
    """What was seen of one atom.

    Attributes:
        is_literal: Whether it always writes the same text, so that it can be cut anywhere.
        cuts: The characters of a literal at which trained text begins or ends.
        heads, tails: What another expression wrote before and after the trained text.
    """

    is_literal: bool
    cuts: set[int] = field(default_factory=set)
    heads: set[str] = field(default_factory=set)
    tails: set[str] = field(default_factory=set)
    executions: list[tuple[bool, tuple[Span, ...]]] = field(default_factory=list)

    def note(self, text: str, spans: tuple[Span, ...], is_reply: bool) -> None:
        """Note that the atom wrote a text, of which these spans are trained, in an assistant's message or not."""
        self.executions.append((is_reply, spans))
        if not spans or spans == ((0, len(text)),):
            return
        self.cuts |= {place for span in spans for place in span if 0 < place < len(text)}
        if not self.is_literal:
            self.heads.add(text[: spans[0][0]])
            self.tails.add(text[spans[-1][1] :])

    @property
    def is_cut(self) -> bool:
        """Whether a span begins or ends inside of what it writes."""
        return bool(self.cuts)

    @property
    def head(self) -> str:
        """The text that always stands before the trained one."""
        return commonprefix([head[::-1] for head in self.heads])[::-1]

    @property
    def tail(self) -> str:
        """The text that always stands after the trained one."""
        return commonprefix(list(self.tails))

    @property
    def is_inside(self) -> bool:
        return any(spans for _, spans in self.executions)

    @property
    def is_outside(self) -> bool:
        return any(not spans and not is_reply for is_reply, spans in self.executions)

    @property
    def is_mixed(self) -> bool:
        """Whether the same text is trained in one place and not in another."""
        if not self.is_literal:
            return self.is_inside and self.is_outside
        return any(part.is_mixed for part in self.parts())

    def parts(self) -> list[AtomPart]:
        """Return a literal as parts that are trained or not as a whole, any other expression as one part."""
        if not self.is_literal:
            return [AtomPart(0, None, self.is_inside, self.is_outside)]
        places = [0, *sorted(self.cuts), None]
        found = []
        for start, end in zip(places, places[1:], strict=False):
            assert start is not None
            inside = [any(a <= start < b for a, b in spans) for _, spans in self.executions]
            found.append(AtomPart(start, end, any(inside), self.is_outside))
        return found


def watch_atoms(
    atoms: Sequence[Atom],
    literals: Sequence[bool],
    seen: Sequence[tuple[TrainedText, Sequence[WrittenText]]],
) -> list[AtomRole]:
    """Return what was seen of each atom in conversations, whose texts were written by these atoms."""
    roles = [
        AtomRole(isinstance(atom, Data) or flag) for atom, flag in zip(atoms, literals, strict=True)
    ]
    for trained, written in seen:
        for atom, start, end in written:
            if any(start < stop and begin < end for begin, stop in trained.unknown):
                continue
            spans = tuple(
                (max(begin, start) - start, min(stop, end) - start)
                for begin, stop in trained.spans
                if begin < end and start < stop
            )
            is_reply = any(begin <= start < stop for begin, stop in trained.replies)
            roles[atom].note(trained.text[start:end], spans, is_reply)
    return roles
