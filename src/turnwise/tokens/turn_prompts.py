"""The prompts before the assistant turns of one conversation.

A conversation is read once, whatever number of prompts it has: to copy it for every prompt takes as long as to render
it. Mostly a prompt is written from segments (`engine/segments`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from turnwise.engine.provenance.rendering import Rendering
from turnwise.messages import JsonMapping, ReadMessages
from turnwise.tokens.read_chat import read_more

Messages = Sequence[JsonMapping]
# Renders the prompt that serving would send for these messages, with the generation prompt.
RenderPrompt = Callable[[Messages | ReadMessages], Rendering]
KnownPrompts = dict[tuple[int, ...], Rendering]  # by the objects of their messages, which are alive


class TurnPrompts:
    """The prompts of one conversation.

    Args:
        messages: the conversation.
        render_other: renders the prompt of any messages.
        read: the messages as a renderer takes them, if they were read already.
        known: prompts that were rendered for other parts of the conversation; those of this one are added.
        ends: of prompts with which the text of the conversation is known to begin, their lengths by index.
    """

    def __init__(
        self,
        messages: Messages,
        render_other: RenderPrompt,
        read: ReadMessages | None = None,
        known: KnownPrompts | None = None,
        ends: Mapping[int, int] | None = None,
    ) -> None:
        self.render_other = render_other
        self.ends = ends or {}
        self._messages = messages
        self._known = known
        self._given = read

    @cached_property
    def _read(self) -> ReadMessages:
        read = self._given or read_more(self._messages, None)
        return read._replace(memory={}) if read.memory is None else read

    def render(self, count: int) -> Rendering:
        """Render the prompt before the message with this index."""
        known = {} if self._known is None else self._known
        key = tuple(map(id, self._messages[:count]))
        if key not in known:
            read = self._read._replace(messages=self._read.messages[:count])
            known[key] = self.render_other(read)
        return known[key]
