"""The table of commands: what help says without importing them, the flags that all have, errors as data."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import turnwise
from turnwise.cli import COMMANDS, app

WITHOUT_JSON = {"demo": "a tour for people", "serve": "it does not end"}
HELP_RATIO, RENDER_RATIO = 3.0, 4.0
ROUNDS = 8


def run(*words: str, **environment: str) -> str:
    return CliRunner(env=environment).invoke(app, list(words)).output


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command(name: str) -> None:
    docstring = COMMANDS[name].load().__doc__ or ""
    first = " ".join(docstring.split("\n\n")[0].split())
    assert COMMANDS[name].summary == first
    found = run(name, "--help", COLUMNS="200")
    assert f"Example: turnwise {name}" in found
    assert "<bool>" not in found
    assert ("--json" in found) == (name not in WITHOUT_JSON)


def test_help_lists_all_commands() -> None:
    found = run("--help", COLUMNS="200")
    assert all(
        name in found and command.summary[:60] in found for name, command in COMMANDS.items()
    )
    assert "<bool>" not in found


def test_misspelt_command() -> None:
    assert "Did you mean 'render'" in run("rendr", COLUMNS="200")


def test_completion() -> None:
    asked = {"_TURNWISE_COMPLETE": "complete_bash", "COMP_WORDS": "turnwise ren", "COMP_CWORD": "1"}
    assert CliRunner(env=asked).invoke(app, [], prog_name="turnwise").output.split() == ["render"]
    asked = {**asked, "COMP_WORDS": "turnwise render --pie", "COMP_CWORD": "2"}
    assert CliRunner(env=asked).invoke(app, [], prog_name="turnwise").output.split() == ["--pieces"]


def test_colours_by_environment() -> None:
    words = ("render", "chatml", "--user", "Hi")
    assert "\x1b" not in run(*words)
    assert "\x1b" in run(*words, FORCE_COLOR="1")
    assert "\x1b" not in run(*words, FORCE_COLOR="1", NO_COLOR="1")
    assert "\x1b" not in run(*words, "--no-color", FORCE_COLOR="1")


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
        "base": ("-c", "import jinja2, typer"),
        "help": ("-m", "turnwise", "--help"),
        "render": ("-m", "turnwise", "render", "chatml", "--user", "Hi"),
    }
    for call in calls.values():  # writes the bytecode
        processor_time(*call)
    # In turns, and the best round counts: beside other work a start takes longer, now one and now the other.
    rounds = [{name: processor_time(*call) for name, call in calls.items()} for _ in range(ROUNDS)]
    assert min(spent["help"] / spent["base"] for spent in rounds) < HELP_RATIO, rounds
    assert min(spent["render"] / spent["base"] for spent in rounds) < RENDER_RATIO, rounds
