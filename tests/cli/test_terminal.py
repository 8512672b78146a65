"""On a terminal no command writes a control character that came from a template, a conversation or a reply."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sources

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")

# Clears the screen, sets the title, rings, starts a device string (two ways), turns text round, hides, deletes.
ATTACK = "\x1b[2J \x1b]0;title\x07 \x1bP+q\x1b\\ \x9b31m \u202e \u200b \x7f \x1b[35;7m"
STYLE = re.compile(r"\x1b\[[0-9;]*m")
HOSTILE = "{%- for m in messages -%}<|" + ATTACK + "{{ m.role }}|>{{ m.content }}</s>{%- endfor -%}"
OTHER = HOSTILE.replace("</s>", "</s>!" + ATTACK)
CHAT = [{"role": "user", "content": ATTACK}, {"role": "assistant", "content": f"Yes{ATTACK}"}]
COMMANDS = (
    ["render", "a.jinja", "chat.json"],
    ["render", "a.jinja", "chat.json", "--pieces"],
    ["render", "a.jinja", "chat.json", "--whitespace"],
    ["render", "a.jinja", "chat.json", "--json"],
    ["encode", "a.jinja", "chat.json", "--tokenizer", "turnwise"],
    ["encode", "a.jinja", "chat.json", "--tokenizer", "turnwise", "--json"],
    ["explain", "a.jinja"],
    ["explain", "a.jinja", "--json"],
    ["explain", "a.jinja", "--program"],
    ["stops", "a.jinja"],
    ["stops", "a.jinja", "--json"],
    ["parse", "a.jinja", ATTACK],
    ["parse", "a.jinja", ATTACK, "--json"],
    ["parse", "a.jinja", ATTACK, "--stream"],
    ["parse", "a.jinja", ATTACK, "--stream", "--json"],
    ["diff", "a.jinja", "b.jinja"],
    ["diff", "a.jinja", "b.jinja", "--json"],
    ["convert", "a.jinja", "--to", "jinja"],
    ["convert", "a.jinja", "--to", "fastchat"],
    ["doctor", ATTACK, "a.jinja"],
    ["match", ATTACK],
    ["render", ATTACK, "chat.json"],
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("hostile")
    (place / "a.jinja").write_text(HOSTILE, encoding="utf-8")
    (place / "b.jinja").write_text(OTHER, encoding="utf-8")
    (place / "chat.json").write_text(json.dumps(CHAT), encoding="utf-8")
    return place


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[::2])[:40])
def test_nothing_raw_on_a_terminal(folder: Path, command: list[str]) -> None:
    shown = run_on_terminal(folder, command)
    plain = STYLE.sub("", shown).replace("\r\n", "\n")
    assert plain.strip()
    assert all(character.isprintable() or character in "\n\t" for character in plain), repr(plain)
    assert "\x1b[35;7m" not in shown  # a colour is ours, or it is escaped


def run_on_terminal(folder: Path, command: list[str]) -> str:
    """Run a command with a terminal as its stdout and stderr, and return what arrived there."""
    import pty

    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(sources.PACKAGE.parent), "TERM": "xterm"}
    process = subprocess.Popen(
        [sys.executable, "-c", "from turnwise.cli import main; main()", *command],
        stdout=theirs,
        stderr=theirs,
        stdin=subprocess.DEVNULL,
        cwd=folder,
        env=environment,
    )
    os.close(theirs)
    received = b""
    while True:
        try:
            chunk = os.read(ours, 100_000)
        except OSError:  # Linux says so when the last writer has gone
            break
        if not chunk:
            break
        received += chunk
    os.close(ours)
    process.wait()
    return received.decode()
