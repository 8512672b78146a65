"""Prompts that are proven to be the text up to a turn and a constant: held against renderings.

The proof reads the source only. Here every prompt that it speaks of is rendered: of the corpus' conversations with its
templates and the registry's, and of random conversations with templates made up to look at more than they may.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import product
from typing import Any

import pytest

import corpus
import turnwise
from published_templates import compile_published
from turnwise.engine.compiler.history_proof import analyse_prompts
from turnwise.tokens.boundaries import TurnCache, find_message_spans

EVERY = 12

BODY = "<{{ m.role }}>{{ m.content }}</s>"
PLAIN = "{% for m in messages %}" + BODY + "{% endfor %}"
PROMPT = "{% if add_generation_prompt %}<assistant>{% endif %}"
REFUSAL = "{{ raise_exception('no') }}"
PROVEN = {
    "plain": PLAIN + PROMPT,
    "no prompt": PLAIN,
    "a prompt or an end": PLAIN + "{% if add_generation_prompt %}<assistant>{% else %}!{% endif %}",
    "an option": PLAIN
    + "{% if add_generation_prompt %}<assistant>{{ '<think>' if deep }}{% endif %}",
    "a slice": "{% set rest = messages[1:] if messages[0].role == 'system' else messages %}"
    + PLAIN.replace("in messages", "in rest")
    + PROMPT,
    "the prompt inside of the loop": "{% for m in messages %}"
    + BODY
    + "{% if loop.last and add_generation_prompt %}"
    "<assistant>{% endif %}{% endfor %}",
    "a check of the order": "{% for m in messages %}{% if m.role == 'tool' and loop.first %}"
    + REFUSAL
    + "{% endif %}{% endfor %}"
    + PLAIN
    + PROMPT,
    "a group of results": "{% for m in messages %}{% if m.role == 'tool' %}{{ m.content }}"
    "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}</tools>{% endif %}"
    "{% else %}" + BODY + "{% endif %}{% endfor %}" + PROMPT,
    "an assistant that looks ahead": "{% for m in messages %}{{ m.content }}"
    "{% if m.role == 'assistant' and not loop.last %}</s>{% endif %}{% endfor %}" + PROMPT,
    "a macro": "{% macro open(role) %}<{{ role }}>{% endmacro %}"
    + PLAIN
    + "{{ open('assistant') if "
    "add_generation_prompt }}",
}
SCAN = "{% set ns = namespace(seen=false) %}{% for m in messages[::-1] %}{% if 'x' in m.content %}"
NOT_PROVEN = {
    "a refusal by a later message": SCAN
    + "{% set ns.seen = true %}{% endif %}{% endfor %}{% if not ns.seen %}"
    + REFUSAL
    + "{% endif %}"
    + PLAIN
    + PROMPT,
    "a refusal by what a loop found": SCAN.replace("[::-1]", "")
    + "{% set ns.seen = true %}{% endif %}{% endfor %}{% if not ns.seen %}"
    + REFUSAL
    + "{% endif %}"
    + PLAIN
    + PROMPT,
    "a macro that reads what a loop found": "{% macro f() %}{{ ns.seen }}{% endmacro %}"
    + SCAN.replace("[::-1]", "")
    + "{% set ns.seen = true %}{% endif %}{% endfor %}"
    + PLAIN.replace("</s>", "{{ f() }}")
    + PROMPT,
    "a refusal after the loop": PLAIN
    + "{% if messages|length > 3 and add_generation_prompt %}"
    + REFUSAL
    + "{% endif %}"
    + PROMPT,
    "a refusal by the last message": PLAIN.replace(
        "{% endfor", "{% if loop.last and 'x' in m.content %}" + REFUSAL + "{% endif %}{% endfor"
    )
    + PROMPT,
    "the end of the last message": PLAIN.replace("</s>", "{{ '!' if loop.last else '</s>' }}")
    + PROMPT,
    "a prompt by content": PLAIN
    + "{% if add_generation_prompt %}<assistant>{{ '!' if 'x' in messages[-1].content }}{% endif %}",
    "a prompt by the first message": "{% set deep = 'x' in messages[0].content %}"
    + PLAIN
    + "{% if add_generation_prompt %}<assistant>{{ '!' if deep }}{% endif %}",
    "a prompt by a flag of the loop": "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
    + BODY
    + "{% endfor %}{% if add_generation_prompt %}<assistant>{{ ns.n }}{% endif %}",
    "a prompt by tools": PLAIN + "{% if add_generation_prompt %}<assistant>{{ tools }}{% endif %}",
    "a prompt by the time": PLAIN
    + "{% if add_generation_prompt %}<assistant>{{ strftime_now('%Y') }}{% endif %}",
    "text after the prompt": "{% for m in messages %}"
    + BODY
    + "{% if loop.last and add_generation_prompt %}"
    "<assistant>{% endif %}{{ m.content[:1] }}{% endfor %}",
    "a captured loop": "{% set all %}" + PLAIN + "{% endset %}{{ all|trim }}" + PROMPT,
    "a filtered loop": "{% filter trim %}" + PLAIN + "{% endfilter %}" + PROMPT,
    "two loops": PLAIN + PLAIN + PROMPT,
    "a count": "{{ messages|length }}" + PLAIN + PROMPT,
    "the loop by another name": "{% for m in messages %}{% set l = loop %}{{ m.content }}{{ '!' if l.last }}"
    "{% endfor %}" + PROMPT,
    "an argument": "{% macro f(x) %}{{ x|length }}{% endmacro %}{{ f(messages) }}" + PLAIN + PROMPT,
}
ARGUMENTS = ("tools", "documents", "add_generation_prompt")
ROLES, TEXTS = ("user", "assistant", "tool"), ("", "x", "<assistant>")


def check_prompts(
    template: turnwise.Template, messages: list[dict[str, Any]], **given: Any
) -> set[str]:
    """Return the generation prompts before the turns that the proof speaks of; each must end what is up to its turn."""
    cache = TurnCache(analyse_prompts(*template.renderer.texts))
    try:
        whole = template.render(messages, normalise=False, **given)
    except turnwise.TurnwiseError:
        return set()
    spans = find_message_spans(whole.piece_table)
    found = set()
    for index in range(len(messages)):
        if cache.is_proven(messages, index) and index in spans:
            start = spans[index].start
            given["add_generation_prompt"] = True
            prompt = str(template.render(messages[:index], normalise=False, **given))
            assert prompt[:start] == whole.text[:start], (template.name, index)
            found.add(prompt[start:])
    return found


@pytest.mark.parametrize("name", PROVEN)
def test_constant_prompts_are_recognised(name: str) -> None:
    assert analyse_prompts(PROVEN[name]) > 0
    template, prompts = turnwise.compile(PROVEN[name]), set()
    for roles in product(ROLES, repeat=4):
        for texts in product(TEXTS, repeat=2):
            messages = [
                {"role": role, "content": text} for role, text in zip(roles, texts * 2, strict=True)
            ]
            prompts |= check_prompts(template, messages)
    assert len(prompts) == 1


@pytest.mark.parametrize("name", NOT_PROVEN)
def test_nothing_is_claimed_of_prompts_that_depend_on_more(name: str) -> None:
    assert not analyse_prompts(NOT_PROVEN[name])


def _check_corpus(names: list[str]) -> int:
    count = 0
    for name in names:
        template = compile_published(name)
        if not analyse_prompts(template.text):
            continue
        prompts: dict[str, set[str]] = defaultdict(set)  # by options
        for chat in corpus.chats().values():
            if not chat.continued:
                options = {key: v for key, v in chat.arguments.items() if key not in ARGUMENTS}
                given = {"now": corpus.NOW, **chat.arguments}
                prompts[repr(options)] |= check_prompts(template, chat.messages, **given)
        assert all(len(found) <= 1 for found in prompts.values()), name
        count += any(prompts.values())
    return count


@corpus.needs_corpus
def test_proofs_hold_for_the_corpus() -> None:
    assert _check_corpus(list(corpus.load_published())[::EVERY]) > 5


@corpus.needs_corpus
@pytest.mark.slow
def test_proofs_hold_for_all_of_the_corpus() -> None:
    assert _check_corpus(list(corpus.load_published())) > 100


@pytest.mark.parametrize(
    "name", ["chatml", "qwen2.5", "llama-3", "llama-3.1", "mistral", "gemma-2", "gemma-3", "phi-4"]
)
def test_common_templates_are_proven(name: str) -> None:
    assert analyse_prompts(*turnwise.load(name).renderer.texts)
