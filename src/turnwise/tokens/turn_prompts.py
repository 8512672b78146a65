"""The prompts before the assistant turns of one conversation.

A conversation is read once, whatever number of prompts it has: to copy it for every prompt takes as long as to render
it. Mostly a prompt is written from segments (`engine/segments`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from turnwise.engine.provenance.rendering import Rendering
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
        self._given = read

    @cached_property
    def _read(self) -> ReadMessages:
        read = self._given or read_more(self._messages, None)
        return read._replace(memory={}) if read.memory is None else read

    def find_end(self, index: int, text: str) -> PromptEnd:
        """Return where the prompt before a message ends in the text of the conversation."""
        found = self._found.get(index)
        if found is None:
            known = {} if self._known is None else self._known
            key = tuple(map(id, self._messages[:index]))
            try:
                if key not in known:
                    read = self._read._replace(messages=self._read.messages[:index])
                    known[key] = self.render_other(read)
            except TurnwiseError as error:
                raise_if_call_ended(error)
                return error
            found = known[key]
            if text.startswith(found.text):
                return len(found)
        return found
