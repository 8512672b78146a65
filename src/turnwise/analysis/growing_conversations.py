"""Conversations that grow by one message, to ask a template whether it rewrites what it wrote before.

Every conversation of `conversations()` is cut after each of its messages: what is before the cut is the shorter
conversation, the message after it is appended. More messages are then appended to every conversation that they can
follow. A tool result follows calls or another result, a user does not follow a user: templates may refuse the rest, and
nobody sends it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any

from turnwise.analysis.conversations import (
    MessageDict,
    Probe,
    conversations,
    load_probes,
    name_values,
)
from turnwise.messages import REASONING_KEYS

USER, ASSISTANT, CALLS, RESULT, SYSTEM = "user", "assistant", "calls", "tool", "system"
NEXT_RESULT, REPLY = "next tool", "reply"
KINDS = {
    USER: "a user message",
    ASSISTANT: "an assistant message",
    CALLS: "an assistant message with calls",
    RESULT: "a tool result",
    NEXT_RESULT: "another tool result",
    SYSTEM: "a system message",
    REPLY: "the reply to the prompt",
}
"""What is appended, with the words for it. A reply is appended to a prompt: to a rendering with a generation prompt."""
FOLLOWS: dict[str, tuple[str, ...]] = {
    USER: (ASSISTANT, RESULT, SYSTEM),
    ASSISTANT: (USER, RESULT),
    CALLS: (USER, RESULT),
    RESULT: (CALLS, RESULT),
    SYSTEM: (USER, ASSISTANT, RESULT),
}
"""After which messages each kind may come."""
MAX_SHORT = 4  # messages of a short conversation: a call, its result and another user
TOPICS = (
    "turns",
    "calls",
    "reasoning",
)  # of `conversations()`; what texts contain is asked by "growing"


@dataclass(frozen=True)
class Growth:
    """A conversation whose last message is appended to the others.

    Attributes:
        kind: A key of `KINDS`.
        probe: The longer conversation, with its arguments.
    """

    kind: str
    probe: Probe

    @property
    def shorter(self) -> Probe:
        """The conversation before the message was appended; with a generation prompt, if it is a reply."""
        return replace(
            self.probe,
            messages=self.probe.messages[:-1],
            add_generation_prompt=self.kind == REPLY,
        )


@cache
def growing_conversations() -> tuple[Growth, ...]:
    """Return every growth once, the shortest conversations first."""
    found: dict[str, Growth] = {}
    for probe in _probes():
        for end in range(1, len(probe.messages) + 1):
            shorter = replace(probe, messages=probe.messages[:end])
            for message in _following(probe, end):
                longer = replace(shorter, messages=[*shorter.messages, message])
                for kind in _kinds_of(longer.messages):
                    key = json.dumps([kind, longer.messages, longer.tools], sort_keys=True)
                    found.setdefault(key, Growth(kind, longer))
    return tuple(sorted(found.values(), key=lambda growth: len(growth.probe.messages)))


@cache
def distinct_growths() -> tuple[Growth, ...]:
    """Return one growth for each short sequence of messages, with and without tools, reasoning or text: a quarter."""
    found: dict[Any, Growth] = {}
    for growth in growing_conversations():
        messages = growth.probe.messages
        sequence = [
            (kind_of_message(one), REASONING_KEYS[0] in one, bool(one.get("content")))
            for one in messages
        ]
        if len(sequence) <= MAX_SHORT:
            tools = growth.probe.tools
            key = (growth.kind, None if tools is None else len(tools), *sequence)
            found.setdefault(key, growth)
    return tuple(found.values())


def _probes() -> Iterator[Probe]:
    for probe in conversations():
        if probe.about in TOPICS and probe.documents is None:
            yield probe
    yield from load_probes("growing")


def _following(probe: Probe, end: int) -> Iterator[MessageDict]:
    """Yield the next message of a conversation, and others that can come at its place."""
    yield from probe.messages[end : end + 1]
    before = kind_of_message(probe.messages[end - 1])
    (appended,) = name_values("appended")
    for kind, messages in appended.items():
        needs_tools = kind == CALLS and probe.tools is None
        if before in FOLLOWS[kind] and not needs_tools:
            yield from messages


def _kinds_of(messages: list[MessageDict]) -> list[str]:
    """Return what the last message is: a message, perhaps also a reply; nothing if it cannot follow the others."""
    before, kind = map(kind_of_message, messages[-2:])
    if kind is None or before not in FOLLOWS[kind]:
        return []
    if kind == before == RESULT:
        return [NEXT_RESULT]
    is_reply = kind in (ASSISTANT, CALLS) and before in (USER, RESULT)
    return [kind, REPLY] if is_reply else [kind]


def is_growth(kind: str, messages: list[MessageDict]) -> bool:
    """Return whether a conversation is one that may be sent, and its last message is of a kind."""
    if len(messages) < 2 or kind not in _kinds_of(messages):
        return False
    if not all("content" in message for message in messages):
        return False
    kinds = list(map(kind_of_message, messages))
    if RESULT in kinds[:1] or {SYSTEM}.issuperset(kinds[:-1]):
        return False
    return all(kind is None or before in (None, *FOLLOWS[kind]) for before, kind in pairwise(kinds))


def kind_of_message(message: MessageDict) -> str | None:
    """Return the key of `KINDS` for a message; None for a role that not all templates know."""
    role = message.get("role")
    if role == "assistant" and message.get("tool_calls"):
        return CALLS
    return role if role in FOLLOWS else None
