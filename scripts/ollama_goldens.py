"""Write what Ollama's own template package makes of our conversations, for tests/dialects/test_ollama_goldens.py.

    git clone https://github.com/ollama/ollama
    .venv/bin/python scripts/ollama_goldens.py ollama

Needs Go. The templates are those that Ollama ships, copied from its checkout, and ours in `templates.jsonl`; the
conversations are ours, in `conversations.jsonl`. Every template gets every conversation. `ollama_goldens.go` beside
this file is executed inside of the checkout, so that it finds the package. The first row of the result says which
versions made it, and on which day: some templates write the date.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
GOLDENS = HERE.parent / "tests" / "dialects" / "ollama_goldens"


def read_lines(path: Path) -> list[Any]:
    """Return the rows of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]


def copy_bundled(checkout: Path) -> None:
    """Copy the templates that Ollama ships, with their licence."""
    bundled = GOLDENS / "bundled"
    bundled.mkdir(exist_ok=True)
    for source in (checkout / "LICENSE", *sorted((checkout / "template").glob("*.gotmpl"))):
        shutil.copyfile(source, bundled / source.name)


def read_templates() -> dict[str, str]:
    """Return all templates by name."""
    templates = {
        path.stem: path.read_text("utf-8")
        for path in sorted((GOLDENS / "bundled").glob("*.gotmpl"))
    }
    templates.update(
        (row["name"], row["template"]) for row in read_lines(GOLDENS / "templates.jsonl")
    )
    return templates


def build(checkout: Path, folder: str) -> Path:
    """Build the program that asks Ollama, in a folder."""
    program = Path(folder) / "ollama_goldens"
    command = ["go", "build", "-o", str(program), str(HERE / "ollama_goldens.go")]
    subprocess.run(command, cwd=checkout, check=True)
    return program


def execute(program: Path, rows: Iterable[dict[str, Any]]) -> list[dict[str, str]]:
    """Return Ollama's answer to every row."""
    given = "".join(f"{json.dumps(row)}\n" for row in rows)
    done = subprocess.run([program], input=given, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def read_version(checkout: Path, *command: str) -> str:
    """Return what a command prints about a version."""
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def read_versions(checkout: Path) -> dict[str, str]:
    """Return what made the texts, and on which day."""
    return {
        "ollama": read_version(checkout, "git", "rev-parse", "HEAD"),
        "go": read_version(checkout, "go", "env", "GOVERSION"),
        "day": date.today().isoformat(),
    }


def main() -> None:
    """Ask Ollama for every pair of a template and a conversation, and write the texts."""
    checkout = Path(sys.argv[1]).resolve()
    copy_bundled(checkout)
    templates = read_templates()
    conversations = read_lines(GOLDENS / "conversations.jsonl")
    # A suffix is only for templates that have a use for it.
    pairs = [
        (name, talk)
        for name, text in templates.items()
        for talk in conversations
        if "suffix" not in talk or ".Suffix" in text
    ]
    with tempfile.TemporaryDirectory() as folder:
        program = build(checkout, folder)
        answers = execute(program, [{**talk, "template": templates[name]} for name, talk in pairs])
    lines = [json.dumps(read_versions(checkout))]
    texts: dict[str, dict[str, str | None]] = {name: {} for name in templates}
    for (name, talk), answer in zip(pairs, answers, strict=True):
        # None: Ollama fails
        texts[name][talk["name"]] = None if "error" in answer else answer["text"]
    for name, by_conversation in texts.items():
        row = {"template": name, "texts": by_conversation}
        lines.append(json.dumps(row, ensure_ascii=False, separators=(",", ":")))
    (GOLDENS / "texts.jsonl").write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
