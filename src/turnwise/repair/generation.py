"""Put `{% generation %}` blocks around what a model is trained on, so that other trainers mask what turnwise trains.

    {% for m in messages %}<|{{ m.role }}|>{{ m.content }}</s>{% endfor %}

becomes

    {% for m in messages %}<|{{ m.role }}|>{% if m.role == 'assistant' %}
    {% generation %}{{ m.content }}</s>{% endgeneration %}{% else %}{{ m.content }}</s>{% endif %}{% endfor %}

in three steps, each of which starts from the text that the one before made:

1. *Separate*: text that is written for every role and trained for one (`{{ message.content }}<|im_end|>`) becomes
   `{% if message.role == 'assistant' %} ... {% else %} ... {% endif %}`, with the author's text in both branches.
2. *Split* the outputs in which trained text begins or ends (`output_split.py`).
3. *Wrap* the longest runs of neighbours of which all is trained. A block is a scope in Jinja: what is set inside is
   unknown after it. So if the whole run does not prove right, the blocks end before each `{% set %}`.

Whatever comes out is only a proposal. `fix` takes the first with which every conversation is written as before, whose
blocks hold the trained spans of each (`find_wrong_mask`) and every reply of plain chats (`find_lost_reply`). There is
none if too few conversations prove anything (`explain_few_proofs`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import NamedTuple

from turnwise.analysis.conversations import load_probes, name_tokens
from turnwise.engine.renderer import Renderer
from turnwise.repair.edits import (
    Edit,
    apply_edits,
    close_tag,
    find_indentation,
    open_tag,
    write_tag,
)
from turnwise.repair.output_split import AtomUse, OutputSplitter, find_written, note_uses
from turnwise.repair.proof import with_text
from turnwise.repair.source_tree import (
    CAPTURING,
    Atom,
    Block,
    Data,
    Item,
    Output,
    SourceTree,
    Statement,
    find_leaves,
    walk_direct,
)
from turnwise.repair.trained_turns import (
    Span,
    TrainedText,
    clip_spans,
    list_forms,
    mask_of,
)

MIN_PROVED = 0.9  # of the conversations whose replies the template writes
TRAINERS_TAG = re.compile(r"\{%-?\s*generation\s*-?%\}")  # as TRL and transformers search for it
ROLE_READS = ("['role']", '["role"]', ".role")
JUMPS = ("break", "continue")


class CannotMark(Exception):
    """Why no blocks can be put into a template."""


STRATEGIES = tuple(product((False, True), repeat=3))
"""What is avoided that may go wrong with blocks; the first strategy makes the smallest change. Do blocks end before
each `{% set %}`? Is a value split where trained text begins or ends? Is a lone operand written as `'' + operand`?"""


class Unit(NamedTuple):
    """An item, or a part of the template's text: the smallest that a block holds as a whole or not at all."""

    start: int
    end: int
    is_trained: bool | None  # None: it writes nothing, so that a block may hold it or not
    item: Item


