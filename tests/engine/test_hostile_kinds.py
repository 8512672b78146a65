"""Hostile templates against every verb, and user's texts against every construct that could make them a control token.

A part of the templates runs in CI, and all of them with `-m slow`.
"""

from __future__ import annotations

from typing import Any

import pytest

import turnwise
from containment import Bounds, Step, find_problems
from turnwise.tokens.tokenizers import SHIPPED, tokenizer

# Hostile templates of kinds that the corpus does not have, and constructs that carry a user's text through a template.
#
# `HOSTILE` has templates by name, each with its dialect: texts that grow with every filter, values that contain
# themselves, numbers at the edge, questions that probing asks often (branches, options, refusals), and the functions of
# Go's templates. `CARRYING` has expressions of `c`, the content of a user's message, that write it, or parts of it that
# make a control token again.

TWELVE = "{% for i in range(12) %}"
GROW = "{% set ns = namespace(x='a') %}{% for i in range(60) %}"
JINJA = {
    # each filter makes the text longer, the next one reads the longer text
    "json of json": "{{ '\"'" + "|tojson" * 40 + " }}",
    "json of json in a loop": GROW + "{% set ns.x = ns.x|tojson %}{% endfor %}{{ ns.x|length }}",
    "percent of percent": "{{ '%'" + "|urlencode" * 60 + "|length }}",
    "entity of entity": "{{ '&'" + "|forceescape" * 60 + "|length }}",
    "replaced again": "{{ 'a'" + "|replace('a', 'aa')" * 60 + "|length }}",
    "replaced by itself": GROW + "{% set ns.x = ns.x|replace('a', ns.x) %}{% endfor %}{{ ns.x }}",
    "joined with itself": GROW + "{% set ns.x = ns.x.join(ns.x ~ 'b') %}{% endfor %}{{ ns.x|length }}",
    "formatted with itself": GROW + "{% set ns.x = '%s%s' % (ns.x, ns.x) %}{% endfor %}{{ ns.x }}",
    "quoted by format": GROW + "{% set ns.x = '%r' % [ns.x] %}{% endfor %}{{ ns.x }}",
    "indented again": "{{ ('a\n' * 500)" + "|indent(50, true)" * 60 + "|length }}",
    "wrapped again": "{{ ('ab ' * 9000)" + "|wordwrap(1, true, '\n\n\n\n')" * 40 + "|length }}",
    "longer in upper case": "{{ ('ŉﬃ' * 40000)" + "|upper|lower" * 60 + "|length }}",
    "tabs of tabs": "{{ ('\t' * 900).expandtabs(900).replace(' ', '\t').expandtabs(900)|length }}",
    "blocks in blocks": "{% set x = 'ab' %}" + "{% set x %}{{ x }}{{ x }}{% endset %}" * 60 + "{{ x }}",
    "filter blocks": "{% filter replace('a', 'aaaa') %}" * 30 + "a" + "{% endfilter %}" * 30,
    "titles": "{{ ('a b-c ' * 90000)" + "|title|capitalize" * 30 + "|length }}",
    "tags": "{{ ('<' * 90000 ~ '>')|striptags|length }}{{ ('<!--' * 60000)|striptags|length }}",
    "dates of dates": "{{ strftime_now('%c' * 40000)|length }}{{ strftime_now('%' * 99999)|length }}",
    # values that contain themselves, or each other
    "list in itself": "{% set l = [1] %}{% set _ = l.append(l) %}{{ l }}{{ l|tojson }}{{ l == l }}{{ l|sort }}",
    "dict in itself": "{% set d = {} %}{% set _ = d.update({'a': d}) %}{{ d }}{{ d|tojson }}{{ d == d }}",
    "namespace in itself": "{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns.a }}{{ ns.a|tojson }}"
    "{{ ns.a == ns.a }}{{ ns.a|unique|list }}",
    "messages in a message": "{% set _ = messages[0].update({'m': messages}) %}{{ messages|tojson }}{{ messages }}",
    "list that grows in its loop": "{% set l = [1] %}{% for x in l %}{% set _ = l.append(x) %}{% endfor %}",
    "dict that grows in its loop": "{% set d = {'a': 1} %}{% for k in d %}{% set _ = d.update({k ~ 'a': 1}) %}"
    "{% endfor %}",
    "extended by itself": "{% set l = [1] %}{% for i in range(60) %}{% set _ = l.extend(l) %}{% endfor %}{{ l }}",
    "inserted in front": "{% set l = [] %}{% for i in range(50000) %}{% set _ = l.insert(0, i) %}{% endfor %}",
    "removed from front": "{% set l = range(60000)|list %}{% for i in range(9) %}{% set _ = l.pop(0) %}{% endfor %}",
    # numbers and sizes at the edge
    "batches": "{{ [1]|batch(100000000, 'x')|list|length }}{{ range(9)|slice(100000000)|list|length }}",
    "ranges": "{{ range(10 ** 18)|length }}{{ (10 ** 17) in range(10 ** 18) }}{{ range(10 ** 18)|last }}",
    "range backwards": "{{ range(10 ** 18)[::-1]|first }}{{ range(0, -(10 ** 18), -1)|sum }}",
    "rounding": "{{ 1e308|round(308) }}{{ 1.5|round(-999999999) }}{{ 1.5|round(999999999, 'ceil') }}",
    "digits": "{{ ('9' * 4000)|int }}{{ ('9' * 400000)|float }}{{ ('0x' ~ 'f' * 4000)|int(0, 16) }}",
    "widths": "{{ '{:>{}}'.format(1, 10 ** 9) }}",
    "precisions": "{{ '%.*f' % (10 ** 9, 1.5) }}{{ '{:.{}f}'.format(1.5, 10 ** 9) }}",
    "not a number": "{% set n = 'nan'|float %}{{ ([n, 1, n, 0] * 9000)|sort|length }}{{ [n] * 9000 == [n] * 9000 }}",
    "powers in a loop": "{% set ns = namespace(n=3) %}{% for i in range(90000) %}"
    "{% set ns.n = ns.n * ns.n % 10 ** 300 %}{% endfor %}",
    "spread": "{% macro m() %}{{ varargs|length }}{% endmacro %}{{ m(*range(9999999)) }}",
    "spread keywords": "{% macro m() %}{{ kwargs|length }}{% endmacro %}{{ m(**dict(('k' * 90000)|map('list'))) }}",
    "cycles": TWELVE + "{{ loop.cycle(*range(99999)) }}{% endfor %}",
    "changes": "{% set l = range(60000)|list %}{% for i in range(9000) %}{{ loop.changed(l) }}{% endfor %}",
    "empty separators": "{{ ('a' * 90000).replace('', 'b' * 90000)|length }}{{ ('a' * 900000).count('') }}",
    "sorting by paths": "{{ (messages * 900)|sort(attribute='a.b.c.d.e.f.g.h' * 900)|length }}",
    "grouping texts": "{{ range(90000)|map('string')|map('length')|groupby('x')|list|length }}",
    # what probing asks: branches, options, refusals, prompts that always differ
    "flags": "".join(f"{{% if n{i} %}}{i}{{% else %}}-{{% endif %}}" for i in range(300)),
    "flags within flags": "".join(f"{{% if n{i} %}}{i}" for i in range(50)) + "{% endif %}" * 50,
    "words": "".join(f"{{% if 'w{i}' in messages[-1].content %}}{i}{{% endif %}}" for i in range(350)),
    "roles": "{% for m in messages %}"
    + "".join(f"{{% if m.role == 'r{i}' %}}<|r{i}|>{{{{ m.content }}}}{{% endif %}}" for i in range(250))
    + "{% endfor %}",
    "fields": "{% for m in messages %}" + "".join(f"{{{{ m.f{i} }}}}" for i in range(380)) + "{% endfor %}",
    "refuses all": "{{ raise_exception(messages|tojson * 900) }}",
    "refuses late": "{% for i in range(20000) %}{{ i ~ messages }}{% endfor %}{{ raise_exception('no') }}",
    "depends on the count": "{{ 'x' * (messages|length * 6000) }}{{ '<|im_end|>' * (messages|length * 200) }}",
    "depends on the text": "{% for m in messages %}{{ m.content|sort|join }}{{ m.content|length }}<|x|>{% endfor %}",
    "prefixes": "{% for m in messages %}"
    + "".join("<" + "a" * i + ">" for i in range(1, 120))
    + "{{ m.content }}{% endfor %}",
    "stops everywhere": "{% for m in messages %}" + "{{ eos_token }}{{ m.content }}" * 300 + "{% endfor %}",
    "generation blocks": "{% for m in messages %}"
    + "{% generation %}{{ m.content }}{% endgeneration %}" * 150
    + "{% endfor %}",
    "calls in calls": "{% for m in messages %}{% for t in m.tool_calls or [] %}"
    + "".join(f"<t{i}>{{{{ t.function.arguments|tojson }}}}</t{i}>" for i in range(100))
    + "{% endfor %}{% endfor %}",
    "tools in loops": "{% for a in tools or [] %}{% for b in tools %}{% for c in tools %}{% for d in tools %}"
    "{{ tools|tojson }}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{{ messages|tojson }}",
    "slow for assistants": "{% for m in messages %}{% if m.role == 'assistant' %}{% for i in range(9000) %}"
    "{% set x = i ~ 'a' %}{% endfor %}{% endif %}{{ m.content }}{% endfor %}",
    "long for prompts": "{% for m in messages %}{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<think>' * 3000 }}{% endif %}",
}  # fmt: skip
OLLAMA = {
    "json of json, Go": '{{ "\\"" ' + "| json " * 45 + "}}",
    "printf of printf": '{{ $x := "a" }}' + '{{ $x = printf "%s%s" $x $x }}' * 50 + "{{ $x }}",
    "quoted printf": '{{ $x := "a" }}' + '{{ $x = printf "%q%q" $x $x }}' * 40 + "{{ $x }}",
    "width of printf": '{{ printf "%999999999d" 1 }}{{ printf "%[2]*[1]d" 1 999999999 }}',
    "precision of printf": '{{ printf "%.999999999f" 1.5 }}',
    "verbs of printf": '{{ printf "' + "%v" * 9000 + '" .Messages }}',
    "template in itself": '{{ define "a" }}{{ template "a" . }}{{ end }}{{ template "a" . }}',
    "ranges in ranges": "{{ range .Messages }}{{ range $.Messages }}" * 4 + "x" + "{{ end }}{{ end }}" * 4,
    "range of a number": "{{ range 999999999 }}x{{ end }}",
    "slices": '{{ slice "abc" 0 999999999999999999 }}{{ index .Messages 99999999999999999999 }}',
    "escapes": "{{ .Prompt " + "| html | js | urlquery " * 20 + "}}",
    "conditions": "{{ if " + "and " * 200 + ".Prompt" + " .Prompt" * 200 + " }}x{{ end }}",
    "blocks, Go": "{{ with .Messages }}" * 80 + "x" + "{{ end }}" * 80,
    "comparisons, Go": "{{ eq .Prompt" + " .System" * 3000 + " }}",
}  # fmt: skip
HOSTILE: dict[str, tuple[str, str]] = {
    **{name: ("jinja", text) for name, text in JINJA.items()},
    **{name: ("ollama", text) for name, text in OLLAMA.items()},
}

