"""Split an output tag where trained text begins or ends, so that every tag is trained as a whole or not at all.

    {{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}

becomes three tags, of which the second is what the model writes:

    {{ '<|im_start|>' + message.role + '\\n' }}{{ message.content + '<|im_end|>' }}{{ '\\n' }}

Operands that stay together keep the author's text. An operand that is chosen (`a if b else c`) and differs in its two
outcomes becomes an `{% if %}`. An expression that is no literal is split at the text that always stands before the
trained one.

What every atom writes (`Rendering.writers`) is compared with the trained spans of conversations (`trained_turns.py`):
is it trained, never, sometimes, or only a piece of it (`AtomUse`)? A span may begin or end in the middle of what an
atom writes. The template's own text is then cut at that character. Of another expression (`{{ content }}`, where
the opening was joined before) it is remembered which text stands before the trained one and which after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from os.path import commonprefix
from typing import NamedTuple

from turnwise.analysis.conversations import Probe
from turnwise.analysis.counterexample import try_render
from turnwise.engine.provenance.rendering import Rendering
from turnwise.engine.renderer import Renderer
from turnwise.repair.edits import INDENTATION
from turnwise.repair.source_tree import (
    Atom,
    Choice,
    Data,
    Expression,
    Leaf,
    Operand,
    Output,
    SourceTree,
    Sum,
    find_leaves,
)
from turnwise.repair.trained_turns import Span, TrainedText

ESCAPE = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{1,3}|.)|.", re.S)
NO_VALUE = "''"


class SplitPart(NamedTuple):
    """One of the tags that an output becomes: an expression, or a statement between expressions (`if b`)."""

    text: str
    is_trained: bool | None  # None: nothing is known, or it is a statement
    is_statement: bool = False
    source: tuple[int, int] | None = None  # its place in the template, if it is spelled as there


class OutputSplitter:
    """Splits the outputs of one template.

    Args:
        tree: The template.
        uses: What was seen of its operands.
        refuses_other_types: Write an operand that stands alone as `'' + operand`. A sum fails if an operand is null or
            a number, and so did the template; an output of the operand alone would write it.
        keeps_values: A value of which a part is trained is not split.
    """

    def __init__(
        self,
        tree: SourceTree,
        uses: Mapping[Atom, AtomUse],
        refuses_other_types: bool,
        keeps_values: bool,
    ) -> None:
        self.tree = tree
        self.uses = uses
        self.refuses_other_types = refuses_other_types
        self.keeps_values = keeps_values

    def split(self, output: Output) -> str | None:
        """Return the tags that write the same as an output; None if all of it is trained, or nothing."""
        parts = list(self._split_expression(output.expression))
        if not {True, False} <= {part.is_trained for part in parts}:
            return None
        left, right = output.signs
        between = sign = ""
        indentation = INDENTATION.search(self.tree.text[: output.start])
        if left == "-" and indentation is not None:  # each tag gets a line, too
            between, sign = f"\n{indentation[1]}", "-"
        tags = []
        for number, part in enumerate(parts):
            first = left if number == 0 else sign
            last = right if number == len(parts) - 1 else ""
            marks = ("{%", "%}") if part.is_statement else ("{{", "}}")
            tags.append(f"{marks[0]}{first} {part.text} {last}{marks[1]}")
        return between.join(tags)

    def _split_expression(self, found: Expression) -> Iterator[SplitPart]:
        if isinstance(found, Leaf):
            yield from self._split_leaf(found)
        elif isinstance(found, Choice):
            yield _make_statement(f"if {self.tree.show(*found.test)}")
            yield from self._split_expression(found.yes)
            if found.no is not None:
                yield _make_statement("else")
                yield from self._split_expression(found.no)
            yield _make_statement("endif")
        else:
            yield from self._split_sum(found)

    def _split_sum(self, found: Sum) -> Iterator[SplitPart]:
        """Yield the operands of a sum; neighbours that are trained alike stay one expression."""
        parts: list[SplitPart] = []
        for operand in found.operands:
            for part in self._split_operand(operand):
                if parts and _fits(parts[-1], part):
                    parts[-1] = self._join(parts[-1], part, found.sign)
                else:
                    parts.append(part)
        for part in parts:
            is_safe = part.is_statement or " + " in part.text or part.text[:1] in "'\""
            is_safe = is_safe or found.sign == "~"  # which joins other types, too
            if self.refuses_other_types and not is_safe:
                part = part._replace(text=f"{NO_VALUE} + {part.text}")
            yield part

    def _join(self, before: SplitPart, part: SplitPart, sign: str) -> SplitPart:
        is_trained = part.is_trained if before.is_trained is None else before.is_trained
        if before.source is None or part.source is None:
            return SplitPart(f"{before.text} {sign} {part.text}", is_trained)
        source = before.source[0], part.source[1]
        return SplitPart(self.tree.show(*source), is_trained, source=source)

    def _split_operand(self, operand: Operand) -> Iterator[SplitPart]:
        known = self._find_trained(operand.expression)
        if len(known) > 1:
            yield from self._split_expression(operand.expression)
            return
        source = operand.start, operand.end
        is_trained = known.pop() if known else None
        yield SplitPart(self.tree.show(*source), is_trained, source=source)

    def _find_trained(self, found: Expression) -> set[bool]:
        """Return whether the parts of an expression are trained: both if it has to be split, none if unknown."""
        uses = [self.uses[leaf] for leaf in find_leaves(found) if leaf in self.uses]
        if any(use.cuts and not self._is_kept(use) for use in uses):
            return {True, False}
        return {use.is_trained for use in uses}

    def _is_kept(self, use: AtomUse) -> bool:
        return self.keeps_values and not use.is_literal

    def _split_leaf(self, leaf: Leaf) -> Iterator[SplitPart]:
        text, use = self.tree.show(leaf.start, leaf.end), self.uses.get(leaf)
        if use is None:
            yield SplitPart(text, None)
        elif not use.cuts or self._is_kept(use):
            yield SplitPart(text, use.is_trained)
        elif use.is_literal:
            for part in use.split_literal():
                yield SplitPart(cut_literal(text, part.start, part.end), part.is_trained)
        else:
            yield from _split_at_texts(text, use)


def _make_statement(text: str) -> SplitPart:
    return SplitPart(text, None, is_statement=True)


def _fits(before: SplitPart, part: SplitPart) -> bool:
    """Whether two parts may be one expression: both are trained, or none is, or one is unknown."""
    if before.is_statement or part.is_statement:
        return False
    return before.is_trained == part.is_trained or None in (before.is_trained, part.is_trained)


def _split_at_texts(text: str, use: AtomUse) -> Iterator[SplitPart]:
    """Yield an expression as the text up to what is trained, what is trained, and the text after it."""
    value = text if re.fullmatch(r"\w+", text) else f"({text})"
    trained, head, tail = value, use.head, use.tail
    if head:
        known = quote(head)
        # A value that no conversation showed may be without it: then it is written as it is.
        yield _make_statement(f"if {known} in {value}")
        yield SplitPart(f"{value}.split({known}, 1)[0] + {known}", False)
        trained = f"{value}.split({known}, 1)[1]"
    if tail:
        yield SplitPart(f"{trained}[:-{len(tail)}]", True)
        yield SplitPart(f"{value}[-{len(tail)}:]", False)
    else:
        yield SplitPart(trained, True)
    if head:
        yield _make_statement("else")
        yield SplitPart(text, None)
        yield _make_statement("endif")


def quote(text: str, mark: str = "'") -> str:
    """Return a text as a literal of Jinja, in these quotation marks."""
    shown = text.replace("\\", "\\\\").replace(mark, f"\\{mark}").replace("\n", "\\n")
    return f"{mark}{shown}{mark}"


def cut_literal(source: str, start: int, end: int | None) -> str:
    """Return characters `start` to `end` of a literal's value as a literal, spelled as in the source."""
    mark = source[0]
    kept, place = "", 0
    for letter in ESCAPE.findall(source[1:-1]):
        if place >= start and (end is None or place < end):
            kept += letter
        place += _count_characters(letter)
    return f"{mark}{kept}{mark}"


