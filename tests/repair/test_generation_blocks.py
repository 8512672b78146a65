"""`{% generation %}` blocks: the text stays, and they hold what `encode` trains; TRL's pairs are the measure."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

import corpus
import label_law
import oracle
import trl_masks
import turnwise
from loaded import load_entry
from turnwise.errors import TurnwiseError, TurnwiseWarning
from turnwise.repair import GENERATION, Repair, fix
from turnwise.tokens.encoded import Encoded

# TRL's pairs of templates: does `fix` mask in the plain one what TRL's own training template masks?
#
# Both are encoded for the three chats of `label_law.py`. TRL rewrote some templates so that they write another text;
# such a chat says nothing about masks, but for a stop that TRL adds at the end. Each run of tokens that only one of
# the two masks must have a reason by its place (`trl_masks.py`).

NEXT = "the next message writes this stop, and no block of the reply can hold it"


@dataclass
class Pair:
    """What `fix` made of a plain template, and how its mask differs from TRL's."""

    name: str
    repair: Repair
    compared: int = 0  # chats in which both write the same text
    differences: set[str] = field(default_factory=set)
    shortfalls: set[str] = field(default_factory=set)

    @property
    def is_reproduced(self) -> bool:
        """Whether there are proved blocks, they were compared, and differ from TRL's for the better."""
        is_marked = any(patch.name == GENERATION for patch in self.repair.patches)
        return is_marked and self.compared > 0 and not self.shortfalls


def plain_templates() -> dict[str, str]:
    """The plain templates of the pairs, by name."""
    found = find_spec("trl")
    if found is None or not found.submodule_search_locations:
        return {}
    folder = Path(found.submodule_search_locations[0]) / "chat_templates"
    return {
        name: (folder / f"{name}.jinja").read_text("utf-8")
        for name in trl_masks.templates()
        if (folder / f"{name}.jinja").is_file()
    }


def compare_pair(name: str) -> Pair:
    """Put blocks into the plain template of a pair, and compare its masks with TRL's."""
    plain = label_law.compile_text(plain_templates()[name])
    pair = Pair(name, fix(plain, [GENERATION]))
    if not pair.repair.changed:
        return pair
    ours = label_law.compile_text(pair.repair.text)
    theirs = label_law.compile_text(trl_masks.templates()[name])
    for chat_name in label_law.CHATS:
        chat = label_law.find_form(plain, chat_name)
        if chat is None:
            continue
        try:
            derived, mine, other = (
                _encode(template, chat, policy)
                for template, policy in ((plain, "assistant"), (ours, "marked"), (theirs, "marked"))
            )
        except TurnwiseError:
            continue  # TRL's training template refuses what its plain one takes
        assert mine.text == derived.rendering.text
        if not other.text.startswith(mine.text):
            continue
        pair.compared += 1
        for difference in _compare(derived, mine, other):
            is_worse = difference.reason in (trl_masks.UNKNOWN, NEXT)
            found = pair.shortfalls if is_worse else pair.differences
            found.add(f"{difference.text}: {difference.reason}")
    return pair


def _encode(template: turnwise.Template, chat: label_law.LawChat, policy: str) -> Encoded:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TurnwiseWarning)
        return template.encode(chat.messages, label_law.full_tokenizer(), policy, tools=chat.tools)


def _compare(derived: Encoded, mine: Encoded, other: Encoded) -> Iterator[trl_masks.Difference]:
    """Yield the runs of tokens that only one of the two masks, with the reason."""
    ends, start = [0, *mine.ends], 0
    for (own, theirs), run in groupby(zip(mine.mask, other.mask, strict=False)):
        stop = start + len(list(run))
        if own != theirs:
            found = trl_masks.explain(derived, ends[start], ends[stop], bool(own))
            # What `encode` trains and the blocks do not hold: the proof leaves out only what the next message writes.
            is_left_out = not own and all(derived.mask[start:stop])
            yield found._replace(reason=NEXT) if is_left_out else found
        start = stop


# The tests

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
    pair = compare_pair(name)
    assert pair.is_reproduced, f"{pair.repair} {pair.shortfalls}"


@pytest.mark.slow
@corpus.needs_corpus
@pytest.mark.skipif(not trl_masks.templates(), reason="trl is not installed")
def test_all_pairs_of_trl() -> None:
    pairs = [compare_pair(name) for name in trl_masks.templates()]
    for pair in pairs:
        shown = sorted(pair.differences | pair.shortfalls)
        print(
            f"{pair.name:<26} {pair.is_reproduced!s:<6} {pair.compared} chats {shown} {pair.repair.unfixed}"
        )
    reproduced = [pair.name for pair in pairs if pair.is_reproduced]
    assert len(reproduced) >= KNOWN, reproduced


def test_blocks_of_a_first_reply_hold_no_opening() -> None:
    # Zephyr writes no generation prompt for an empty conversation: the opening of a first reply looked like its text.
    repair = turnwise.fix(load_entry("zephyr"), [GENERATION])
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
