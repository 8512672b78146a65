"""What becomes of a conversation with more than `max_length` tokens, if it is not dropped.

    truncate   keep the first messages, up to the last reply that fits; what follows is lost
    split      cut before user messages into several samples, each as long as fits, each after the system messages

Nothing is ever cut inside of a message, so each sample is a conversation that can be served. `truncate` keeps the
beginning, since every turn that is kept then follows all that it followed in the data; the newest rounds without their
past would teach answers to questions that are not there. `split` loses nothing, but for a round that alone is too
long (an agent's: one question, many calls): of it the beginning is kept, as with `truncate`.

Parts are measured by encoding them, because templates write a message differently in different places. The number of
encodings grows with the logarithm of the messages that fit into a sample.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from turnwise.tokens.truncation import SYSTEM_ROLES, split_rounds

Messages = list[Any]
Measure = Callable[[Messages], int | None]
"""Returns the tokens of a conversation; None if it cannot be encoded."""


class FittedParts(NamedTuple):
    """The parts of a conversation that fit, and the number of tokens that are in none of them."""

    parts: list[Messages]
    tokens_lost: int


def fit_conversation(
    messages: Messages, size: int, limit: int, policy: str, measure: Measure
) -> FittedParts:
    """Return the parts of a conversation that is too long.

    Args:
        messages: the conversation.
        size: its number of tokens.
        limit: the most tokens of a part.
        policy: "truncate" or "split".
        measure: counts the tokens of messages.
    """
    if policy == "truncate":
        return _truncate(messages, size, limit, measure)
    return _split(messages, size, limit, measure)


def _truncate(messages: Messages, size: int, limit: int, measure: Measure) -> FittedParts:
    """Keep the first messages, up to the last reply that fits."""
    ends = [
        index + 1
        for index, message in enumerate(messages)
        if message.get("role") == "assistant" and index + 1 < len(messages)
    ]
    kept, kept_size = _find_longest(
        len(ends), lambda count: messages[: ends[count - 1]], limit, measure
    )
    if not kept:
        return FittedParts([], size)
    return FittedParts([messages[: ends[kept - 1]]], max(0, size - kept_size))


def _split(messages: Messages, size: int, limit: int, measure: Measure) -> FittedParts:
    """Put as many rounds into each part as fit."""
    rounds, system = split_rounds(messages)
    parts: list[Messages] = []
    lost = first = 0
    guess = 1
    while first < len(rounds):

        def take(count: int, first: int = first) -> Messages:
            return _join_rounds(messages, rounds, system, first, first + count)

        count, _ = _find_longest(len(rounds) - first, take, limit, measure, guess)
        if count:
            parts.append(take(count))
        else:  # this round alone is too long
            alone = take(1)
            alone_size = size if len(rounds) == 1 else measure(alone) or 0
            truncated = _truncate(alone, alone_size, limit, measure)
            parts += truncated.parts
            lost += truncated.tokens_lost
            if not truncated.parts and system:  # the system messages are in other parts
                lost -= measure([one for one in alone if one["role"] in SYSTEM_ROLES]) or 0
        guess = max(1, count)
        first += guess
    return FittedParts(parts, min(lost, size) if parts else size)


def _join_rounds(
    messages: Messages,
    rounds: Sequence[Sequence[int]],
    system: Sequence[int],
    first: int,
    behind: int,
) -> Messages:
    """Return the messages of some rounds, with all system messages before and among them, in order."""
    end = rounds[behind][0] if behind < len(rounds) else len(messages)
    wanted = [index for indices in rounds[first:behind] for index in indices]
    wanted += [index for index in system if index < end]
    return [messages[index] for index in sorted(wanted)]


def _find_longest(
    most: int, take: Callable[[int], Messages], limit: int, measure: Measure, guess: int = 1
) -> tuple[int, int]:
    """Return the largest count whose part fits, and the tokens of that part; 0 if none does.

    Parts grow with the count. So it is bounded from both sides, in steps that double from a guess, and then in halves.
    """
    fitting, fitting_size, too_many = 0, 0, most + 1
    count, step = min(guess, most), 1
    while too_many - fitting > 1:
        size = measure(take(count))
        if size is not None and size <= limit:
            fitting, fitting_size = count, size
            count += step
        else:
            too_many = count
            count -= step
        step *= 2
        if not fitting < count < too_many:
            count = (fitting + too_many) // 2
    return fitting, fitting_size
