"""`doctor`: what may be wrong with a template for a model; and R101, which `scan` answers."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import turnwise
from turnwise.cli import app
from turnwise.evidence import doctor, scan

MODEL = "Qwen/Qwen2.5-7B-Instruct"
ROWS = [
    {"messages": [{"role": "user", "content": "fine"}]},
    {
        "conversations": [
            {"from": "human", "value": "a<|im_end|>b"},
            {"from": "gpt", "value": "ok<|im_start|>"},
        ]
    },
]


def test_garbled_output_gets_three_questions() -> None:
    """R201: the model's own template, the training format, the format of other systems; each with evidence."""
    own, trained, *others = doctor(MODEL, "chatml", trained="qwen2.5")
    assert (
        "qwen2.5" in own.check and not own.well and "messages" not in own.evidence.splitlines()[0]
    )
    assert "trained" in trained.check and not trained.well and "<|im_start|>" in trained.evidence
    assert (
        others[0].check == "is it the format of another system?"
        and "fastchat" in others[0].evidence
    )


def test_the_format_of_another_system_is_named_where_it_is_that() -> None:
    """R201: a template that FastChat uses for the model, and that is not the model's own."""
    theirs = turnwise.match(MODEL, "fastchat").name
    found = {one.check: one for one in doctor(MODEL, theirs)}["is it the format of another system?"]
    assert not found.well and theirs in found.evidence


def name_models(step: int) -> list[tuple[str, str]]:
    """A model of each entry that names one without a pattern."""
    found = []
    for name, entry in turnwise.registry.entries().items():
        ids = [model for model in entry.models if "*" not in model]
        if ids and turnwise.match(ids[0]).name == name:
            found.append((ids[0], name))
    return found[::step]


@pytest.mark.parametrize(("model", "name"), name_models(40))
def test_a_model_with_its_own_template_is_healthy(model: str, name: str) -> None:
    assert not [finding for finding in doctor(model, name) if finding.well is False]


@pytest.mark.slow
def test_every_model_with_its_own_template_is_healthy() -> None:
    models = name_models(1)
    sick = [pair for pair in models if any(one.well is False for one in doctor(*pair))]
    assert not sick and len(models) > 100


@pytest.mark.parametrize("name", ["mistral", "llama-2"])
def test_the_end_of_a_user_s_turn_is_a_prompt(name: str) -> None:
    """Templates that open the reply with the end of the user's turn ignore add_generation_prompt, and are right."""
    found = {one.check: one for one in doctor("somebody/nothing-like-it", name)}
    assert (
        found["add_generation_prompt"].well and "[/INST]" in found["add_generation_prompt"].evidence
    )


def test_what_fits_is_well() -> None:
    own, trained, *_ = doctor(MODEL, "qwen2.5", trained="qwen2.5")
    assert own.well and trained.well and "no difference" in own.evidence


def test_a_model_that_nobody_knows() -> None:
    own, *_ = doctor("somebody/nothing-like-it", "chatml")
    assert not own.well and "no template is known" in own.evidence


def test_an_ignored_switch_is_named() -> None:
    """R086: a template that ignores add_generation_prompt."""
    deaf = turnwise.compile("{% for m in messages %}{{ m.content }}{% endfor %}")
    findings = {one.check: one for one in doctor(MODEL, deaf)}
    assert not findings["add_generation_prompt"].well
    assert {one.check: one for one in doctor(MODEL, "chatml")}["add_generation_prompt"].well


def test_a_generation_prompt_that_is_missing_is_not_well() -> None:
    """The end of a user's turn is no prompt where a reply has an opening of its own."""
    text = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    findings = doctor(MODEL, turnwise.compile(text))
    about = [one for one in findings if "add_generation_prompt" in str(one)]
    assert len(about) == 2 and not any(one.well for one in about)


def test_what_was_not_checked_is_skipped() -> None:
    own, trained, *_, sent = doctor(MODEL, "qwen2.5")
    assert own.well and trained.well is None and sent.well is None
    assert str(trained).startswith("skipped: the format it was trained with")
    assert CliRunner().invoke(app, ["doctor", MODEL, "qwen2.5"]).exit_code == 0


def test_an_unknown_variable_is_named() -> None:
    """R111: a variable that is misspelled."""
    template = turnwise.compile("{% for m in messages %}{{ m.content }}{{ usre }}{% endfor %}")
    found = {one.check: one for one in doctor(MODEL, template)}["variables that it reads"]
    assert not found.well and "usre" in found.evidence


@pytest.mark.parametrize("name", ["internlm2", "internlm2-tools", "lmdeploy:internlm2", "qwen3"])
def test_a_template_s_own_variables_are_not_named(name: str) -> None:
    """R111: namespaces, macros and their parameters are no options, and options that are tested are no mistakes."""
    template = turnwise.compile({}, name) if name == "internlm2" else turnwise.load(name)
    found = {one.check: one for one in doctor(MODEL, template)}["variables that it reads"]
    assert found.well, found.evidence


def test_collisions_of_a_dataset_are_listed() -> None:
    """R101: row, field and token of every text that is spelled like a control token."""
    assert [tuple(one) for one in scan(ROWS, "turnwise")] == [
        (1, "control token", "messages[0].content", "<|im_end|>"),
        (1, "control token", "messages[1].content", "<|im_start|>"),
    ]


@pytest.mark.parametrize("as_json", [False, True])
def test_the_command(as_json: bool) -> None:
    found = CliRunner().invoke(app, ["doctor", MODEL, "chatml", *(["--json"] if as_json else [])])
    assert found.exit_code == 1
    if as_json:
        assert {"check", "well", "evidence"} == set(json.loads(found.stdout)[0])
    else:
        assert found.stdout.startswith("problem: the model's template is qwen2.5")
