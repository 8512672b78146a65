"""Tell the kinds of assistant turns apart: two turns of one kind are opened by the same generation prompt.

What the prompt depends on is read off the source (`prompt_reads.py`). For most templates that is nothing in the
messages, and the kind of a turn only says how templates write finished turns: after which message, in history or not,
with calls or without. If a template asks for the shapes of the messages before, the kind has those of the last few, and
the order in which each other shape came last: that is what a flag can remember which one message sets and another
resets. If it asks for the text of the first message, the kind has that text.

A template that asks for more, such as `'/no_think' in messages[-1].content`, has no kinds: each turn is one of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from turnwise.engine.compiler.prompt_reads import PromptReads
from turnwise.messages import REASONING_KEYS

MAX_REMEMBERED = 16  # shapes; an ordinary conversation has four
RECENT = 3  # messages before a turn
RESULT_FIELDS = frozenset(("tool_responses", "tool_results", "tool_outputs"))  # of a call

Messages = Sequence[Mapping[str, Any]]
Kind = tuple[Any, ...]


def find_kinds(messages: Messages, turns: Sequence[int], reads: PromptReads) -> list[Kind]:
    """Return the kinds of the assistant turns with these indices."""
    last_user = _find_last_user(messages)
    kinds = [_describe_turn(messages, index, index < last_user) for index in turns]
    if reads.first_message:
        first = hash(repr(messages[0]))
        kinds = [(*kind, first) for kind in kinds]
    if reads.shapes:
        states = _find_states(messages, turns)
        kinds = [(*kind, *state) for kind, state in zip(kinds, states, strict=True)]
    return kinds


def _find_last_user(messages: Messages) -> int:
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].get("role") == "user":
            return index
    return -1


def _describe_turn(messages: Messages, index: int, is_history: bool) -> Kind:
    """Return what templates look at when they write a finished turn."""
    message = messages[index]
    before: Mapping[str, Any] = messages[index - 1] if index else {}
    has_reasoning = any([message.get(name) for name in REASONING_KEYS])
    has_content, has_calls = bool(message.get("content")), bool(message.get("tool_calls"))
    has_results = not RESULT_FIELDS.isdisjoint(message)
    first_role = _describe_role(messages[0].get("role"))
    return (
        *(
            _describe_role(before.get("role")),
            _describe_value(before.get("content")),
            first_role,
            is_history,
        ),
        *(has_content, has_calls, has_reasoning, has_results),
    )


def _find_states(messages: Messages, turns: Sequence[int]) -> Iterator[Kind]:
    """Yield what a template may remember of the shapes of the messages before each turn."""
    shapes: list[Kind] = []
    latest: dict[Kind, None] = {}  # the last one comes last
    for index in turns:
        for message in messages[len(shapes) : index]:
            shape = _find_shape(message)
            shapes.append(shape)
            latest.pop(shape, None)
            latest[shape] = None
            if len(latest) > MAX_REMEMBERED:
                del latest[next(iter(latest))]
        yield tuple(shapes[-RECENT:]), tuple(latest)


def _find_shape(message: Mapping[str, Any]) -> Kind:
    """Return the role of a message, and of each other field its name, its type and whether it is empty."""
    return tuple(
        [
            (name, _describe_role(value) if name == "role" else _describe_value(value))
            for name, value in message.items()
        ]
    )


def _describe_role(role: Any) -> str:
    # A kind is a key, and a list cannot be one.
    return role if isinstance(role, str) else repr(role)


def _describe_value(value: Any) -> Any:
    if type(value) is str:
        return 0 if not value else 1 if value.isspace() else 2
    if isinstance(value, (list, tuple)):
        return tuple(dict.fromkeys(map(_describe_item, value)))
    return type(value), bool(value)


def _describe_item(item: Any) -> Any:
    """Return the type of a part of a content, such as `image`."""
    kind = item.get("type") if isinstance(item, Mapping) else None
    return kind if isinstance(kind, str) else type(item)