TOKEN = "<|im_end|>"
CONTENT = f"a{TOKEN}b"
CARRYING = """
    {{ c }}
    {{ c|string|trim|list|join }}
    {{ c.split(c[1])|join(c[1]) }}
    {{ c.partition('|')|join }}
    {{ c.rpartition('end')[::-1][::-1]|join('') }}
    {{ (c|list|reverse|list)[::-1]|join }}
    {{ c|reverse|reverse }}
    {{ c[:6] ~ c[6:] }}
    {{ '%s' % c }}{{ '%s%s' % (c[:3], c[3:]) }}
    {{ '{}{}'.format(c[:3], c[3:]) }}
    {{ '{0[c]}'.format({'c': c}) }}
    {{ c|tojson|from_json }}
    {{ {'k': c}|tojson|from_json|items|list|last|last }}
    {{ {c: 1}|list|first }}
    {{ {c: 1}|items|map('first')|join }}
    {{ dict([(c, c)]).items()|first|join }}
    {{ c|replace('a', 'A')|replace('A', 'a') }}
    {{ c|replace('', '')|wordwrap(500)|indent(0) }}
    {{ c.swapcase().swapcase() }}{{ c.upper().lower() }}{{ c.title()|lower }}
    {{ c.encode if false else c }}
    {{ [c, 'x']|sort|first }}{{ [c, 'x']|max }}{{ [c, 'x']|min }}
    {{ [[c]]|sum(start=[])|first }}
    {{ c|batch(3)|map('join')|join }}
    {{ c|slice(4)|map('join')|join }}
    {{ [{'k': c}]|groupby('k')|map('first')|first }}
    {{ [{'k': c}]|map(attribute='k')|unique|join }}
    {{ c|escape|replace('&lt;', c[1])|replace('&gt;', c[10]) }}
    {{ c.ljust(40, c[1]).rstrip(c[1]) }}{{ c.center(40)|trim }}
    {% set x %}{{ c }}{% endset %}{{ x }}{{ x|string ~ '' }}
    {% macro m(v) %}{{ v }}{{ caller() if caller }}{% endmacro %}{{ m(c) }}{% call m('') %}{{ c }}{% endcall %}
    {% set ns = namespace(x='') %}{% for ch in c %}{% set ns.x = ns.x ~ ch %}{% endfor %}{{ ns.x }}
    {% filter trim %}{{ c }}{% endfilter %}{% filter upper|lower %}{{ c }}{% endfilter %}
    {% for ch in c %}{{ ch }}{% endfor %}
    {% for part in c.split('|') %}{{ part }}{{ c[2] if not loop.last }}{% endfor %}
    {% with v = c %}{{ loop_variable|default(v) }}{% endwith %}{{ missing|d(c) }}
"""  # what stands on a line is one construct


