"""What a template writes for conversations of one form, whatever their contents are.

Rows of a data set mostly have one of a few forms. A row is recorded (`recorder.py`); if no content decided about
anything, but for texts that are in none of them, all rows with the same roles and keys are written alike: the same
constants, and slots for the contents: texts, and the arguments of calls as JSON.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from turnwise.engine.renderer import Renderer
from turnwise.engine.runtime.limits import pays_for_itself
from turnwise.engine.segments.facts import Constants, FactTree
from turnwise.engine.segments.functions import instrument
from turnwise.engine.segments.recorder import Recorder
from turnwise.engine.segments.symbols import NotRecordable, TextSlot, Trim
from turnwise.errors import TurnwiseError
from turnwise.messages import JsonMapping

# The source of arguments as JSON, with the name of the writer.
ARGUMENTS = r"\['tool_calls'\]\[\d+\]\['function'\]\['arguments'\]"
JSON_SOURCE = re.compile(rf"(K\d+)\((?:[mw]|M\[[^]]*\]){ARGUMENTS}\)")


class ContentSlot(NamedTuple):
    """Where a content is written.

    Attributes:
        place: the source of the way to it: `[2]['content']`.
        trims: the methods that it went through, first to last.
        write: writes it as JSON; None if it is a text.
    """

    place: str
    trims: tuple[Trim, ...] = ()
    write: Callable[[Any], str] | None = None

    def fill(self, content: str) -> str:
        """Return a text as it is written here."""
        for method, letters in self.trims:
            content = getattr(content, method)(letters)
        return content


class ContentTrace(NamedTuple):
    """What a template writes for messages whose contents are not known.

    Attributes:
        parts: the constants and slots of its output, in order.
        absent: texts that must be in no content.
        clock: the formats in which the time was written, each with the text.
        cost: of the budget of bytes, for each character of a content.
        added: how many characters the JSON of arguments may have beside those that add to the budgets.
    """

    parts: tuple[str | ContentSlot, ...]
    absent: frozenset[str]
    clock: tuple[tuple[str, str], ...]
    cost: int
    added: int

    def is_on_time(self, now: datetime) -> bool:
        """Return whether the template would write the same time."""
        return all([now.strftime(form) == text for form, text in self.clock])

    def write(self, contents: Mapping[str, str]) -> list[str]:
        """Return the parts with contents in the slots, given by their places; arguments are JSON already."""
        return [
            part if isinstance(part, str) else part.fill(contents[part.place])
            for part in self.parts
        ]

    def starts_with(self, other: ContentTrace) -> bool:
        """Return whether the text begins with that of another trace, whatever the contents are."""
        *before, last = other.parts
        *own, following = self.parts[: len(other.parts)] or ("",)
        if own == before and isinstance(last, str) and isinstance(following, str):
            return following.startswith(last)
        return (own, following) == (before, last)


class ContentTracer:
    """Traces conversations, of which many begin alike: what one shares with an earlier one is not written again.

    Args:
        renderer: the template.
    """

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._entry, self._constants = FactTree(), Constants()

    def trace(self, messages: Sequence[JsonMapping], arguments: JsonMapping) -> ContentTrace | None:
        """Return what a template writes for messages like these, whatever their contents are; None if they decide.

        Messages are like these if their forms are equal (`tokens/row_form.py`), and they have at most
        `MAX_SEGMENTED_LENGTH` characters together.

        Args:
            messages: the messages.
            arguments: those of `Renderer.render`.
        """
        renderer = self._renderer
        limits = renderer.limits
        if not pays_for_itself(limits):
            return None
        recorder = Recorder(self._entry, self._constants)
        try:
            renderer.with_programs(partial(instrument, recorder)).render(messages, **arguments)
        except (NotRecordable, TurnwiseError):
            return None
        cost = recorder.total_cost + recorder.round_cost
        if recorder.reads_contents or cost > limits.bytes_per_character:
            return None
        parts: list[str | ContentSlot] = []
        for part in recorder.parts:
            slot = part if isinstance(part, str) else self._make_slot(part)
            if slot is None:
                return None
            if parts and isinstance(slot, str) and isinstance(parts[-1], str):
                parts[-1] += slot
            else:
                parts.append(slot)
        free = min(limits.output, limits.bytes // max(limits.bytes_per_character, 1)) // 4
        return ContentTrace(
            tuple(parts), frozenset(recorder.absent), (*recorder.clock.items(),), cost, free
        )

    def _make_slot(self, part: TextSlot | None) -> ContentSlot | None:
        """Return where a content is written; None if it is not known what is written there."""
        if part is None or part.field is None:
            return None
        place = f"[{part.field.message}]{part.field.path}"
        if not part.is_json:
            return ContentSlot(place, part.trims)
        found = JSON_SOURCE.fullmatch(part.source)
        return found and ContentSlot(place, (), self._constants.values[found[1]])