def _count_characters(letter: str) -> int:
    """Return how many characters a letter or an escape of a literal stands for: an unknown escape (`\\d`) for two."""
    if len(letter) == 1:
        return 1
    decoded = letter.encode("ascii", "backslashreplace").decode("unicode-escape")
    return len(decoded)


class WrittenText(NamedTuple):
    """Characters `start` to `end` of a rendering were written by an atom."""

    atom: Atom
    start: int
    end: int


def find_written(
    tree: SourceTree, renderer: Renderer, probe: Probe, text: str
) -> list[WrittenText]:
    """Return which atom of a template writes which characters of a conversation; none if that cannot be followed.

    What a macro or another text that is a value holds counts as written by the operand that outputs it.

    Args:
        tree: The template.
        renderer: The same.
        probe: The conversation.
        text: What the template should write.
    """
    rendering = try_render(renderer, probe)
    if not isinstance(rendering, Rendering) or rendering.text != text:
        return []
    written = []
    for _, group in groupby(rendering.writers, key=lambda span: span.execution):
        spans = list(group)
        position = spans[0].caller
        atom = None if position is None else tree.find_atom(tree.find_offset(*position))
        if atom is not None:
            written.append(WrittenText(atom, spans[0].start, spans[-1].end))
    return written


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


def note_uses(
    uses: dict[Atom, AtomUse], trained: TrainedText, written: Sequence[WrittenText]
) -> None:
    """Note what was seen of each atom that wrote something in a conversation."""
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
