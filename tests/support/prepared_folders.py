"""Data sets on disk, and folders that `prepare` makes of them."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from turnwise.data import Recipe

WORDS = (
    "apple",
    "river",
    "stone",
    "cloud",
    "東京",
    "naïve",
    "<|im_end|>",
    "\\",
    '"',
    "[",
    "{",
    ",",
)


def make_rows(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Return rows of one to three rounds; the texts hold what JSON and templates use as delimiters."""
    source = random.Random(seed)

    def text() -> str:
        return " ".join(source.choice(WORDS) for _ in range(source.randint(1, 40)))

    rows = []
    for _ in range(count):
        messages = []
        for _ in range(source.randint(1, 3)):
            messages.append({"role": "user", "content": text()})
            messages.append({"role": "assistant", "content": text()})
        rows.append({"messages": messages})
    return rows


def write_jsonl(path: Path, rows: Iterable[Any]) -> Path:
    """Write JSON Lines; a row that is bytes is written as it is."""
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def make_folder_recipe(data: Path, output: Path, **values: Any) -> Recipe:
    """Return a recipe with small chunks."""
    settings = {"template": "chatml", "tokenizer": "turnwise", "chunk_bytes": 4096, **values}
    return Recipe(inputs=str(data), output=str(output), **settings)


def read_folder(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every file of an output folder by its name."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


CHILD = """
import os, signal, sys
sys.path[:] = {path!r}
from kill_runs import list_workers
from prepared_folders import make_folder_recipe
from turnwise.data import prepare

workers = []
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has its background jobs ignore it

def interrupt(progress):
    if progress.stage == "encode" and progress.rows and not workers:
        workers.extend(list_workers(os.getpid()))
        print(*workers, flush=True)
        os.kill(os.getpid(), signal.SIGINT)

prepare(
    make_folder_recipe({data!r}, {output!r}, **{values!r}),
    workers={workers!r},
    on_progress=interrupt,
)
"""


def interrupt_prepare(
    data: Path, output: Path, workers: int, **values: Any
) -> tuple[subprocess.CompletedProcess[str], list[int]]:
    """Run `prepare` in a process that sends itself SIGINT after its first chunk; return it and its workers.

    A signal of the test could come after the end of the run.
    """
    code = CHILD.format(
        path=sys.path, data=str(data), output=str(output), values=values, workers=workers
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    return done, [int(worker) for worker in done.stdout.split()]
