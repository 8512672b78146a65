"""Put `{% generation %}` blocks around what a model is trained on, so that other trainers mask what turnwise trains.

In three steps, each of which starts from the text that the one before made:

1. *Separate*: text that is written for every role and trained for one (`{{ message.content }}<|im_end|>`) becomes
   `{% if message.role == 'assistant' %} ... {% else %} ... {% endif %}`, with the author's text in both branches.
2. *Split* the outputs in which trained text begins or ends (`output_split.py`).
3. *Wrap* the longest runs of neighbours of which all is trained. A block is a scope in Jinja: what is set inside is
   unknown behind it. So if the whole run does not prove right, the blocks end before each `{% set %}`.

Whatever comes out is only a proposal: `mark_generation` returns it if every conversation is written as before, and the
blocks hold exactly the trained spans of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from turnwise.engine.program import compile_program
from turnwise.engine.renderer import Renderer
from turnwise.errors import TurnwiseError
from turnwise.repair.atom_roles import AtomPart, AtomRole, watch_atoms
from turnwise.repair.edits import Edit, apply_edits, close_tag, open_tag
from turnwise.repair.observation import Atom, NotingTemplate
from turnwise.repair.output_split import OutputSplitter
from turnwise.repair.source_tree import (
    CAPTURING,
    Block,
    Data,
    Item,
    Leaf,
    Output,
    SourceTree,
    Statement,
    find_leaves,
)
from turnwise.repair.trained_turns import TrainedText, clip_spans, mask_of

ROLE_READS = ("['role']", '["role"]', ".role")
JUMPS = ("break", "continue")


class CannotMark(Exception):
    """Why no blocks can be put into a template."""


class Strategy(NamedTuple):
    """How careful blocks are made; the first strategy makes the smallest change."""

    joined: bool  # operands that stand alone are joined to an empty text
    careful: bool  # blocks end before every `{% set %}`


STRATEGIES = tuple(
    Strategy(joined, careful) for careful in (False, True) for joined in (False, True)
)


@dataclass
class WatchedTemplate:
    """A template, with what was seen of each of its atoms."""

    tree: SourceTree
    roles: Mapping[Atom, AtomRole]

    @classmethod
    def watch(cls, text: str, renderer: Renderer, texts: Sequence[TrainedText]) -> WatchedTemplate:
        """Let a template write conversations, and note which of its atoms write what is trained."""
        tree = SourceTree(text)
        noting = NotingTemplate.make(tree)
        try:
            noted = with_text(renderer, noting.text)
        except TurnwiseError as error:
            raise CannotMark(f"it is too large to be watched: {error.message}") from None
        seen = []
        for trained in texts:
            try:
                rendering = noted.render(trained.probe.messages, **trained.probe.arguments())
            except TurnwiseError:
                continue  # it is counted when the result is proved
            plain, written = noting.read_notes(rendering.text)
            if plain == trained.text:
                seen.append((trained, written))
        if not seen:
            raise CannotMark("which tag writes what cannot be followed")
        literals = [isinstance(atom, Leaf) and atom.is_literal for atom in noting.atoms]
        roles = watch_atoms(noting.atoms, literals, seen)
        return cls(tree, dict(zip(noting.atoms, roles, strict=True)))

    def roles_of(self, item: Data | Output) -> list[AtomRole]:
        """Return the roles of the atoms of an item that wrote something."""
        atoms = [item] if isinstance(item, Data) else find_leaves(item.expression)
        found = [self.roles.get(atom) for atom in atoms]
        return [role for role in found if role is not None and role.executions]


def with_text(renderer: Renderer, text: str) -> Renderer:
    """Return a renderer with another text, and the options, limits and allowance of the first."""
    program = renderer.program
    changed = compile_program(text, program.name, program.shadowed)
    return renderer.with_programs(lambda old: changed if old is program else old)


def propose(text: str, renderer: Renderer, texts: Sequence[TrainedText]) -> Iterator[str]:
    """Yield texts with blocks, the smallest change first.

    Raises:
        CannotMark: There is no way to put blocks into this template.
    """
    separated = RoleSeparator(WatchedTemplate.watch(text, renderer, texts)).separate()
    watched = WatchedTemplate.watch(separated, renderer, texts)
    last = ""
    for strategy in STRATEGIES:
        split = split_outputs(watched, strategy.joined)
        found = BlockWriter(WatchedTemplate.watch(split, renderer, texts), strategy.careful).write()
        if found != last:
            yield found
        last = found


class RoleSeparator:
    """Gives text that is trained for assistants only a branch of its own."""

    def __init__(self, watched: WatchedTemplate) -> None:
        self.watched = watched
        self.tree = watched.tree

    def separate(self) -> str:
        """Return the text with branches."""
        return apply_edits(self.tree.text, self._edit_body(self.tree.body, ()))

    def _edit_body(self, body: Sequence[Item], loops: tuple[str, ...]) -> Iterator[Edit]:
        run: list[Item] = []
        waiting: list[Item] = []
        for item in body:
            if isinstance(item, Block):
                yield from self._branch(run, loops)
                run, waiting = [], []
                if item.name not in CAPTURING:
                    for section in item.sections:
                        yield from self._edit_body(section.body, (*loops, *_loop_names(item)))
            elif self._is_mixed(item):
                run, waiting = [*run, *waiting, item], []
            elif run:
                waiting.append(item)
        yield from self._branch(run, loops)

    def _is_mixed(self, item: Item) -> bool:
        if not isinstance(item, Data | Output):
            return False
        roles = self.watched.roles_of(item)
        return any(role.is_mixed for role in roles)

    def _branch(self, run: Sequence[Item], loops: Sequence[str]) -> Iterator[Edit]:
        """Yield the edits that write a run of items twice, for assistants and for others."""
        if not run:
            return
        text, start, end = self.tree.text, run[0].start, run[-1].end
        opening = open_tag(text, start, f"if {self._condition(loops)} ")
        yield opening._replace(text=opening.text.replace("  ", " "))
        copy = text[start:end]
        left = "+" if copy[-1:] in " \t" and copy.rstrip(" \t").endswith("\n") else ""
        right = "+" if copy.startswith("\n") else ""
        yield Edit(end, end, f"{{%{left} else {right}%}}{copy}{close_tag(text, end, 'endif').text}")

    def _condition(self, loops: Sequence[str]) -> str:
        text = self.tree.text
        for name in reversed(loops):
            for read in ROLE_READS:
                if f"{name}{read}" in text:
                    return f"{name}{read} == 'assistant'"
        raise CannotMark(
            "the same text is trained in one place and not in another, and no loop tells whose it is"
        )


def _loop_names(block: Block) -> tuple[str, ...]:
    """Return the name that a loop gives to each element."""
    tokens = block.sections[0].tag.tokens
    return (tokens[2].text,) if block.name == "for" and tokens[3].text == "in" else ()


def split_outputs(watched: WatchedTemplate, joined: bool) -> str:
    """Return the text with outputs split where trained text begins or ends."""
    leaves = {atom: role for atom, role in watched.roles.items() if isinstance(atom, Leaf)}
    splitter = OutputSplitter(watched.tree, leaves, joined)
    edits = []

    def visit(body: Sequence[Item]) -> None:
        for item in body:
            if isinstance(item, Output) and splitter.needs_split(item):
                edits.append(Edit(item.start, item.end, splitter.split(item)))
            elif isinstance(item, Block) and item.name not in CAPTURING:
                for section in item.sections:
                    visit(section.body)

    visit(watched.tree.body)
    return apply_edits(watched.tree.text, edits)


class Unit(NamedTuple):
    """An item, or a part of the template's text, that is trained, not trained (False), or either (None)."""

    start: int
    end: int
    is_inside: bool | None
    item: Item
    is_whole: tuple[bool, bool] = (True, True)  # whether it begins and ends where its item does


