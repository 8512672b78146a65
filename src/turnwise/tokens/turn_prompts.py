"""The prompts before the assistant turns of one conversation.

A conversation is read once, whatever number of prompts it has: to copy it for every prompt takes as long as to render
it. Mostly a prompt is written from segments (`engine/segments`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from turnwise.engine.provenance.rendering import Rendering
from turnwise.messages import InputReader, JsonMapping, ReadMessages

NO_LENGTHS: Mapping[int, int] = {}
Messages = Sequence[JsonMapping]
# Renders the prompt that serving would send for these messages, with the generation prompt.
RenderPrompt = Callable[[Messages | ReadMessages], Rendering]


class TurnPrompts:
    """The prompts of one conversation.

    Args:
        messages: the conversation.
        render: renders a prompt.
        reads_once: give `render` messages that were read already.
        text: the rendered conversation.
        read: the messages as a renderer takes them, if they were read already.
        lengths: of prompts that are known to be the beginning of the text, by the index of the message after them.
    """

    def __init__(
        self,
        messages: Messages,
        render: RenderPrompt,
        reads_once: bool = False,
        text: str = "",
        read: ReadMessages | None = None,
        lengths: Mapping[int, int] = NO_LENGTHS,
    ) -> None:
        self.lengths = lengths
        self._messages = messages
        self._render = render
        self._reads_once = reads_once
        self._given = read
        self._memory: dict[Any, Any] = {} if read is None or read.memory is None else read.memory
        self._memory["text"] = text

    @cached_property
    def _read(self) -> ReadMessages | None:
        """The messages as plain data, if they are read once."""
        if not self._reads_once:
            return None
        if self._given is not None:
            return self._given._replace(memory=self._memory)
        reader = InputReader()
        chat = reader.read_messages(self._messages)
        return ReadMessages(chat, reader.aliases, memory=self._memory)

    def render(self, count: int) -> Rendering:
        """Render the prompt before the message with this index."""
        read = self._read
        if read is None:
            return self._render(self._messages[:count])
        return self._render(read._replace(messages=read.messages[:count]))

    def render_other(self, messages: Messages) -> Rendering:
        """Render the prompt of other messages."""
        return self._render(messages)
