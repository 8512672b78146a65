"""The stages of a conversation in which late system texts were moved to the front (`late_system="front"`).

The replies before a late system text were given to a conversation that did not have it yet, so they are trained in the
conversation up to it:

    user  reply  system  user  reply      moved:   system  user  reply  user  reply      trains the second reply
                                          before:  user  reply                           trains the first
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from turnwise.messages.roles import ASSISTANT_ROLES
from turnwise.normalisation.normalised import Normalised

if TYPE_CHECKING:
    from turnwise.normalisation.normaliser import Normaliser


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
    if not given.hoisted:
        return [Stage(given)]
    stages = []
    for start, end in pairwise([0, *given.hoisted, len(messages)]):
        is_whole = end == len(messages)
        part = given
        if not is_whole:
            part = normaliser.normalise(messages[:end], given.tools, late_system="front")
        replies = [place for place, index in find_replies(part) if index >= start]
        if replies or is_whole:
            stages.append(Stage(part, replies[0] if replies else len(part.messages)))
    return stages


def find_early_reply(given: Normalised, only_last: bool) -> tuple[int, int] | None:
    """Return the indices in the caller's list of a system text that was moved and of a reply before it, if any is.

    Args:
        given: the conversation, normalised.
        only_last: look at the last reply only.
    """
    replies = [index for _, index in find_replies(given)] if given.hoisted else []
    if not replies:
        return None
    reply = replies[-1] if only_last else min(replies)
    return next(((index, reply) for index in given.hoisted if index > reply), None)


def find_replies(given: Normalised) -> list[tuple[int, int]]:
    """Return the places of the replies in a conversation, each with its index in the caller's list."""
    return [
        (place, given.positions[place] if given.positions else place)
        for place, message in enumerate(given.messages)
        if message.get("role") in ASSISTANT_ROLES
    ]