@dataclass
class WatchedTemplate:
    """A template, with what was seen of each of its atoms that wrote something."""

    tree: SourceTree
    uses: Mapping[Atom, AtomUse]

    @classmethod
    def watch(cls, text: str, renderer: Renderer, texts: Sequence[TrainedText]) -> WatchedTemplate:
        """Let a template write conversations, and note which of its atoms write what is trained."""
        tree = SourceTree(text)
        changed = with_text(renderer, text)
        uses: dict[Atom, AtomUse] = {}
        for trained in texts:  # what cannot be followed counts when the result is proved
            note_uses(uses, trained, find_written(tree, changed, trained.probe, trained.text))
        if not uses:
            raise CannotMark("which tag writes what cannot be followed")
        return cls(tree, uses)

    def uses_of(self, item: Data | Output) -> list[AtomUse]:
        """Return what was seen of the atoms of an item."""
        atoms = [item] if isinstance(item, Data) else find_leaves(item.expression)
        return [self.uses[atom] for atom in atoms if atom in self.uses]

    # Separate

    def separate_roles(self) -> str:
        """Return the text with a branch for what is trained for assistants only."""
        return apply_edits(self.tree.text, self._separate_body(self.tree.body, ()))

    def _separate_body(self, body: Sequence[Item], loops: tuple[str, ...]) -> Iterator[Edit]:
        """Yield the edits of neighbours; `loops` are the variables of the loops around them."""
        run: list[
            Item
        ] = []  # from the first mixed item to the last, with those between them to keep their order
        between: list[Item] = []  # since the last mixed item
        for item in body:
            if isinstance(item, Block):
                yield from self._branch(run, loops)
                run, between = [], []
                if not item.captures:
                    variables = (*loops, item.loop_variable) if item.loop_variable else loops
                    for section in item.sections:
                        yield from self._separate_body(section.body, variables)
            elif self._is_mixed(item):
                run, between = [*run, *between, item], []
            elif run:
                between.append(item)
        yield from self._branch(run, loops)

    def _is_mixed(self, item: Item) -> bool:
        if not isinstance(item, Data | Output):
            return False
        return any(use.is_mixed for use in self.uses_of(item))

    def _branch(self, run: Sequence[Item], loops: Sequence[str]) -> Iterator[Edit]:
        """Yield the edits that write a run of items twice, for assistants and for others."""
        if not run:
            return
        text, start, end = self.tree.text, run[0].start, run[-1].end
        yield open_tag(text, start, f"if {self._condition(loops)}")
        copy = text[start:end]
        # `lstrip_blocks` would drop the indentation at the end of the first copy, `trim_blocks` the line break at the
        # start of the second.
        left = "+" if copy[-1:] in " \t" and copy.rstrip(" \t").endswith("\n") else ""
        right = "+" if copy.startswith("\n") else ""
        otherwise = write_tag("else", left, right)
        if copy.startswith(("{{-", "{%-")) and copy.endswith(("}}", "%}")):  # room for lines
            line = f"\n{find_indentation(text, start)}"
            otherwise = f"{line}{write_tag('else', '-')}{line}"
        yield Edit(end, end, f"{otherwise}{copy}{close_tag(text, end, 'endif').text}")

    def _condition(self, loops: Sequence[str]) -> str:
        """Return the test for an assistant's message, spelled as the template reads roles elsewhere."""
        text = self.tree.text
        for name in reversed(loops):
            for read in ROLE_READS:
                if f"{name}{read}" in text:
                    return f"{name}{read} == {self.tree.mark}assistant{self.tree.mark}"
        raise CannotMark(
            "the same text is trained in one place and not in another, and no loop tells whose it is"
        )

    # Split

    def split_outputs(self, splits_values: bool, refuses_other_types: bool) -> str:
        """Return the text with outputs split where trained text begins or ends."""
        splitter = OutputSplitter(self.tree, self.uses, refuses_other_types, not splits_values)
        edits = []
        for item in walk_direct(self.tree.body):
            tags = splitter.split(item) if isinstance(item, Output) else None
            if tags is not None:
                edits.append(Edit(item.start, item.end, tags))
        return apply_edits(self.tree.text, edits)

    # Wrap

    def write_blocks(self, ends_before_set: bool) -> str:
        """Return the text with blocks; they may have to end before every `{% set %}`."""
        barriers = (*JUMPS, "set") if ends_before_set else JUMPS
        edits = list(self._wrap_body(self.tree.body, barriers))
        if not edits:
            raise CannotMark("no part of the template writes what is trained")
        return apply_edits(self.tree.text, edits)

    def _wrap_body(self, body: Sequence[Item], barriers: Sequence[str]) -> Iterator[Edit]:
        """Yield the tags around the longest runs of neighbours that are trained as a whole."""
        run: list[Unit] = []
        for unit in self._list_units(body):
            if unit.is_trained is not False and not _holds_any(unit.item, barriers):
                run.append(unit)
                continue
            yield from self._wrap(run)
            run = []
            if isinstance(unit.item, Block):  # a part of it may be trained
                for section in unit.item.sections:
                    yield from self._wrap_body(section.body, barriers)
        yield from self._wrap(run)

    def _list_units(self, body: Sequence[Item]) -> Iterator[Unit]:
        for item in body:
            if not isinstance(item, Data) or item not in self.uses:
                yield Unit(item.start, item.end, self._judge(item), item)
                continue
            for part in self.uses[item].split_literal():
                start = item.start + part.start
                end = item.end if part.end is None else item.start + part.end
                yield Unit(start, end, part.is_trained, item)

    def _judge(self, item: Item) -> bool | None:
        """Return True if all that an item writes is trained, None if it writes nothing, else False."""
        if isinstance(item, Output):
            found = [use.is_trained for use in self.uses_of(item)]
        elif isinstance(item, Block) and not item.captures:
            inner = [unit for one in item.sections for unit in self._list_units(one.body)]
            found = [unit.is_trained for unit in inner if unit.is_trained is not None]
        else:
            return None
        return all(found) if found else None

    def _wrap(self, run: list[Unit]) -> Iterator[Edit]:
        """Yield the tags around a run, without what writes nothing at its ends."""
        while run and not run[0].is_trained:
            del run[0]
        while run and not run[-1].is_trained:
            del run[-1]
        if run:
            first, last = run[0], run[-1]
            text = self.tree.text
            begins_within = first.start > first.item.start
            ends_within = last.end < last.item.end
            yield open_tag(text, first.start, "generation", within=begins_within)
            yield close_tag(text, last.end, "endgeneration", within=ends_within)


