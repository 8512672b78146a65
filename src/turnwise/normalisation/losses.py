"""Say which losses of a rendering are none, and find contents that are written as Python prints them.

What was given and is not written is found by `analysis/losses.py`. Templates that write the reasoning of the last reply
and remove it from earlier ones do so on purpose. That is no loss.

Content that is written, but as Python prints a list, a mapping or None, is found by its text (`find_misprints`).
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from functools import cached_property
from typing import Any

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


def find_misprints(
    rendering: Rendering, messages: Sequence[Any], positions: Sequence[int] | None
) -> list[str]:
    """Return the paths of contents that a template wrote as Python prints them: a list, a mapping or None.

    Args:
        rendering: the rendering, which numbers these messages from 0.
        messages: the messages that were rendered.
        positions: the indices of the messages in the caller's list, for the paths; None if they are the same.
    """
    found = []
    for index, message in enumerate(messages):
        content = message.get("content") if isinstance(message, Mapping) else ""
        if isinstance(content, (str, int, float)):
            continue
        if "content" not in message:
            continue
        if content is None:
            field = f"messages[{index}].content"
            is_printed = "None" in rendering.text and any(
                rendering.text[start:end] == "None" for start, end in rendering.spans(field=field)
            )
        else:
            parts = content if isinstance(content, (list, tuple)) else ()
            containers = (content, *(part for part in parts if isinstance(part, Mapping)))
            is_printed = any(str(one) in rendering.text for one in containers if one)
        if is_printed:
            found.append(f"messages[{positions[index] if positions else index}].content")
    return found
