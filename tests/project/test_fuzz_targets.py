"""Every fuzz target runs, finds nothing in a few inputs, and would find a defect.

`make fuzz` runs them for minutes. Here a target gets a fixed number of inputs, and ten times the processor time, for a
machine may be slow.
"""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import sources
from turnwise.dialects import DIALECTS

FUZZ = sources.ROOT / "fuzz"
COUNT = 10
SECONDS = 1.0

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="inputs run in child processes"),
]


def load(name: str) -> ModuleType:
    if str(FUZZ) not in sys.path:
        sys.path.insert(0, str(FUZZ))
    return importlib.import_module(name)


def targets() -> dict[str, Any]:
    return dict(load("run").TARGETS) if hasattr(os, "fork") else {}


def run(name: str, **arguments: Any) -> Any:
    arguments = {"count": COUNT, "seconds": SECONDS, "folder": None, **arguments}
    return load("harness").run_target(targets()[name], **arguments)


def test_there_is_a_target_for_every_reader() -> None:
    dialects = set(DIALECTS)
    assert dialects <= set(targets())
    others = "tokenizer config gguf entries templates laundering messages replies shapes cli"
    assert set(others.split()) <= set(targets())


@pytest.mark.parametrize("name", targets())
def test_a_target_finds_nothing(name: str) -> None:
    report = run(name)
    assert not report.failures, report.failures
    assert report.count == COUNT


@pytest.mark.parametrize("name", targets())
def test_a_seed_is_an_input(name: str) -> None:
    harness, target = load("harness"), targets()[name]
    inputs = [harness.make_input(target, seed) for seed in range(8)]
    assert inputs == [harness.make_input(target, seed) for seed in range(8)]
    assert len(set(inputs)) > 4


# Planted defects


def test_a_raw_exception_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(self: Any) -> None:
        raise KeyError("planted")

    monkeypatch.setattr("turnwise.registry.gguf._Header.read_prologue", broken)
    report = run("gguf", count=3, folder=tmp_path)
    assert [failure.kind for failure in report.failures] == ["raw"] * 3
    assert "KeyError: 'planted'" in report.failures[0].what
    saved = (tmp_path / "gguf-1.txt").read_text()
    assert "make fuzz TARGET=gguf SEED=1" in saved and "read_prologue" in saved
    data = (tmp_path / "gguf-1.input").read_bytes()
    assert data == load("harness").make_input(targets()["gguf"], 1)


def test_a_dead_process_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any) -> None:
        os.kill(os.getpid(), signal.SIGABRT)

    monkeypatch.setattr("turnwise.registry.gguf._Header.read_prologue", broken)
    report = run("gguf", count=2)
    assert [failure.kind for failure in report.failures] == ["death", "death"]
    assert "SIGABRT" in report.failures[0].what


def test_a_slow_reader_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(self: Any) -> int:
        return sum(range(2_000_000))

    monkeypatch.setattr("turnwise.registry.gguf._Header.read_prologue", slow)
    report = run("gguf", count=1, seconds=0.001)
    assert [failure.kind for failure in report.failures] == ["slow"]


def test_a_process_that_hangs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(self: Any) -> None:
        signal.pause()

    monkeypatch.setattr("turnwise.registry.gguf._Header.read_prologue", hang)
    monkeypatch.setattr(load("harness"), "HANG_SECONDS", 1)
    assert [failure.kind for failure in run("gguf", count=1).failures] == ["hang"]


def test_a_target_that_cannot_make_an_input_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load("readers"), "VALUES", ())
    report = run("gguf", count=2)
    assert {failure.what for failure in report.failures} == {"the target itself failed"}


def test_the_command() -> None:
    command = [sys.executable, str(FUZZ / "run.py")]
    done = subprocess.run([*command, "gguf", "--count", "5"], capture_output=True, text=True)
    assert done.returncode == 0 and "5 inputs" in done.stdout, done.stdout + done.stderr
    unknown = subprocess.run([*command, "nope"], capture_output=True, text=True)
    assert unknown.returncode == 2 and "known: tokenizer" in unknown.stderr
