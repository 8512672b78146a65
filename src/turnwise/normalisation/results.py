"""Results of tools and the calls that they belong to.

A client that runs tools in parallel sends their results as they come, each with the id of its call:

    assistant   calls a, b
    tool        of b
    tool        of a

Most templates write no ids, so a model reads the first result as that of the first call. `pair_results` finds the order
of the calls, and results and calls that have no partner. Results without ids, and results of calls without ids, belong
to the calls in their order.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from turnwise.errors import short_repr
from turnwise.messages import JsonMapping
from turnwise.messages.roles import RESULT_ROLES


class CallLink(NamedTuple):
    """What one message says about calls.

    Attributes:
        message: the index of the message in the caller's list.
        role: its role.
        calls: the id of each of its calls, None for a call without one.
        id: the id of the call of which it is the result, None if it names none.
    """

    message: int
    role: Any
    calls: tuple[str | None, ...] = ()
    id: str | None = None

    @property
    def is_result(self) -> bool:
        """Whether the message is the result of a tool."""
        return self.role in RESULT_ROLES


class ResultOrder(NamedTuple):
    """The places of all messages, with results in the order of their calls, and what is wrong with them."""

    places: list[int]
    problems: list[str]


def read_link(index: int, message: JsonMapping) -> CallLink:
    """Return what a message says about calls."""
    role = message.get("role")
    if not isinstance(role, str):
        return CallLink(index, None)
    if role in RESULT_ROLES:
        return CallLink(index, role, (), _to_id(message.get("tool_call_id")))
    calls = message.get("tool_calls")
    if isinstance(calls, Mapping) and calls:
        calls = [calls]
    if isinstance(calls, (list, tuple)) and calls:
        ids = (_to_id(call.get("id")) if isinstance(call, Mapping) else None for call in calls)
        return CallLink(index, role, tuple(ids))
    return CallLink(index, role, (None,) if message.get("function_call") else ())


def _to_id(value: Any) -> str | None:
    """Return an id as text, so that a number and its digits are the same id; None for what is no id."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) and value else None


def pair_results(links: Sequence[CallLink], reply: CallLink | None = None) -> ResultOrder:
    """Return the order in which results belong to their calls, and what is probably wrong.

    Args:
        links: what the messages say, in their order.
        reply: what the reply says that they follow; None if they follow none.
    """
    order = ResultOrder(list(range(len(links))), [])
    open_calls: list[_OpenCall] = list(_list_calls(reply)) if reply else []
    callers = {call.id: call.message for call in open_calls}
    place = 0
    while place < len(links):
        link = links[place]
        if not link.is_result:
            # An assistant may call in several messages, and a system text may stand before the results; nothing else.
            if link.role not in ("assistant", "system"):
                _report_unanswered(open_calls, order.problems)
                open_calls = []
            open_calls += _list_calls(link)
            callers.update(dict.fromkeys(link.calls, link.message))
            place += 1
            continue
        end = place
        while end < len(links) and links[end].is_result:
            end += 1
        is_last = end == len(links)
        _pair_run(links, range(place, end), open_calls, callers, order, is_last)
        open_calls, place = [], end
    if links and not links[-1].calls:
        _report_unanswered(open_calls, order.problems)
    return order


class CallOrder:
    """Follows results in the order of their calls, message by message.

    Fast path: where `is_kept` stays true, `pair_results` leaves all messages as they are, and reports nothing.

    Attributes:
        waiting: the calls that have no result yet, the next one last.
        is_answered: whether other calls of the same message have one.
    """

    is_answered = False
    _is_followed = True

    def __init__(self) -> None:
        self.waiting: list[JsonMapping] = []

    def follow_result(self, id: str | None) -> None:
        """Go on with a result, which names the id of a call."""
        if not self.waiting or self.waiting.pop().get("id") != id:
            self._is_followed = False
        self.is_answered = True

    def follow_calls(self, calls: list[JsonMapping]) -> None:
        """Go on with a message that is no result, and its calls."""
        if self.waiting:
            self._is_followed = False
        self.waiting, self.is_answered = calls[::-1], False

    @property
    def is_kept(self) -> bool:
        """Whether results came in the order of their calls; at the end, all of a message or none."""
        return self._is_followed and not (self.waiting and self.is_answered)

    def follow(self, link: CallLink) -> None:
        """Go on with a message of which only this is known."""
        if link.is_result:
            self.follow_result(link.id)
        else:
            self.follow_calls([{"id": id} for id in link.calls])


class _OpenCall(NamedTuple):
    """A call whose result has not come."""

    message: int  # its index
    number: int  # of the call in the message
    id: str | None


def _list_calls(link: CallLink) -> Iterable[_OpenCall]:
    return (_OpenCall(link.message, number, id) for number, id in enumerate(link.calls))


def _pair_run(
    links: Sequence[CallLink],
    run: range,
    calls: Sequence[_OpenCall],
    callers: Mapping[str | None, int],
    order: ResultOrder,
    is_last: bool,
) -> None:
    waiting: dict[str | None, list[int]] = {}  # the ranks of calls by their ids, the last first
    for rank in range(len(calls) - 1, -1, -1):
        waiting.setdefault(calls[rank].id, []).append(rank)
    ranks: dict[int, int] = {}  # the rank of the call, by the place of its result
    loose: list[int] = []  # places of results that may belong to any call
    have_ids = waiting.keys() != {None}
    for place in run:
        id = links[place].id
        if id is None or not have_ids:
            loose.append(place)
        elif waiting.get(id):
            ranks[place] = waiting[id].pop()
        else:
            order.problems.append(_describe_stray(links[place], waiting, callers))
    left = sorted({*range(len(calls))} - {*ranks.values()})
    if len(loose) == len(left):
        ranks.update(zip(loose, left, strict=True))
    for place, source in zip(sorted(ranks), sorted(ranks, key=ranks.__getitem__), strict=True):
        order.places[place] = source
    rest = [calls[rank] for rank in left]
    may_differ = len(calls) < 2 and len(loose) <= len(calls)
    if loose and calls and not may_differ and len(loose) != len(rest):
        first = links[loose[0]].message
        order.problems.append(
            f"messages[{first}] names no call: {_count(len(loose), 'result')} of this kind for "
            f"{_count(len(rest), 'call')}; give each its `tool_call_id`"
        )
    elif not loose and not is_last:
        _report_unanswered(rest, order.problems)


def _describe_stray(
    link: CallLink, calls: Container[str | None], callers: Mapping[str | None, int]
) -> str:
    """Say why a result belongs to none of the calls before it."""
    path = f"messages[{link.message}]"
    caller = callers.get(link.id)
    if caller is None:
        return f"{path}.tool_call_id is {short_repr(link.id)}, and no call before it has this id"
    if link.id in calls:
        return f"{path} is one more result of the call {short_repr(link.id)}"
    return (
        f"{path} is the result of a call in messages[{caller}], and other messages are between them"
    )


def _report_unanswered(calls: Sequence[_OpenCall], problems: list[str]) -> None:
    """Add the problem that calls have no result, although other messages follow."""
    if calls:
        paths = ", ".join(f"messages[{call.message}].tool_calls[{call.number}]" for call in calls)
        verb = "has" if len(calls) == 1 else "have"
        problems.append(f"{paths} {verb} no result, and other messages follow")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