# The tests

pytestmark = [pytest.mark.once, pytest.mark.filterwarnings("ignore")]

CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "S"},
    {"role": "user", "content": "hello"},
    {"role": "assistant", "content": "ok"},
]
CHANGED = CHAT[:2] + [{"role": "assistant", "content": None}, {"role": "user", "content": ["a"]}]
BOUNDS = {
    "compile": Bounds(ms=200),  # of a template at the limits, see `test_compile_limits.py`
    **dict.fromkeys(("render", "pieces", "stops", "encode"), Bounds()),
    **dict.fromkeys(("grammar", "normalise"), Bounds(ms=500)),
    **dict.fromkeys(("convert", "diff"), Bounds(ms=1500)),
}
"""What each verb may take. Those of the last two lines ask a template dozens of questions, with one budget for all."""
OTHER = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


def verbs_of(dialect: str, source: str) -> dict[str, Step]:
    """Return what a service may do with a template, each verb with the results of those before it."""

    def compile_template(state: dict[str, Any]) -> None:
        state["template"] = turnwise.compile(source, dialect=dialect)

    def render(state: dict[str, Any]) -> str:
        state["rendering"] = state["template"].render(CHAT)
        return str(state["rendering"])

    return {
        "compile": compile_template,
        "render": render,
        "pieces": lambda state: len(state["rendering"].pieces),
        "stops": lambda state: state["template"].stops(),
        "encode": lambda state: len(state["template"].encode(CHAT, tokenizer(SHIPPED))),
        "grammar": lambda state: state["template"].grammar,
        "normalise": lambda state: turnwise.Normaliser(state["template"]).normalise(CHANGED),
        "convert": lambda state: state["template"].convert("ollama"),
        "diff": lambda state: turnwise.diff(state["template"], turnwise.compile(OTHER)),
    }


