"""What a generation prompt depends on: the answers for templates that ask for this and that."""

from __future__ import annotations

import pytest

from turnwise.engine.compiler.prompt_reads import PromptReads, analyse_prompt

LOOP = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
NOTHING = PromptReads(False, False, False)
SHAPES = PromptReads(True, False, False)
FIRST = PromptReads(False, True, False)


def prompt(condition: str) -> str:
    return f"{LOOP}{{% if add_generation_prompt %}}<bot>{{% if {condition} %}}!{{% endif %}}{{% endif %}}"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (LOOP, NOTHING),
        (LOOP + "{% if add_generation_prompt %}<bot>{% endif %}", NOTHING),
        (LOOP + "{{ '<bot>' if add_generation_prompt }}", NOTHING),
        (prompt("enable_thinking is defined and not enable_thinking"), NOTHING),
        (prompt("tools|length > 3"), NOTHING),
        (prompt("messages[-1].role == 'tool'"), SHAPES),
        (prompt("messages[-1]['content'] is string"), SHAPES),
        (prompt("messages[-1].content"), SHAPES),
        (prompt("messages and messages[-1].get('name')"), SHAPES),
        (prompt("(messages|last).role != 'user'"), SHAPES),
        (prompt("'/think' in messages[0].content"), FIRST),
        (prompt("messages[0].role == 'system'"), FIRST),
        (
            "{% set ns = namespace(t=false) %}{% for m in messages %}{% set ns.t = m.role == 'tool' %}"
            "{{ m.content|length }}{% endfor %}{% if add_generation_prompt and not ns.t %}<bot>{% endif %}",
            SHAPES,
        ),
        (
            "{% for m in messages %}{{ m.content }}{% if loop.last and add_generation_prompt %}<bot>{% endif %}"
            "{% endfor %}",
            SHAPES,
        ),
        (
            "{% for m in messages %}{% if m.content|length > 9 and not add_generation_prompt %}!{% endif %}"
            "{% endfor %}",
            NOTHING,
        ),
    ],
)
def test_harmless(text: str, found: PromptReads) -> None:
    assert analyse_prompt(text) == found


@pytest.mark.parametrize(
    "text",
    [
        prompt("'/no_think' in messages[-1].content"),
        prompt("messages[-1].content|length > 100"),
        prompt("messages[-1].content.startswith('/')"),
        prompt("messages[-1].content[:1] == '/'"),
        prompt("messages[-1].content[0] in ['/', 'x']"),
        prompt("messages[-1].content == messages[0].content"),
        prompt("messages[-1].content is upper"),
        prompt("messages[-1].name == 'x'"),
        prompt("messages|length > 3"),
        prompt("messages|length % 2 == 0"),
        LOOP + "{{ messages|length }}",
        "{% for m in messages %}{{ m.content }}{% if loop.last and m.content|length > 9 %}!{% endif %}{% endfor %}",
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}"
        "{% if add_generation_prompt and ns.n > 3 %}<bot>{% endif %}",
        "{% set ns = namespace(f=false) %}{% for m in messages %}{% if '/think' in m.content %}{% set ns.f = true %}"
        "{% endif %}{% endfor %}{{ '<bot>' if add_generation_prompt and ns.f }}",
        "{% macro is_long(m) %}{% if m.content|length > 9 %}y{% endif %}{% endmacro %}"
        + LOOP
        + "{{ is_long(messages[-1]) }}",
        "{% set last = messages[-1] %}{% set text = last.content %}" + prompt("text.endswith('?')"),
        "{% set l = [] %}{% for m in messages %}{% set _ = l.append(m.content) %}{% endfor %}{{ l|join }}",
    ],
)
def test_anything_in_the_messages(text: str) -> None:
    assert analyse_prompt(text).messages
