"""Lists that a template makes of messages: their texts, origins and losses are those of the program."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
from test_segments import check

import turnwise

pytestmark = pytest.mark.filterwarnings("ignore::turnwise.TurnwiseWarning")
MAX_SECONDS = 3.0  # of processor time, for renderings that the budgets end in 50 ms
WRITE = "[{{ m.role }}]{{ m.content }}"
CALLS = "{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments|tojson }}{% endfor %}"
KEEP = "{% set n = namespace(l=[]) %}{% for m in messages %}{% set n.l = n.l + [%s] %}{% endfor %}"
# Consecutive messages of a role become one, as mistral-common does it.
MERGED = (
    "{% set n = namespace(group=[], role=none, all=[]) %}{% for m in messages + [{'role': 'end'}] %}"
    "{% if m.role != n.role %}{% if n.group %}{% set one = namespace(texts=[], calls=[]) %}{% for o in n.group %}"
    "{% set one.texts = one.texts + [o.content or ''] %}"
    "{% if o.tool_calls %}{% set one.calls = one.calls + o.tool_calls|list %}{% endif %}{% endfor %}"
    "{% set n.all = n.all + [{'role': n.role, 'content': one.texts|join('\n'), 'tool_calls': one.calls}] %}{% endif %}"
    "{% set n.group = [m] %}{% set n.role = m.role %}{% else %}{% set n.group = n.group + [m] %}{% endif %}{% endfor %}"
)
MADE = {
    "texts": KEEP.replace("%s", "m.content or ''") + "{{ n.l|join('|') }}{{ n.l|length > 3 }}",
    "messages": KEEP.replace("%s", "m") + "{% for m in n.l %}" + WRITE + CALLS + "{% endfor %}",
    "twice": KEEP.replace("%s", "m, m") + "{% for m in n.l %}" + WRITE + "{% endfor %}",
    "dicts": KEEP.replace("%s", "{'role': m.role, 'content': m.content, 'i': loop.index}")
    + "{% for m in n.l %}" + WRITE + "{{ m.i + 1 }}{{ m.none }}{% endfor %}",
    "dicts in dicts": KEEP.replace("%s", "{'m': m, 'all': [m.content, {'r': m.role}]}")
    + "{% for o in n.l %}{{ o.m.content }}{{ o.all[0] }}{{ o.all[1].r }}{{ o.all|length }}{% endfor %}",
    "merged": MERGED + "{% for m in n.all %}" + WRITE + CALLS + "{% endfor %}",
    "merged, with questions": MERGED + "{% if n.all[0].role == 'user' %}U{% endif %}{% for m in n.all %}"
    + WRITE + "{{ m.content|trim }}{{ 'x' in m.content }}{{ loop.last }}{{ m.content|length > 9 }}{% endfor %}",
    "read before it is written": "{% set n = namespace(l=[]) %}{% for m in messages %}{% set l = n.l %}"
    "{% set n.l = [m] %}{% for o in l %}({{ o.content }}){% endfor %}{{ m.role }}{% endfor %}",
    "read later": KEEP.replace("%s", "m") + "{% set l = n.l %}{% for m in messages %}{% set n.l = [] %}{% endfor %}"
    "{% for m in l %}{{ m.content }}.{% endfor %}{{ n.l|length < l|length }}{{ l[-1].role }}",
    "joined, and read in rounds": KEEP.replace("%s", "m.role") + "{% set roles = n.l|join('-') %}"
    "{% for m in messages %}{{ m.content }}{{ roles if roles != 'user' and loop.last }}{% endfor %}",
    "a part of the messages": "{% for m in messages[1:] + [{'role': 'end', 'content': 'E'}] %}"
    + WRITE + "{{ '#' if loop.last }}{% endfor %}",
    "before the messages": "{% set all = [{'role': 'system', 'content': 'S'}] + messages %}"
    "{% for m in all %}" + WRITE + "{% endfor %}{{ all|length > 2 }}{{ all[1].role }}",
    "emptied": "{% set n = namespace(l=[]) %}{% for m in messages %}{% if m.role == 'tool' %}"
    "{% set n.l = n.l + [m.content] %}{% else %}{{ n.l|join(',') if n.l }}{% set n.l = [] %}" + WRITE
    + "{% endif %}{% endfor %}{{ n.l|join(',') }}",
    "safe beside it": "{% for m in messages %}{% for c in m.tool_calls or [] %}"
    "{{ c.function.name + '<' + (c.function.arguments|tojson|safe) }}{% endfor %}{{ m.role }}{% endfor %}",
}  # fmt: skip
NOT_MADE = {
    "calls": "{% set n = namespace(l=[]) %}{% for m in messages %}" + WRITE
    + "{% if m.tool_calls %}{% set n.l = n.l + m.tool_calls %}{% endif %}{% endfor %}"
    "{% for c in n.l %}{{ c.function.name }}{{ c.function.arguments }}{% endfor %}",
    "some calls": "{% set n = namespace(l=[]) %}{% for m in messages %}" + WRITE
    + "{% if m.tool_calls %}{% set n.l = n.l + [m.tool_calls[0]] %}{% endif %}{% endfor %}"
    "{% for c in n.l %}{{ c.function.name }}{{ c.function.arguments|tojson }}{% endfor %}",
    "safe": KEEP.replace("%s", "(m.content or '')|safe") + "{{ '<' + n.l|join('&') }}",
    "json": KEEP.replace("%s", "{'r': m.role, 'c': m.content}") + "{{ n.l|tojson }}{{ n.l[0]|tojson }}",
    "mixed": KEEP.replace("%s", "m.content, loop.index, m") + "{% for o in n.l %}"
    "{{ o.role if o is mapping else o + 1 if o is number else o }}{% endfor %}",
    "tools": "{% set n = namespace(l=[]) %}{% for m in messages %}{{ m.content }}{% if tools %}"
    "{% set n.l = n.l + [tools[0].function.name] %}{% endif %}{% endfor %}{{ n.l|join(',') }}",
    "numbers": "{% set n = namespace(l=[]) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set n.l = n.l + [loop.index0] %}{% endif %}{{ m.content }}{% endfor %}"
    "{% for i in n.l %}{{ messages[i].content }}{% endfor %}",
}  # fmt: skip


@pytest.mark.parametrize("name", MADE)
def test_what_is_written_of_lists(name: str) -> None:
    assert check(turnwise.compile(MADE[name]).renderer, random.Random(name), 80) > 10


@pytest.mark.parametrize("name", NOT_MADE)
def test_lists_of_which_less_is_known(name: str) -> None:
    check(turnwise.compile(NOT_MADE[name]).renderer, random.Random(name), 60)


def test_what_a_made_message_has_is_not_lost() -> None:
    """Of the merged messages everything is written, but not the reasoning."""
    template = turnwise.compile(MADE["merged"])
    chat = [
        {"role": "user", "content": "a"},
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": "c", "reasoning_content": "why"},
    ]
    *_, last = [template.render(chat) for _ in range(4)]
    assert last._output is None
    assert last.text == "[user]a\nb[assistant]c"
    assert [*map(str, last.warnings)] == [
        "template: the template writes nothing of messages[2].reasoning_content"
    ]


@pytest.mark.parametrize("grow", ["n.l + n.l + [m]", "n.l + [m] * 400"])
def test_lists_are_paid_by_their_length(grow: str) -> None:
    template = turnwise.compile(
        f"{{% set n = namespace(l=[]) %}}{{% for m in messages %}}{{% set n.l = {grow} %}}{{% endfor %}}"
        "{% for m in n.l %}{{ m.role[0] }}{% endfor %}"
    )

    def render(count: int) -> turnwise.Rendering:
        chat: list[dict[str, Any]] = [{"role": "user", "content": "a"}] * count
        return template.render(chat, normalise=False)

    for _ in range(4):
        assert len(render(3).text) > 6
    with pytest.raises(turnwise.TemplateLimitError):
        render(600)


# Lists that hold each other: what they are written as is twice as long after each message.
NESTED = {
    "json": "{% for m in messages %}{% set n.l = [n.l, n.l] %}{{ m.content }}{% endfor %}{{ n.l|tojson }}",
    "text": "{% for m in messages %}{% set n.l = [n.l, n.l] %}{{ m.content }}{% endfor %}{{ n.l }}",
    "dicts": "{% for m in messages %}{% set n.l = [{'a': n.l, 'b': n.l, 'c': m.content}] %}{% endfor %}"
    "{{ n.l[0].a|tojson }}{{ n.l[0].c }}",
    "equal": "{% for m in messages %}{% set n.l = [{'a': n.l, 'b': n.l}] %}{% set n.k = [{'a': n.k, 'b': n.k}] %}"
    "{% endfor %}{{ n.l[0] == n.k[0] }}",
    "joined": "{% for m in messages %}{% set n.l = n.l + [messages[0].content * 20_000] %}{% endfor %}"
    "{{ n.l|join('-')|length > 9 }}",
    "nothing written": "{% for m in messages %}{% set n.l = n.l + [{'x': n.l, 'c': m.content}] %}{% endfor %}"
    "{% for e in n.l %}{{ e.c }}{% for q in e.x %}{{ q.c }}{% endfor %}{% endfor %}",
}


@pytest.mark.parametrize("name", NESTED)
def test_lists_in_lists_are_no_way_around_the_budgets(name: str) -> None:
    template = turnwise.compile("{% set n = namespace(l=[], k=[]) %}" + NESTED[name])

    def answer(template: turnwise.Template, count: int) -> str:
        try:
            return template.render([{"role": "user", "content": "abc"}] * count).text
        except turnwise.TemplateLimitError as error:
            return str(error)

    for count in (1, 2, 3, 5, 8) * 3:
        answer(template, count)
    start = time.process_time()
    for count in (16, 24, 40):
        assert answer(template, count) == answer(turnwise.compile(template.text), count)
    assert time.process_time() - start < MAX_SECONDS


def test_elements_may_have_keys_that_no_message_has() -> None:
    """What is known of plain messages says nothing of the dicts that a template makes of them."""
    text = KEEP.replace("%s", "{'a': m.content} if loop.last else {'b': m.content, 'content': ''}")
    text += "{% for m in n.l %}{{ m.a if 'a' in m else m.b }}{{ 'a' in m }}{{ m.content is string }};{% endfor %}"
    template = turnwise.compile(text)
    for count in (1, 3, 2, 4) * 3:
        chat = [{"role": "user", "content": f"text {number}"} for number in range(count)]
        rendering = template.render(chat)
        last = f"text {count - 1}TrueFalse;"
        assert str(rendering) == "".join(f"text {n}FalseTrue;" for n in range(count - 1)) + last
    assert rendering._output is None  # written from segments
