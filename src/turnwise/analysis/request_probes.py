"""Random conversations in OpenAI's shape: what an API is sent, with what such requests ask beside their messages.

They are made of the materials of `ProbeMaker`, and have what encoders tell apart: several calls at once and their
results out of order, reasoning, system texts at the front and later, developer texts, users that follow each other,
empty texts, letters of many kinds, and an effort or a choice of the request. The same number gives the same ones.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from turnwise.analysis.conversations import MessageDict, Probe, name_values
from turnwise.analysis.wide_conversations import ProbeMaker

LATER_ROLES = ("system", "system", "developer", "user")
HUGE = 1e16
SHARE_OF_SHUFFLED = 0.3  # of the conversations with several results


def make_request_probes(options: Mapping[str, Sequence[Any]], seed: int = 0) -> Iterator[Probe]:
    """Yield random conversations without end.

    Args:
        options: The values of each option that is asked for.
        seed: Other conversations for another number.
    """
    maker = ProbeMaker(options, LATER_ROLES, {})
    maker.dice = dice = random.Random(seed)
    (maker.tool_lists,) = name_values("request tools")
    while True:
        probe = maker.make()
        messages = number_calls([_to_wire_message(message) for message in probe.messages])
        if dice.random() < SHARE_OF_SHUFFLED:
            messages = shuffle_results(messages, dice)
        opened = messages[-1]["role"] != "assistant" if messages else True
        tools = probe.tools if probe.tools or dice.random() < 0.9 else None
        yield replace(
            probe, messages=messages, tools=tools, documents=None, add_generation_prompt=opened
        )


def _to_wire_message(message: MessageDict) -> MessageDict:
    """Return a message with its reasoning under the usual name, and without the names of speakers."""
    kept = {key: value for key, value in message.items() if key not in ("reasoning", "thinking")}
    thought = message.get("reasoning") or message.get("thinking")
    if isinstance(thought, str):
        kept["reasoning_content"] = thought
    if message["role"] in ("user", "assistant", "system", "developer"):
        kept.pop("name", None)
    if not isinstance(kept.get("content"), str):
        kept["content"] = ""
    if calls := kept.get("tool_calls"):
        kept["tool_calls"] = [_without_huge_numbers(call) for call in calls]
    return kept


def _without_huge_numbers(call: MessageDict) -> MessageDict:
    """Return a call without numbers such as 1e+30, which is 1e30 to libraries in Rust: no template decides that."""
    function = call["function"]
    if not isinstance(function["arguments"], dict):
        return call
    arguments = {
        name: value
        for name, value in function["arguments"].items()
        if not isinstance(value, float) or abs(value) < HUGE
    }
    return {**call, "function": {**function, "arguments": arguments}}


def number_calls(messages: Sequence[MessageDict]) -> list[MessageDict]:
    """Return messages in which each call has an id of its own, and its result the same."""
    numbered: list[MessageDict] = []
    names: dict[str, str] = {}
    count = 0
    for message in messages:
        if calls := message.get("tool_calls"):
            names = {call["id"]: f"call{count + n:05}" for n, call in enumerate(calls)}
            count += len(calls)
            calls = [{**call, "id": names[call["id"]]} for call in calls]
            message = {**message, "tool_calls": calls}
        elif message["role"] == "tool":
            given = message.get("tool_call_id", "")
            message = {**message, "tool_call_id": names.get(given, given)}
        numbered.append(message)
    return numbered


def shuffle_results(messages: Sequence[MessageDict], dice: random.Random) -> list[MessageDict]:
    """Return messages with the results of each round in another order."""
    shuffled: list[MessageDict] = []
    run: list[MessageDict] = []
    for message in [*messages, None]:
        if message is not None and message["role"] == "tool":
            run.append(message)
            continue
        dice.shuffle(run)
        shuffled += run
        run = []
        if message is not None:
            shuffled.append(message)
    return shuffled
