"""Say which losses of a rendering are none, and find contents that are written as Python prints them.

What was given and is not written is found by `analysis/losses.py`. Templates that write the reasoning of the last reply
and remove it from earlier ones do so on purpose. That is no loss.

Content that is written, but as Python prints a list, a mapping or None, is a misprint (`analysis/misprints.py`).
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from functools import cached_property
from typing import Any

from turnwise.analysis.misprints import find_misprints
from turnwise.engine.provenance.rendering import Rendering
from turnwise.normalisation.capabilities import Capabilities


class RemovedReasoning(Container[int]):
    """The messages whose reasoning a template removes on purpose, though it writes that of a last reply.

    The template is asked only where reasoning is in doubt.

    Args:
        messages: the messages that were rendered.
        capabilities: what the template does with reasoning.
    """

    def __init__(self, messages: Sequence[Mapping[str, Any]], capabilities: Capabilities) -> None:
        self._messages = messages
        self._capabilities = capabilities

    def __contains__(self, index: object) -> bool:
        if not isinstance(index, int) or index >= self._last_user:
            return False
        message = self._messages[index]
        if message.get("role") != "assistant":
            return False
        if message.get("tool_calls"):
            return self._capabilities.writes_reasoning_with_calls
        return self._capabilities.writes_reasoning

    @cached_property
    def _last_user(self) -> int:
        """The index of the last user's message, 0 if there is none."""
        for index in range(len(self._messages) - 1, 0, -1):
            if self._messages[index].get("role") == "user":
                return index
        return 0


def find_printed_contents(
    rendering: Rendering, messages: Sequence[Any], positions: Sequence[int] | None
) -> list[str]:
    """Return the paths of contents that a template wrote as Python prints them: a list, a mapping or None.

    Args:
        rendering: the rendering, which numbers these messages from 0.
        messages: the messages that were rendered.
        positions: the indices of the messages in the caller's list, for the paths; None if they are the same.
    """
    # Pieces are looked at only if some content may be printed, and the text has the signs of it.
    given = [message.get("content", "") for message in messages if isinstance(message, Mapping)]
    if all(isinstance(content, (str, int, float)) for content in given):
        return []
    if not any(sign in rendering.text for sign in ("None", "{'", "['")):
        return []
    indices = [
        found.path[1]
        for found in find_misprints(rendering, messages)
        if found.notation == "python" and found.path[2:3] == ("content",)
    ]
    return [
        f"messages[{positions[index] if positions else index}].content"
        for index in dict.fromkeys(indices)
        if isinstance(index, int)
    ]
