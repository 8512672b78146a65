"""How long a patch of a template is: the characters that are removed and added, white space and comments aside.

Words are compared, not lines: many published templates are one line.
"""

from __future__ import annotations

import difflib
import re

import label_law
import trl_masks
import trl_pairs
from turnwise.repair import GENERATION, fix

COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
WORD = re.compile(r"\w+|[^\w\s]")


def measure_patch(before: str, after: str) -> int:
    """Return how many characters differ."""
    old, new = (WORD.findall(COMMENT.sub("", text)) for text in (before, after))
    length = 0
    for kind, *places in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            words = old[places[0] : places[1]] + new[places[2] : places[3]]
            length += sum(map(len, words))
    return length


def compare_lengths(name: str) -> tuple[int, int]:
    """Return the lengths of TRL's patch for training and of ours; 0 if there is none."""
    plain = trl_pairs.plain_templates()[name]
    repair = fix(label_law.compile_text(plain), [GENERATION])
    return (
        measure_patch(plain, trl_masks.templates()[name]),
        measure_patch(plain, repair.text),
    )
