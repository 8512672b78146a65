"""Compare every entry with its conversion to Ollama, as Ollama's own packages read and execute it.

    git clone https://github.com/ollama/ollama
    .venv/bin/python scripts/ollama_conversions.py ollama [--count 200] [--goldens] [NAME ...]

Needs Go. Each entry is converted, giving up what the errors offer to leave out; Ollama's parser reads the Modelfile and
its template package writes COUNT conversations that end with a question. Texts that differ are printed, and make the
script fail. NAMEs choose entries. `--goldens` writes what Ollama made of a sample to
tests/dialects/ollama_goldens/conversions.jsonl, for tests/dialects/test_ollama_conversions.py.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# The folders must be on the path before they are imported from (E402).
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "support")]

from ollama_goldens import GOLDENS, build, read_versions  # noqa: E402

import turnwise  # noqa: E402
from target_texts import (  # noqa: E402
    Chat,
    convert_losing,
    find_differences,
    invent_chats,
    simplify,
)
from turnwise.dialects import DIALECTS  # noqa: E402
from turnwise.registry import entries  # noqa: E402

# Of every way to place a system text, to end a reply and to begin a conversation, one; none writes the date.
SAMPLE = (
    *(
        "chatml",
        "llama-2",
        "llama-3",
        "mistral-tekken",
        "gemma-2",
        "vicuna",
        "phi-3",
        "deepseek-r1",
    ),
    *("qwen2.5", "zephyr", "glm-4", "command-r"),
)
SAMPLE_COUNT = 12
SEED = 7


class Ollama:
    """Ollama's packages with one Modelfile: a process that answers one row after the other."""

    dialect = DIALECTS["ollama"]

    def __init__(self, process: subprocess.Popen[str], modelfile: str, now: datetime) -> None:
        self.process, self.modelfile, self.now = process, modelfile, now

    def write(self, chat: Chat, is_prompt: bool, tokens: dict[str, str]) -> str:
        """Return the text of a conversation; Ollama opens a reply by itself and inserts tokens elsewhere."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps({"modelfile": self.modelfile, "messages": chat}) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        return f"refused: {answer['error']}" if "error" in answer else str(answer["text"])


def invent_prompts(count: int) -> list[Chat]:
    """Return conversations that end with a question."""
    chats = (chat for chat in invent_chats(10 * count, SEED) if chat[-1]["role"] == "user")
    return list(islice(chats, count))


def compare_all(
    process: subprocess.Popen[str], names: list[str], prompts: list[Chat], now: datetime
) -> Counter[str]:
    """Compare entries with their conversions; print what differs, and count."""
    counts: Counter[str] = Counter()
    for name in names:
        template = turnwise.load(name)
        result = convert_losing(template, "ollama")
        if result.error is not None:
            counts["entries refused"] += 1
            continue
        counts["entries converted"] += 1
        target = Ollama(process, result.source, now)
        compared, found = find_differences(template, target, prompts, result.without)
        counts["conversations compared"] += compared
        counts["conversations that differ"] += len(found)
        counts["entries that differ"] += bool(found)
        if found:
            chat, wanted, written = found[0]
            print(f"{name}, without {result.without}: {json.dumps(chat)}")
            print(f"  template: {wanted!r}\n  Ollama:   {written!r}", flush=True)
    return counts


def write_goldens(process: subprocess.Popen[str], versions: dict[str, str]) -> None:
    """Write the sample: for each entry its Modelfile, and what Ollama makes of some conversations."""
    prompts = invent_prompts(SAMPLE_COUNT)
    lines: list[Any] = [versions]
    for name in SAMPLE:
        result = convert_losing(turnwise.load(name), "ollama")
        target = Ollama(process, result.source, datetime.now())
        chats = [simplify(chat, result.without) or chat for chat in prompts]
        texts = [target.write(chat, True, {}) for chat in chats]
        row = {"entry": name, "without": result.without, "modelfile": result.source, "texts": texts}
        lines.append(row)
    lines.insert(1, {"conversations": prompts})
    written = [json.dumps(line, ensure_ascii=False, separators=(",", ":")) for line in lines]
    (GOLDENS / "conversions.jsonl").write_text("\n".join(written) + "\n", "utf-8")


def main() -> None:
    """Compare the entries, or write the goldens."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkout", type=Path, help="a checkout of Ollama's repository")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--goldens", action="store_true")
    arguments = parser.parse_args()
    written = [name for name, entry in entries().items() if entry.dialect != "ollama"]
    with tempfile.TemporaryDirectory() as folder:
        program = build(arguments.checkout.resolve(), folder)
        with subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            if arguments.goldens:
                write_goldens(process, read_versions(arguments.checkout.resolve()))
                return
            names = arguments.names or written
            counts = compare_all(process, names, invent_prompts(arguments.count), datetime.now())
    print(*(f"{count} {what}" for what, count in counts.items()), sep="\n")
    if counts["entries that differ"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
