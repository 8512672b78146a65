"""Words that a shell completes: entries, models, dialects, checks, choices, files.

A shell waits for each Tab, so nothing of the engine is imported: `words.json`, which `scripts/commands.py` writes, has
what the registry and the checks know. Entries of the user are the files in the folders of `TURNWISE_PATH`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

SOURCES = {
    **dict.fromkeys(("template", "templates", "first", "second", "reference", "models"), "entries"),
    **dict.fromkeys(("ignore", "select", "explain"), "checks"),
    **{"model": "models", "dialect": "dialects", "to": "dialects", "family": "families"},
}
"""By the parameter, what it is the name of."""
FILES = ("FILE", "PATH", "DIR", "CHAT", "DATA", "DATASET", "TEMPLATE")
SHELLS = {
    "bash": ("~/.bashrc", 'eval "$(_TURNWISE_COMPLETE=bash_source turnwise)"'),
    "zsh": ("~/.zshrc", 'eval "$(_TURNWISE_COMPLETE=zsh_source turnwise)"'),
    "fish": ("~/.config/fish/config.fish", "_TURNWISE_COMPLETE=fish_source turnwise | source"),
}
"""The file that a shell reads when it starts, and the line that it needs."""


def complete_value(ctx: Any, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the words that the value of a parameter may be."""
    words = list(getattr(param.type, "names", ()))
    if source := SOURCES.get(param.name or ""):
        text = Path(__file__).with_name("words.json").read_text(encoding="utf-8")
        words = json.loads(text)["models" if "/" in incomplete else source]
    if source == "entries":
        folders = filter(None, os.environ.get("TURNWISE_PATH", "").split(os.pathsep))
        words += [path.stem for folder in folders for path in Path(folder).glob("*.toml")]
    start = incomplete.lower()
    found = [CompletionItem(word) for word in words if word.lower().startswith(start)]
    is_file = (param.metavar or "").strip("[].") in FILES or param.name == "tokenizer"
    return found or [CompletionItem(incomplete, type="file")] * is_file


def install_completion(ctx: click.Context, param: Any, shell: str | None) -> None:
    """Add a line to the file that a shell reads when it starts, unless it is there; by default of the user's shell."""
    if shell is None:
        return
    shell = shell or Path(os.environ.get("SHELL", "")).name
    if shell not in SHELLS:
        raise click.BadParameter(f"name the shell, one of: {', '.join(SHELLS)}")
    place, line = SHELLS[shell]
    path = Path(place).expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        file.seek(0)
        if line not in file.read():
            file.write(f"{line}\n")
    click.echo(f"{path} has the line: {line}\nA new shell completes the words of turnwise.")
    ctx.exit()
