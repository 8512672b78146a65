"""Hold the goals of `goals.toml`: `python benchmarks/goals.py` runs the benchmarks that they are about.

    render : transformers   a    4.31   goal 12 (0.36 of it)   MISSED

Each run is added to `history.jsonl` beside it, with its commit and machine, so that drift shows. `--short` is for
continuous integration: shorter samples, the bounds instead of the goals, and no history.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
HISTORY = HERE / "history.jsonl"
SHORT_ENTRIES = ["qwen3-coder", "llama-3.1"]
SHORT_TEMPLATES = ["qwen3", "llama-3.1", "deepseek-v3.1", "glm-4.6"]
Figures = Iterator[tuple[str, float]]


class Goal(NamedTuple):
    """A ratio to reach."""

    goal: float
    bound: float
    at_most: bool = False

    def is_held(self, figure: float, short: bool) -> bool:
        wanted = self.bound if short else self.goal
        return figure <= wanted if self.at_most else figure >= wanted

    def choose(self, figures: Sequence[float]) -> float:
        """Return the better one of some figures."""
        return min(figures) if self.at_most else max(figures)


def read_render(found: dict[str, Any]) -> Figures:
    means = found["geometric_means"]
    for kind in means:
        yield f"{kind} : transformers", means[kind]["turnwise"]
        yield f"{kind} : minijinja", found["turnwise_to_minijinja"][kind]["turnwise"]
        yield f"pieces, {kind} : transformers", means[kind]["turnwise+pieces"]
    rows = [
        row for rows in found["times_faster_than_transformers"].values() for row in rows.values()
    ]
    yield "slowest : transformers", min(row["turnwise"] for row in rows if "turnwise" in row)


def read_encode(found: dict[str, Any]) -> Figures:
    for kind, row in found["times as long as turnwise"].items():
        yield f"{kind} : transformers", row["transformers"]
        yield f"{kind} : raw encoder", 1 / row["fastokens"]


def read_growing(found: dict[str, Any]) -> Figures:
    yield "last turns : first turns", found["last over first"]["turnwise"]
    if "renderers" in found["total"]:
        yield "session : renderers", found["total"]["renderers"]


def read_turns(found: dict[str, Any]) -> Figures:
    yield "slowest, 44k : 4k ids", max(found["44k : 4k"].values())
    for size in ("44k", "44k, thoughts"):
        rows = [sizes[size] for sizes in found["ms"].values()]
        yield f"encode, {size} : raw encoder", max(row["encode"] / row["fastokens"] for row in rows)


BENCHMARKS: dict[str, Callable[[dict[str, Any]], Figures]] = {
    "render": read_render,
    "encode": read_encode,
    "growing": read_growing,
    "turns": read_turns,
}


def run(name: str, short: bool) -> dict[str, Any]:
    """Run a benchmark and return what it printed as JSON."""
    command = [sys.executable, str(HERE / f"{name}.py"), "--json"]
    if short:
        command.append("--quick")
    if short and name == "render":
        peers = ["turnwise", "turnwise+pieces", "minijinja"]
        command += ["--templates", *SHORT_TEMPLATES, "--peers", *peers]
    if short and name == "turns":
        command += ["--entries", *SHORT_ENTRIES]
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE)
    if done.returncode:
        raise SystemExit(f"{name}.py failed:\n{done.stdout[-1000:]}{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def read_goals() -> dict[str, dict[str, Goal]]:
    with (HERE / "goals.toml").open("rb") as file:
        tables = tomllib.load(file)
    return {
        name: {row: Goal(**goal) for row, goal in rows.items()} for name, rows in tables.items()
    }


def find_commit() -> str:
    asked = ["git", "describe", "--always", "--dirty"]
    found = subprocess.run(asked, capture_output=True, text=True, cwd=HERE)
    return found.stdout.strip() or "unknown"


class Held(NamedTuple):
    """What was measured: figures by benchmark, lines of the table, and what each benchmark printed."""

    missed: int
    figures: dict[str, dict[str, float]]
    rows: list[str]
    printed: dict[str, dict[str, Any]]


def hold_goals(short: bool) -> Held:
    """Run the benchmarks that have goals, print how far each goal is, and return the figures."""
    missed, figures, rows, printed = 0, {}, [], {}
    for name, goals in read_goals().items():
        printed[name] = run(name, short)
        figures[name] = dict(BENCHMARKS[name](printed[name]))
        known = {row: goal for row, goal in goals.items() if row in figures[name]}
        if short and not all(
            goal.is_held(figures[name][row], short) for row, goal in known.items()
        ):
            # A short run may fall into a slow moment of the machine; what is slower is so in the next one, too.
            again = dict(BENCHMARKS[name](run(name, short)))
            for row, goal in known.items():
                figures[name][row] = goal.choose((figures[name][row], again[row]))
        for row, goal in goals.items():
            figure = figures[name].get(row)
            if figure is None:
                print(f"{name:8} {row:36} not measured: its peer is not installed")
                continue
            is_held = goal.is_held(figure, short)
            missed += not is_held
            wanted = f"{'bound' if short else 'goal'} {goal.bound if short else goal.goal:g}"
            sign = "at most" if goal.at_most else "at least"
            rows.append(f"| {name} | {row} | {figure:.2f} | {sign} {goal.goal:g} |\n")
            print(
                f"{name:8} {row:36} {figure:8.2f}   {sign} {wanted:10} {'' if is_held else 'MISSED'}",
                flush=True,
            )
    return Held(missed, figures, rows, printed)


def make_stamp() -> dict[str, str]:
    """Return what figures are of: the commit and the day."""
    return {"commit": find_commit(), "date": datetime.now(UTC).date().isoformat()}


def add_history(figures: dict[str, dict[str, float]]) -> None:
    line = {**make_stamp(), "machine": platform.machine(), "figures": figures}
    with HISTORY.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Run the benchmarks that have goals, and hold them."
    )
    parser.add_argument("--short", action="store_true", help="the bounds, in under two minutes")
    short = parser.parse_args().short
    held = hold_goals(short)
    if not short:
        add_history(held.figures)
    return 1 if held.missed else 0


if __name__ == "__main__":
    sys.exit(main())
