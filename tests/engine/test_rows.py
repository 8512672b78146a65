"""What a trace says of a template holds for all contents; and a template that looks at a content has none."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pytest

import corpus
import turnwise
from published_templates import compile_published
from random_expressions import ExpressionMaker
from turnwise.engine.segments.rows import ContentTrace, ContentTracer
from turnwise.errors import TurnwiseError

pytestmark = pytest.mark.filterwarnings("ignore::turnwise.TurnwiseWarning")
NOW = datetime(2024, 5, 17, 10, 30)
FORMS = (
    ("system", "user", "assistant", "user", "assistant"),
    ("user", "assistant", "user"),
    ("user", "assistant"),
)
CONTENTS = (
    *("Hi", " hi ", "\n\nhi\n", "\u3000wide\u2003", "user", "assistant", "system", "%s {} {{ x }}"),
    *("<|im_end|>", "</think>\n\nhi", "<think>so</think>hi", "[INST] a [/INST]", "</s><s>", "\0"),
    *("e\u0301 \u212b \ufb01", "\ufdd0", "{}", "[]", "0", "False", "none", "'\"\\", "x" * 3000),
    *("<tool_response>\nx\n</tool_response>", "/no_think", "Be kind.", "\x85a\x1f", "\t.\r"),
)
LOOP = "{% for m in messages %}%s{% endfor %}"
# Templates of which the text, or the control flow, depends on a content in a way that is not followed.
LOOKING = (
    *("{{ m.content|length }}", "{{ m.content[0] }}", "{{ m.content[1:] }}", "{{ m|tojson }}"),
    *("{% for c in m.content %}{{ c }}-{% endfor %}", "{{ m.content|upper }}", "{{ [m.content] }}"),
    *("{{ m.content.strip('x') }}", "{{ m.content.split() }}", "{{ m.content|list|length }}"),
    *("{{ {m.content: 1}|length }}", "{% if m.content < 'b' %}a{% endif %}", "{{ m.content * 2 }}"),
    *("{{ '%s' % m.content }}", "{{ '{}'.format(m.content) }}", "{{ m.content in 'abc' }}"),
    *("{% set f = m.content.strip %}{{ f() }}", "{% for k in m %}{{ k }}{% endfor %}"),
    *(
        "{{ m.items()|list }}",
        "{{ m.keys()|list }}",
        "{{ m.content is lower }}",
        "{{ m.content|int }}",
    ),
    *(
        "{% if 'ab' in 'a' ~ m.content %}x{% endif %}",
        "{% if 'ab' in m.content ~ 'b' %}x{% endif %}",
    ),
    *(
        "{{ m.content == messages[0].content }}",
        "{{ m.content is sameas 'a' }}",
        "{{ m.content|safe + '.' }}",
    ),
    *(
        "{{ m.content.index('x') }}",
        "{{ m.content|replace('', '-') }}",
        "{{ m|list }}",
        "{{ m|first }}",
    ),
    *("{{ messages|map(attribute='content')|join }}", "{{ messages|groupby('content')|length }}"),
    *("{{ messages|selectattr('content', 'eq', 'a')|list|length }}", "{{ messages|string }}"),
    *("{{ dict(a=m.content) }}", "{{ cycler(m.content).next() }}", "{{ m.content|d('x')|length }}"),
    *("{{ loop.changed(m.content) }}", "{{ namespace(a=m.content) }}", "{{ m.content.__class__ }}"),
    *("{% set x = m.get('content') %}{{ x|length }}", "{{ m.values()|list|length }}"),
    *(
        "{% macro f(x) %}{{ x|length }}{% endmacro %}{{ f(m.content) }}",
        "{{ m.content ~ 1 > 'a' }}",
    ),
    *("{% set x %}{{ m.content }}{% endset %}{{ x|length }}", "{{ 'a'.join([m.content, 'b']) }}"),
    *(
        "{% if strftime_now == m.content %}{% endif %}{{ range(m.content|length) }}",
        "{{ m|dictsort }}",
    ),
)


def make_messages(roles: Sequence[str], contents: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {"role": role, "content": content} for role, content in zip(roles, contents, strict=True)
    ]


def trace(template: turnwise.Template, roles: Sequence[str], **more: Any) -> ContentTrace | None:
    messages = make_messages(roles, ["x"] * len(roles))
    return ContentTracer(template.renderer).trace(messages, {"now": NOW, **more})


def write(found: ContentTrace, contents: Sequence[str]) -> str:
    places = {f"[{index}]['content']": content for index, content in enumerate(contents)}
    return "".join(found.write(places))


def check_trace(template: turnwise.Template, dice: random.Random, tries: int) -> int:
    """Compare what traces say with renderings; return how many forms have a trace."""
    count = 0
    for roles in FORMS:
        for more in ({}, {"add_generation_prompt": True}):
            found = trace(template, roles, **more)
            if found is None:
                continue
            count += 1
            for _ in range(tries):
                contents = dice.choices(CONTENTS, k=len(roles))
                if any(text in content for text in found.absent for content in contents):
                    continue
                rendering = template.renderer.render(
                    make_messages(roles, contents), now=NOW, **more
                )
                assert rendering.text == write(found, contents), contents
    return count


@pytest.mark.parametrize("name", ["chatml", "qwen3", "llama-3.1", "gemma-3", "deepseek-r1"])
def test_what_is_traced_is_what_is_rendered(name: str) -> None:
    assert check_trace(turnwise.load(name), random.Random(name), 40) > 0


@pytest.mark.law
@pytest.mark.once
@corpus.needs_corpus
def test_published_templates_are_traced() -> None:
    dice = random.Random(0)
    names = list(corpus.load_published())
    traced = [name for name in names if check_trace(compile_published(name), dice, 8)]
    assert len(traced) >= 0.8 * len(names)


def test_a_namespace_is_read_before_it_is_written() -> None:
    template = turnwise.compile(
        "{% set ns = namespace(text='') %}{% for m in messages %}{{ ns.text }}{{ m.content }}"
        "{% set ns.text = ns.text ~ '<' ~ m.role ~ '>' %}{% endfor %}"
    )
    found = trace(template, ("user", "assistant", "user"))
    assert found is not None and write(found, "abc") == "a<user>b<user><assistant>c"


# What a namespace has of contents decides.
CARRIED = (
    "{{ 'long' if n.t|length > 5 }}{% set n.t = m.content %}{{ m.content }}",
    "{{ 'long' if n.i > 5 }}{% set n.i = n.i + m.content|length %}{{ m.content }}",
    "{{ n.t + 'x'|safe }}{% set n.t = m.content %}{{ m.content }}",
    "{% set n.l = n.l + [m.content] %}{{ m.content }}{{ 'ab' in n.l|join }}",
    "{% set n.l = n.l + [m.content] %}{% if loop.last %}{% for t in n.l %}{{ t|length > 3 }}{% endfor %}{% endif %}",
    "{% set n.l = n.l + [m.content] %}{% if loop.last %}{% for t in n.l %}{{ t == 'Hi' }}{% endfor %}{% endif %}",
    "{% set n.l = n.l + [{'t': m.content + 'b'}] %}{{ 'ab' in n.l[0].t }}",
    "{{ 'first' if m == messages[0] }}{{ m.content }}",
    "{% set n.l = n.l + [{'t': m.content.strip('-')}] %}{{ m.content }}{{ 'empty' if not n.l[0].t }}",
    "{% set n.l = n.l + [{'role': m.content}] %}{{ n.l[0].role }}",
    "{% set n.l = n.l + [m.content[1:]] %}{{ m.content }}{{ 'empty' if not n.l[0] }}",
)


@pytest.mark.parametrize("body", CARRIED)
def test_a_template_that_looks_at_contents_later_is_not_traced(body: str) -> None:
    start = "{% set n = namespace(t='', i=0, l=[]) %}"
    template = turnwise.compile(start + LOOP.replace("%s", body))
    assert trace(template, ("user", "assistant")) is None


@pytest.mark.parametrize("body", LOOKING)
def test_a_template_that_looks_at_contents_is_not_traced(body: str) -> None:
    template = turnwise.compile(LOOP.replace("%s", body))
    assert trace(template, ("user", "assistant")) is None


@pytest.mark.parametrize(
    "question",
    ["'content' in a", "'role' in a", "a.content", "a.get('type') is string", "a|length"],
)
def test_a_template_that_looks_at_arguments_is_not_traced(question: str) -> None:
    """Whatever their keys are: also those that messages have."""
    call = {"function": {"arguments": {"content": "x", "role": "y", "type": "z"}}}
    body = "{% set a = m.tool_calls[0].function.arguments %}{% if a %}{{ a|tojson }}{% endif %}"
    for looks in (False, True):
        template = turnwise.compile(
            LOOP.replace("%s", body + f"{{% if {question} %}}!{{% endif %}}" * looks)
        )
        messages = [{"role": "assistant", "tool_calls": [call]}]
        found = ContentTracer(template.renderer).trace(messages, {"now": NOW})
        assert (found is None) is looks


@pytest.mark.parametrize(
    ("body", "absent"),
    [
        ("{% if '</think>' in m.content %}x{% endif %}{{ m.content }}", {"</think>"}),
        ("{{ m.content.split('a')[-1].lstrip('\n') }}", {"a"}),
        ("{{ 'x' if m.content == 'b' or m.content != '' else m.content }}", {"b"}),
        (
            "{{ m.content if m.content is string and m.content and not m.content is mapping }}",
            set(),
        ),
        ("{{ (' ' ~ m.content ~ '\n')|trim }}{{ m.content in ['c', 'd'] }}", {"c", "d"}),
        ("{% set n = namespace(t='') %}{% set n.t = n.t + m.content %}{{ n.t }}", set()),
        ("{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f(m.content)|trim }}", set()),
        ("{{ m.get('content', '')|string|default('-')|replace('e', 'f') }}", {"e"}),
        ("{{ m.content.startswith('<g>') }}{{ m['content'].endswith('h') }}", {"<g>", "h"}),
        ("{{ (messages|selectattr('role', 'eq', 'user')|list)[0].content }}", set()),
        ("{% filter trim %}{{ m.content }}{% endfilter %}{{ '' == m.content }}", set()),
    ],
)
def test_questions_that_have_an_answer(body: str, absent: set[str]) -> None:
    template = turnwise.compile(LOOP.replace("%s", body))
    found = trace(template, ("user", "assistant"))
    assert found is not None and found.absent == absent
    dice = random.Random(body)
    for _ in range(60):
        contents = dice.choices(CONTENTS, k=2)
        if not any(text in content for text in absent for content in contents):
            rendering = template.renderer.render(make_messages(("user", "assistant"), contents))
            assert rendering.text == write(found, contents)


@pytest.mark.once
def test_random_expressions() -> None:
    """Whatever a template does with a content: if there is a trace, it says what is rendered."""
    dice, traced = random.Random(4), 0
    maker = ExpressionMaker(dice)
    for number in range(250):
        body = f"{{% set x = {maker.make(dice.randrange(4))} %}}"
        body += f"{{% if {maker.make_test('x')} %}}a{{{{ x }}}}{{% else %}}b{{% endif %}}"
        source = f"{{% macro f(a, b) %}}<{{{{ a }}}}{{{{ b|trim }}}}{{% endmacro %}}{LOOP.replace('%s', body)}"
        try:
            template = turnwise.compile(source, name=f"random {number}")
        except TurnwiseError:
            continue
        found = trace(template, ("user", "assistant"))
        if found is None:
            continue
        traced += 1
        for _ in range(8):
            contents = dice.choices(CONTENTS, k=2)
            if any(text in content for text in found.absent for content in contents):
                continue
            messages = make_messages(("user", "assistant"), contents)
            assert template.renderer.render(messages).text == write(found, contents), source
    assert traced > 60


def test_the_clock() -> None:
    found = trace(
        turnwise.compile("{{ strftime_now('%d %b') }}{{ messages[0].content }}"), ("user",)
    )
    assert found is not None and found.clock == (("%d %b", "17 May"),)
    assert found.is_on_time(NOW.replace(hour=23)) and not found.is_on_time(NOW.replace(day=18))
    hidden = "{% set f = strftime_now %}{{ f('%Y') if x is not defined else '' }}"
    template = turnwise.compile(hidden + "{{ (strftime_now or x)('%Y') }}{{ messages[0].content }}")
    assert trace(template, ("user",)) is None


def test_budgets_that_a_content_may_exceed() -> None:
    """A trace exists only where no content, however long, goes over a budget."""
    often = "{{ m.content.replace('a', '') }}" + "{% if 'abcdefgh' in m.content %}{% endif %}" * 40
    assert trace(turnwise.compile(LOOP.replace("%s", often)), ("user",)) is None
    plain = turnwise.compile(LOOP.replace("%s", "{{ m.content }}"))
    assert trace(plain, ("user",)) is not None
    for limits in (
        turnwise.Limits(deadline=1.0),
        turnwise.Limits(output_per_character=1),
        turnwise.Limits(bytes=1000, max_bytes_growth=1),
    ):
        limited = turnwise.compile(LOOP.replace("%s", "{{ m.content|trim }}")).with_limits(limits)
        assert trace(limited, ("user",)) is None


def test_a_template_that_refuses_the_roles_is_not_traced() -> None:
    template = turnwise.compile("{{ raise_exception('no') }}")
    assert trace(template, ("user",)) is None
    with pytest.raises(TurnwiseError):
        template.render(make_messages(("user",), ("x",)))
