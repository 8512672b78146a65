"""A model trained on prepared shards stops; without labels of stops it does not: `make integrations-training`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_a_model_learns_to_stop() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    call = [sys.executable, str(ROOT / "examples" / "train_tiny.py"), "--quick", "--json"]
    done = subprocess.run(call, env=environment, capture_output=True, text=True, check=True)
    scores = json.loads(done.stdout)
    base, chat, no_stop = (scores[name] for name in ("base", "chat", "chat, no stop"))
    assert base["stops"] == no_stop["stops"] == 0
    assert base["mean_length"] == no_stop["mean_length"] == 24  # the limit
    assert chat["stops"] >= 0.9 and chat["mean_length"] < 16
    assert chat["exact"] >= 0.7 and no_stop["exact"] == 0
    assert no_stop["begins_right"] >= 0.3  # it answers, and then writes on
