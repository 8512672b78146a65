"""`diff`: it finds what edits change, and shows it with the smallest conversation."""

from __future__ import annotations

import random
import re

import pytest

import corpus
import turnwise
from turnwise.evidence import diff
from turnwise.probes import conversations, variations

EDITS = 300
CAUGHT = 0.99
LETTERS = "abX1 \n<|\"'"
BRANCH = re.compile(r"\{%-?\s*(?:if|elif)\s+(.*?)-?%\}")


def chatml(turn: str = "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n") -> turnwise.Template:
    return turnwise.compile("{% for m in messages %}" + turn + "{% endfor %}")


def test_equal_templates_have_no_difference() -> None:
    found = diff(
        chatml(),
        turnwise.compile(
            "{%- for x in messages -%}{{ '<|im_start|>' + x['role'] + '\n' ~ x['content'] }}"
            "<|im_end|>{{ '\n' }}{%- endfor -%}"
        ),
    )
    assert found.equal and found
    assert found.tried == len(list(variations(()))) and "two rounds" in found.covers


def test_the_witness_is_the_smallest_conversation() -> None:
    found = diff(chatml(), chatml("<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n"))
    assert found.witness is not None
    (message,) = found.witness.probe.messages
    assert message["content"].strip() != message["content"] and len(message["content"]) == 1
    assert found.witness.probe.options == {} and found.witness.probe.tools is None
    left, right = found.witness.pieces
    assert left is not None and str(left.origin) == "messages[0].content"
    assert "they differ on:" in str(found)


def test_a_refusal_is_a_difference() -> None:
    strict = turnwise.compile("{% if not messages %}{{ raise_exception('empty') }}{% endif %}")
    found = diff(strict, turnwise.compile(""))
    assert found.witness is not None and found.witness.probe.messages == []
    assert "a: refuses: empty" in str(found)


def test_options_are_asked() -> None:
    loud = turnwise.compile("{% if shout %}!{% endif %}")
    found = diff(loud, turnwise.compile(""))
    assert found.witness is not None and found.witness.probe.options == {"shout": True}


def test_probes_are_deterministic_and_named() -> None:
    first, second = list(conversations()), list(conversations())
    assert first == second
    assert len({probe.covers for probe in first}) == len(first)


@corpus.needs_corpus
def test_edits_of_published_templates_are_caught() -> None:
    """Edits of one character or one branch that change what the corpus conversations give."""
    dice = random.Random(20250115)
    texts = [template.text for template in corpus.published().values()]
    caught = missed = 0
    while caught + missed < EDITS:
        text = dice.choice(texts)
        try:
            a, b = turnwise.compile(text), turnwise.compile(edited(text, dice))
        except turnwise.TurnwiseError:
            continue
        if outputs(a) != outputs(b):
            equal = diff(a, b).equal
            missed += equal
            caught += not equal
    assert caught / EDITS >= CAUGHT, f"caught {caught} of {EDITS}"


def edited(text: str, dice: random.Random) -> str:
    at, kind = dice.randrange(len(text)), dice.random()
    branches = list(BRANCH.finditer(text))
    if kind < 0.4 or not branches:
        return text[:at] + dice.choice(LETTERS) + text[at:]
    if kind < 0.7:
        return text[:at] + text[at + 1 :]
    branch = dice.choice(branches)
    return f"{text[: branch.start(1)]}not ({branch[1]}) {text[branch.end(1) :]}"


def outputs(template: turnwise.Template) -> list[str | None]:
    found: list[str | None] = []
    for chat in corpus.chats().values():
        arguments = {"now": corpus.NOW, "bos_token": "<bos>", "eos_token": "<eos>", **chat.arguments}
        for opening in (False, True):
            if opening and arguments.get("continue_final_message"):
                continue
            try:
                found.append(str(template.render(chat.messages, **arguments, add_generation_prompt=opening)))
            except turnwise.TurnwiseError:
                found.append(None)
    return found


@pytest.mark.parametrize("opening", [False, True])
def test_every_probe_renders_with_a_lenient_template(opening: bool) -> None:
    lenient = turnwise.compile("{{ messages | tojson }}{{ tools | tojson }}{{ documents | tojson }}")
    for probe in conversations():
        assert str(lenient.render(probe.messages, **probe.arguments()))
