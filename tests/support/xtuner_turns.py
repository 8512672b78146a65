"""An XTuner dict as turns, to be written in any dialect; the generation prompt is the end of `user`."""

from __future__ import annotations

from typing import Any

from turnwise.dialects.turns import Slot, Text, Turns
from turnwise.dialects.xtuner import XtunerSpec


def to_turns(source: Any) -> Turns:
    spec = XtunerSpec.of(source)
    return Turns(
        user=_rename(spec.instruction, "input"),
        reply_suffix=spec.suffix,
        eos=not spec.suffix_as_eos,
        separator=spec.sep,
        system=None if spec.system is None else _rename(spec.system, "system"),
        stops=spec.stop_words,
    )


def _rename(text: Text, slot: str) -> Text:
    """Call the slot of the message `text`."""
    return tuple(Slot("text") if part == Slot(slot) else part for part in text)
