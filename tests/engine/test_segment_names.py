"""Names of what a walk looks up: each value once on its path, and nothing inside of a text of the template."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import turnwise
from turnwise.engine.segments.names import PathNames


def test_a_subject_gets_a_name_for_the_rest_of_its_path() -> None:
    names = PathNames()
    assert names.name_subject("kind(m['tool_calls']) == 'list'").startswith("kind((t0 := m['to")
    assert names.name_subject("len(m['tool_calls'])") == "len(t0)"
    other = names.fork()
    assert other.name_subject("kind(m['tool_calls'][0])") == "kind((t1 := t0[0]))"
    assert other.use("m['tool_calls'][0]['name'] + m['name']") == "t1['name'] + m['name']"
    assert names.use("m['tool_calls'][0]['name']") == "t0[0]['name']", "another path"


def test_words_are_looked_for_in_the_named_value() -> None:
    names = PathNames()
    asked = names.name_subject(
        "(c := M[0]['c'][1]).__class__ is str and c != '' and not c.isspace()"
    )
    assert asked.startswith("(c := (t0 := M[0]['c'][1])).__class__ is str and c != ''")
    assert names.use("M[0]['c'][1], M[0]['c'][10], M[10]['c'][1]") == (
        "t0, M[0]['c'][10], M[10]['c'][1]"
    )


@pytest.mark.parametrize(
    "literal", ['''"it's m['role']"''', r"""'\'m[\'role\']'""", '''"m['role']"''', "'m'"]
)
def test_nothing_in_a_literal_is_replaced(literal: str) -> None:
    names = PathNames()
    names.name_subject("m['role']")
    assert names.use(f"{literal} + m['role']") == f"{literal} + t0"


CALL = {"type": "function", "function": {"name": "tide", "arguments": {"h": "A", "m['role']": 1}}}
CHAT: list[dict[str, Any]] = [
    {"role": "user", "content": "m['content']"},
    {"role": "assistant", "content": "", "tool_calls": [CALL, CALL]},
    {"role": "tool", "content": "t0"},
    {"role": "assistant", "content": "c", "reasoning_content": "m['role']"},
]
TEMPLATE = """\
{%- for m in messages -%}
m['role'] "m['content']" {{ m['role'] }}{{ m.content }}
{%- if m.tool_calls %}{% for call in m.tool_calls %}{{ call.function.name }}
{%- for key, value in call.function.arguments.items() %}{{ key }}='{{ value }}'{% endfor %}
{{- call.function.arguments | tojson }}{% endfor %}{% endif %}
{%- if m.reasoning_content is string and "m['role']" in m.reasoning_content %}{{ m.reasoning_content }}{% endif %}
{%- if m.role == "m['content']" %}never{% endif %}
{%- endfor -%}"""


def test_texts_that_look_like_names_are_texts() -> None:
    changed = copy.deepcopy(CHAT)
    for value in (3, "t1", None, [1], {"m['role']": "x"}, True, ""):
        used = turnwise.compile(TEMPLATE)
        for _ in range(4):
            used.render(CHAT)
        changed[1]["tool_calls"][1]["function"]["arguments"]["h"] = value
        for chat in (CHAT, changed, CHAT[:2], CHAT[3:], changed):
            found, fresh = used.render(chat), turnwise.compile(TEMPLATE).render(chat)
            assert found == fresh and found.warnings == fresh.warnings, value


def test_what_is_written_before_the_loop_is_not_missed_in_it() -> None:
    before_loop = (
        "{{ messages[0].content }}{% for m in messages %}{% if m.role != 'system' %}"
        "{{ m.role }}{{ m.content }}{% endif %}{% endfor %}"
    )
    used = turnwise.compile(before_loop)
    system = {"role": "system", "content": "Be brief."}
    user = {"role": "user", "content": "Hi"}
    for chat in (
        [system, user],
        [user, user],
        [system, user, system],
        [{**system, "x": "1"}, user],
    ):
        for _ in range(4):
            fresh = turnwise.compile(before_loop).render(chat)
            found = used.render(chat)
            assert found == fresh and found.warnings == fresh.warnings
