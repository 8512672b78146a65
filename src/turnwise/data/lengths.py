"""What becomes of a conversation with more than `max_length` tokens, if it is not dropped.

    truncate   keep the first messages, up to the last reply that fits; what follows is lost
    split      cut before user messages into several samples, each as long as fits, each after the system messages

Nothing is ever cut inside of a message, so each sample is a conversation that can be served. `truncate` keeps the
beginning, since every turn that is kept then follows all that it followed in the data; the newest rounds without their
past would teach answers to questions that are not there. `split` loses nothing, but for a round that alone is too
long (an agent's: one question, many calls): of it the beginning is kept, as with `truncate`.

Parts are measured by encoding them, because templates write a message differently in different places. The first that
is tried would fit if all rounds were of one size, so that mostly a few encodings are enough for a part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from turnwise.messages.roles import SYSTEM_ROLES
from turnwise.tokens.truncation import find_most, split_rounds

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
    fitter = _Fitter(messages, size, limit, measure)
    return fitter.truncate() if policy == "truncate" else fitter.split()


@dataclass
class _Fitter:
    """Fits one conversation into parts; the arguments are those of `fit_conversation`."""

    messages: Messages
    size: int
    limit: int
    measure: Measure

    def truncate(self) -> FittedParts:
        """Keep the first messages, up to the last reply that fits."""
        messages = self.messages
        ends = [end for end, one in enumerate(messages[:-1], 1) if one.get("role") == "assistant"]
        guess = len(ends) * self.limit // self.size
        found = self._find_longest(len(ends), lambda count: messages[: ends[count - 1]], guess)
        if found is None:
            return FittedParts([], self.size)
        count, kept_size = found
        return FittedParts([messages[: ends[count - 1]]], max(0, self.size - kept_size))

    def split(self) -> FittedParts:
        """Put as many rounds into each part as fit."""
        rounds, system = split_rounds(self.messages)
        parts: list[Messages] = []
        lost = first = 0
        while first < len(rounds):

            def take(count: int, first: int = first) -> Messages:
                return self._join_rounds(rounds, system, first, first + count)

            guess = len(rounds) * self.limit // self.size
            found = self._find_longest(len(rounds) - first, take, guess)
            if found is None:
                part, lost_here = self._fit_round(take(1), bool(system))
                parts += part
                lost += lost_here
                first += 1
            else:
                parts.append(take(found[0]))
                first += found[0]
        return FittedParts(parts, min(lost, self.size) if parts else self.size)

    def _fit_round(self, messages: Messages, has_system: bool) -> FittedParts:
        """Keep the beginning of a round that alone is too long."""
        size = self.measure(messages)
        if size is None or len(messages) == len(self.messages):
            size = self.size
        parts, lost = _Fitter(messages, size, self.limit, self.measure).truncate()
        if has_system and not parts:  # the system messages are in other parts
            lost -= self.measure([one for one in messages if one["role"] in SYSTEM_ROLES]) or 0
        return FittedParts(parts, lost)

    def _join_rounds(
        self, rounds: Sequence[Sequence[int]], system: Sequence[int], first: int, behind: int
    ) -> Messages:
        """Return the messages of some rounds, with all system messages before and among them, in order."""
        end = rounds[behind][0] if behind < len(rounds) else len(self.messages)
        wanted = [index for indices in rounds[first:behind] for index in indices]
        wanted += [index for index in system if index < end]
        return [self.messages[index] for index in sorted(wanted)]

    def _find_longest(
        self, most: int, take: Callable[[int], Messages], guess: int
    ) -> tuple[int, int] | None:
        """Return the largest count whose part fits, and the tokens of that part; None if no part fits."""
        sizes: dict[int, int | None] = {}

        def fits(count: int) -> bool:
            size = sizes[count] = self.measure(take(count))
            return size is not None and size <= self.limit

        found = find_most(most, guess, fits)
        return (found, sizes[found] or 0) if found else None
