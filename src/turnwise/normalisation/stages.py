"""The stages of a conversation in which system texts were moved to the front.

A template that takes one system text gets all of them in the first message. The replies before a late system text were
given to a conversation that did not have it yet, so they are trained in the conversation up to it:

    user  reply  system  user  reply      moved:   system  user  reply  user  reply      trains the second reply
                                          before:  user  reply                           trains the first
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

from turnwise.messages import InputReader
from turnwise.normalisation.normaliser import Normalised, Normaliser
from turnwise.normalisation.results import RESULT_ROLES
from turnwise.tokens.attribution import ASSISTANT_ROLES


class Stage(NamedTuple):
    """A conversation up to a system text that was moved, or to its end.

    Attributes:
        given: the conversation, normalised.
        first: the index in `given.messages` of the first message that was not in the stage before.
    """

    given: Normalised
    first: int = 0


def split_stages(normaliser: Normaliser, messages: Any, given: Normalised) -> list[Stage]:
    """Return the stages that have replies of their own; the last is the whole conversation.

    Args:
        normaliser: the normaliser that gave the messages their forms.
        messages: the conversation as the caller has it.
        given: the conversation, normalised.
    """
    if not isinstance(messages, (list, tuple)):
        messages = InputReader().read_messages(messages)
    cuts = _find_cuts(given, len(messages))
    stages = []
    for start, end in pairwise([0, *cuts, len(messages)]):
        is_whole = end == len(messages)
        part = given if is_whole else normaliser.normalise(messages[:end], given.tools)
        positions = part.positions or range(len(part.messages))
        replies = [
            index
            for index, message in enumerate(part.messages)
            if positions[index] >= start and message.get("role") in ASSISTANT_ROLES
        ]
        if replies or is_whole:
            stages.append(Stage(part, replies[0] if replies else len(part.messages)))
    return stages


def find_early_replies(messages: Any, given: Normalised, only_last: bool) -> tuple[int, int] | None:
    """Return the indices of a system text that was moved and of a reply that came before it; None if there are none.

    Args:
        messages: the conversation as the caller has it.
        given: the conversation, normalised.
        only_last: look at the last reply only.
    """
    if given.positions is None or not isinstance(messages, (list, tuple)):
        return None
    replies = _list_replies(given)
    cuts = _find_cuts(given, len(messages))
    reply = replies[-1] if only_last and replies else min(replies, default=0)
    late = [index for index in cuts if index > reply]
    return (late[0], reply) if late else None


def _list_replies(given: Normalised) -> list[int]:
    """Return the indices in the caller's list of the replies."""
    return [
        position
        for position, message in zip(given.positions or (), given.messages, strict=True)
        if message.get("role") in ASSISTANT_ROLES
    ]


def _find_cuts(given: Normalised, count: int) -> list[int]:
    """Return the indices in the caller's list of the messages that were moved to before a reply."""
    positions = given.positions
    if positions is None:
        return []
    replies = _list_replies(given)
    moved = {*range(count)} - {*positions}
    # Results are only moved among each other.
    placed = [
        position
        for position, message in zip(positions, given.messages, strict=True)
        if message.get("role") not in RESULT_ROLES
    ]
    moved.update(before for before, after in pairwise(placed) if before > after)
    return sorted(index for index in moved if replies and index > min(replies))
