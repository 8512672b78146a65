"""What a process pays before its first result: `python benchmarks/first_use.py`.

    import      `import turnwise`
    render      `turnwise render`, the command, from start to exit
    encode      the first `encode` of a process with a real vocabulary, over loading that vocabulary with `tokenizers`

Each figure is the processor time of new processes, user and system, which take turns; medians count. The bytecode of
all modules is there, as it is after an installation. Importing jinja2 and click, which every command needs, is the
floor of `render`, and shown beside it. `--check` fails if a goal is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from statistics import median

import measure
import workloads

ROUNDS = 15
GOALS = {"import": 60.0, "render": 250.0}  # milliseconds
ENCODE_GOAL = 1.2  # times loading the vocabulary
VOCABULARIES = {"qwen3": "qwen3", "llama3": "llama-3", "deepseek_v3": "deepseek-v3"}
COMMANDS = {
    "python": ["-c", "pass"],
    "import": ["-c", "import turnwise"],
    "jinja2 and click": ["-c", "import jinja2, click"],
    "render": ["-m", "turnwise", "render", "qwen3", "--user", "Hi", "-g"],
}
ENCODE = """
import time, turnwise
chat = [{{"role": "user", "content": "Hi"}}]
template = turnwise.load({entry!r})
template.render(chat)
start = time.process_time()
template.encode(chat, {folder!r})
print(time.process_time() - start)
"""
LOAD = """
import time
start = time.process_time()
import tokenizers
tokenizers.Tokenizer.from_file({folder!r} + "/tokenizer.json").encode("Hi")
print(time.process_time() - start)
"""


def run(words: list[str]) -> tuple[float, str]:
    """Run Python with these words; return the milliseconds of the processor, and what it printed."""
    environment = {
        name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
    }
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-W", "ignore", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent * 1000, done.stdout


def measure_commands(rounds: int) -> dict[str, list[float]]:
    for words in COMMANDS.values():
        run(words)  # writes bytecode
    found: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(rounds):
        for name, words in COMMANDS.items():
            found[name].append(run(words)[0])
    return found


def measure_encode(vocabulary: str, entry: str, rounds: int) -> list[float]:
    """Return the ratios of the first encode and of loading the vocabulary, round by round."""
    given = {"folder": str(workloads.tokenizer_folder(vocabulary)), "entry": entry}
    programs = [ENCODE.format(**given), LOAD.format(**given)]
    pairs = ([float(run(["-c", program])[1]) for program in programs] for _ in range(rounds))
    return [encode / load for encode, load in pairs]


def main() -> int:
    parser = argparse.ArgumentParser(description="What a process pays before its first result.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, noisier figures")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a goal is missed")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    asked = parser.parse_args()
    rounds = 5 if asked.quick else ROUNDS
    found = measure_commands(rounds)
    ratios = {
        name: measure_encode(name, entry, rounds // 2 + 1) for name, entry in VOCABULARIES.items()
    }
    missed = [name for name, goal in GOALS.items() if median(found[name]) > goal]
    missed += [name for name, values in ratios.items() if median(values) > ENCODE_GOAL]
    if asked.json:
        print(json.dumps({"versions": measure.versions(), "ms": found, "encode": ratios}))
    else:
        goals = {**GOALS, **dict.fromkeys(ratios, ENCODE_GOAL)}
        rows = [
            [
                f"encode, {name}" if name in ratios else name,
                *(f"{figure:.3g}" for figure in (median(values), min(values), max(values))),
                f"{goals[name]:g}" if name in goals else "",
                "MISSED" if name in missed else "",
            ]
            for name, values in (found | ratios).items()
        ]
        head = ["milliseconds; encode : tokenizers", "median", "least", "most", "goal", ""]
        print(measure.table(head, rows))
    return 1 if missed and asked.check else 0


if __name__ == "__main__":
    sys.exit(main())
