"""What `examples` costs for each id that it returns, against `encode`: `python benchmarks/examples.py`.

    appends     qwen2.5: proven to append, so one sample
    rewrites    qwen3 with reasoning: a sample for each turn

Conversations of 25 to 200 turns, none given twice. The cost is linear in what is returned if the time for an id does
not grow with the number of turns. `--check` exits with 1 if it grows by more than `MOST_GROWTH`.
"""

from __future__ import annotations

import argparse
import sys
from time import process_time
from typing import Any

import turnwise

TURNS = (25, 50, 100, 200)
TEMPLATES = {"appends": "qwen2.5", "rewrites": "qwen3"}
MOST_GROWTH = 3.0
ROUNDS = 3


def make_chat(turns: int, seed: int) -> list[dict[str, Any]]:
    """A conversation with reasoning in every turn."""
    chat: list[dict[str, Any]] = []
    for index in range(turns):
        place = f"{seed} {index}"
        chat.append(
            {"role": "user", "content": f"When is the tide high at {place}, on a fine day?"}
        )
        answer = f"At {place} o'clock, and low some six hours later."
        chat.append({"role": "assistant", "content": answer, "reasoning_content": f"Hm, {place}."})
    return chat


def time_per_id(call: Any, chats: list[list[dict[str, Any]]]) -> float:
    """Microseconds for an id with its label, the best of some conversations."""
    times = []
    for chat in chats:
        start = process_time()
        found = call(chat, "turnwise")
        samples = found if isinstance(found, list) else [found]
        count = sum(len(sample.labels) for sample in samples)
        times.append((process_time() - start) / count * 1e6)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed")
    is_checked = parser.parse_args().check
    growths = []
    for kind, name in TEMPLATES.items():
        template = turnwise.load(name)
        template.examples(make_chat(2, 0), "turnwise")
        costs = []
        for turns in TURNS:
            chats = [make_chat(turns, seed) for seed in range(2 * ROUNDS)]
            encode = time_per_id(template.encode, chats[:ROUNDS])
            costs.append(time_per_id(template.examples, chats[ROUNDS:]))
            ratio = costs[-1] / encode
            print(
                f"{kind:<10} {turns:>4} turns {costs[-1]:6.2f} us per id, {ratio:.2f} of encode's"
            )
        growths.append(costs[-1] / costs[0])
    print(f"growth from {TURNS[0]} to {TURNS[-1]} turns: {', '.join(f'{g:.2f}' for g in growths)}")
    if is_checked and max(growths) > MOST_GROWTH:
        sys.exit(1)


if __name__ == "__main__":
    main()
