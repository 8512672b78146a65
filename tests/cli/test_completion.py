"""What a shell offers for a word, how fast it is, and how a shell is told."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import turnwise
from turnwise.cli import app
from turnwise.cli.completion import SHELLS

SOURCE = Path(turnwise.__file__).parents[1]


def ask(*words: str) -> dict[str, str]:
    return {
        "_TURNWISE_COMPLETE": "bash_complete",
        "COMP_WORDS": shlex.join(["turnwise", *words]),
        "COMP_CWORD": str(len(words)),
    }


def complete(*words: str, **environment: str) -> list[str]:
    """Return what bash offers for the last word."""
    runner = CliRunner(env={**ask(*words), **environment})
    found = runner.invoke(app, [], prog_name="turnwise").output
    return [line.removeprefix("plain,") for line in found.splitlines() if line]


def test_commands_and_options() -> None:
    assert complete("ren") == ["render"]
    assert complete("render", "--pie") == ["--pieces"]
    assert complete("no-such-command", "x") == []


def test_values() -> None:
    assert {"qwen2.5", "qwen3", "qwen3-coder"} < set(complete("render", "qwe"))
    assert "qwen3" in complete("prepare", "x.jsonl", "-t", "qwen3")
    assert complete("render", "qwen3", "--shape", "ope") == ["openai"]
    assert complete("convert", "qwen3", "--to", "olla") == ["ollama"]
    assert complete("list", "--dialect", "fastc") == ["fastchat"]
    assert "T101" in complete("check", "--ignore", "T1")
    assert "Qwen/Qwen3-8B" in complete("match", "qwen/qwen3")
    assert "Qwen/Qwen3-8B" in complete("render", "Qwen/Q")
    assert complete("check", "qwen3", "-k", "toke") == ["file,toke"]
    assert complete("render", "./models/") == ["file,./models/"]
    assert complete("render", "qwen3", "--user", "H") == []


def test_entries_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("", encoding="utf-8")
    assert complete("render", "min", TURNWISE_PATH=str(tmp_path))[-1] == "mine"


def test_nothing_of_the_engine_is_imported() -> None:
    code = "import sys\nfrom turnwise.cli import main\ntry:\n    main()\nfinally:\n    print(*sys.modules)"
    environment = {**os.environ, **ask("render", "qwe"), "PYTHONPATH": str(SOURCE)}
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    ).stdout
    modules = found.splitlines()[-1].split()
    assert "plain,qwen3" in found and "turnwise.cli.completion" in modules
    assert not {"jinja2", "turnwise.template", "turnwise.registry", "tomllib"} & set(modules)


def test_install_completion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", "/usr/bin/zsh")
    for words in ([], ["bash"], ["fish"], ["bash"]):
        assert CliRunner().invoke(app, ["--install-completion", *words]).exit_code == 0
    for place, line in SHELLS.values():
        assert Path(place).expanduser().read_text(encoding="utf-8") == f"{line}\n"
    assert CliRunner().invoke(app, ["--install-completion", "csh"]).exit_code == 2


def test_bash_completes(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("needs bash")
    program = tmp_path / "turnwise"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m turnwise "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    line = SHELLS["bash"][1]
    # what readline does for `turnwise render qwen3-c<Tab>`
    script = f"""{line}
COMP_WORDS=(turnwise render qwen3-c); COMP_CWORD=2
_turnwise_completion turnwise qwen3-c render 2>/dev/null
echo "${{COMPREPLY[@]}}"
"""
    path = f"{tmp_path}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(SOURCE)}
    found = subprocess.run([bash, "-c", script], env=environment, capture_output=True, text=True)
    assert found.stdout.split() == ["qwen3-coder", "qwen3-coder-next"], found.stderr
