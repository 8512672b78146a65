"""A conversation that a template takes, and the policy for its late system texts."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

from turnwise.errors import MessageError, did_you_mean, short_repr
from turnwise.messages import Change, ReadMessages

LateSystem = Literal["in_place", "user", "front"]
LATE_SYSTEM = get_args(LateSystem)


class Normalised(NamedTuple):
    """A conversation that a template takes.

    Attributes:
        messages: the messages.
        tools: the tools.
        changes: what was changed.
        positions: the index that each message has in the caller's list; None if all are where they were.
        problems: what is probably wrong with the input.
        lost: the paths of parts that had to be left out.
        read: the messages as a renderer takes them, if they were read already.
        hoisted: the indices in the caller's list of system texts that were moved to before earlier messages.

    Example:
        >>> template = turnwise.load("qwen3")
        >>> question = {"role": "user", "content": [{"type": "text", "text": "Hi"}]}
        >>> given = turnwise.Normaliser(template.codec).normalise([question])
        >>> given.messages
        [{'role': 'user', 'content': 'Hi'}]
    """

    messages: Any
    tools: Any
    changes: tuple[Change, ...] = ()
    positions: tuple[int, ...] | None = None
    problems: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    read: ReadMessages | None = None
    hoisted: tuple[int, ...] = ()


def check_late_system(given: Any) -> LateSystem | None:
    """Return a policy for late system texts; None for the one that fits the template.

    Raises:
        MessageError: there is no such policy.
    """
    if given is None or given in LATE_SYSTEM:
        return given  # type: ignore[no-any-return]  # one of the policies, which `in` does not say
    hint = did_you_mean(given, LATE_SYSTEM, "One of") if isinstance(given, str) else None
    names = ", ".join(map(repr, LATE_SYSTEM))
    problem = f"late_system is {names} or None, not {short_repr(given)}"
    raise MessageError(problem, path="late_system", hint=hint)
