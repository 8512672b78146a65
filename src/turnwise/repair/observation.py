"""Which part of a template wrote which characters: found by letting it write a note before each part.

Pieces know the message and the field of a text, and for the template's own text its node. Here the question is another
one: which operand of which output tag wrote it. So the template is rewritten such that each operand is an output of its
own, and before each stands an output of a note, a number between two characters of the private use area. What is
written is then read back: the notes are taken out, and what is left must be the text of the template as it was.

Inside of macros and blocks whose text is a value there are no notes: filters would see them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from turnwise.analysis.conversations import Probe
from turnwise.engine.renderer import Renderer
from turnwise.errors import TurnwiseError
from turnwise.repair.edits import Edit, apply_edits
from turnwise.repair.source_tree import (
    Block,
    Choice,
    Data,
    Expression,
    Item,
    Leaf,
    Output,
    SourceTree,
)

OPEN, CLOSE = "\uf8f0", "\uf8f1"
NOTE = re.compile(f"{OPEN}([0-9]+){CLOSE}")

Atom = Data | Leaf
"""A part of a template that writes a text: its own text, or an operand."""


class WrittenText(NamedTuple):
    """Characters `start` to `end` of a rendering were written by an atom."""

    atom: int
    start: int
    end: int


@dataclass(frozen=True)
class NotingTemplate:
    """A template that notes which of its atoms writes what.

    Attributes:
        text: The source with notes.
        atoms: The atoms, by number.
    """

    text: str
    atoms: tuple[Atom, ...]

    @classmethod
    def make(cls, tree: SourceTree) -> NotingTemplate:
        """Return the template of a tree with notes."""
        atoms: list[Atom] = []
        edits: list[Edit] = []
        for item in walk_direct(tree.body):
            if isinstance(item, Data):
                edits.append(Edit(item.start, item.start, _write_note(len(atoms))))
                atoms.append(item)
            elif isinstance(item, Output):
                left, right = item.signs
                parts = [f"{{{{{left} '' }}}}", *_note_expression(tree, item.expression, atoms)]
                text = "".join([*parts, f"{{{{ '' {right}}}}}"])
                edits.append(Edit(item.start, item.end, text))
        return cls(apply_edits(tree.text, edits), tuple(atoms))

    def find_writers(self, renderer: Renderer, probe: Probe, text: str) -> list[WrittenText] | None:
        """Return which atom writes which characters of a conversation; None if that cannot be followed.

        Args:
            renderer: A renderer of this template.
            probe: The conversation.
            text: What the template without notes writes.
        """
        try:
            rendering = renderer.render(probe.messages, **probe.arguments())
        except TurnwiseError:
            return None
        plain, written = self.read_notes(rendering.text)
        return written if plain == text else None

    def read_notes(self, text: str) -> tuple[str, list[WrittenText]]:
        """Return a rendering without its notes, and which atom wrote which characters."""
        plain: list[str] = []
        written = []
        place = length = 0
        atom = None
        for note in (*NOTE.finditer(text), None):
            part = text[place : note.start() if note else len(text)]
            if part and atom is not None:
                written.append(WrittenText(atom, length, length + len(part)))
            plain.append(part)
            length += len(part)
            if note is not None:
                place, atom = note.end(), int(note[1])
        return "".join(plain), written


def walk_direct(items: Sequence[Item]) -> Iterator[Item]:
    """Yield all items but those in blocks whose text is a value."""
    for item in items:
        yield item
        if isinstance(item, Block) and not item.captures:
            for section in item.sections:
                yield from walk_direct(section.body)


def _write_note(number: int) -> str:
    return f"{{{{ '{OPEN}{number}{CLOSE}' }}}}"


def _note_expression(tree: SourceTree, found: Expression, atoms: list[Atom]) -> Iterator[str]:
    """Yield the tags that write the operands of an expression one after the other."""
    if isinstance(found, Leaf):
        yield f"{_write_note(len(atoms))}{{{{ {tree.show(found.start, found.end)} }}}}"
        atoms.append(found)
    elif isinstance(found, Choice):
        yield f"{{% if {tree.show(*found.test)} %}}"
        yield from _note_expression(tree, found.yes, atoms)
        if found.no is not None:
            yield "{% else %}"
            yield from _note_expression(tree, found.no, atoms)
        yield "{% endif %}"
    else:
        for operand in found.operands:
            yield from _note_expression(tree, operand.expression, atoms)
