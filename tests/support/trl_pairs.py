"""TRL's pairs of templates: does `fix` mask in the plain one what TRL's own training template masks?

Both are encoded for the three chats of `label_law.py`. TRL rewrote some templates so that they write another text; such
a chat says nothing about masks. Each run of tokens that only one of the two masks must have a reason (`trl_masks.py`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path

import label_law
import trl_masks
import turnwise
from turnwise.errors import TurnwiseError, TurnwiseWarning
from turnwise.repair import GENERATION, Repair, fix
from turnwise.tokens.encoded import Encoded

REASONS = {
    trl_masks.OPENING,
    trl_masks.AFTER_STOP,
    trl_masks.STOP,
    trl_masks.NOT_OPENED,
    trl_masks.DIVERGES,
    trl_masks.NOT_WRITTEN,
}


@dataclass
class Pair:
    """What `fix` made of a plain template, and how its mask differs from TRL's."""

    name: str
    repair: Repair
    compared: int = 0  # chats in which both write the same text
    differences: set[str] = field(default_factory=set)
    unexplained: set[str] = field(default_factory=set)

    @property
    def is_reproduced(self) -> bool:
        """Whether there are proved blocks, and every difference from TRL's has a reason."""
        is_marked = any(patch.name == GENERATION for patch in self.repair.patches)
        return is_marked and not self.unexplained


def plain_templates() -> dict[str, str]:
    """The plain templates of the pairs, by name."""
    found = find_spec("trl")
    if found is None or not found.submodule_search_locations:
        return {}
    folder = Path(found.submodule_search_locations[0]) / "chat_templates"
    return {
        name: (folder / f"{name}.jinja").read_text("utf-8")
        for name in trl_masks.templates()
        if (folder / f"{name}.jinja").is_file()
    }


def compare_pair(name: str) -> Pair:
    """Put blocks into the plain template of a pair, and compare its masks with TRL's."""
    plain = label_law.compile_text(plain_templates()[name])
    pair = Pair(name, fix(plain, [GENERATION]))
    if not pair.repair.changed:
        return pair
    ours = label_law.compile_text(pair.repair.text)
    theirs = label_law.compile_text(trl_masks.templates()[name])
    for chat_name in label_law.CHATS:
        chat = label_law.find_form(plain, chat_name)
        if chat is None:
            continue
        try:
            derived, mine, other = (
                _encode(template, chat, policy)
                for template, policy in ((plain, "assistant"), (ours, "marked"), (theirs, "marked"))
            )
        except TurnwiseError:
            continue  # TRL's training template refuses what its plain one takes
        assert mine.text == derived.rendering.text
        if mine.text != other.text:
            continue
        pair.compared += 1
        prompt = plain.facts.generation_prompt
        for text, reason in _compare(derived, mine, other, prompt):
            (pair.differences if reason in REASONS else pair.unexplained).add(f"{text}: {reason}")
    return pair


def _encode(template: turnwise.Template, chat: label_law.LawChat, policy: str) -> Encoded:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TurnwiseWarning)
        return template.encode(
            chat.messages, label_law.full_tokenizer(), policy, tools=chat.tools, normalise=False
        )


def _compare(
    derived: Encoded, mine: Encoded, other: Encoded, prompt: str
) -> Iterator[tuple[str, str]]:
    """Yield the runs of tokens that only one of the two masks, with the reason."""
    ends, start = [0, *mine.ends], 0
    for (own, theirs), run in groupby(zip(mine.mask, other.mask, strict=True)):
        stop = start + len(list(run))
        if own != theirs:
            begin, end = ends[start], ends[stop]
            yield repr(mine.text[begin:end]), _explain(derived, begin, end, bool(own), prompt)
        start = stop


def _explain(derived: Encoded, start: int, end: int, is_mine: bool, prompt: str) -> str:
    """Return why a text is masked by one of the two: by the turns that are served."""
    if is_mine:
        return (
            trl_masks.STOP if any(t.stop <= start for t in derived.turns) else trl_masks.NOT_OPENED
        )
    openings = [derived.text[start : turn.start] for turn in derived.turns if turn.start >= end]
    if any(prompt.endswith(opening) for opening in openings):
        return trl_masks.OPENING
    if any(turn.end == start for turn in derived.turns):
        return trl_masks.AFTER_STOP
    if derived.untrained:
        return trl_masks.DIVERGES
    return "no reason is known"
