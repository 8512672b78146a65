"""Fit a conversation into `max_length` ids.

A conversation with more ids is shortened as `overflow` says (`OVERFLOW`). A round is a user message and everything up
to the next one. Rounds are dropped from the front, whole, and as few as possible: never a system message, never the
last round, never a part of a turn.

If the last round alone is too long, "truncate" cuts its end. The turn that is cut is trained up to the cut: every token
of it is right after the tokens before it. It has no stop, so the model does not learn to stop at an arbitrary place.
The sample names the turn in `incomplete`, and turns behind the cut in `untrained`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from itertools import chain
from typing import Any, Literal, get_args

from turnwise.errors import MessageError
from turnwise.messages.roles import SYSTEM_ROLES
from turnwise.schema import check_name
from turnwise.tokens.encode import EncodeRequest, encode_once
from turnwise.tokens.encoded import Encoded, cut_encoded
from turnwise.tokens.turn_prompts import Messages

# Leave out the oldest rounds, also cut the end of a last round that alone is too long, or raise an error.
Overflow = Literal["drop_rounds", "truncate", "refuse"]
OVERFLOW = get_args(Overflow)

EncodeWhole = Callable[[EncodeRequest], Encoded]  # encodes the messages, however long they are


def check_limit(max_length: Any, overflow: Any) -> None:
    """Refuse a limit that is no limit.

    Raises:
        MessageError: `max_length` is not a number from 1 up, or there is no such policy.
    """
    if max_length is not None and (type(max_length) is not int or max_length < 1):
        raise MessageError(
            f"max_length is a whole number from 1 up, not {max_length!r}", path="max_length"
        )
    check_name(overflow, OVERFLOW, "unknown overflow", "One of", path="overflow")


def encode_within_limit(request: EncodeRequest) -> Encoded:
    """Encode a conversation; one with more than `max_length` ids as `overflow` says.

    Raises:
        MessageError: it cannot be made short enough.
    """
    limit = request.max_length
    if limit is None:
        return encode_once(request)
    encoded = encode_newest_rounds(request, encode_once)
    if len(encoded) <= limit:
        return encoded
    if request.overflow == "truncate" and (cut := cut_last_turn(encoded, limit)):
        return cut
    raise too_long(encoded, request)


def encode_newest_rounds(
    request: EncodeRequest, encode_whole: EncodeWhole, first_try: int | None = None
) -> Encoded:
    """Encode as many of the newest rounds as fit; the last round alone, even if it does not fit.

    The cost is that of a few encodings of the rounds that fit, if `first_try` is near their number.

    Args:
        request: the conversation.
        encode_whole: encodes the messages of a request.
        first_try: the number of rounds to begin with; all of them by default.
    """
    limit = request.max_length
    rounds, system = split_rounds(request.messages)
    if limit is None or request.overflow == "refuse" or len(rounds) < 2:
        return encode_whole(request)
    found: dict[bool, Encoded] = {}  # the longest that fits, and the shortest that does not

    def fits(count: int) -> bool:
        encoded = encode_whole(_keep_newest_rounds(request, rounds, system, count))
        is_short = len(encoded) <= limit
        found[is_short] = encoded
        return is_short

    most = len(rounds)
    if first_try is None or first_try >= most:
        if fits(most):
            return found[True]
        first_try = _guess_fitting_rounds(found[False], rounds, limit)
        most -= 1
    return found[find_most(most, first_try, fits) > 0]


def find_most(most: int, guess: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number from 1 to `most` that fits; 0 if none does.

    Numbers below one that fits do so too. So they are bounded from both sides, in steps that double around a good
    guess, and then in halves.
    """
    fitting, too_many = 0, most + 1
    count, step = max(1, min(guess, most)), 1
    while too_many - fitting > 1:
        if fits(count):
            fitting = count
            count += step
        else:
            too_many = count
            count -= step
        step *= 2
        if not fitting < count < too_many:
            count = (fitting + too_many) // 2
    return fitting


def _guess_fitting_rounds(encoded: Encoded, rounds: list[list[int]], limit: int) -> int:
    """Return how many of the newest rounds probably fit, by the tokens of each in the whole conversation."""
    table = encoded.rendering.piece_table
    starts: dict[int | None, int] = {}
    for index, message in zip(table.message_starts, table.messages, strict=True):
        starts.setdefault(message, table.starts[index])
    places = [starts.get(indices[0], -1) for indices in rounds]
    if places != sorted(places) or places[0] < 0:
        return len(rounds) // 2  # the template does not write the messages in their order
    wanted = encoded.token_offsets.first_at(places[0]) + len(encoded) - limit
    return len(rounds) - bisect_left(places, wanted, key=encoded.token_offsets.first_at)


def split_rounds(messages: Messages) -> tuple[list[list[int]], list[int]]:
    """Return the indices of the messages by rounds, and those of system messages.

    A round begins with a user message that does not follow another user message.
    """
    system: list[int] = []
    rounds: list[list[int]] = []
    for index, message in enumerate(messages):
        role = message.get("role")
        if role in SYSTEM_ROLES:
            system.append(index)
            continue
        if not rounds or (role == "user" and messages[rounds[-1][-1]].get("role") != "user"):
            rounds.append([])
        rounds[-1].append(index)
    return rounds, system


def _keep_newest_rounds(
    request: EncodeRequest, rounds: list[list[int]], system: list[int], count: int
) -> EncodeRequest:
    """Return the request with its system messages and so many of its newest rounds."""
    if count == len(rounds):
        return request
    indices = sorted(chain(system, *rounds[-count:]))
    messages = [request.messages[index] for index in indices]
    return request._replace(messages=messages, kept_messages=indices)


def cut_last_turn(encoded: Encoded, limit: int) -> Encoded | None:
    """Return the first `limit` tokens; None if no assistant turn begins in them, so that nothing could be trained."""
    cut = cut_encoded(encoded, limit, f"max_length={limit} cuts off its end, so it has no stop")
    return cut if cut.turns else None


def explain_too_long(encoded: Encoded, request: EncodeRequest) -> tuple[str, str]:
    """Return why a conversation cannot be made short enough, and what to do about it."""
    found = f"has {len(encoded)} tokens, more than max_length={request.max_length}"
    if request.overflow == "refuse":
        return f"the conversation {found}", 'overflow="drop_rounds" leaves out the oldest rounds'
    if request.overflow == "truncate":
        reason = f"the last round alone {found}, and no assistant turn begins before that"
        return reason, "shorten the messages, or raise max_length"
    return f"the last round alone {found}", 'overflow="truncate" cuts its end'


def too_long(encoded: Encoded, request: EncodeRequest) -> MessageError:
    """Return the error about a conversation that cannot be made short enough."""
    reason, hint = explain_too_long(encoded, request)
    return MessageError(reason, path="messages", hint=hint)
