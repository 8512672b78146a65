"""Compare the speed of two checkouts of turnwise: `python benchmarks/versions.py OLD_CHECKOUT [--rounds N]`.

Each checkout gets a worker process that imports its own `src`. The two take turns, workload by workload and round by
round, so a slow second hits both; the figure is the median over the rounds of new time over old time. Only the public
interface is used, so any two versions can be compared; messages are given as they are (`normalise=False`), since what
normalising costs is what `normalise.py` measures. Processor time is measured, with the garbage collector off.

    render a b c      conversations of `workloads.py`, four templates
    encode a b c      the same to ids and labels, with the tokenizer that ships
    growing           64 turns of a session
    parse             a reply with reasoning and a call, in chunks the size of tokens
    parse long        a call with 100 kB of text, in chunks of 4 and of 16 characters

A ratio below 1 means that this checkout is faster.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import workloads

ROOT = Path(__file__).resolve().parent.parent
ENTRIES = ("qwen2.5", "qwen3", "llama-3.1", "gemma-2")
TOKENIZER = "turnwise"
TURNS = 64
SAMPLE_SECONDS = 0.15


def make_workloads() -> dict[str, Callable[[], object]]:
    """Return the workloads by name, for the turnwise that this process imports."""
    import turnwise

    templates = [turnwise.load(name) for name in ENTRIES]
    jobs: dict[str, Callable[[], object]] = {}
    kinds = {"a": workloads.short, "b": workloads.chat, "c": workloads.calls}
    for kind, make in kinds.items():
        chats = [make(seed) for seed in range(4)]
        takers = [one for one in templates if accepts(one, chats[0])]
        jobs[f"render {kind}"] = lambda chats=chats, takers=takers: [
            str(template.render(**arguments(chat))) for template in takers for chat in chats
        ]
        jobs[f"encode {kind}"] = lambda chats=chats, takers=takers: [
            template.encode(tokenizer=TOKENIZER, **arguments(chat)).labels
            for template in takers[:2]
            for chat in chats
        ]
    jobs["growing"] = grow(templates[0])
    reply = '<think>\nLet me look it up.\n</think>\n\nOne moment.\n<tool_call>\n{"name": "tide", '
    reply += '"arguments": {"harbour": "Oslo", "days": [1, 2]}}\n</tool_call><|im_end|>'
    jobs["parse"] = stream(templates[1], [reply[i : i + 5] for i in range(0, len(reply), 5)])
    text = workloads.prose(workloads.Dice(1), 100_000)
    long = '<tool_call>\n{"name": "f", "arguments": ' + json.dumps({"x": text}) + "}\n</tool_call>"
    for size in (4, 16):
        chunks = [long[i : i + size] for i in range(0, len(long), size)]
        jobs[f"parse long, chunks of {size}"] = stream(templates[1], chunks)
    return jobs


def arguments(chat: Any) -> dict[str, Any]:
    return {
        "messages": chat.messages,
        "tools": chat.tools,
        "add_generation_prompt": chat.add_generation_prompt,
        "normalise": False,
    }


def accepts(template: Any, chat: Any) -> bool:
    try:
        template.render(**arguments(chat))
    except Exception:  # a template may refuse tools; then it is not measured with them
        return False
    return True


def grow(template: Any) -> Callable[[], object]:
    """Return a session of many turns, with text that no cache has seen."""
    seeds = iter(range(1, 1 << 30))

    def play() -> object:
        dice = workloads.Dice(next(seeds))
        session = template.session(TOKENIZER, normalise=False)
        session.prompt([{"role": "user", "content": workloads.prose(dice, 200)}])
        for _ in range(TURNS):
            session.add_reply(workloads.prose(dice, 400) + "<|im_end|>")
            session.extend([{"role": "user", "content": workloads.prose(dice, 200)}])
        return session.ids

    return play


def stream(template: Any, chunks: list[str]) -> Callable[[], object]:
    def play() -> object:
        parser = template.parser()
        for chunk in chunks:
            parser.feed(chunk)
        return parser.close()

    return play


def work() -> None:
    """The worker: reads a name and a number of calls per line, answers with seconds per call."""
    jobs = make_workloads()
    print(json.dumps(list(jobs)), flush=True)
    gc.disable()
    for line in sys.stdin:
        name, calls = json.loads(line)
        gc.collect()
        start = time.process_time()
        for _ in range(calls):
            jobs[name]()
        print((time.process_time() - start) / calls, flush=True)


class Worker:
    """A process that measures one checkout."""

    def __init__(self, checkout: Path) -> None:
        command = [sys.executable, __file__, "--worker"]
        environment = {"PYTHONPATH": str(checkout / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.names: list[str] = json.loads(self.answer())

    def answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit("a worker stopped")
        return line

    def measure(self, name: str, calls: int) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([name, calls]) + "\n")
        self.process.stdin.flush()
        return float(self.answer())


def compare(old: Worker, new: Worker, name: str, rounds: int) -> tuple[float, float, float]:
    """Return the median ratio of new over old, and the median seconds of both."""
    first = max(old.measure(name, 1), new.measure(name, 1))  # warms caches
    calls = max(1, round(SAMPLE_SECONDS / max(first, 1e-6)))
    times = []
    for number in range(rounds):
        if number % 2:
            before, after = old.measure(name, calls), new.measure(name, calls)
        else:
            after, before = new.measure(name, calls), old.measure(name, calls)
        times.append((after / before, before, after))
    ratios, befores, afters = zip(*times, strict=True)
    return median(ratios), median(befores), median(afters)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("old", nargs="?", type=Path, help="the checkout to compare with")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="", help="workloads whose names contain this")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        work()
        return
    if given.old is None:
        parser.error("name the checkout to compare with")
    old, new = Worker(given.old), Worker(ROOT)
    print(f"{'workload':28} new/old      old ms      new ms")
    for name in new.names:
        if given.only in name and name in old.names:
            ratio, before, after = compare(old, new, name, given.rounds)
            print(f"{name:28} {ratio:7.2f} {before * 1e3:11.3f} {after * 1e3:11.3f}", flush=True)


if __name__ == "__main__":
    main()
