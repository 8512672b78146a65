"""On a terminal no command writes a control character that came from a template, a conversation or a reply."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import sources
from stand_in_engine import StandIn
from turnwise import TurnwiseWarning, cli
from turnwise.data import Recipe, prepare
from turnwise.tokens.tokenizers.files import SHIPPED

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal"),
]

# Clears the screen, sets the title, rings, starts a device string (two ways), turns text round, hides, deletes.
ATTACK = "\x1b[2J \x1b]0;title\x07 \x1bP+q\x1b\\ \x9b31m \u202e \u200b \x7f \x1b[35;7m"
LATIN = "\x1b[2J\x9b31m\x7f"  # headers have no other characters
STYLE = re.compile(r"\x1b\[[0-9;]*m")
BAR = re.compile(r"\x1b\[(?:2K|1A|\?25[lh])|\r")  # how progress is drawn; none is in ATTACK
HOSTILE = "{%- for m in messages -%}<|" + ATTACK + "{{ m.role }}|>{{ m.content }}</s>{%- endfor -%}"
OTHER = HOSTILE.replace("</s>", "</s>!" + ATTACK)
CHANGING = HOSTILE.replace("</s>", "{% if loop.last %}" + ATTACK + "{% endif %}</s>")
CHAT = [{"role": "user", "content": ATTACK}, {"role": "assistant", "content": f"Yes{ATTACK}"}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "find",
            "description": ATTACK,
            "parameters": {
                "type": "object",
                "properties": {ATTACK: {"enum": [ATTACK], "description": ATTACK}},
                "required": [ATTACK],
            },
        },
    }
]
HOSTILE_NAME = [{"type": "function", "function": {"name": ATTACK}}]
LINES = (
    {"messages": CHAT[:1], "tools": TOOLS},
    {"messages": [*CHAT, {"role": ATTACK, "content": "<|im_end|>"}]},
    {"messages": [{"role": "user", "content": f"{ATTACK}other"}], ATTACK: ATTACK},
    {"messages": ATTACK},
    ATTACK,
)
FILE = "\x1b]0;a\x07\u202e.jinja"
ENTRY = {"name": ATTACK, "source": "a.jinja", "notes": ATTACK, "family": ATTACK}
# Servers, which are started for the call.
DIFFERING, REFUSING, FAILING, ELSEWHERE = "DIFFERING", "REFUSING", "FAILING", "ELSEWHERE"
TALKING = "TALKING"
REPLY = {"index": 0, "text": f"Yes{ATTACK}", "finish_reason": "stop"}
SERVERS: dict[str, dict[str, Any]] = {
    DIFFERING: {"template": HOSTILE, "after": f"{{}}{ATTACK}".format},
    REFUSING: {"template": "{{ raise_exception(" + repr(ATTACK) + ") }}"},
    FAILING: {"template": "", "raw": (500, {}, ATTACK.encode())},
    ELSEWHERE: {"template": "", "raw": (302, {"Location": f"/{LATIN}"}, b"")},
    TALKING: {
        "template": "",
        "raw": (200, {}, b"data: " + json.dumps({"choices": [REPLY]}).encode() + b"\n\n"),
    },
}
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
    ["grammar", "a.jinja", "--to", "response-template"],
    ["grammar", "a.jinja", "--tools", "tools.json"],
    ["grammar", "qwen3", "--tools", "tools.json"],
    ["grammar", "qwen3", "--tools", "tools.json", "--to", "lark"],
    ["grammar", "qwen3", "--tools", "tools.json", "--to", "gbnf"],
    ["grammar", "qwen3", "--tools", "name.json"],
    ["grammar", "qwen3", "--tools", "tools.json", "--choice", ATTACK],
    ["fix", "a.jinja"],
    ["fix", "a.jinja", "--json"],
    ["fix", "a.jinja", "--generation"],
    ["fix", "c.jinja", "--write"],
    ["check", "a.jinja"],
    ["check", "a.jinja", "--format", "json"],
    ["check", "a.jinja", "--format", "github"],
    ["check", "a.jinja", "--format", "sarif"],
    ["check", "a.jinja", "--reference", "b.jinja", "--tokenizer", "turnwise"],
    ["eval-card", "a.jinja"],
    ["eval-card", "a.jinja", "b.jinja", "--compare"],
    ["eval-card", "name.json"],
    ["stability", "changing.jinja"],
    ["stability", "changing.jinja", "--json"],
    ["scan", "lines.jsonl"],
    ["scan", "lines.jsonl", "-t", "a.jinja", "-k", "turnwise"],
    ["scan", "lines.jsonl", "-t", "a.jinja", "-k", "turnwise", "--json"],
    ["prepare", "lines.jsonl", "-t", "a.jinja", "-k", "turnwise", "-o", "out"],
    ["prepare", "lines.jsonl", "-t", "a.jinja", "-k", "turnwise", "-o", "out1", "--json"],
    ["prepare", "lines.jsonl", "-t", "a.jinja", "-k", "turnwise", "--dry-run"],
    [
        "prepare",
        "lines.jsonl",
        "-t",
        "a.jinja",
        "-k",
        "turnwise",
        "-o",
        "o",
        "--on-bad-row",
        "fail",
    ],
    ["prepare", "lines.jsonl", "-t", ATTACK, "-k", "turnwise", "-o", ATTACK, "--columns", ATTACK],
    ["inspect", "prepared"],
    ["inspect", "prepared", "--json"],
    ["serve", "a.jinja", "--upstream", "http://127.0.0.1:9"],
    ["serve", ATTACK],
    ["chat", "--base-url", TALKING, "-t", "chatml", "--user", ATTACK],
    ["chat", "--base-url", TALKING, "-t", "chatml", "--user", "Hi", "--json"],
    ["chat", "--base-url", FAILING, "-t", "a.jinja", "--user", "Hi"],
    ["conform", DIFFERING, "--limit", "5"],
    ["conform", DIFFERING, "--limit", "5", "--json"],
    ["conform", DIFFERING, "--limit", "5", "--template", "b.jinja"],
    ["conform", REFUSING, "--limit", "5", "--template", "a.jinja"],
    ["conform", FAILING, "--engine", "vllm", "--template", "a.jinja"],
    ["conform", ELSEWHERE],
    ["release", "model", "--dry-run"],
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
    ["match", ATTACK],
    ["match", ATTACK, "--source", ATTACK],
    ["list"],
    ["list", "--json"],
    ["list", "--dialect", ATTACK],
    ["demo"],
    ["render", ATTACK, "chat.json"],
)
# What click quotes in its own words, and file names.
MISUSES = (
    [f"rend{ATTACK}er"],
    [f"--{ATTACK}"],
    [f"-x{ATTACK}"],
    ["render", f"--option{ATTACK}=1"],
    ["render", "a.jinja", "chat.json", ATTACK],
    ["render", "a.jinja", "chat.json", "--shape", ATTACK],
    ["render", "a.jinja", "chat.json", "--line", ATTACK],
    ["render", "a.jinja", "chat.json", "--now", ATTACK],
    ["render", "a.jinja", "chat.json", "--option", ATTACK],
    ["render", "a.jinja", "chat.json", "--tools", ATTACK],
    ["render", "a.jinja", f"{ATTACK}.json"],
    ["render", "a.jinja", FILE],
    ["render", FILE, "chat.json"],
    ["encode", "a.jinja", "chat.json", "--tokenizer", ATTACK],
    ["explain", ATTACK, ATTACK],
    ["parse", "a.jinja", f"@{ATTACK}"],
    ["convert", "a.jinja", "--to", ATTACK],
    ["grammar", "a.jinja", "--to", ATTACK],
    ["grammar", "a.jinja", "--to", "response-template", "--profile", ATTACK],
    ["fix", "a.jinja", "--only", ATTACK],
    ["fix", FILE, "--write"],
    ["check", FILE],
    ["check", "a.jinja", "--format", ATTACK],
    ["check", "a.jinja", "--ignore", ATTACK],
    ["check", "--explain", ATTACK],
    ["stability", FILE],
    ["scan", ATTACK],
    ["scan", FILE, "-t", FILE],
    ["conform", f"http://{ATTACK}"],
    ["conform", DIFFERING, "--engine", ATTACK],
    ["conform", DIFFERING, "--header", ATTACK],
    ["conform", DIFFERING, "--header", f"a:{ATTACK}"],
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("hostile")
    (place / "a.jinja").write_text(HOSTILE, encoding="utf-8")
    (place / "b.jinja").write_text(OTHER, encoding="utf-8")
    (place / "c.jinja").write_text(HOSTILE, encoding="utf-8")
    (place / "changing.jinja").write_text(CHANGING, encoding="utf-8")
    (place / "tools.json").write_text(json.dumps(TOOLS), encoding="utf-8")
    (place / "name.json").write_text(json.dumps(HOSTILE_NAME), encoding="utf-8")
    lines = [*map(json.dumps, LINES), f"{{{ATTACK}"]
    (place / "lines.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (place / "chat.json").write_text(json.dumps(CHAT), encoding="utf-8")
    (place / FILE).write_text("{{ nope(", encoding="utf-8")
    model = place / "model"
    model.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (model / name).write_bytes((SHIPPED / name).read_bytes())
    (model / "chat_template.jinja").write_text(HOSTILE, encoding="utf-8")
    prepare_hostile_data(place)
    entries = place / "entries"
    entries.mkdir()
    lines = [f"{key} = {json.dumps(value)}" for key, value in ENTRY.items()]
    (entries / "mine.toml").write_text("\n".join(lines), encoding="utf-8")
    (entries / "a.jinja").write_text(HOSTILE, encoding="utf-8")
    (entries / f"bad{FILE}.toml").write_text(f"name = {json.dumps(ATTACK)}\nnope = 1")
    return place


def prepare_hostile_data(place: Path) -> None:
    """Write a folder for `inspect`: hostile text in samples, file names, reasons and the recipe."""
    data = place / f"{FILE}.jsonl"
    data.write_text(json.dumps({"messages": CHAT}), encoding="utf-8")
    recipe = Recipe(str(data), str(place / "a.jinja"), "turnwise", str(place / "prepared"))
    prepare(replace(recipe, on_flaw="keep"), workers=1)
    manifest = place / "prepared" / "manifest.json"
    found = json.loads(manifest.read_text(encoding="utf-8"))
    assert found["samples"] == 1
    changed = {"reasons": {ATTACK: 1}, "recipe": {**found["recipe"], "options": {ATTACK: ATTACK}}}
    manifest.write_text(json.dumps({**found, **changed}), encoding="utf-8")


def test_every_command_is_here() -> None:
    assert {command[0] for command in COMMANDS} == set(cli.COMMANDS)


@pytest.mark.law(3)
@pytest.mark.parametrize(
    "command", COMMANDS + MISUSES, ids=lambda command: " ".join(command[::2])[:40]
)
def test_nothing_raw_on_a_terminal(folder: Path, command: list[str]) -> None:
    with ExitStack() as servers:
        words = [
            servers.enter_context(StandIn(**SERVERS[word])).url if word in SERVERS else word
            for word in command
        ]
        shown = run_on_terminal(folder, words)
    plain = STYLE.sub("", shown).replace("\r\n", "\n")
    if command[0] in ("scan", "prepare"):
        plain = BAR.sub("", plain)
    assert plain.strip() and "Traceback" not in plain
    assert all(character.isprintable() or character in "\n\t" for character in plain), repr(plain)
    assert "\x1b[35;7m" not in shown  # a colour is ours, or it is escaped


def run_on_terminal(folder: Path, command: list[str]) -> str:
    """Run a command with a terminal as its stdout and stderr, and return what arrived there."""
    import pty

    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(sources.PACKAGE.parent), "TERM": "xterm"}
    environment["TURNWISE_PATH"] = str(folder / "entries")
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


def test_escapes_are_those_of_python(folder: Path) -> None:
    for command in (
        ["render", "a.jinja", "chat.json"],
        ["render", "a.jinja", "chat.json", "--pieces"],
    ):
        shown = run_on_terminal(folder, command)
        assert r"\x1b[2J" in shown and r"\u202e" in shown and r"\x202e" not in shown


def test_help_on_a_terminal(folder: Path) -> None:
    """What others write keeps its colours."""
    shown = run_on_terminal(folder, ["render", "--help"])
    assert "\x1b[1mOptions" in shown and "Usage" in STYLE.sub("", shown)


def test_a_warning_is_escaped() -> None:
    """Python itself prints it, where there is no command."""
    shown = warnings.formatwarning(TurnwiseWarning(ATTACK), TurnwiseWarning, "a.py", 1, "")
    assert not set(shown) & set("\x1b\x9b\u202e\u200b\x7f")
    assert str(TurnwiseWarning("a\nb é")) == "a\nb é"
