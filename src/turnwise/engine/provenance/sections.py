"""What segments wrote, in sections.

A section writes the same for every conversation, but for the texts in its slots. So the origins of what it writes for
a message are found once, and kept (`Rendering.pieces`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from turnwise.engine.provenance.trails import Rule, Trail
from turnwise.sized_cache import SizedTable


@dataclass(eq=False)
class OutputSection:
    """What is known of the items of a section: texts and trails, alternately.

    Attributes:
        slots: the texts that may differ, in order; and whether their trails are the same for the same message.
        size: the number of items.
    """

    slots: dict[int, bool]
    size: int


# A section with the index of its message; those of a round together, as they are pieces of one text.
SectionKey = tuple[Any, ...]


class SectionedOutput(list[Any]):
    """An output (`trails.py`) with its sections: each with the index of its message, and its end."""

    sections: list[tuple[SectionKey, int]]


SectionPieces = tuple[list[Any], ...]
"""The pieces of a section of an output, for one message:

* their texts;
* their origins;
* those whose texts differ: the number of the piece, and the item of the section or of the round;
* the same of those whose trails are followed each time, the last first.
"""
SECTIONS: SizedTable[SectionPieces] = SizedTable()
SLOT = "\ufdd0"  # in the place of a text
# A leaf that is equal to no other, which no kind of leaf is: no neighbour is merged with it.
UNKNOWN: Trail = (Rule("UNKNOWN", lambda _, text: [(text, object())]),)  # type: ignore[list-item]