def propose(text: str, renderer: Renderer, texts: Sequence[TrainedText]) -> Collection[str]:
    """Return texts with blocks, the smallest change first.

    Raises:
        CannotMark: There is no way to put blocks into this template.
    """
    separated = WatchedTemplate.watch(text, renderer, texts).separate_roles()
    watched = WatchedTemplate.watch(separated, renderer, texts)
    split = cache(watched.split_outputs)
    # Each step changes places in the text, so the template is watched anew.
    watch = cache(lambda changed: WatchedTemplate.watch(changed, renderer, texts))
    found = [
        watch(split(*how)).write_blocks(ends_before_set) for ends_before_set, *how in STRATEGIES
    ]
    return dict.fromkeys(found)


def _holds_any(item: Item, names: Sequence[str]) -> bool:
    """Whether an item is a statement of these, or has one in it that acts on what is around the item."""
    if isinstance(item, Statement):
        return item.name in names
    return isinstance(item, Block) and any(name in names for name in _find_statements(item))


def _find_statements(block: Block) -> Iterator[str]:
    """Yield the names of the statements in a block that act on what is around it."""
    for section in block.sections:
        for item in section.body:
            if isinstance(item, Statement):
                yield item.name
            elif isinstance(item, Block) and item.name not in ("for", *CAPTURING):
                yield from _find_statements(item)


def explain_few_proofs(texts: Sequence[TrainedText]) -> str:
    """Return why so few conversations say what is trained that no blocks can be proved; empty if enough do."""
    proved, asked = count_proofs(texts)
    if proved and proved >= MIN_PROVED * asked:
        return ""
    ordered = sorted(texts, key=lambda one: not one.is_written)
    reasons = [reason for one in ordered for reason in one.reasons]
    if not texts:
        return "no conversation has a turn of an assistant"
    share = f"{proved} of {asked} conversations show what is trained, fewer than {MIN_PROVED:.0%}"
    return ": ".join([share, *reasons[:1]])


def count_proofs(texts: Sequence[TrainedText]) -> tuple[int, int]:
    """Return how many conversations show what is trained, and how many have replies that the template writes."""
    return sum(one.is_proof for one in texts), sum(one.is_written for one in texts)


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
        if any(_is_torn(turn, spans, trained.own) for turn in trained.unknown):
            return f"a block holds the end of a reply and not the reply: {trained.probe.covers}"
        marked, wanted = (clip_spans(found, trained.unknown) for found in (spans, trained.spans))
        starts = {start for start, _ in wanted} if with_openings else set()
        more = [end for _, end in clip_spans(marked, wanted) if end not in starts]
        if more or clip_spans(wanted, marked):
            return f"another text is marked than the one that is trained: {trained.probe.covers}"
    return ""


def _is_torn(turn: Span, marked: Sequence[Span], own: Sequence[Span]) -> bool:
    """Whether blocks hold something of a turn and not all that its message says."""
    start, end = turn
    is_marked = any(begin < end and start < stop for begin, stop in marked)
    left_out = clip_spans(own, marked)
    return is_marked and any(begin < end and start < stop for begin, stop in left_out)


def find_lost_reply(renderer: Renderer) -> str:
    """Return a plain chat of which a reply is not in a block as a whole, or a question is; empty if there is none.

    It trusts no origins: the replies are searched for in the text.
    """
    if not any(map(TRAINERS_TAG.search, renderer.texts)):
        return "transformers and TRL do not recognise the tags: they look for `{% generation %}`"
    if any(map(_has_captured_blocks, renderer.texts)):
        return "one is in a macro or another text that is a value, where transformers counts from another place"
    tokens = name_tokens(renderer)
    for chat in load_probes("plain chats"):  # their words are in no template
        covers, messages = chat.covers, chat.messages
        replies = [str(one["content"]) for one in messages if one["role"] == "assistant"]
        for probe in list_forms(replace(chat, options=tokens)):
            text, spans = mask_of(renderer, probe) or ("", ())
            if all(reply in text for reply in replies):
                break
        else:
            if messages[0]["role"] == "system":
                continue  # the template takes none
            return f"the template does not write the replies of {covers} as they are"
        for reply in replies:
            start = text.rindex(reply)
            if clip_spans([(start, start + len(reply))], spans):
                return f"a reply of {covers} is not in a block"
        for question in (str(one["content"]) for one in messages if one["role"] == "user"):
            start = text.find(question)
            span = (start, start + len(question))
            if start >= 0 and list(clip_spans([span], spans)) != [span]:
                return f"text of a user is in a block in {covers}"
    return ""


def _has_captured_blocks(text: str) -> bool:
    """Whether a block stands in text that is a value: transformers takes what is written so far for its beginning."""
    tree = SourceTree(text)
    direct = [one for one in walk_direct(tree.body) if isinstance(one, Block)]
    tags = [token.kind == "name" and token.text == "endgeneration" for token in tree.tokens]
    return sum(tags) > sum(block.name == "generation" for block in direct)
