"""Write docs/speed.md and the picture of growth: `make speed`, or `python benchmarks/speed.py`.

It runs the benchmarks whose figures the page shows, one after another; none takes longer than three minutes. TRL and
axolotl need torch, and vLLM pins of its own: they take part if `--trl-python`, `--axolotl-python` and `--vllm` name
them, and the page says which did not.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import first_use
import goals

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "speed.md"
GROWTH = ROOT / "docs" / "images" / "growth.json"


def run(name: str, *words: str) -> dict[str, Any]:
    """Run a benchmark and return what it printed as JSON."""
    command = [sys.executable, str(ROOT / "benchmarks" / f"{name}.py"), "--json", *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT / "benchmarks")
    if done.returncode:
        raise SystemExit(f"{name}.py failed")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def list_everyone() -> tuple[list[str], list[str]]:
    """Return the rows of the table of packages, and what is not in it."""
    found = run("everyone")
    rows = [
        f"| {row['package']} {row['version']} | {row['work']}, {row['model']} | {row['median']:.2f} "
        f"| {row['low']:.2f} to {row['high']:.2f} |"
        for row in found["rows"]
    ]
    return rows, [f"{name}: {why}" for name, why in found["left out"].items()]


def list_prepared(asked: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Return the rows of contestants that prepare data sets, and those that are not there."""
    rows = list_preparing("datasets.map", "fastokens")
    missing = []
    for name, python in (("TRL", asked.trl_python), ("axolotl", asked.axolotl_python)):
        if python:
            rows += list_preparing(name, "--turns", "2", f"--{name.lower()}-python", python)
        else:
            missing.append(f"{name}: no environment with torch was given")
    return rows, missing


def list_preparing(*words: str) -> list[str]:
    """Return the rows of the peers that are named first; options follow."""
    figures = run("prepare", "--peers", *words)["figures"]
    ours = [one["processor"] for one in figures.pop("turnwise")]
    rows = []
    for name, some in figures.items():
        ratios = [one["processor"] / own for one, own in zip(some, ours, strict=True)]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        work = "texts to ids only" if name == "fastokens" else "JSON Lines to ids and labels"
        rows.append(f"| {name} | {work}, 20,000 rows | {median(ratios):.2f} | {spread} |")
    return rows


def list_served(command: str | None) -> tuple[list[str], list[str]]:
    """Return the rows of vLLM's renderer, against `turnwise serve`."""
    if not command:
        return [], ["vLLM's renderer: no environment with vLLM was given"]
    rows = []
    for kind, samples in run("serve", "--vllm", command)["us"].items():
        ratios = [one / own for one, own in zip(samples["vllm"], samples["memory"], strict=True)]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        rows.append(
            f"| vLLM's renderer | ids by HTTP, Qwen3: {kind} | {median(ratios):.2f} | {spread} |"
        )
    return rows, []


def list_first_use() -> list[str]:
    found = run("first_use")
    rows = []
    for name, goal in first_use.GOALS.items():
        low, middle, high = quantiles(found["ms"][name], n=4)
        rows.append(f"| {name} | {middle:.0f} ms | {low:.0f} to {high:.0f} | {goal:g} |")
    for name, values in found["encode"].items():
        low, middle, high = quantiles(values, n=4)
        goal = first_use.ENCODE_GOAL
        rows.append(
            f"| first `encode` over loading {name} | {middle:.2f} | {low:.2f} to {high:.2f} | {goal} |"
        )
    return rows


def write_page(stamp: dict[str, str], tables: dict[str, list[str]]) -> None:
    machine = (
        f"{platform.machine()}, {os.cpu_count()} processors, Python {platform.python_version()}"
    )
    lines = [
        "# Speed",
        "",
        f"Written by `make speed` on {stamp['date']}, commit {stamp['commit']}, on {machine}; the machine is shared,",
        "so ratios count. What each row means, and how it is measured, is in [benchmarks](../benchmarks/README.md).",
        "",
        "![Milliseconds of the next turn of a conversation of 1,000 to 128,000 tokens](images/growth.svg)",
        "",
        "## Against others who do the same work",
        "",
        "Processor time of each over that of turnwise, with the same result: more than 1 is slower than turnwise. The",
        "median of runs in turns, and where the middle half of them lies (of data sets and servers: all of them).",
        "Each has the tokenizer library that it uses: turnwise fastokens where it gives the same ids.",
        "datasets.map, TRL and axolotl prepare 200 and 1,000 rows; what 20,000 would take is computed from the two.",
        "",
        "| package | work | times as long as turnwise | spread |",
        "|---|---|---:|---|",
        *tables["everyone"],
        "",
    ]
    if tables["missing"]:
        lines += ["Not in the table:", "", *(f"* {one}" for one in tables["missing"]), ""]
    lines += [
        "## Goals",
        "",
        "Here `render` is the mean of twenty templates, most of them cheaper for others than Qwen3's. (a) is one",
        "message, (b) 13, (c) 41 and ten tools. What is not reached yet stays in the table.",
        "",
        "| benchmark | row | measured | goal |",
        "|---|---|---:|---|",
    ]
    lines += [row.rstrip() for row in tables["goals"]]
    lines += ["", "## First use", "", "Processor time of new processes.", ""]
    lines += [
        "| what | median | middle half | goal, at most |",
        "|---|---:|---|---:|",
        *tables["first"],
    ]
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure, and write docs/speed.md.")
    parser.add_argument("--trl-python", help="the python of an environment with torch and trl")
    parser.add_argument("--axolotl-python", help="the python of one with torch and axolotl")
    parser.add_argument("--vllm", help="the command vllm of an environment with it")
    asked = parser.parse_args()
    packages, missing = list_everyone()
    for rows, not_there in (list_prepared(asked), list_served(asked.vllm)):
        packages += rows
        missing += not_there
    first = list_first_use()
    held = goals.hold_goals(short=False)
    goals.add_history(held.figures)
    GROWTH.write_text(json.dumps(held.printed["growing"], indent=2) + "\n", encoding="utf-8")
    subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "docs_pictures.py"), "growth"], check=True
    )
    tables = {"everyone": packages, "missing": missing, "first": first, "goals": held.rows}
    write_page(goals.make_stamp(), tables)
    return 0


if __name__ == "__main__":
    sys.exit(main())
