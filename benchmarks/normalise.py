"""What normalising costs on conversations that need none: `python benchmarks/normalise.py`.

The same conversation is rendered with and without `normalise`, taking turns in one run. The figure is the ratio of the
smallest processor times, which other programs on the machine disturb least; 1.10 is the goal.
"""

from __future__ import annotations

from time import process_time
from typing import Any

import turnwise

TEMPLATES = ("qwen3", "llama-3.1", "chatml", "mistral-v3")
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


CONVERSATIONS: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]] | None]] = {
    "2 turns": (chat(2), None),
    "20 turns": (chat(20), None),
    "200 turns": (chat(200), None),
    "10 rounds of calls": (agent(10), [TOOL]),
}


def measure_ratio(template: turnwise.Template, name: str, rounds: int = ROUNDS) -> float:
    """Return how many times as long rendering takes with `normalise`."""
    messages, tools = CONVERSATIONS[name]
    times: dict[bool, list[float]] = {True: [], False: []}
    template.render(messages, tools=tools)  # what is asked once is asked here
    for _ in range(rounds):
        for normalise, found in times.items():
            start = process_time()
            for _ in range(MESSAGES_PER_SAMPLE // len(messages)):
                template.render(messages, tools=tools, normalise=normalise)
            found.append(process_time() - start)
    return min(times[True]) / min(times[False])


def main() -> None:
    """Print a table of ratios."""
    for template in map(turnwise.load, TEMPLATES):
        for name in CONVERSATIONS:
            ratio = measure_ratio(template, name)
            print(
                f"{template.name:<12} {name:<20} {ratio:.2f}{'' if ratio <= GOAL else '  over the goal'}"
            )


if __name__ == "__main__":
    main()
