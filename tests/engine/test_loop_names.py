"""The name `loop` outside of a loop: a parameter, a variable of a block. Compared with transformers.

In a loop that uses only what is known of it, `loop` is no object but a name for the loop's variables. After the loop it
is a name like others.
"""

from __future__ import annotations

from typing import Any

import pytest

import oracle
import turnwise
from turnwise import TemplateError

FIRST = "{% for m in messages %}{% if m.role == 'user' %}{{ loop.index }}{% endif %}{% endfor %}"
NAMED = {
    "a parameter that is a loop": "{% macro write(m, loop) %}"
    "{{ m.content }}{% if loop.last %}!{% endif %}{% endmacro %}"
    "{% for m in messages %}{{ write(m, loop) }}{% endfor %}",
    "a parameter that is a dict": "{% macro write(m, loop) %}{{ m.content }}{{ loop.index }}{% endmacro %}"
    "{% for m in messages %}{{ write(m, {'index': 'x'}) }}{% endfor %}",
    "a parameter with a default": "{% macro write(loop={'index': 'y'}) %}{{ loop.index }}{% endmacro %}{{ write() }}",
    "with": "{% with loop = {'index': 'z'} %}{{ loop.index }}{% endwith %}",
    "a caller's parameter": "{% macro each() %}{{ caller({'index': 'c'}) }}{% endmacro %}"
    "{% call(loop) each() %}{{ loop.index }}{% endcall %}",
    "a variable": "{% set loop = {'index': 'v'} %}{{ loop.index }}",
    "nothing": "{{ loop is defined }}",
    "the condition of another loop": "{% for m in messages if loop is defined %}{{ m.role }}{% endfor %}",
    "the other branch": "{% for m in [] %}{{ loop.index }}{% else %}{{ loop is defined }}{% endfor %}",
    "a loop that is an object": "{% for m in messages %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "a loop that calls itself": "{% for m in messages recursive %}{{ loop.index }}{{ loop([]) }}{% endfor %}",
}
ASSIGNED = {
    "in its body": "{% for m in messages %}{% set loop = 1 %}{% endfor %}",
    "as a block": "{% for m in messages %}{% set loop %}a{% endset %}{% endfor %}",
    "its element": "{% for loop in messages %}{% endfor %}",
    "one of its elements": "{% for a, loop in {}.items() %}{% endfor %}",
    "in a loop within": "{% for m in messages %}{% for loop in [] %}{% endfor %}{% endfor %}",
    "in a branch": "{% for m in messages %}{% if false %}{% set loop = 1 %}{% endif %}{% endfor %}",
}


def make_chat(count: int) -> list[dict[str, Any]]:
    return [{"role": ("user", "assistant")[i % 2], "content": f"Text {i}"} for i in range(count)]


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("name", NAMED)
def test_after_a_loop_it_is_a_name_like_others(name: str, count: int) -> None:
    text, chat = FIRST + NAMED[name], make_chat(count)
    wanted = oracle.render(text, chat)
    template = turnwise.compile(text)
    for _ in range(3):  # later from segments
        assert template.render(chat, normalise=False).text == wanted


@pytest.mark.parametrize("name", ASSIGNED)
def test_a_loop_does_not_assign_it(name: str) -> None:
    with pytest.raises(Exception, match="special loop variable"):
        oracle.render(ASSIGNED[name], make_chat(1))
    with pytest.raises(TemplateError, match="a loop cannot assign to `loop`"):
        turnwise.compile(ASSIGNED[name])
