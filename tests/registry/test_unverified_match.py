"""`match` and the evidence for an entry."""

from typer.testing import CliRunner

import turnwise
from turnwise.cli import app
from turnwise.registry.store import unregister


def test_a_reconstruction_is_called_one_in_the_first_line():
    turnwise.register("mine", "{{ messages[0].content }}", models=["me/Mine-1"])
    try:
        first = CliRunner().invoke(app, ["match", "me/Mine-1"]).output.splitlines()[0]
        assert first.endswith("mine (reconstruction, not verified)")
        assert not turnwise.match("me/Mine-1").is_verified
    finally:
        unregister("mine")


def test_an_entry_that_equals_its_makers_encoder_is_verified():
    assert turnwise.match("deepseek-ai/DeepSeek-V4-Pro").is_verified
    first = CliRunner().invoke(app, ["match", "moonshotai/Kimi-K3"]).output.splitlines()[0]
    assert "not verified" not in first and "kimi-k3" in first
