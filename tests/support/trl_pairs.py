"""TRL's pairs of templates: does `fix` mask in the plain one what TRL's own training template masks?

Both are encoded for the three chats of `label_law.py`. TRL rewrote some templates so that they write another text; such
a chat says nothing about masks, but for a stop that TRL adds at the end. Each run of tokens that only one of the two
masks must have a reason by its place (`trl_masks.py`).
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

NEXT = "the next message writes this stop, and no block of the reply can hold it"


@dataclass
class Pair:
    """What `fix` made of a plain template, and how its mask differs from TRL's."""

    name: str
    repair: Repair
    compared: int = 0  # chats in which both write the same text
    differences: set[str] = field(default_factory=set)
    shortfalls: set[str] = field(default_factory=set)

    @property
    def is_reproduced(self) -> bool:
        """Whether there are proved blocks, they were compared, and differ from TRL's for the better."""
        is_marked = any(patch.name == GENERATION for patch in self.repair.patches)
        return is_marked and self.compared > 0 and not self.shortfalls


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
        if not other.text.startswith(mine.text):
            continue
        pair.compared += 1
        for difference in _compare(derived, mine, other):
            is_worse = difference.reason in (trl_masks.UNKNOWN, NEXT)
            found = pair.shortfalls if is_worse else pair.differences
            found.add(f"{difference.text}: {difference.reason}")
    return pair


def _encode(template: turnwise.Template, chat: label_law.LawChat, policy: str) -> Encoded:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TurnwiseWarning)
        return template.encode(chat.messages, label_law.full_tokenizer(), policy, tools=chat.tools)


def _compare(derived: Encoded, mine: Encoded, other: Encoded) -> Iterator[trl_masks.Difference]:
    """Yield the runs of tokens that only one of the two masks, with the reason."""
    ends, start = [0, *mine.ends], 0
    for (own, theirs), run in groupby(zip(mine.mask, other.mask, strict=False)):
        stop = start + len(list(run))
        if own != theirs:
            found = trl_masks.explain(derived, ends[start], ends[stop], bool(own))
            # What `encode` trains and the blocks do not hold: the proof leaves out only what the next message writes.
            is_left_out = not own and all(derived.mask[start:stop])
            yield found._replace(reason=NEXT) if is_left_out else found
        start = stop
