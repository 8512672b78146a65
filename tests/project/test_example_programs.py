"""The programs in examples/ that need nothing else run, and say what their docstrings promise."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(name: str) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    found = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / name)],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout.splitlines()


def test_the_serving_loop_calls_a_tool_and_answers() -> None:
    lines = run("serving_loop.py")
    messages = [
        json.loads(line.removeprefix("message ")) for line in lines if line[:8] == "message "
    ]
    call, answer = messages
    assert call["tool_calls"][0]["function"]["name"] == "tide"
    assert answer["content"] == "High water is at noon."
    deltas = [json.loads(line.removeprefix("delta ")) for line in lines if line[:6] == "delta "]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "A tool knows."


def test_rollouts_keep_what_was_sampled() -> None:
    lines = run("rl_rollout.py")
    assert len(lines) == 3 and all("sampled, reward" in line for line in lines)


def test_the_cache_ledger_names_the_clock_and_a_way_that_loses_nothing() -> None:
    lines = run("cache_ledger.py")
    assert lines[1].endswith("changed: 'It is 12:01.' became 'It is 12:02.'")
    assert lines[3] == "as a late system text: 0 lost"
    assert lines[-1].startswith("Gemini, implicit: ")
