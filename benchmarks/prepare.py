"""Training shards of 20,000 conversations, from start to the last file: `python benchmarks/prepare.py`.

    turnwise       turnwise prepare, two workers: JSON Lines in, checked and counted shards out
    datasets.map   apply_chat_template with its mask in two processes, JSON Lines in, Parquet out
    TRL            what SFTTrainer does with the same rows when it is made (needs torch: --trl-python)
    axolotl        what `axolotl preprocess` does with them (needs torch: --axolotl-python)
    fastokens      the raw encoder in two processes on finished texts: no rendering, no labels, nothing written
    tokenizers     the same with the other library

The rows are workload (b) with text of the standard library's sources, no cut of it twice (they come round again after
some thousand rows, shifted). Each contestant is a new process (`prepare_peers.py`), so start-up counts; they take turns
in an order that rotates, and the median of the ratios turn by turn counts. Contestants that take minutes get fewer
rows at two sizes; what more rows would take follows from the two, and the table says so. Memory is the largest sum
over the processes of a contestant (proportional set size, sampled), and processor time is that of all its processes.

Then turnwise alone with 5,000 to 80,000 rows, to see how time and memory grow.

`--check` exits with 1 when a goal is missed: 14 times datasets.map, at most 2.0 times the time of fastokens, and for
80,000 rows at most 1.25 times the time for each row and 1.25 times the memory of 20,000.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import encode
import measure
import workloads

ROWS, TURNS = 20_000, 3
QUICK_ROWS, QUICK_TURNS = 2_000, 1
GROWTH = (5_000, 20_000, 80_000)
SLOW = ("datasets.map", "TRL", "axolotl", "tokenizers")
SLOW_SHARES = (0.01, 0.05)  # of the rows; for slow contestants
OVER_MAP, OVER_RAW, GROWING = 14.0, 2.0, 1.25
SAMPLING = 0.1  # seconds between two looks at the memory
PEERS = Path(__file__).with_name("prepare_peers.py")


@dataclass(frozen=True)
class Figure:
    """What one run took: seconds, seconds of processors, and bytes at most."""

    seconds: float
    processor: float
    memory: int


@dataclass(frozen=True)
class Data:
    """The files of the rows: JSON Lines of conversations, and of their rendered texts."""

    folder: Path
    template: Path
    tokenizer: Path

    def rows(self, count: int) -> Path:
        return self.folder / f"rows-{count}.jsonl"

    def texts(self, count: int) -> Path:
        return self.folder / f"texts-{count}.jsonl"


def write_data(folder: Path, counts: set[int]) -> Data:
    """Write the rows of each count: the first of the same conversations."""
    import turnwise

    data = Data(folder, folder / "template.jinja", workloads.tokenizer_folder(encode.TOKENIZER))
    data.template.write_text(encode.template_text(), encoding="utf-8")
    render = turnwise.compile(encode.template_text()).render
    rows = [(count, data.rows(count).open("w", encoding="utf-8")) for count in counts]
    texts = [(count, data.texts(count).open("w", encoding="utf-8")) for count in counts]
    for number, chat in enumerate(encode.conversations("b", max(counts), encode.Pages())):
        line, text = json.dumps({"messages": chat.messages}), json.dumps(str(render(chat.messages)))
        for count, file in rows:
            if number < count:
                file.write(f"{line}\n")
        for count, file in texts:
            if number < count and count <= ROWS:  # larger ones are for turnwise alone
                file.write(f"{text}\n")
    for _, file in rows + texts:
        file.close()
    return data


def run(name: str, data: Data, count: int, python: str) -> Figure:
    """Run a contestant in a process of its own."""
    with tempfile.TemporaryDirectory(dir=data.folder) as place:
        settings = {
            "rows": str(data.rows(count)),
            "texts": str(data.texts(count)),
            "count": count,
            "template": str(data.template),
            "tokenizer": str(data.tokenizer),
            "out": str(Path(place) / "out"),
        }
        before, start = os.times(), perf_counter()
        process = subprocess.Popen(
            [python, str(PEERS), name, json.dumps(settings)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": place},
        )
        watch = MemoryWatch(process.pid)
        _, errors = process.communicate()
        seconds, after = perf_counter() - start, os.times()
        watch.stop()
    if process.returncode:
        raise SystemExit(f"{name} failed:\n{errors.decode()[-2000:]}")
    spent = after.children_user + after.children_system
    spent -= before.children_user + before.children_system
    return Figure(seconds, spent, watch.most)


class MemoryWatch:
    """Looks at the memory of a process and of all that it started, until it is stopped."""

    def __init__(self, pid: int) -> None:
        self.pid, self.most = pid, 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(SAMPLING):
            self.most = max(self.most, sum(map(memory_of, process_tree(self.pid))))


def process_tree(pid: int) -> list[int]:
    """Return the process and its descendants, as far as they are still there."""
    found = [pid]
    for one in found:
        for file in Path(f"/proc/{one}/task").glob("*/children"):
            try:
                found += map(int, file.read_text().split())
            except OSError:
                continue
    return found


def memory_of(pid: int) -> int:
    """Return the bytes of a process; pages that several share are divided among them."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) * 1024


def extrapolate(small: Figure, large: Figure, few: int, many: int, count: int) -> Figure:
    """Return what `count` rows would take, from the figures of fewer rows; memory as it was."""
    factor = (count - few) / (many - few)
    seconds = small.seconds + (large.seconds - small.seconds) * factor
    processor = small.processor + (large.processor - small.processor) * factor
    return Figure(seconds, processor, large.memory)


