"""What calls of filters, tests, methods and functions cost, stated beside each of them.

    @template_filter("title", cost=500, text=True)
    def change_to_title_case(rt, value, trail): ...

`cost` is paid before every call, in bytes: the call, its result and trail, setting up a regular expression. It is paid
in bytes, not in steps, because only what is executed pays them: the steps of a loop are those of its most expensive
round. 0 is for calls that cost no more than their node in the program (`compiler/cost.py`) or that consist of
operations which pay. `per_element` is paid for each element of the value, in steps and bytes. What depends on anything
else is charged by the function itself, before the work.

Units: a step is at most 100 ns, a byte at most 5 ns and at least one byte of memory.
`tests/engine/test_cost_audit.py` measures every operation on values of hostile sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from turnwise.engine.runtime.limits import Runtime
from turnwise.engine.runtime.measures import list_elements
from turnwise.engine.runtime.values import Builtin

Operation = TypeVar("Operation", bound=Callable[..., Any])
ElementCost = tuple[int, int]  # steps and bytes

FILTERS: dict[str, Builtin] = {}
"""The filters by name, each charging its cost; `filters.py` and `sequence_filters.py` fill it."""
TEXT_FILTERS: set[str] = set()
"""The names of filters that always return text."""


def template_filter(
    *names: str,
    cost: int,
    per_element: ElementCost = (0, 0),
    text: bool = False,
) -> Callable[[Operation], Operation]:
    """Make a function `(rt, value, trail, *arguments) -> (value, trail)` a filter of templates.

    Args:
        names: the names by which templates call it.
        cost: bytes of one call.
        per_element: steps and bytes for each element of the value.
        text: whether it always returns text.
    """

    def add(run: Operation) -> Operation:
        FILTERS.update(dict.fromkeys(names, charge_call(run, cost, per_element)))
        if text:
            TEXT_FILTERS.update(names)
        return run

    return add


def charge_call(run: Operation, cost: int, per_element: ElementCost = (0, 0)) -> Operation:
    """Return an operation that pays before it runs."""
    is_paid_by_element = any(per_element)
    if not cost and not is_paid_by_element:
        return run

    @wraps(run)
    def charged(rt: Runtime, /, *args: Any, **kwargs: Any) -> Any:
        rt.bytes -= cost
        if rt.bytes < 0:
            rt.charge_bytes(0)
        if is_paid_by_element:
            rt.charge_each(len(list_elements(args[0])), *per_element)
        return run(rt, *args, **kwargs)

    return charged  # type: ignore[return-value]
