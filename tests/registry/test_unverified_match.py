"""`match` and the evidence for an entry."""

import pytest
from click.testing import CliRunner

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


def test_a_transcript_of_an_encoder_is_no_evidence():
    first = CliRunner().invoke(app, ["match", "moonshotai/Kimi-K3"]).output.splitlines()[0]
    assert first.endswith("kimi-k3 (reconstruction, not verified)")


@pytest.mark.parametrize(
    "model", ["zai-org/GLM-5.3-Flash", "Qwen/Qwen3.8-27B", "deepseek-ai/DeepSeek-V3.2-Exp"]
)
def test_a_model_whose_text_was_not_to_be_had_is_named_as_such(model):
    with pytest.raises(turnwise.SourceError, match="was not to be had") as caught:
        turnwise.match(model)
    assert "give the model's folder" in caught.value.hint
