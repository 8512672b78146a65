"""Hostile templates: each ends in an error of ours, or in a cheap and correct text, in little time and memory.

Every template runs in a child process of its own, where time and memory are measured (`tests/support/containment.py`).
The corpus has many; `GROWING` adds what fixed lists lack: attacks that scale, at sizes where they would hurt.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

import corpus
import turnwise
from containment import Bounds, Step, find_problems
from turnwise.tokens.tokenizers import SHIPPED, tokenizer

CHAT = [
    {"role": "system", "content": "S"},
    {"role": "user", "content": "hello"},
    {"role": "assistant", "content": "ok"},
]
SHARED = (
    "{% set ns = namespace(l=[1], t=(1,)) %}{% for i in range(40) %}{% set ns.l = [ns.l, ns.l] %}"
    "{% set ns.t = (ns.t, ns.t) %}{% endfor %}"
)
USES = """
    {{ ns.l.foo }} | {{ -ns.l }} | {{ ns.l % 3 }} | {{ ns.l < 1 }} | {{ ns.l + 1 }} | {{ ns.l() }} | {{ ns + 1 }}
    {{ ns.l['foo'] }} | {{ messages[ns.l] }} | {{ {}[ns.l].y }} | {{ ns.l|abs }} | {{ ns.l|round }} | {{ ns.l|items }}
    {{ ns.l|from_json }} | {{ ns|length }} | {{ 'x'|tojson(separators=ns.l) }} | {{ {'a': 1}.get(ns.t) }}
    {{ {'a': 1}[ns.t] }} | {{ dict([(ns.t, 1)]) }} | {{ ns.l is upper }} | {{ '%r' % [ns.l] }}
    {{ {'a': ns.l}|urlencode }} | {{ 'abcdefghijk'|truncate(5, true, ns.l) }} | {{ ns.l in ([ns.l]|map('default', 1)) }}
