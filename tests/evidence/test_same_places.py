"""`diff` and `conform` name the same places: the line, and the smallest conversation that may be sent to an engine.

An edit is planted in a template. `diff` compares the two, `conform` the template with an engine that serves the edited
one: it renders in this process and takes what an engine takes. What only `diff` sees is no subject of this law:
`{% generation %}` blocks, roles and options that nobody sends, and a template that ends where the edited one goes on.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import corpus
import turnwise
from loaded import load_entry
from planted_edits import edit_at_random
from turnwise.analysis.conversations import NOW, PROBE_TOKENS
from turnwise.analysis.counterexample import Counterexample
from turnwise.errors import TurnwiseError
from turnwise.evidence import EngineDifference, conform, diff
from turnwise.evidence.compare import find_refusal
from turnwise.evidence.conform import Engine, EngineComparison, Prompt, is_wire_probe, open_prompt

ENTRIES = ("chatml", "qwen3", "llama-3.1", "gemma-3", "mistral-v3", "deepseek-v3", "hermes-3")
PUBLISHED = sorted(corpus.load_published())[::12]
EDITS = 8  # of a template
SEED = 20261117


class Served(Engine):
    """An engine that serves a template: it parses arguments, or takes them as they were sent."""

    name = "served"

    def __init__(self, template: turnwise.Template) -> None:
        self._template = template

    def render(self, request: Mapping[str, Any]) -> Prompt:
        given = {"now": NOW, **request, **request.get("chat_template_kwargs", {})}
        given.pop("chat_template_kwargs", None)
        sent = given.pop("messages")
        refusals = []
        for messages in (parse_arguments(sent), sent):
            try:
                return Prompt(text=self._template.renderer.render(messages, **given).text)
            except TurnwiseError as error:
                refusals.append(error)
        return Prompt(refusal=refusals[0].message, decision=find_refusal(refusals[0]))


def parse_arguments(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    parsed: list[dict[str, Any]] = json.loads(json.dumps(messages))
    for message in parsed:
        for call in message.get("tool_calls") or ():
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return parsed


def plant_edits(text: str) -> Iterator[tuple[turnwise.Template, turnwise.Template]]:
    """Yield a template and itself with an edit, both with special tokens."""
    dice = random.Random(SEED)
    template = turnwise.compile(text, "jinja", options=PROBE_TOKENS)
    for _ in range(EDITS):
        try:
            edited = turnwise.compile(edit_at_random(text, dice), "jinja", options=PROBE_TOKENS)
        except TurnwiseError:  # it does not compile any more
            continue
        if edited.text != text:
            yield template, edited


def is_seen_by_engines(witness: Counterexample) -> bool:
    ends = isinstance(witness.a, turnwise.Rendering) and witness.at == len(witness.a.text)
    return is_wire_probe(open_prompt(witness.probe), False) and not ends


@pytest.mark.law(2)
@pytest.mark.parametrize("name", [*ENTRIES, *PUBLISHED])
def test_diff_and_conform_name_the_same_place(name: str) -> None:
    text = load_entry(name).text if name in ENTRIES else corpus.load_published()[name].text
    for template, edited in plant_edits(text):
        witness = diff(template, edited, masks=False).witness
        if witness is None or not is_seen_by_engines(witness):
            continue
        engine, asked = Served(edited), open_prompt(witness.probe)
        comparison = EngineComparison(engine, template, NOW)
        if comparison.compare(asked) != witness.kind:  # the generation prompt makes the difference
            continue
        assert line_of(comparison.describe(asked, witness.kind)) == line_of(witness)
        found = conform(template, engine, NOW).difference
        if found is None:  # it asks for fewer conversations, and for no options
            continue
        assert found.kind == witness.kind and line_of(found) == line_of(witness)
        assert roles_of(found.probe.messages) == roles_of(witness.probe.messages)


def line_of(difference: Counterexample | EngineDifference) -> int:
    assert difference.decision is not None
    return difference.decision.line


def roles_of(messages: list[dict[str, Any]]) -> list[str]:
    return [message["role"] for message in messages]
