"""Templates that once had other texts from segments than from the program, or took too long to record."""

from __future__ import annotations

import time
from typing import Any

import pytest

import turnwise
from turnwise.engine.segments.code import ENDS
from turnwise.errors import TurnwiseError

pytestmark = pytest.mark.filterwarnings("ignore::turnwise.TurnwiseWarning")
MAX_SECONDS = 2.0  # of processor time for a few renderings of which the program takes milliseconds
FLAT = ENDS[0].replace("others, carried", "list_fields((others, carried)), ()")
LOOP = "{% for m in messages %}%s{% endfor %}"


def user(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **more}


def reply(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def call(**arguments: Any) -> dict[str, Any]:
    return reply(
        "x", tool_calls=[{"type": "function", "function": {"name": "f", "arguments": arguments}}]
    )


# A template, the conversation that is recorded, and another.
CASES: dict[str, tuple[str, list[Any], list[Any]]] = {
    "joiner": (
        "{% set j = joiner(',') %}" + LOOP.replace("%s", "{{ j() }}{{ m.content }}"),
        [user("a")],
        [user("a"), user("b")],
    ),
    "outer loop": (
        "{% for k in [1] %}{% set outer = loop %}"
        + LOOP.replace("%s", "{% if outer.changed(1) %}C{% endif %}{{ m.content }}")
        + "{% endfor %}",
        [user("a")],
        [user("a")] * 3,
    ),
    "list in a namespace": (
        "{% set ns = namespace(x=[]) %}"
        + LOOP.replace(
            "%s", "{% if m.role == 'user' %}{{ ns.x }}{% else %}{% set ns.x = 'hi' %}{% endif %}"
        ),
        [user("a"), reply("b")],
        [reply("b"), user("a")],
    ),
    "role like the code of a walk": (
        "{% set ns = namespace(x=[]) %}"
        + LOOP.replace(
            "%s", f"{{% if m.role == '{ENDS[0]}' %}}A{{% endif %}}{{% set ns.x = ns.x + [m] %}}"
        )
        + "{% for m in ns.x %}{{ m.content }}{% endfor %}",
        [{"role": ENDS[0], "content": "a"}],
        [{"role": FLAT, "content": "b"}],
    ),
    "safe text": (LOOP.replace("%s", "{{ ('<b>'|safe) + m.content }}"), [user("a")], [user("<")]),
    "float": (
        LOOP.replace("%s", "{% if loop.index == 2.0 %}X{% endif %}{{ m.content }}"),
        [user("a")] * 2,
        [user("b")] * 2,
    ),
    "cut JSON": (
        LOOP.replace(
            "%s", "{% set a = (m.args|tojson)[1:-1]|trim %}{% if a %}Y{% endif %}{{ m.content }}"
        ),
        [user("a", args={"k": 1})],
        [user("a", args={})],
    ),
    "default": (
        LOOP.replace("%s", "{{ m.x|default(boolean=true) }}"),
        [user("a", x=5)],
        [user("a", x=0)],
    ),
    "same object": (
        LOOP.replace("%s", "{% if m.role is sameas 'user' %}S{% endif %}{{ m.content }}"),
        [user("a")],
        [{"role": "".join(["us", "er"]), "content": "a"}],
    ),
    "type is a list": (
        LOOP.replace(
            "%s",
            "{{ m.content }}{% for c in m.tool_calls or [] %}{% for k, v in c.function.arguments.items() %}"
            "{{ k }}={{ v|tojson }}{% endfor %}{% endfor %}",
        ),
        [call(type=["a", "b"])],
        [call(type={"a": 1}), call(role=[1])],
    ),
    "output": (LOOP.replace("%s", "{{ m.content }}" * 40), [user("a")], [user("a" * 20_000)]),
    "growing text": (
        LOOP.replace("%s", "{{ m.content.replace('a', 'b' * 200) }}"),
        [user("a")],
        [user("a" * 4_000)],
    ),
    "doubling": (
        "{% set ns = namespace(v='a') %}"
        + LOOP.replace("%s", "{% set ns.v = ns.v ~ ns.v %}")
        + "{{ ns.v[:3] }}",
        [user("a")] * 3,
        [user("a")] * 40,
    ),
    "selected": (
        "{% for m in messages|selectattr('role', 'equalto', 'user') %}{{ m.content }}{% endfor %}",
        [user("a"), reply("b")],
        [user("a"), reply("b")] * 1_000,
    ),
    "injected role": (
        LOOP.replace("%s", "{{ (messages|selectattr('role', 'in', [m.role])|list)[-1].content }}"),
        [{"role": "+str(kind.__globals__.__setitem__(str(n), n))+'{0}'", "content": "a"}],
        [user("a"), {"role": "'{0}'", "content": "b"}],
    ),
    "injected text": (
        "{% set us = messages|selectattr('role', 'in', ['user', '{0}', '\"+EVIL+\"', '{0:>99999999}'])|list %}"
        '{% set k = (messages|length|string).strip("\'")|length - 1 %}'
        + LOOP.replace("%s", "{{ us[k].content }}"),
        [user("a")],
        [user("b"), user("c")],
    ),
}
# Templates that the program renders in milliseconds.
SLOW: dict[str, str] = {
    "numbers": LOOP.replace(
        "%s",
        "{% set q = namespace(v=loop.index) %}{% for k in range(22) %}{% set q.v = q.v-(0-q.v) %}{% endfor %}{{ q.v }}",
    ),
    "nested": LOOP.replace(
        "%s",
        "{% set q = namespace(v=loop.index) %}{% for k in range(250) %}{% set q.v = q.v - 1 %}{% endfor %}{{ q.v }}",
    ),
    "texts": LOOP.replace(
        "%s",
        "{% set q = namespace(v=m.content) %}{% for k in range(9) %}{% set q.v = q.v ~ q.v %}{% endfor %}{{ q.v[:3] }}",
    ),
    "slices": LOOP.replace(
        "%s",
        "{% set q = namespace(v=m.content) %}{% for k in range(3000) %}{% set q.v = q.v[0:] %}{% endfor %}{{ q.v }}",
    ),
    "loops": "{% for i in range(3000) %}{% for m in messages %}{{ m.role }}{% endfor %}{% endfor %}",
    "selections": "{{ (messages" + "|selectattr('role', 'ne', 'x')" * 9 + "|list)|length }}",
    "values": "{% set l = range(30000)|list %}"
    + LOOP.replace(
        "%s",
        "{% for i in range(200) %}{% if l is sameas l %}{% endif %}{% endfor %}{{ m.content }}",
    ),
}


def render(template: turnwise.Template, chat: list[Any], is_fresh: bool) -> str:
    try:
        if is_fresh:
            return template.renderer.with_programs(lambda same: same).render(chat).text
        return template.render(chat, normalise=False).text
    except TurnwiseError as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("name", CASES)
def test_a_text_does_not_depend_on_what_was_recorded(name: str) -> None:
    source, first, other = CASES[name]
    template = turnwise.compile(source)
    start = time.process_time()
    for chat in (first, first, first, other, other, first):
        assert render(template, chat, False) == render(template, chat, True)
    assert time.process_time() - start < MAX_SECONDS


@pytest.mark.parametrize("name", SLOW)
def test_recording_takes_no_longer_than_rendering_often(name: str) -> None:
    template = turnwise.compile(SLOW[name])
    start = time.process_time()
    for _ in range(4):
        assert render(template, [user("abc")] * 2, False) == render(
            template, [user("abc")] * 2, True
        )
    assert time.process_time() - start < MAX_SECONDS


def test_many_keys_are_no_error() -> None:
    tests = "".join(f"{{% if m.k{number} %}}y{{% endif %}}" for number in range(130))
    template = turnwise.compile(
        LOOP.replace("%s", f"{{% if m.x %}}{tests}{{% endif %}}{{{{ m.content }}}}")
    )
    start = time.process_time()
    for number in range(130, 0, -5):
        chat = [user("a", x=1, **{f"k{number - one}": True}) for one in range(5)]
        assert render(template, chat, False) == render(template, chat, True)
    assert time.process_time() - start < 3 * MAX_SECONDS


@pytest.mark.parametrize(
    "body",
    [
        "{{ (m.content|tojson)[1:-1] }}",
        "{% if '\\\\n' in m.content|tojson %}X{% endif %}{{ m.content }}",
    ],
)
def test_rows_that_are_written_as_json(body: str) -> None:
    source = LOOP.replace("%s", "<|im_start|>{{ m.role }}\n" + body + "<|im_end|>\n")
    template = turnwise.compile(source)
    rows = [[user(f"question {one}"), reply(f"answer {one}")] for one in range(12)]
    rows.append([user('a"b\nc'), reply('d"e\nf')])
    batch = template.encode_batch(rows, "turnwise")
    for index, row in enumerate(rows):
        expected = turnwise.compile(source).encode(row, "turnwise").input_ids
        assert list(batch.input_ids[batch.offsets[index] : batch.offsets[index + 1]]) == expected


@pytest.mark.parametrize(
    "written",
    [
        "m.content[:5]|tojson",
        "{'c': m.content[:5]}|tojson",
        "{'a': {'b': m.content[0]}}|tojson",
        "[m.content.split(' ')[0]]",
        "[m.content.strip('t')]|string",
        "m.tool_calls[0].function.arguments.a[:2]|tojson if m.tool_calls else m.content",
    ],
)
def test_a_part_that_is_written_as_a_value_is_a_part(written: str) -> None:
    """A template that was used before had said nothing of what it cuts off."""
    chat = [user("two words"), call(a="one argument")]
    template = turnwise.compile(LOOP.replace("%s", "{{ " + written + " }}"))
    program = template.with_limits(turnwise.Limits(deadline=60))  # runs each time
    warned = [template.render(chat).warnings for _ in range(4)]
    expected = program.render(chat).warnings
    assert "only a part of" in expected[0] and warned == [expected] * 4


@pytest.mark.parametrize(
    "read",
    [
        "{{ n['i'] }}{{ n['t'] }}",
        "{% set key = 'i' %}{{ n[key] }}",
        "{% for one in [n] %}{{ one.i }}{{ one['t'] }}{% endfor %}",
        "{% macro show(one) %}{{ one.i }}{{ one.t }}{% endmacro %}{{ show(n) }}",
        "{% set inner = namespace(n=n) %}{{ inner.n.i }}{{ inner['n']['t'] }}",
        "{{ 'more' if n['i'] > 1 else 'one' }}{{ n['none']|default(n['i']) }}",
    ],
)
def test_what_a_namespace_has_is_asked_however_it_is_read(read: str) -> None:
    """Each round reads what an earlier one wrote."""
    text = LOOP.replace(
        "%s", read + "{% set n.i = n.i + 1 %}{% set n.t = n.t + m.content %}{{ m.content }}"
    )
    template = turnwise.compile("{% set n = namespace(i=0, t='') %}" + text)
    program = template.with_limits(turnwise.Limits(deadline=60))  # runs each time
    for count in (1, 3, 2, 5):
        chat = [user(f"text {number}") for number in range(count)]
        *_, last = [template.render(chat) for _ in range(3)]
        assert str(last) == str(program.render(chat))
        assert last._output is None  # written from segments


PARTS = [{"type": "text", "text": "one"}, {"type": "image", "image": "two"}]
IN_BLOCKS = {
    "a caller": "{% macro each(all) %}{% for m in all %}{{ caller(m) }}{% endfor %}{% endmacro %}"
    "{% call(m) each([messages[0], messages[-1]]) %}<{{ m.role }}{% endcall %}",
    "a block": "{% set all %}{% for m in [messages[-1]] %}<{{ m.role }}{% endfor %}{% endset %}{{ all }}",
    "a filter": "{% filter upper %}{% for m in [messages[-1]] %}<{{ m.role }}{% endfor %}{% endfilter %}",
}


@pytest.mark.parametrize("name", IN_BLOCKS)
def test_texts_of_a_block_have_the_messages_of_its_loop(name: str) -> None:
    template = turnwise.compile(IN_BLOCKS[name])
    chat = [user("a"), reply("b"), user("c")]
    pieces = [template.render(chat).pieces for _ in range(4)]
    assert pieces == pieces[:1] * 4
    if name != "a filter":
        assert all(piece.origin.message in (0, 2) for piece in pieces[0])


@pytest.mark.parametrize("content", [PARTS[:1], PARTS])
@pytest.mark.parametrize(
    "text",
    [
        # The capabilities are those of the first messages, of which this writes none.
        "{% for m in messages[1:] %}{{ m.content }}"
        "{% for n in messages[:loop.index0] %}{{ n.content }}{% endfor %}{% endfor %}",
        "{% for m in messages[:-1] %}{{ m.role }}{{ m.content }}{% endfor %}",
        "{% for m in messages[:-1] %}{{ {'a': [m.content]} }}{{ 'x' ~ m.content }}{% endfor %}",
    ],
)
def test_what_is_printed_as_a_list_is_told_and_joined_each_time(text: str, content: Any) -> None:
    template = turnwise.compile(text)
    found = []
    for _ in range(4):
        rendering = template.render([user(content), reply("a"), user("b")])
        found.append((rendering.text, rendering.warnings, rendering.changes))
    assert found == found[:1] * 4
    assert found[0][1] or found[0][2]
