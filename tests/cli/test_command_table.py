"""The table of commands: what help says without importing them, the flags that all have, errors as data."""

from __future__ import annotations

import json
import os
import re
import resource
import shlex
import subprocess
import sys
from pathlib import Path

import click
import commands
import pytest
from click.testing import CliRunner

import turnwise
from turnwise.cli import COMMANDS, app
from turnwise.cli.options import read_table

ROOT = Path(__file__).resolve().parents[2]
COMMAND_ROW = re.compile(r"^\| (`turnwise .*?) \|", re.MULTILINE)
HELP_RATIO, RENDER_RATIO = 3.0, 4.0
ROUNDS = 8


def run(*words: str, **environment: str) -> str:
    return CliRunner(env=environment).invoke(app, list(words)).output


def test_the_table_is_that_of_the_docstrings() -> None:
    for file, write in (
        (commands.TABLE, commands.write_table),
        (commands.WORDS, commands.write_words),
    ):
        assert file.read_text(encoding="utf-8") == write(), "run: python scripts/commands.py"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command(name: str) -> None:
    found = run(name, "--help", COLUMNS="200")
    assert f"Example: turnwise {name}" in found
    assert "<bool>" not in found
    assert all(flag in found for flag in ("--json", "--color", "--no-color"))


@pytest.mark.parametrize("name", COMMANDS)
def test_help_on_80_columns_cuts_no_name(name: str) -> None:
    shown = run(name, "--help", COLUMNS="80", TERMINAL_WIDTH="80")
    cut = [line for line in shown.splitlines() if "…" in line]
    assert not cut and max(map(len, shown.splitlines())) <= 80
    options = [one for one in _options_of(name) if one.startswith("--")]
    assert options and all(re.search(rf"{option}\s", shown) for option in options)


def _options_of(name: str) -> list[str]:
    """Return the names of a command's options, the first long one of each and its negation."""
    found = []
    for param in app.get_command(click.Context(app), name).params:
        long = [one for one in param.opts if one.startswith("--")]
        found += [*long[:1], *param.secondary_opts]
    return found


NEEDS_MORE = {
    "conform": "a server",
    "scan": "a data set",
    "prepare": "a data set",
    "inspect": "prepared shards",
    "release": "a model folder",
    "serve": "somebody who stops it",
    "chat": "a server",
}
"""Commands whose example cannot run as it is, and what it lacks."""


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in NEEDS_MORE])
def test_example_of_a_command(name: str) -> None:
    found = re.search(r"Example: turnwise (.*)", "\n".join(read_table()[name]["help"]))
    assert found
    result = CliRunner().invoke(app, shlex.split(found[1]))
    assert result.exit_code in (0, 1) and result.stdout, result.output


def test_help_lists_all_commands() -> None:
    found = " ".join(run("--help").split())
    assert all(f"{name} {row['help'][0]}" in found for name, row in read_table().items())
    assert "<bool>" not in found


def test_misspelt_command() -> None:
    assert "Did you mean 'render'" in run("rendr", COLUMNS="200")


def test_colours_by_environment() -> None:
    words = ("render", "chatml", "--user", "Hi")
    assert "\x1b" not in run(*words)
    assert "\x1b" in run(*words, FORCE_COLOR="1")
    assert "\x1b" not in run(*words, FORCE_COLOR="1", NO_COLOR="1")
    assert "\x1b" not in run(*words, "--no-color", FORCE_COLOR="1")


@pytest.mark.parametrize("name", COMMANDS)
def test_misuse_of_a_command(name: str) -> None:
    words = [name, "--no-such-flag"]
    plain = CliRunner().invoke(app, words)
    assert plain.exit_code == 2 and plain.stdout == ""
    assert plain.stderr.startswith(f"error: turnwise {name}: ")
    assert f"`turnwise {name} --help`" in plain.stderr
    found = CliRunner().invoke(app, [*words, "--json", "--color"])
    assert found.exit_code == 2 and "\x1b[31;1m" in found.stderr and "\x1b" not in found.stdout
    error = json.loads(found.stdout)["error"]
    assert error["type"] == "Misuse" and error["command"] == f"turnwise {name}"
    assert "--no-such-flag" in error["message"] and "--help" in error["hint"]


