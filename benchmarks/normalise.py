"""What normalising costs on conversations that need none: `python benchmarks/normalise.py`.

The same conversation is rendered with and without `normalise`, taking turns in one run. The figure is the ratio of the
smallest processor times, which other programs on the machine disturb least; 1.10 is the goal.

A conversation of which the template loses something is told, which costs more; such rows are marked and have no goal.
"""

from __future__ import annotations

import warnings
from time import process_time
from typing import Any

import turnwise

TEMPLATES = ("qwen3", "llama-3.1", "gemma-3", "mistral-v3", "deepseek-v3.1", "chatml")
GOAL = 1.10
ROUNDS = 15
MESSAGES_PER_SAMPLE = 2000
TOOL = {
    "type": "function",
    "function": {
        "name": "tide",
        "description": "Tides of a harbour.",
        "parameters": {"type": "object", "properties": {"harbour": {"type": "string"}}},
    },
}


def chat(count: int) -> list[dict[str, Any]]:
    """Return a conversation of plain turns."""
    roles = ("user", "assistant")
    return [
        {"role": roles[index % 2], "content": f"Message {index}: " + "some words, " * 12 + "end."}
        for index in range(count)
    ]


def agent(rounds: int) -> list[dict[str, Any]]:
    """Return a conversation with calls and results in the form that most templates take."""
    messages: list[dict[str, Any]] = []
    for index in range(rounds):
        function = {"name": "tide", "arguments": {"harbour": f"Brest {index}"}}
        call = {"id": f"call{index:05d}", "type": "function", "function": function}
        messages += [
            {"role": "user", "content": f"What is the tide, number {index}?"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {
                "role": "tool",
                "tool_call_id": f"call{index:05d}",
                "name": "tide",
                "content": f"High water {index} at 07:41, low water at 13:02",
            },
            {"role": "assistant", "content": f"High at 07:41, as in number {index}."},
        ]
    return messages


def thinker(rounds: int) -> list[dict[str, Any]]:
    """Return a conversation of which every reply has reasoning."""
    messages = chat(2 * rounds)
    for index, message in enumerate(messages):
        if message["role"] == "assistant":
            message["reasoning_content"] = f"The question was number {index}, so I answer it."
    return messages


CONVERSATIONS: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]] | None]] = {
    "2 turns": (chat(2), None),
    "10 turns": (chat(10), None),
    "100 turns": (chat(100), None),
    "2 turns with a tool": (chat(2), [TOOL]),
    "1 round of calls": (agent(1), [TOOL]),
    "10 rounds of calls": (agent(10), [TOOL]),
    "10 rounds, no tools": (agent(10), None),
    "10 rounds of reasoning": (thinker(10), None),
}


def measure_ratio(template: turnwise.Template, name: str, rounds: int = ROUNDS) -> float:
    """Return how many times as long rendering takes with `normalise`."""
    messages, tools = CONVERSATIONS[name]
    times: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(rounds):
        for normalise, found in times.items():
            start = process_time()
            for _ in range(MESSAGES_PER_SAMPLE // len(messages)):
                template.render(messages, tools=tools, normalise=normalise)
            found.append(process_time() - start)
    return min(times[True]) / min(times[False])


def describe_need(template: turnwise.Template, name: str) -> str:
    """Return "told", "changed" or "refused" if the template does not write all of it as it is; else empty."""
    messages, tools = CONVERSATIONS[name]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            rendering = template.render(messages, tools=tools)
            template.render(messages, tools=tools, normalise=False)
        except turnwise.TurnwiseError:
            return "refused"
    if told:
        return "told"
    return "changed" if rendering.changes else ""


def main() -> None:
    """Print a table of ratios."""
    for template in map(turnwise.load, TEMPLATES):
        for name in CONVERSATIONS:
            need = describe_need(template, name)  # what is asked once is asked here
            if need == "refused":
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ratio = measure_ratio(template, name)
            verdict = need or ("" if ratio <= GOAL else "over the goal")
            print(f"{template.name:<14} {name:<22} {ratio:5.2f}  {verdict}", flush=True)


if __name__ == "__main__":
    main()