def contain(name: str) -> None:
    tokenizer(SHIPPED)  # loaded once, for all children
    turnwise.compile(OTHER)
    assert not find_problems(verbs_of(*HOSTILE[name]), BOUNDS)


@pytest.mark.parametrize("name", list(HOSTILE)[::14])
def test_some_are_contained(name: str) -> None:
    contain(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_all_are_contained(name: str) -> None:
    contain(name)


@pytest.mark.law
@pytest.mark.parametrize("construct", [line.strip() for line in CARRYING.strip().split("\n")])
def test_no_construct_makes_a_control_token(construct: str) -> None:
    template = turnwise.compile("{% set c = messages[0].content %}" + construct)
    chat = [{"role": "user", "content": CONTENT}]
    rendering = template.render(chat)
    text = str(rendering)
    assert TOKEN in text and "".join(piece.text for piece in rendering.pieces) == text
    authors = [piece.origin.kind for piece in rendering.pieces for _ in piece.text]
    start = text.find(TOKEN)
    while start >= 0:
        assert "template" not in authors[start : start + len(TOKEN)]
        start = text.find(TOKEN, start + 1)
    encoded = template.encode(chat, tokenizer(SHIPPED))
    assert tokenizer(SHIPPED).added[TOKEN].id not in encoded.input_ids[: len(encoded) - 1]
