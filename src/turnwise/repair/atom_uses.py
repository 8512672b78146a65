"""For each part of a template: is what it writes trained, never, sometimes, or only a piece of it?

Every atom (`observation.py`) is watched while the template writes conversations whose trained spans are known
(`trained_turns.py`). A span may begin or end in the middle of what an atom writes. The template's own text is then cut
at that character. Of another expression (`{{ content }}`, where the opening was joined before) it is remembered which
text stands before the trained one and which after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from os.path import commonprefix
from typing import NamedTuple

from turnwise.repair.observation import Atom, WrittenText
from turnwise.repair.source_tree import Data
from turnwise.repair.trained_turns import Span, TrainedText


class AtomPart(NamedTuple):
    """Characters `start` to `end` of a literal, to its last one if `end` is None."""

    start: int
    end: int | None
    is_trained: bool  # in some conversation


@dataclass
class AtomUse:
    """What was seen of one atom.

    Attributes:
        is_literal: Whether it always writes the same text, so that it can be cut anywhere.
        cuts: The characters of what it writes at which trained text begins or ends.
        heads, tails: What an expression that is no literal wrote before and after the trained text.
        executions: For each text that it wrote, whether it is an assistant's and which spans of it are trained.
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
    def head(self) -> str:
        """The text that always stands before the trained one."""
        return commonprefix([head[::-1] for head in self.heads])[::-1]

    @property
    def tail(self) -> str:
        """The text that always stands after the trained one."""
        return commonprefix(list(self.tails))

    @property
    def is_trained(self) -> bool:
        """Whether a piece of it was trained in some conversation."""
        return any(spans for _, spans in self.executions)

    @property
    def is_mixed(self) -> bool:
        """Whether it is trained in one place, and not trained in the message of another role."""
        # An assistant's text that is not trained (its opening) does not count: no role tells it apart.
        is_of_others = any(not spans and not is_reply for is_reply, spans in self.executions)
        return self.is_trained and is_of_others

    def split_literal(self) -> list[AtomPart]:
        """Return a literal as parts that are trained or not as a whole."""
        starts = [0, *sorted(self.cuts)]
        found = []
        for start, end in zip(starts, [*starts[1:], None], strict=True):
            is_trained = any(
                first <= start < last for _, spans in self.executions for first, last in spans
            )
            found.append(AtomPart(start, end, is_trained))
        return found


def watch_atoms(
    atoms: Sequence[Atom], seen: Iterable[tuple[TrainedText, Sequence[WrittenText]]]
) -> dict[Atom, AtomUse]:
    """Return what was seen of each atom that wrote something.

    Args:
        atoms: The atoms of a template, by number.
        seen: Conversations, each with what the atoms wrote of it.
    """
    uses: dict[Atom, AtomUse] = {}
    for trained, written in seen:
        for number, start, end in written:
            if any(start < stop and begin < end for begin, stop in trained.unknown):
                continue
            spans = tuple(
                (max(begin, start) - start, min(stop, end) - start)
                for begin, stop in trained.spans
                if begin < end and start < stop
            )
            is_reply = any(begin <= start < stop for begin, stop in trained.replies)
            atom = atoms[number]
            use = uses.setdefault(atom, AtomUse(isinstance(atom, Data) or atom.is_literal))
            use.note(trained.text[start:end], spans, is_reply)
    return uses
