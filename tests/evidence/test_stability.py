"""`turnwise.stability`: which appended messages change earlier text; the law is brute force over the same set."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

import corpus
import turnwise
from turnwise.analysis.conversations import NOW, PROBE_TOKENS
from turnwise.analysis.growing_conversations import KINDS, Growth, growing_conversations
from turnwise.cli import app
from turnwise.evidence.prefix_stability import CHANGES, FORMS, REFUSED, STABLE

FORGETFUL = """{%- set last = namespace(user=0) -%}
{%- for m in messages %}{% if m.role == 'user' %}{% set last.user = loop.index0 %}{% endif %}{% endfor -%}
{%- for m in messages -%}
<|{{ m.role }}|>
{%- if m.reasoning_content and (keep_reasoning or loop.index0 > last.user) -%}
<think>{{ m.reasoning_content }}</think>
{%- endif -%}
{{ m.content }}<|end|>
{%- endfor -%}
{%- if add_generation_prompt %}<|assistant|>{% endif -%}
"""
RUN = CliRunner()


def test_a_template_that_only_appends_is_stable() -> None:
    found = turnwise.stability("chatml")
    assert found.stable and {row.status for row in found.rows} == {STABLE}
    assert [row.kind for row in found.rows] == list(KINDS)
    assert not found.options and "changes" not in str(found)


def test_dropped_reasoning_is_found_with_field_line_and_option() -> None:
    found = turnwise.stability(turnwise.compile(FORGETFUL))
    row = found["user"]
    assert row.status == CHANGES and row.witness is not None
    rewrite = row.witness.rewrite
    assert rewrite.field == "messages[1].reasoning_content" and rewrite.message == 1
    assert rewrite.decision is not None and rewrite.decision.line == 5
    assert row.stable_with == (("keep_reasoning", True),)
    assert found["assistant"].status == STABLE and not found.stable
    assert "stable with keep_reasoning=True" in str(found)


def test_the_witness_is_a_conversation_that_changes() -> None:
    template = turnwise.compile(FORGETFUL)
    witness = turnwise.stability(template)["user"].witness
    assert witness is not None
    before = template.render(witness.probe.messages[:-1], normalise=False).text
    after = template.render(witness.probe.messages, normalise=False).text
    assert (before, after) == (witness.before, witness.after) and not after.startswith(before)
    assert len(witness.probe.messages) == 3


def test_places_of_late_system_texts_are_priced() -> None:
    costs = {cost.policy: cost for cost in turnwise.stability("qwen3.6").late_system}
    assert costs["user"].is_default and costs["user"].lost == 0 < costs["user"].computed
    assert "not first" in costs["in_place"].error
    assert costs["front"].lost > costs["front"].computed / 2
    costs = {cost.policy: cost for cost in turnwise.stability("deepseek-v3.1").late_system}
    assert costs["in_place"].lost == costs["front"].lost > 0  # the template moves them itself
    found = RUN.invoke(app, ["stability", "chatml", "--json"])
    first = json.loads(found.stdout)["late_system"][0]
    assert first["policy"] == "in_place" and first["is_default"] and not first["lost"]


def test_an_option_that_is_set_counts() -> None:
    assert turnwise.stability(turnwise.compile(FORGETFUL, options={"keep_reasoning": True})).stable


def test_a_prompt_that_is_no_prefix_of_the_reply() -> None:
    template = turnwise.compile(
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
        "{% if add_generation_prompt %}<assistant><think>{% endif %}"
    )
    found = turnwise.stability(template)
    row = found["reply"]
    assert row.status == CHANGES and row.witness is not None
    assert row.witness.rewrite.decision is not None
    assert found["user"].status == STABLE


def test_what_is_refused_is_no_evidence() -> None:
    strict = (
        "{% for m in messages %}{% if m.role == 'system' and loop.index0 %}"
        "{{ raise_exception('late') }}{% endif %}{{ m.content }};{% endfor %}"
    )
    found = turnwise.stability(turnwise.compile(strict))
    assert found["system"].status == REFUSED and found["system"].compared == 0 and found.stable


def check_by_brute_force(name: str, text: str, options: dict[str, str]) -> None:
    """Render every growing conversation once more, by itself, and count."""
    template = turnwise.compile(text, name=name, options=options)
    found = turnwise.stability(template)
    tokens = {key: value for key, value in PROBE_TOKENS.items() if not options.get(key)}
    counts = {kind: [0, 0] for kind in KINDS}
    for growth in growing_conversations():
        outcome = is_prefix(template, growth, tokens)
        if outcome is not None:
            counts[growth.kind][0] += 1
            counts[growth.kind][1] += not outcome
    assert {row.kind: [row.compared, row.changed] for row in found.rows} == counts, name


def is_prefix(template: turnwise.Template, growth: Growth, tokens: dict[str, str]) -> bool | None:
    for form in FORMS:
        probe = form(growth.probe)
        if probe is None:
            continue
        arguments = {"tools": probe.tools, "now": NOW, "normalise": False, **tokens}
        prompt = growth.kind == "reply"
        try:
            after = template.render(probe.messages, **arguments).text
            before = template.render(
                probe.messages[:-1], add_generation_prompt=prompt, **arguments
            ).text
        except turnwise.TurnwiseError:
            continue
        return after.startswith(before)
    return None


SAMPLE = list(corpus.load_published().values())


@corpus.needs_corpus
@pytest.mark.parametrize("published", SAMPLE[3::130], ids=lambda one: one.name)
def test_the_answer_is_that_of_brute_force(published: corpus.Published) -> None:
    check_by_brute_force(published.name, published.text, dict(published.options))


@corpus.needs_corpus
@pytest.mark.slow
@pytest.mark.parametrize("published", SAMPLE, ids=lambda one: one.name)
def test_the_answer_is_that_of_brute_force_everywhere(published: corpus.Published) -> None:
    check_by_brute_force(published.name, published.text, dict(published.options))


def test_the_command() -> None:
    fine = RUN.invoke(app, ["stability", "chatml"])
    assert fine.exit_code == 0 and "a user message" in fine.stdout
    shown = RUN.invoke(app, ["stability", "-", "--json"], input=FORGETFUL)
    assert shown.exit_code == 1
    data = json.loads(shown.stdout)
    row = data["rows"][0]
    assert row["status"] == CHANGES and row["stable_with"] == [
        {"option": "keep_reasoning", "value": True}
    ]
    assert row["witness"]["decision"]["line"] == 5 and row["witness"]["messages"]
    assert RUN.invoke(app, ["stability", "no-such-template"]).exit_code == 2
    assert RUN.invoke(app, ["stability", "-"], input="{% if %}").exit_code == 2