def compare(
    data: Data, names: list[str], rows: int, turns: int, pythons: dict[str, str]
) -> dict[str, list[Figure]]:
    """Return the figures of each contestant, turn by turn."""
    found: dict[str, list[Figure]] = {name: [] for name in names}
    few, many = (max(1, round(share * rows)) for share in SLOW_SHARES)
    for turn in range(turns):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            python = pythons.get(name, sys.executable)
            if name in SLOW:
                sizes = [run(name, data, count, python) for count in (few, many)]
                found[name].append(extrapolate(*sizes, few, many, rows))
            else:
                found[name].append(run(name, data, rows, python))
            print(f"turn {turn + 1}: {name} {found[name][-1]}", file=sys.stderr)
    return found


def ratios(found: dict[str, list[Figure]], what: str) -> dict[str, float]:
    ours = [getattr(figure, what) for figure in found["turnwise"]]
    return {
        name: measure.ratio([getattr(figure, what) for figure in figures], ours)
        for name, figures in found.items()
    }


def find_missed(found: dict[str, list[Figure]], growth: dict[int, Figure]) -> list[str]:
    seconds = ratios(found, "seconds")
    missed = []
    if seconds.get("datasets.map", OVER_MAP) < OVER_MAP:
        missed.append(f"{seconds['datasets.map']:.1f} times datasets.map, of {OVER_MAP:g}")
    if 1 / seconds.get("fastokens", 1) > OVER_RAW:
        missed.append(f"{1 / seconds['fastokens']:.2f} times raw fastokens, of {OVER_RAW:g}")
    if len(growth) > 1:
        *_, middle, most = sorted(growth)
        slower = growth[most].processor / most / (growth[middle].processor / middle)
        larger = growth[most].memory / growth[middle].memory
        for what, factor in (("processor time for each row", slower), ("memory", larger)):
            if factor > GROWING:
                missed.append(f"{what} of {most:,} rows: {factor:.2f} times that of {middle:,}")
    return missed


def write_tables(found: dict[str, list[Figure]], growth: dict[int, Figure], rows: int) -> str:
    seconds, processor = ratios(found, "seconds"), ratios(found, "processor")
    lines = []
    for name, figures in found.items():
        best = min(figure.seconds for figure in figures)
        memory = max(figure.memory for figure in figures)
        label = f"{name} (scaled)" if name in SLOW else name
        shares = measure.shown(seconds[name]), measure.shown(processor[name])
        lines.append([label, *shares, f"{rows / best:,.0f}", f"{memory / 2**20:,.0f} MB"])
    heads = ["contestant", "time", "processor time", "rows/s", "memory"]
    text = f"{rows:,} rows; times are ratios, turnwise = 1.\n\n{measure.table(heads, lines)}\n"
    few, many = (max(1, round(share * rows)) for share in SLOW_SHARES)
    text += f"\n(scaled): from {few:,} and {many:,} rows, memory at {many:,}.\n"
    grown = [
        [
            f"{count:,}",
            f"{figure.seconds / count * 1e6:,.0f} us",
            f"{figure.processor / count * 1e6:,.0f} us",
            f"{figure.memory / 2**20:,.0f} MB",
        ]
        for count, figure in growth.items()
    ]
    heads = ["rows", "time of a row", "processor", "memory"]
    return text + "\n" + measure.table(heads, grown)


def main() -> int:
    parser = argparse.ArgumentParser(description="Training shards: how fast, in how much memory.")
    parser.add_argument("--quick", action="store_true", help="fewer rows, one turn, no growth")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a goal is missed")
    parser.add_argument("--turns", type=int, help="how often each is run")
    parser.add_argument("--trl-python", help="the python of an environment with torch and trl")
    parser.add_argument("--axolotl-python", help="the python of one with torch and axolotl")
    parser.add_argument("--peers", nargs="+", help="only these, and turnwise; no growth")
    asked = parser.parse_args()
    rows = QUICK_ROWS if asked.quick else ROWS
    turns = asked.turns or (QUICK_TURNS if asked.quick else TURNS)
    sizes = () if asked.quick else GROWTH
    names = ["turnwise", *(asked.peers or ["datasets.map", "fastokens", "tokenizers"])]
    if asked.peers:
        sizes = ()
    given = {"TRL": asked.trl_python, "axolotl": asked.axolotl_python}
    pythons = {name: python for name, python in given.items() if python}
    names += [name for name in pythons if name not in names]
    slow_sizes = {max(1, round(share * rows)) for share in SLOW_SHARES}
    with tempfile.TemporaryDirectory() as folder:
        data = write_data(Path(folder), {rows, *slow_sizes, *sizes})
        found = compare(data, names, rows, turns, pythons)
        growth = {count: run("turnwise", data, count, sys.executable) for count in sizes}
    missed = find_missed(found, growth)
    if asked.json:
        figures: dict[str, Any] = {
            name: [asdict(figure) for figure in some] for name, some in found.items()
        }
        grown = {count: asdict(figure) for count, figure in growth.items()}
        found_ratios = {"time": ratios(found, "seconds"), "processor": ratios(found, "processor")}
        values = {"rows": rows, "figures": figures, "growth": grown, "turnwise = 1": found_ratios}
        print(json.dumps({"versions": measure.versions(), **values}, indent=2))
    else:
        print(write_tables(found, growth, rows))
    for line in missed:
        print(f"MISSED {line}", file=sys.stderr)
    return 1 if missed and asked.check else 0


if __name__ == "__main__":
    sys.exit(main())
