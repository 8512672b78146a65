"""Whether a reply is what was asked for: its calls, and content with a schema.

Checked when a reply ends, in a thread, whatever grammar the engine was sent: it may ignore it.
"""

from __future__ import annotations

from typing import Any

from turnwise.errors import MessageError, short_repr
from turnwise.replies.export.constraint_tree import AnyValue
from turnwise.replies.export.schema_reader import read_value_type
from turnwise.replies.export.value_check import StepBudget, find_misfit, find_value_misfit
from turnwise.serve.sampling import REQUIRED, is_forced
from turnwise.serve.upstreams import GenerationPlan


def find_broken_promise(
    plan: GenerationPlan, calls: list[dict[str, Any]], is_cut: bool, open_call: int | None
) -> str | None:
    """Return what of a reply's calls is not as it was asked for; None if they are.

    The arguments of a call that a cut broke off (`open_call`, its number) are not looked at.
    """
    forced = is_forced(plan.choice)
    if forced and not calls:
        return None if is_cut else "there is no call"
    if not plan.parallel and len(calls) > 1:
        return f"there are {len(calls)} calls, and parallel_tool_calls is false"
    budget = StepBudget(sum(len(call["function"]["arguments"]) for call in calls))
    for number, call in enumerate(calls):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        is_allowed = name in plan.checked and plan.choice in (REQUIRED, name)
        if forced and not is_allowed:
            return f"the tool {short_repr(name)} is called"
        if name in plan.checked and number != open_call:
            misfit = find_misfit(arguments, plan.checked[name], budget)
            if misfit is not None:
                return f"in the call of {short_repr(name)}, {misfit}"
    return None


def find_content_misfit(plan: GenerationPlan, content: str) -> str | None:
    """Return why the content of a reply does not fit the schema that was asked for; None if it does."""
    if plan.schema is None:
        return None
    try:
        type, definitions = read_value_type(plan.schema, "response_format")
    except MessageError:  # the engine's own grammar follows more of JSON schema than ours
        type, definitions = AnyValue(), {}
    misfit = find_value_misfit(content, type, definitions)
    return None if misfit is None else f"in the content, {misfit}"
