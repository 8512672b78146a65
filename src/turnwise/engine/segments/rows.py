"""What a template writes for plain turns with the same roles, whatever their contents are.

Rows of a data set mostly have one of a few forms. A row is recorded (`recorder.py`); if no content decided about
anything, but for texts that are in none of them, all rows with the same roles are written alike: the same constants,
and slots for the contents, and for the reasoning of replies that have some.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from turnwise.engine.renderer import Renderer
from turnwise.engine.runtime.limits import MAX_SEGMENTED_LENGTH, pays_for_itself
from turnwise.engine.segments.facts import Constants, FactTree
from turnwise.engine.segments.functions import instrument
from turnwise.engine.segments.recorder import CONTENT, TEXT_PATHS, Recorder
from turnwise.engine.segments.symbols import NotRecordable, TextSlot, Trim
from turnwise.errors import TurnwiseError

MAX_TRACED_LENGTH = (
    MAX_SEGMENTED_LENGTH  # characters of all contents; a longer conversation is rendered
)


class ContentSlot(NamedTuple):
    """Where a text is written."""

    number: int  # that of the text, see `list_texts`
    trims: tuple[Trim, ...] = ()  # that it went through, first to last

    def fill(self, content: str) -> str:
        """Return a text as it is written here."""
        for method, letters in self.trims:
            content = getattr(content, method)(letters)
        return content


def list_texts(messages: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the texts of messages: the content of each, and then its reasoning, if there is some."""
    return [message[key] for message in messages for key in sorted(message) if key != "role"]


class ContentTrace(NamedTuple):
    """What a template writes for messages whose contents are not known.

    Attributes:
        parts: the constants and slots of its output, in order.
        absent: texts that must be in no content.
        clock: the formats in which the time was written, each with the text.
        cost: of the budget of bytes, for each character of a content.
    """

    parts: tuple[str | ContentSlot, ...]
    absent: frozenset[str]
    clock: tuple[tuple[str, str], ...]
    cost: int

    def is_on_time(self, now: datetime) -> bool:
        """Return whether the template would write the same time."""
        return all([now.strftime(form) == text for form, text in self.clock])

    def write(self, texts: Sequence[str]) -> list[str]:
        """Return the parts with these texts in the slots."""
        return [
            part if isinstance(part, str) else part.fill(texts[part.number]) for part in self.parts
        ]

    def starts_with(self, other: ContentTrace) -> bool:
        """Return whether the text begins with that of another trace, whatever the contents are."""
        *before, last = other.parts
        *own, following = self.parts[: len(other.parts)] or ("",)
        if own == before and isinstance(last, str) and isinstance(following, str):
            return following.startswith(last)
        return (own, following) == (before, last)


def trace_contents(
    renderer: Renderer, messages: Sequence[Mapping[str, Any]], arguments: Mapping[str, Any]
) -> ContentTrace | None:
    """Return what a template writes for messages like these, whatever their contents are; None if they decide.

    It holds for contents that are not blank, and have at most `MAX_TRACED_LENGTH` characters together.

    Args:
        renderer: the template.
        messages: messages with a role, a content that is text, and perhaps reasoning.
        arguments: those of `Renderer.render`.
    """
    if not pays_for_itself(renderer.limits):
        return None
    recorder = Recorder(FactTree(), Constants())
    try:
        renderer.with_programs(partial(instrument, recorder)).render(list(messages), **arguments)
    except (NotRecordable, TurnwiseError):
        return None
    cost = recorder.total_cost + recorder.round_cost
    if recorder.reads_contents or cost > renderer.limits.bytes_per_character:
        return None
    parts: list[str | ContentSlot] = []
    for part in recorder.parts:
        if isinstance(part, TextSlot) and part.field and part.field.path in TEXT_PATHS:
            before = list_texts(messages[: int(part.field.message)])
            parts.append(ContentSlot(len(before) + (part.field.path != CONTENT), part.trims))
        elif not isinstance(part, str):
            return None
        elif parts and isinstance(parts[-1], str):
            parts[-1] += part
        else:
            parts.append(part)
    clock = tuple(recorder.clock.items())
    return ContentTrace(tuple(parts), frozenset(recorder.absent), clock, cost)
