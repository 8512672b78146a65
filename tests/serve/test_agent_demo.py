"""`make agent-demo` with the engine that needs no llama.cpp: prompts of all three APIs only grow."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lazy_modules import LazyModule

LazyModule("anthropic")

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_no_turn_of_an_agent_computes_a_prompt_again() -> None:
    found = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "agent_demo.py"), "--engine", "scripted"],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert found.returncode == 0, found.stderr
    grown, front = [line for line in found.stdout.splitlines() if line.startswith("computed again")]
    assert grown.startswith("computed again: 0 of ")
    assert not front.startswith("computed again: 0 of ")
    turns = [line for line in found.stdout.splitlines() if line.startswith(("anthropic", "openai"))]
    assert len(turns) == 2 * 3 * 8
