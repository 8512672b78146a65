"""For each part of a template: is what it writes trained, never, sometimes, or only a piece of it?

What every atom writes (`Rendering.writers`) is compared with the trained spans of conversations (`trained_turns.py`). A
span may begin or end in the middle of what an atom writes. The template's own text is then cut at that character. Of
another expression (`{{ content }}`, where the opening was joined before) it is remembered which text stands before the
trained one and which after it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from os.path import commonprefix
from typing import NamedTuple

from turnwise.analysis.conversations import Probe
from turnwise.engine.provenance.expressions import Position
from turnwise.engine.renderer import TOOL_USE, Renderer
from turnwise.errors import TurnwiseError
from turnwise.repair.source_tree import Atom, Data, Output, SourceTree, find_leaves, walk_direct
from turnwise.repair.trained_turns import Span, TrainedText


class WrittenText(NamedTuple):
    """Characters `start` to `end` of a rendering were written by an atom."""

    atom: Atom
    start: int
    end: int


class AtomFinder:
    """Finds which atom of a template writes what.

    What a macro or another text that is a value holds counts as written by the operand that outputs it.

    Args:
        tree: The template.
        renderer: The same.
    """

    def __init__(self, tree: SourceTree, renderer: Renderer) -> None:
        self._tree = tree
        self._renderer = renderer
        self._atoms: list[Atom] = []
        for item in walk_direct(tree.body):
            if isinstance(item, Data):
                self._atoms.append(item)
            elif isinstance(item, Output):
                self._atoms += find_leaves(item.expression)
        self._starts = [atom.start for atom in self._atoms]

    def find_written(self, probe: Probe, text: str) -> list[WrittenText] | None:
        """Return which atom writes which characters of a conversation; None if that cannot be followed.

        Args:
            probe: The conversation.
            text: What the template should write.
        """
        try:
            rendering = self._renderer.render(probe.messages, **probe.arguments())
        except TurnwiseError:
            return None
        if rendering.text != text:
            return None
        if probe.tools is not None and TOOL_USE in self._renderer.named:
            return []  # another template writes it
        written = []
        for _, group in groupby(rendering.writers, key=lambda span: span.execution):
            spans = list(group)
            atom = self._find_atom(spans[0].caller)
            if atom is not None:
                written.append(WrittenText(atom, spans[0].start, spans[-1].end))
        return written

    def _find_atom(self, position: Position | None) -> Atom | None:
        if position is None:
            return None
        offset = self._tree.find_offset(*position)
        index = bisect_right(self._starts, offset) - 1
        return self._atoms[index] if index >= 0 and offset < self._atoms[index].end else None


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
    seen: Iterable[tuple[TrainedText, Sequence[WrittenText]]],
) -> dict[Atom, AtomUse]:
    """Return what was seen of each atom that wrote something in these conversations."""
    uses: dict[Atom, AtomUse] = {}
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
            use = uses.setdefault(atom, AtomUse(isinstance(atom, Data) or atom.is_literal))
            use.note(trained.text[start:end], spans, is_reply)
    return uses
