"""`{% generation %}` blocks: the text stays, and they hold what `encode` trains; TRL's pairs are the measure."""

from __future__ import annotations

import re
from typing import Any

import pytest

import corpus
import oracle
import trl_masks
import trl_pairs
import turnwise
from turnwise.repair import GENERATION

USER, REPLY = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes"}
CHAT = [{"role": "system", "content": "Be"}, USER, REPLY, {"role": "user", "content": "And"}, REPLY]
OPENING = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
JOINED = "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
SHAPES = {
    "text of the template": "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n",
    "one output": JOINED,
    "signs and indentation": f"\n    {JOINED.replace('{{ ', '{{- ')}\n",
    "joined before": "{% set all = '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' %}{{ all }}",
    "a choice": "{{ '<|im_start|>' + m.role + '\\n' }}{{ m.content if m.content else '' }}{{ '<|im_end|>\\n' }}",
    "branches": "{% if m.role == 'user' %}<|im_start|>user\n{{ m.content }}<|im_end|>\n"
    "{% else %}<|im_start|>{{ m.role }}\n{% set text = m.content %}{{ text }}<|im_end|>\n{% endif %}",
}
KNOWN = 25  # pairs that must be reproduced, of 31
SAMPLE = ("gemma",)


def marked_texts(template: turnwise.Template, messages: list[dict[str, Any]]) -> list[str]:
    rendering = template.render(messages)
    return [rendering.text[start:end] for start, end in rendering.spans(generation=True)]


@pytest.mark.parametrize("shape", SHAPES)
def test_blocks_hold_what_is_trained(shape: str) -> None:
    text = f"{{% for m in messages %}}{SHAPES[shape]}{{% endfor %}}{OPENING}"
    repair = turnwise.fix(turnwise.compile(text), [GENERATION])
    assert [patch.name for patch in repair.patches] == [GENERATION], str(repair)
    assert marked_texts(turnwise.compile(repair.text), CHAT) == ["Yes<|im_end|>"] * 2
    for is_open in (False, True):
        wanted = oracle.render(text, CHAT, add_generation_prompt=is_open)
        assert oracle.render(repair.text, CHAT, add_generation_prompt=is_open) == wanted
    whole = oracle.render(text, CHAT)
    spans = oracle.generation_spans(repair.text, CHAT)
    assert [whole[start:end] for start, end in spans] == ["Yes<|im_end|>"] * 2


@pytest.mark.once
def test_what_cannot_be_marked_is_reported() -> None:
    captured = "{% set all %}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}</s>{% endfor %}{% endset %}"
    prompt = "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    repair = turnwise.fix(turnwise.compile(captured + "{{ all | upper }}" + prompt), [GENERATION])
    assert not repair.changed
    assert [unfixed.name for unfixed in repair.unfixed] == [GENERATION]


@pytest.mark.once
def test_a_template_with_blocks_is_left_alone() -> None:
    text = f"{{% for m in messages %}}{JOINED}{{% endfor %}}{OPENING}"
    once = turnwise.fix(turnwise.compile(text), [GENERATION])
    assert not turnwise.fix(turnwise.compile(once.text), [GENERATION]).changed


@corpus.needs_corpus
@pytest.mark.skipif(not trl_masks.templates(), reason="trl is not installed")
@pytest.mark.law(0)
@pytest.mark.parametrize("name", SAMPLE)
def test_pairs_of_trl(name: str) -> None:
    pair = trl_pairs.compare_pair(name)
    assert pair.is_reproduced, f"{pair.repair} {pair.shortfalls}"


@pytest.mark.slow
@corpus.needs_corpus
@pytest.mark.skipif(not trl_masks.templates(), reason="trl is not installed")
def test_all_pairs_of_trl() -> None:
    pairs = [trl_pairs.compare_pair(name) for name in trl_masks.templates()]
    for pair in pairs:
        shown = sorted(pair.differences | pair.shortfalls)
        print(
            f"{pair.name:<26} {pair.is_reproduced!s:<6} {pair.compared} chats {shown} {pair.repair.unfixed}"
        )
    reproduced = [pair.name for pair in pairs if pair.is_reproduced]
    assert len(reproduced) >= KNOWN, reproduced


def test_blocks_of_a_first_reply_hold_no_opening() -> None:
    # Zephyr writes no generation prompt for an empty conversation: the opening of a first reply looked like its text.
    repair = turnwise.fix(turnwise.load("zephyr"), [GENERATION])
    block = re.search(r"{% generation %}(.*?){% endgeneration %}", repair.text)
    assert block is not None and block[1] == "{{ message.content + eos_token }}"


@pytest.mark.once
def test_branches_keep_the_indentation() -> None:
    message = "\n    {{- '<|' + m.role + '|>' }}\n    {{- m.content + '</s>' }}"
    prompt = "{%- if add_generation_prompt %}<|assistant|>{% endif %}"
    text = f"{{%- for m in messages %}}{message}\n{{%- endfor %}}\n{prompt}"
    repair = turnwise.fix(turnwise.compile(text), [GENERATION])
    assert "{%- if m.role == 'assistant' %}\n    {%- generation %}" in repair.text, repair.text
    indented = [line for line in repair.text.splitlines() if line.startswith(" ")]
    assert all(line.startswith("    {") for line in indented), repair.text