class BlockWriter:
    """Puts blocks around runs of what is trained."""

    def __init__(self, watched: WatchedTemplate, careful: bool) -> None:
        self.watched = watched
        self.tree = watched.tree
        self.careful = careful

    def write(self) -> str:
        """Return the text with blocks."""
        edits = list(self._edit_body(self.tree.body))
        if not edits:
            raise CannotMark("no part of the template writes what is trained")
        return apply_edits(self.tree.text, edits)

    def _edit_body(self, body: Sequence[Item]) -> Iterator[Edit]:
        run: list[Unit] = []
        for unit in (unit for item in body for unit in self._units(item)):
            is_inner = unit.is_inside is False and isinstance(unit.item, Block)
            if unit.is_inside is False or self._ends_run(unit):
                yield from self._wrap(run)
                run = []
            else:
                run.append(unit)
            if is_inner or (isinstance(unit.item, Block) and self._ends_run(unit)):
                assert isinstance(unit.item, Block)
                for section in unit.item.sections:
                    yield from self._edit_body(section.body)
        yield from self._wrap(run)

    def _ends_run(self, unit: Unit) -> bool:
        """Whether a block cannot hold this: a jump out of it, or a name that is set for what follows."""
        if isinstance(unit.item, Statement):
            return unit.item.name in JUMPS or (self.careful and unit.item.name == "set")
        if isinstance(unit.item, Block):
            inner = set(_find_statements(unit.item))
            return bool(inner & set(JUMPS)) or (self.careful and "set" in inner)
        return False

    def _units(self, item: Item) -> Iterator[Unit]:
        if isinstance(item, Data):
            role = self.watched.roles.get(item)
            parts: list[AtomPart] = role.parts() if role is not None and role.executions else []
            for part in parts:
                start = item.start + part.start
                end = item.end if part.end is None else item.start + part.end
                whole = (start == item.start, end == item.end)
                yield Unit(start, end, part.is_inside, item, whole)
            if not parts:
                yield Unit(item.start, item.end, None, item)
        else:
            yield Unit(item.start, item.end, self._judge(item), item)

    def _judge(self, item: Item) -> bool | None:
        """Return True if all that an item writes is trained, None if it writes nothing, else False."""
        if isinstance(item, Output):
            inside = [role.is_inside for role in self.watched.roles_of(item)]
            return all(inside) if inside else None
        if not isinstance(item, Block) or item.name in CAPTURING:
            return None
        found = {unit.is_inside for unit in self._inner_units(item)}
        if False in found:
            return False
        return True if True in found else None

    def _inner_units(self, block: Block) -> Iterator[Unit]:
        for section in block.sections:
            for item in section.body:
                yield from self._units(item)

    def _wrap(self, run: list[Unit]) -> Iterator[Edit]:
        """Yield the tags around a run, without what writes nothing at its ends."""
        while run and not run[0].is_inside:
            del run[0]
        while run and not run[-1].is_inside:
            del run[-1]
        if run:
            first, last = run[0], run[-1]
            text = self.tree.text
            yield open_tag(text, first.start, "generation", within=not first.is_whole[0])
            yield close_tag(text, last.end, "endgeneration", within=not last.is_whole[1])


