"""The prompts before the assistant turns of one conversation.

A conversation is read once, whatever number of prompts it has: to copy it for every prompt takes as long as to render
it. Mostly a prompt is written from segments (`engine/segments`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from turnwise.engine.provenance.rendering import CHECKED_TEXT, Rendering
from turnwise.engine.runtime.limits import raise_if_call_ended
from turnwise.errors import TurnwiseError
from turnwise.messages import JsonMapping, ReadMessages
from turnwise.tokens.read_chat import read_more

Messages = Sequence[JsonMapping]
# Renders the prompt that serving would send for these messages, with the generation prompt.
RenderPrompt = Callable[[Messages | ReadMessages], Rendering]
# Where a prompt ends in the text of a conversation; the prompt itself if that does not begin with it, or why the
# template refuses to write it.
PromptEnd = int | Rendering | TurnwiseError
KnownPrompts = dict[tuple[int, ...], Rendering]  # by the objects of their messages, which are alive


class TurnPrompts:
    """The prompts of one conversation.

    Args:
        messages: the conversation.
        render_other: renders the prompt of any messages.
        read: the messages as a renderer takes them, if they were read already.
        known: prompts that were rendered for other parts of the conversation; those of this one are added.
        found: what `find_end` returns for some messages, by their index.
    """

    def __init__(
        self,
        messages: Messages,
        render_other: RenderPrompt,
        read: ReadMessages | None = None,
        known: KnownPrompts | None = None,
        found: Mapping[int, PromptEnd] | None = None,
    ) -> None:
        self.render_other = render_other
        self._found = found or {}
        self._messages = messages
        self._known = known
        self._read = read

    def find_end(self, index: int, text: str) -> PromptEnd:
        """Return where the prompt before a message ends in the text of the conversation."""
        found = self._found.get(index)
        if found is None:
            try:
                found = self._render(index, text)
            except TurnwiseError as error:
                raise_if_call_ended(error)
                return error
            if text.startswith(found.text):
                return len(found)
        return found

    def _render(self, count: int, text: str) -> Rendering:
        if self._read is None or self._read.memory is None:
            read = self._read or read_more(self._messages, None)
            self._read = read._replace(memory={CHECKED_TEXT: text})
        read = self._read._replace(messages=self._read.messages[:count])
        if self._known is None:
            return self.render_other(read)
        key = tuple(map(id, self._messages[:count]))
        if key not in self._known:
            self._known[key] = self.render_other(read)
        return self._known[key]
