"""The prompts before the assistant turns of one conversation, written with as few renderings as possible.

A prompt of plain turns is *traced* once it was rendered a few times for these roles (`content_trace.py`): the trace
says what the template writes whatever the contents are, and which texts they must not have. So a trace gives the text
that a rendering would give, or it is not used. It is kept by the roles, under everything else that a prompt depends on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from sys import getsizeof
from typing import Any, NamedTuple

from turnwise.engine.content_trace import MAX_TRACED_LENGTH, ContentTrace
from turnwise.engine.provenance.rendering import Rendering
from turnwise.messages import InputReader, ReadMessages
from turnwise.sized_cache import SizedTable

MAX_TRACE_BYTES = 2 << 20  # of one template
RENDERED_FIRST = 8  # times; a trace costs as much as that
SEPARATOR = "\0"
NO_TRACE = -1

Messages = Sequence[Mapping[str, Any]]
# Renders the prompt that serving would send for these messages, with the generation prompt.
RenderPrompt = Callable[[Messages | ReadMessages], Rendering]
# Of the prompt before plain turns, by the roles of the messages: its trace, or how often it was rendered.
PromptTraces = SizedTable[int | ContentTrace]


class PromptTracer(NamedTuple):
    """Traces prompts.

    Attributes:
        traces: what is known of them.
        key: of all that they depend on beside the messages.
        trace: traces the prompt of messages.
        now: the time of the call.
    """

    traces: PromptTraces
    key: bytes
    trace: Callable[[Messages], ContentTrace | None]
    now: datetime


class TurnPrompts:
    """The prompts of one conversation.

    Args:
        messages: the conversation.
        render: renders a prompt.
        tracer: traces one; without it, all prompts are rendered.
        reads_once: give `render` messages that were read already: to copy them for every prompt takes as long as to
            render it.
    """

    def __init__(
        self,
        messages: Messages,
        render: RenderPrompt,
        tracer: PromptTracer | None = None,
        reads_once: bool = False,
    ) -> None:
        self._messages = messages
        self._render = render
        self._tracer = tracer
        self._contents: list[str] | None = None if tracer else []
        self._joined = ""
        self._found: dict[str, bool] = {}
        self._reads_once = reads_once

    @cached_property
    def _read(self) -> ReadMessages:
        reader = InputReader()
        return ReadMessages(reader.read_messages(self._messages), reader.aliases)

    def render(self, count: int) -> Rendering:
        """Render the prompt before the message with this index."""
        if not self._reads_once or self._are_plain():
            return self._render(self._messages[:count])
        return self._render(ReadMessages(self._read.messages[:count], self._read.aliases))

    def render_other(self, messages: Messages) -> Rendering:
        """Render the prompt of other messages."""
        return self._render(messages)

    def write(self, count: int) -> str:
        """Return the text of the prompt before the message with this index."""
        tracer = self._tracer
        if tracer is None or not count or not self._are_plain():
            return self.render(count).text
        roles = tuple([message["role"] for message in self._messages[:count]])
        known = tracer.traces.find((tracer.key, roles)) or 0
        if isinstance(known, int) and known != NO_TRACE:
            known = self._learn(tracer, roles, known)
        if not isinstance(known, ContentTrace) or not known.is_on_time(tracer.now):
            return self.render(count).text
        if any(map(self._has, known.absent)):
            return self.render(count).text
        assert self._contents is not None
        return known.fill(self._contents)

    def _learn(
        self, tracer: PromptTracer, roles: tuple[str, ...], times: int
    ) -> int | ContentTrace:
        """Count a rendering, or trace the prompt instead."""
        learned: int | ContentTrace = times + 1
        size = sum(map(getsizeof, roles))
        if times >= RENDERED_FIRST:
            trace = tracer.trace(self._messages[: len(roles)])
            learned = NO_TRACE if trace is None else trace
            size += sum(map(getsizeof, () if trace is None else trace.parts))
        tracer.traces.keep((tracer.key, roles), learned, size)
        return learned

    def _are_plain(self) -> bool:
        """Return whether the messages have a role and a content each, no content is blank, and all are not too long."""
        if self._contents is None:
            self._contents = []
            for message in self._messages:
                content = message.get("content")
                is_plain = len(message) == 2 and type(message.get("role")) is str
                if not is_plain or type(content) is not str or not content or content.isspace():
                    self._contents = []
                    break
                self._contents.append(content)
            self._joined = SEPARATOR.join(self._contents)
            if len(self._joined) > MAX_TRACED_LENGTH:
                self._contents = []
        return bool(self._contents)

    def _has(self, text: str) -> bool:
        """Return whether a text is in a content."""
        found = self._found.get(text)
        if found is None:
            found = self._found[text] = text in self._joined
        return found