def _find_statements(block: Block) -> Iterator[str]:
    """Yield the names of the statements in a block that act on what is around it."""
    for section in block.sections:
        for item in section.body:
            if isinstance(item, Statement):
                yield item.name
            elif isinstance(item, Block) and item.name not in ("for", *CAPTURING):
                yield from _find_statements(item)


def find_wrong_mask(
    renderer: Renderer, texts: Sequence[TrainedText], with_openings: bool = False
) -> str:
    """Return what is wrong with the blocks of a template; empty if they hold what is trained of each conversation.

    Args:
        renderer: The template with blocks.
        texts: The conversations, with what is trained of each.
        with_openings: Whether a block may begin before the trained text: the opening of one turn may be the same text
            of the template that the model itself writes in another (a line break between two calls).
    """
    for trained in texts:
        found = mask_of(renderer, trained.probe)
        if found is None:
            return f"it refuses a conversation: {trained.probe.covers}"
        text, spans = found
        if text != trained.text:
            return f"it writes another text: {trained.probe.covers}"
        marked, wanted = (clip_spans(found, trained.unknown) for found in (spans, trained.spans))
        starts = {start for start, _ in wanted} if with_openings else set()
        more = [end for _, end in clip_spans(marked, wanted) if end not in starts]
        if more or clip_spans(wanted, marked):
            return f"another text is marked than the one that is trained: {trained.probe.covers}"
    return ""