"""
ENCODED = ("😀", "a b, c.", "<|im_end|>", "<|im_", "a\n", "1", " a", "aB1 ", "ⅷ", "\x00", '{"a":1}')
"""What a template writes as often as it may: short tokens, long characters, control tokens and what begins like one."""
GROWING = {
    **{
        f"shared {use.strip()}": SHARED + use.strip()
        for line in USES.split("\n")
        for use in line.split("|")
        if "{{" in use and "}}" in use
    },
    "long-hex": "{{ 0x" + "f" * 3600 + " }}",
    "separators": "{{ ([1] * 30000)|tojson(separators=('a' * 100000, 'b'))|length }}",
    "sort-names": "{{ ([1] * 1000)|sort(attribute=',' * 1000) }}",
    "missing-keys": "{% for i in range(20000) %}{{ messages[0]['a' ~ i] }}{% endfor %}",
    "many-fields": "{{ ('{}' * 100000).format(*['a'] * 100000) }}",
    "many-percents": "{{ ('%' * 1000001) % () }}",
    "short-splits": "{% set a = 'x ' * 2047 %}{% for i in range(10000) %}{% if a.split(' ') %}{% endif %}{% endfor %}",
    "deep-lists": "{{ " + "[" * 50 + "]" * 50 + " }}",
    "many-brackets": "{{ " + "[" * 5000 + "]" * 5000 + " }}",
    "many-sets": "".join(f"{{% set v{i} = {i} %}}" for i in range(2000)),
    "many-macros": "".join(f"{{% macro m{i}() %}}x{{% endmacro %}}" for i in range(1500)),
    "long-string": "{{ '" + "x" * 900_000 + "' }}",
    "nested-loops": "{% for i in 'ab' %}" * 50 + "x" + "{% endfor %}" * 50,
    "nested-ifs": "{% if 1 %}" * 200 + "x" + "{% endif %}" * 200,
    "nested-sets": "{% set a %}" * 150 + "x" + "{% endset %}" * 150,
    "long-elif": "{% if 0 %}" + "{% elif 0 %}x" * 1500 + "{% endif %}",
    "unary": "{{ " + "-" * 4000 + "1 }}",
    "shared-list": "{% set ns = namespace(a=['x']) %}{% for i in range(40) %}{% set ns.a = [ns.a, ns.a] %}{% endfor %}"
    "{{ ns.a }}",
    "shared-json": "{% set ns = namespace(a={}) %}{% for i in range(40) %}{% set ns.a = {1: ns.a, 2: ns.a} %}"
    "{% endfor %}{{ ns.a|tojson }}",
    "shared-equal": "{% set ns = namespace(a=['x'], b=['x']) %}{% for i in range(40) %}{% set ns.a = [ns.a, ns.a] %}"
    "{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}",
    "shared-hash": "{% set ns = namespace(a=('x',)) %}{% for i in range(40) %}{% set ns.a = (ns.a, ns.a) %}{% endfor %}"
    "{{ {ns.a: 1} }}",
    "shared-unique": "{% set ns = namespace(a=(1,)) %}{% for i in range(40) %}{% set ns.a = (ns.a, ns.a) %}{% endfor %}"
    "{{ [ns.a, ns.a]|unique|list }}",
    "shared-sort": "{% set ns = namespace(a=['x'], b=['x']) %}{% for i in range(40) %}{% set ns.a = [ns.a, ns.a] %}"
    "{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ [ns.a, ns.b]|sort|length }}",
    "shared-in": "{% set ns = namespace(a=['x'], b=['x']) %}{% for i in range(40) %}{% set ns.a = [ns.a, ns.a] %}"
    "{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a in [ns.b] }}{{ ns.a is eq(ns.b) }}{{ [ns.b].index(ns.a) }}",
    "search": "{% set s = 'a' * 400000 %}{% for i in range(90000) %}{{ 'b' in s }}{% endfor %}",
    "compare": "{% set a = 'a' * 400000 ~ 'b' %}{% set b = 'a' * 400000 ~ 'c' %}"
    "{% for i in range(90000) %}{{ a == b }}{% endfor %}",
    "upper": "{% set s = 'a' * 400000 %}{% for i in range(9000) %}{% set t = s|upper %}{% endfor %}",
    "slice": "{% set s = 'a' * 400000 %}{% for i in range(9000) %}{% set t = s[1:] %}{% endfor %}",
    "length-of-nothing": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    **{
        f"encode {unit!r}": f"{{% if messages[1].content == 'hello' %}}{{{{ {unit!r} * {count} }}}}{{% endif %}}"
        for unit in ENCODED
        for count in (24_200 // len(unit.encode()),)
    },
    "encode emoji beyond": "{% if messages[1].content == 'hello' %}{{ '😀' * 99000 }}{% endif %}",
    "markers": "{{ '<|im_end|>' * 2400 }}",
    "markers beyond": "{{ '<|im_end|>' * 9900 }}",
    "places": "\n" * 1_000_000 + "{{ 1 // 0 }}",
    "flood": "{% set s = 'a' * 400000 %}{% for i in range(9000) %}{{ s }}{% endfor %}",
    "recursive-loop": "{% for x in [[]] recursive %}{{ loop([[1]]) }}{% endfor %}",
    "json-text": "{{ ('[' * 100000)|from_json }}",
    "format-star": "{{ '%*d' % (1000000000, 1) }}",
    "map-filter": "{% for i in range(900) %}{% set x = range(99999)|map('string')|list %}{% endfor %}",
    "groupby": "{% for i in range(900) %}{% set x = messages|groupby('role') %}{% set y = range(9999)|list|sort %}"
    "{% endfor %}",
    "float-power": "{{ 1e308 ** 1e308 }}{{ 9.0 ** 9999 }}",
    "raise-long": "{{ raise_exception('x' * 5000000) }}",
    "name-long": "{{ " + "x" * 500_000 + " }}",
    "number-long": "{{ " + "9" * 500_000 + " }}",
}


VERBS = ("compile", "as given", "render", "pieces", "stops", "encode")
BOUNDS = {
    **dict.fromkeys(VERBS, Bounds()),
    "render": Bounds(ms=170),
    "grammar": Bounds(ms=500),
}
"""What each verb may take. A grammar takes dozens of renderings, and still no more time than a few hostile ones. The
first rendering of a template that drops text takes some too, to find the form of the text that the template takes: with
`normalise=False` all of these take less than 100 ms."""
INTERNALS = (
    "class '",
    "<built-in",
    "object at 0x",
    "__builtins__",
    "root:",
    "uid=",
    "<function",
    "<bound",
)
"""What only a template that reached Python could print."""


def templates() -> Iterator[tuple[str, str]]:
    yield from GROWING.items()
    yield from ((row.id, row.text) for row in corpus.hostile())
    yield from ((row.id, row.text) for row in corpus.more_hostile())


@pytest.mark.law
@pytest.mark.parametrize("name", [name for name, _ in templates()])
def test_contained(name: str) -> None:
    """Every verb gives a text or an error of ours within its bounds, one after the other in one child."""
    tokenizer(SHIPPED)  # loaded once, for all children
    problems = find_problems(verbs_of(dict(templates())[name]), BOUNDS)
    assert not problems


def verbs_of(text: str) -> dict[str, Step]:
    """Return what a service does with a template, each verb with the results of those before it."""

    def compile_template(state: dict[str, Any]) -> None:
        state["template"] = turnwise.compile(text)

    def render(state: dict[str, Any]) -> str:
        state["rendering"] = state["template"].render(CHAT)
        return str(state["rendering"])

    def render_as_given(state: dict[str, Any]) -> str:
        return str(state["template"].render(CHAT, normalise=False))

    return {
        "compile": compile_template,
        "as given": render_as_given,
        "render": render,
        "pieces": lambda state: len(state["rendering"].pieces),
        "stops": lambda state: state["template"].stops(),
        "encode": lambda state: len(state["template"].encode(CHAT, tokenizer(SHIPPED))),
        "grammar": lambda state: state["template"].grammar,
    }


def of_kind(kind: str) -> list[Any]:
    """Return the rows of a kind as parameters of a test."""
    rows = [row for row in corpus.more_hostile() if row.facts["kind"] == kind]
    return [pytest.param(row, id=row.id) for row in rows]


@pytest.mark.parametrize("row", of_kind("escape"))
def test_nothing_escapes(row: corpus.Hostile) -> None:
    chat = copy.deepcopy(CHAT)
    try:
        text = str(turnwise.compile(row.text).render(chat))
    except turnwise.TurnwiseError:
        text = ""
    assert not [word for word in INTERNALS if word in text], text
    assert chat == CHAT


@pytest.mark.parametrize("row", of_kind("forge"))
def test_nothing_is_forged(row: corpus.Hostile) -> None:
    """The token in the text is the user's: no piece of the template's holds a character of it."""
    chat = [{"role": "user", "content": row.facts["content"]}]
    rendering = turnwise.compile(row.text).render(chat)
    text, token = str(rendering), row.facts["token"]
    assert token in text and "".join(piece.text for piece in rendering.pieces) == text
    authors = [piece.origin.kind for piece in rendering.pieces for _ in piece.text]
    start = text.index(token)
    assert "template" not in authors[start : start + len(token)]


def test_what_a_template_raises_is_cut_and_escaped() -> None:
    with pytest.raises(turnwise.TemplateRaised) as caught:
        turnwise.compile("{{ raise_exception('\x1b[2J' ~ 'x' * 5000) }}").render(CHAT)
    assert caught.value.message.startswith("\x1b[2J") and len(caught.value.message) == 5004
    assert "\x1b" not in str(caught.value) and len(str(caught.value)) < 1500