@pytest.mark.parametrize(
    ("words", "mark"),
    [
        (["render", "chatml", "--user", "Hi"], "\x1b[2m<|im_start|>"),
        (["diff", "chatml", "llama-2"], "\x1b[33m⟪"),
        (["stability", "qwen3"], "\x1b[32m+ {"),
        (["render", "--help"], "\x1b["),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_colour_flags_of_commands(words: list[str], mark: str) -> None:
    assert mark in run(*words, "--color", NO_COLOR="1")
    assert "\x1b[3" not in run(*words, "--no-color", FORCE_COLOR="1")


def test_colour_flags_of_notes() -> None:
    words = ["encode", "chatml", "--user", "Hi"]
    assert "\x1b[36;1mnote:\x1b[0m" in CliRunner().invoke(app, [*words, "--color"]).stderr
    assert "\x1b" not in CliRunner().invoke(app, words).output
    words = ["render", "no-such-template", "--user", "\x1b[2J", "--color"]
    shown = CliRunner().invoke(app, words).stderr
    assert "\x1b[31;1merror:\x1b[0m" in shown and "\x1b[2J" not in shown


def test_errors_name_flags() -> None:
    """The API names its arguments, which are flags here."""
    words = ["encode", "chatml", "--user", "Hi", "--max-length", "1"]
    for shown in (run(*words), json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)):
        text = shown if isinstance(shown, str) else " ".join(map(str, shown["error"].values()))
        assert "more than --max-length 1" in text and "--overflow truncate cuts" in text
    shown = run("convert", "qwen3", "--to", "fastchat")
    assert "--without 'no system text'" in shown and "without=" not in shown


def test_one_table_of_targets() -> None:
    shown = " ".join(run("convert", "--help", COLUMNS="300").split())
    targets = re.search(r"One of ([\w, ]+)\.", shown)
    assert targets and f"One of: {targets[1]}." in run("convert", "chatml", "--to", "cobol")


def test_demo_as_data() -> None:
    found = json.loads(run("demo", "--json"))
    assert [step["step"] for step in found["steps"]] == ["render", "origins", "tokens", "reply"]
    rendered, origins, tokens, reply = found["steps"]
    assert "".join(piece["text"] for piece in rendered["pieces"]) == rendered["text"]
    assert {piece["origin"]["message"] for piece in origins["pieces"]} == {2}
    assert len(tokens["defused"]) == 2
    assert reply["message"]["tool_calls"] and reply["events"][-1]["kind"] == "stop"


def test_serve_tells_its_address_as_data() -> None:
    command = [sys.executable, "-m", "turnwise", "serve", "chatml", "--port", "0", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(Path(turnwise.__file__).parents[1])}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    ) as process:
        assert process.stdout is not None
        found = json.loads(process.stdout.readline())
        process.terminate()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", found["url"]) and found["models"] == ["chatml"]
    assert "no tokenizer" in found["notes"][0]


def test_json_before_the_command() -> None:
    found = CliRunner().invoke(app, ["--json", "render", "chatml", "--user", "Hi"])
    assert found.exit_code == 2 and "--json stands after the command" in found.stderr


def test_a_call_without_words_shows_help() -> None:
    found = CliRunner().invoke(app, [])
    assert "Usage" in found.stdout and found.stderr == ""


def test_checks_as_data() -> None:
    checks = json.loads(run("check", "--list", "--json"))
    assert {"code", "severity", "name", "title"} == set(checks[0]) and len(checks) > 20
    (check,) = json.loads(run("check", "--explain", checks[0]["code"], "--json"))
    assert check["page"].strip() in run("check", "--explain", checks[0]["name"])


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md"])
def test_readme_lists_all_commands(page: str) -> None:
    rows = COMMAND_ROW.findall((ROOT / page).read_text(encoding="utf-8"))
    assert sorted(re.findall(r"turnwise ([\w-]+)", " ".join(rows))) == sorted(COMMANDS)


def test_errors_are_data_too() -> None:
    found = CliRunner().invoke(app, ["render", "no-such-template", "--user", "Hi", "--json"])
    error = json.loads(found.stdout)["error"]
    assert found.exit_code == 2 and error["type"] == "SourceError"
    assert "no-such-template" in error["message"] and error["hint"]
    found = CliRunner().invoke(app, ["grammar", "qwen3", "--to", "larc", "--json"])
    assert found.exit_code == 2
    assert "lark" in json.loads(found.stdout)["error"]["message"]
    for words in (["render", "chatml", "--bogus"], ["render"], ["parse", "chatml"]):
        found = CliRunner().invoke(app, [*words, "--json"])
        assert found.exit_code == 2 and json.loads(found.stdout)["error"]["type"] == "Misuse"


def processor_time(*words: str) -> float:
    """Return the seconds of the processor that a new interpreter takes."""
    before = _children()
    source = Path(turnwise.__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL, env=environment)
    return _children() - before


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.once
def test_commands_start_quickly() -> None:
    calls = {
        "base": ("-c", "import jinja2, click"),
        "help": ("-m", "turnwise", "--help"),
        "render": ("-m", "turnwise", "render", "chatml", "--user", "Hi"),
    }
    for call in calls.values():  # writes the bytecode
        processor_time(*call)
    # In turns, and the best round counts: beside other work a start takes longer, now one and now the other.
    rounds = []
    for _ in range(ROUNDS):
        rounds.append({name: processor_time(*call) for name, call in calls.items()})
        help, render = (
            min(spent[name] / spent["base"] for spent in rounds) for name in ("help", "render")
        )
        if help < HELP_RATIO and render < RENDER_RATIO:
            return
    raise AssertionError(rounds)
