"""Input text that a rendering does not contain.

A template may drop what it has no use for: a system message, a tool list, the text beside a tool call. The pieces know
which field each character came from, so a field without any piece was dropped. Trimmed, escaped or computed text counts
as written: its origin names the field. An image is written if it has a placeholder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from turnwise.engine.provenance.rendering import Rendering
from turnwise.errors import MessageError
from turnwise.messages import REASONING_KEYS

MESSAGE_FIELDS = ("content", "tool_calls")


def find_lost_fields(
    rendering: Rendering, messages: Sequence[Any], tools: Any = None, documents: Any = None
) -> list[str]:
    """Return the paths of the fields that have text and of which nothing was written, in order.

    A path is that of a whole field (`messages[2].content`, `messages[3].tool_calls`, `tools`), or of a media part
    without a placeholder (`messages[0].content[1]`).
    """
    written = _written_fields(rendering)
    lost = [name for name, value in (("tools", tools), ("documents", documents)) if value]
    lost = [name for name in lost if (name,) not in written]
    for index, message in enumerate(messages):
        for name in MESSAGE_FIELDS:
            if _has_text(message.get(name)) and ("messages", index, name) not in written:
                lost.append(f"messages[{index}].{name}")
        reasoning = [name for name in REASONING_KEYS if _has_text(message.get(name))]
        if reasoning and not any(("messages", index, name) in written for name in REASONING_KEYS):
            lost.append(f"messages[{index}].{reasoning[0]}")
    for part in rendering.media:
        if not part.written and f"messages[{part.message}].content" not in lost:
            lost.append(part.path)
    return lost


def refuse_losses(
    rendering: Rendering, messages: Sequence[Any], tools: Any, documents: Any
) -> None:
    """Raise an error that names the fields of which nothing was rendered."""
    lost = find_lost_fields(rendering, messages, tools, documents)
    if lost:
        raise MessageError(
            f"the template writes nothing of {', '.join(lost)}",
            path=lost[0],
            hint="strict=True refuses what the template drops",
        )


def _written_fields(rendering: Rendering) -> set[tuple[Any, ...]]:
    """Return the beginnings of all paths that some piece came from."""
    written: set[tuple[Any, ...]] = set()
    for piece in rendering.pieces:
        origin = piece.origin
        paths = [origin.path] if origin.path else [*origin.sources]
        if origin.part and not piece.text.isspace():
            paths.append(origin.part)
        for path in paths:
            written.add(tuple(path[:1]))
            written.add(tuple(path[:3]))
    return written


def _has_text(value: Any) -> bool:
    """Return True if some text in a value is more than white space."""
    if isinstance(value, str):
        return bool(value.strip())
    if isinstance(value, Mapping):
        return any(map(_has_text, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_has_text, value))
    return False
