"""`conform` with a maker's encoder, or another template, in the place of an engine."""

import json
from itertools import islice

import pytest
from click.testing import CliRunner

import turnwise
from turnwise.analysis.request_probes import make_request_probes
from turnwise.cli import app
from turnwise.evidence.conform import Prompt, is_wire_probe
from turnwise.oracles import Oracle

CHATML = turnwise.load("chatml")


class Shouting(Oracle):
    """Writes ChatML, and the texts of users in capitals; it wants a conversation to begin with a user."""

    def _find_version(self):
        return "1.0"

    def write(self, request):
        if request["messages"][0]["role"] != "user":
            raise ValueError("a user is first")
        messages = [
            {**message, "content": message["content"].upper()}
            if message["role"] == "user"
            else message
            for message in request["messages"]
        ]
        arguments = {"add_generation_prompt": request["add_generation_prompt"]}
        return Prompt(text=CHATML.render(messages, request.get("tools"), **arguments).text)


def test_a_difference_is_small_and_shows_both_lines():
    found = turnwise.conform(CHATML, Shouting("shouting"), limit=120)
    assert not found
    assert found.declined and found.version == "1.0"
    assert [message["role"] for message in found.difference.probe.messages] == ["user"]
    shown = str(found)
    assert "shouting 1.0 differs on" in shown and "template:" in shown and "engine:" in shown
    assert str(found.difference.piece.origin) == "messages[0].content"


def test_another_template_may_be_the_second_side():
    assert turnwise.conform(CHATML, turnwise.load("chatml"), limit=150)
    found = turnwise.conform(CHATML, turnwise.load("qwen2.5"), limit=150)
    assert not found and found.engine == "qwen2.5"


def test_the_command_compares_with_another_template():
    run = CliRunner().invoke(app, ["conform", "chatml", "--oracle", "zephyr", "--json"])
    assert run.exit_code == 1, run.output
    assert json.loads(run.stdout)["engine"] == "zephyr"
    run = CliRunner().invoke(app, ["conform", "chatml", "--oracle", "chatml", "--limit", "20"])
    assert run.exit_code == 0


def test_the_command_runs_no_encoder_without_consent(tmp_path):
    (tmp_path / "encoding_mine.py").write_text("raise SystemExit", encoding="utf-8")
    run = CliRunner().invoke(app, ["conform", "chatml", "--oracle", str(tmp_path)])
    assert run.exit_code == 2
    assert "consent" in run.output


def test_the_other_side_is_checked():
    with pytest.raises(turnwise.SourceError, match="str is no Engine"):
        turnwise.conform(CHATML, "qwen3")


def test_random_requests_have_what_encoders_tell_apart():
    options = {"reasoning_effort": ("none", "high")}
    probes = list(
        islice(filter(lambda p: is_wire_probe(p, True), make_request_probes(options)), 500)
    )
    assert probes == list(
        islice(filter(lambda p: is_wire_probe(p, True), make_request_probes(options)), 500)
    )
    roles = [[message["role"] for message in probe.messages] for probe in probes]
    assert any("system" in turns[1:] for turns in roles)
    assert any("developer" in turns for turns in roles)
    assert any(a == b == "user" for turns in roles for a, b in zip(turns, turns[1:], strict=False))
    messages = [message for probe in probes for message in probe.messages]
    assert any(len(message.get("tool_calls", ())) > 1 for message in messages)
    assert any(message.get("reasoning_content") for message in messages)
    assert any(not message["content"] for message in messages)
    assert any(not message["content"].isascii() for message in messages)
    assert {probe.options.get("reasoning_effort") for probe in probes} == {None, "none", "high"}
    assert any(results != sorted(results) for results in map(list_results, probes))


def list_results(probe):
    return [message["tool_call_id"] for message in probe.messages if message["role"] == "tool"]
