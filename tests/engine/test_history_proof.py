"""Templates that are proven to append: every conversation begins with the shorter ones, for all that we can render.

The proof reads the source only. Here it is held against renderings: of the corpus' conversations with its templates,
and of random conversations with templates made up to look ahead.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

import corpus
import turnwise
from published_templates import template_of
from turnwise.engine.compiler.history_proof import only_appends
from turnwise.messages.roles import ASSISTANT_ROLES

EVERY = 6

PLAIN = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}"
PROMPT = "{% if add_generation_prompt %}<assistant>{% endif %}"
PROVEN = {
    "plain": PLAIN + PROMPT,
    "a slice": "{% set rest = messages[1:] if messages[0].role == 'system' else messages %}"
    + PLAIN.replace("in messages", "in rest")
    + PROMPT,
    "the prompt inside of the loop": "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
    "{% if loop.last and add_generation_prompt %}<assistant>{% endif %}{% endfor %}",
    "a group of results": "{% for m in messages %}{% if m.role == 'tool' %}"
    "{% if loop.index0 == 0 or messages[loop.index0 - 1].role != 'tool' %}<tools>{% endif %}{{ m.content }}"
    "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}</tools>{% endif %}"
    "{% else %}<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}" + PROMPT,
    "a role by another name": "{% for m in messages %}{% set role = m.role %}{% if role == 'tool' %}"
    "{{ m.content }}{% if loop.last or loop.nextitem.role != 'tool' %}</tools>{% endif %}"
    "{% else %}<{{ role }}>{{ m.content }}{% endif %}{% endfor %}" + PROMPT,
    "a loop inside": "{% for m in messages %}{% for c in m.content %}{{ c }}{% if loop.last %}.{% endif %}"
    "{% endfor %}{% endfor %}" + PROMPT,
}
NOT_PROVEN = {
    "the last message": PLAIN.replace("{% endfor", "{% if loop.last %}!{% endif %}{% endfor"),
    "the next message": PLAIN.replace("</s>", "{{ '' if loop.nextitem is defined else '</s>' }}"),
    "text after the loop": PLAIN + "{{ eos_token or '!' }}",
    "text without a prompt": PLAIN
    + "{% if add_generation_prompt %}<assistant>{% else %}!{% endif %}",
    "two loops": PLAIN + PLAIN,
    "a count": "{{ messages|length }}" + PLAIN,
    "the end": "{% if messages[-1].role == 'user' %}!{% endif %}" + PLAIN,
    "the first message is before none": "{% for m in messages %}{{ messages[loop.index0 - 1].role }}"
    "{{ m.content }}{% endfor %}",
    "a filter": "{% for m in messages|selectattr('content') %}{{ m.content }}{% endfor %}",
    "the loop by another name": "{% for m in messages %}{% set l = loop %}"
    "{{ m.content }}{{ '!' if l.last }}{% endfor %}",
    "a role that is another": "{% for m in messages %}{% set role = m.role %}{% set role = 'tool' %}"
    "{{ m.content }}{% if role == 'tool' and loop.last %}!{% endif %}{% endfor %}",
    "an argument": "{% macro f(x) %}{{ x|length }}{% endmacro %}{{ f(messages) }}" + PLAIN,
    "a count for another role": "{% for m in messages %}{{ m.content }}"
    "{% if m.role == 'user' and loop.length > 3 %}!{% endif %}{% endfor %}",
    "a filter block": "{% filter reverse %}" + PLAIN + "{% endfilter %}",
    "an assistant that looks ahead": "{% for m in messages %}{{ m.content }}"
    "{% if m.role != 'user' and loop.last %}!{% endif %}{% endfor %}",
}


@pytest.mark.parametrize("name", PROVEN)
def test_templates_that_append_are_recognised(name: str) -> None:
    assert only_appends(PROVEN[name])


@pytest.mark.parametrize("name", NOT_PROVEN)
def test_nothing_is_claimed_of_templates_that_look_ahead(name: str) -> None:
    assert not only_appends(NOT_PROVEN[name])


@pytest.mark.parametrize(
    "prompt",
    [
        "{% if add_generation_prompt %}{{ messages[-1].content }}{% endif %}",
        "{% if add_generation_prompt %}<assistant>{{ flags.seen }}{% endif %}",
        "{% set seen = flags.seen %}{% if add_generation_prompt %}<assistant>{{ seen }}{% endif %}",
    ],
)
def test_a_prompt_that_depends_on_messages_is_not_constant(prompt: str) -> None:
    loop = "{% for m in messages %}{{ m.content }}{% set flags.seen = m.role %}{% endfor %}"
    source = "{% set flags = namespace(seen='') %}" + loop + prompt
    assert not only_appends(source)


def is_stable(template: turnwise.Template, messages: list[dict[str, Any]], **given: Any) -> bool:
    """Whether the conversation begins with every shorter one that ends with an assistant message."""
    try:
        whole = str(template.render(messages, normalise=False, **given))
    except turnwise.TurnwiseError:
        return True
    for index, message in enumerate(messages):
        if message["role"] in ASSISTANT_ROLES:
            shorter = str(template.render(messages[: index + 1], normalise=False, **given))
            if not whole.startswith(shorter.rstrip()):
                return False
    return True


def check_corpus(names: list[str]) -> int:
    count = 0
    for name in names:
        template = template_of(name)
        if not only_appends(template.text):
            continue
        count += 1
        for chat in corpus.chats().values():
            if not chat.continued:
                given = {"now": corpus.NOW, **chat.arguments}
                assert is_stable(template, chat.messages, **given), (name, chat.id)
    return count


@pytest.mark.law
@corpus.needs_corpus
def test_proofs_hold_for_the_corpus(sample: Any) -> None:
    names = sample(list(corpus.load_published())[::EVERY])
    assert check_corpus(names) > min(10, len(names) // 4)


@corpus.needs_corpus
@pytest.mark.slow
def test_proofs_hold_for_every_template_of_the_corpus() -> None:
    assert check_corpus(list(corpus.load_published())) > 100


@pytest.mark.parametrize("name", [*PROVEN, *NOT_PROVEN])
def test_proofs_hold_for_all_short_conversations(name: str) -> None:
    source = PROVEN.get(name) or NOT_PROVEN[name]
    template = turnwise.compile(source)
    stable = [
        is_stable(template, [{"role": role, "content": role[0]} for role in roles])
        for length in (1, 2, 3, 4)
        for roles in product(("system", "user", "assistant", "tool"), repeat=length)
    ]
    if name in PROVEN:
        assert all(stable)
    elif name != "a filter":
        assert not all(stable), "the template does look ahead"
