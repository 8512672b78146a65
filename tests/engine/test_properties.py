"""Laws that hold for any template and any conversation.

The most telling one is `test_generated_templates`: generated templates (`grammar.py`) give the same text here
as in transformers, or an error in both. The others hold what a server or a training job relies on: a rendering is a
pure function of its inputs, from any thread and in any process, and only `TurnwiseError` ever leaves.
"""

from __future__ import annotations

import copy
import itertools
import pickle
import random
import re
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import cache
from multiprocessing import get_context
from typing import Any

import jinja2
import jinja2.sandbox
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import corpus
import random_templates as grammar
import turnwise
from jinja_agreement import CHATS, TOOLS, same
from turnwise import registry
from turnwise.template import Template

# Templates are given unknown tokens, and inputs that lose something: that is no failure here.
pytestmark = [
    pytest.mark.once,
    pytest.mark.filterwarnings("ignore::turnwise.errors.TurnwiseWarning"),
]

MANY = 100_000  # templates of the longest test
QUIET = settings(suppress_health_check=list(HealthCheck), max_examples=300)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
ROLE = st.sampled_from(["user", "assistant", "system", "tool"])
CONTENT = st.one_of(
    TEXT,
    st.none(),
    st.lists(st.builds(lambda text: {"type": "text", "text": text}, TEXT), max_size=2),
)
MESSAGE = st.fixed_dictionaries(
    {"role": ROLE, "content": CONTENT}, optional={"name": TEXT, "reasoning_content": TEXT}
)
CHAT = st.lists(MESSAGE, max_size=4)


@cache
def templates() -> tuple[Template, ...]:
    """A few of every kind: with macros, tools, generation blocks, namespaces; entries where there is no corpus."""
    found = sorted(corpus.load_published().values(), key=lambda published: published.name)[::20]
    entries = [] if found else sorted(registry.entries())[::20]
    own = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{{ m|tojson }}{% endfor %}{{ tools|tojson(indent=2) }}"
    return (
        turnwise.compile(own),
        *(turnwise.compile(one.text, name=one.name, options=one.options) for one in found),
        *(turnwise.load(name) for name in entries),
    )


def outcome(render: Callable[[], Any]) -> Any:
    """What came of it: text and pieces, or the error's type and words."""
    try:
        rendering = render()
        return rendering.text, rendering.pieces
    except turnwise.TurnwiseError as error:
        return type(error).__name__, str(error)


def render_outcome(template: Template, messages: Any, **arguments: Any) -> Any:
    return outcome(lambda: template.render(messages, now=corpus.NOW, normalise=False, **arguments))


# ---- the same as transformers, on generated templates ----


GENERATED = st.randoms(use_true_random=False).map(grammar.template)


@given(GENERATED, st.sampled_from(CHATS))
@QUIET
def test_generated_templates(text: str, chat: list[dict[str, Any]]) -> None:
    same(text, chat)


# docs/compatibility.md: jinja2 does not see the error in what it evaluates while compiling
CONSTANT_SLICE = re.compile(r"\bnone\[[^\]]*:[^|]*\|")


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_generated_templates_at_length(part: int) -> None:
    """Plain chance instead of hypothesis: ten times as fast, and what fails is a seed to be looked at."""
    failures = []
    for seed in range(part * MANY // 10, (part + 1) * MANY // 10):
        chance = random.Random(seed)
        text, chat = grammar.template(chance), chance.choice(CHATS)
        try:
            same(text, chat)
        except Exception as error:  # a raw one is a failure as much as a wrong text
            if isinstance(error, AssertionError) and CONSTANT_SLICE.search(text):
                continue
            failures.append(f"{seed}: {text!r}\n    {type(error).__name__}: {str(error)[:300]}")
    assert not failures, "\n".join([f"{len(failures)} failures", *failures[:10]])


DISAGREED = [
    "{{ none[1:] and word }}{{ none[1:] and word.x.y }}",
    "{{ ['<'|e, \"'\"|forceescape] }}{{ {1: 'a'|safe} }}",
    "{% for m in messages %}{% if m.nope %}{% elif m.role == 'x' %}{% endif %}{{ m.role }}{% endfor %}",
    "{% for m in messages %}{% if loop.last %}{% elif m['role'] %}{% endif %}{{ m.role if flag else 1 }}{% endfor %}",
    "{% for m in messages if nope %}{{ nope }}{% endfor %}",
    "{% for m in messages if record %}{{ record.name }}{% endfor %}",
    "{% for x in names %}{% for m in messages if loop.last %}{{ loop.index }}{% endfor %}{% endfor %}",
    "{% for m in messages if loop.index %}{{ loop.index }}{% endfor %}",
    "{% macro b(g) %}{% macro a(c, b=b) %}{{ b }}{% endmacro %}{{ a() }}{% endmacro %}{{ b('') }}",
    "{% for x in sizes if flag %}{{ x }}{% endfor %}",
    "{% for x in tree recursive %}{{ word }}{% endfor %}{% for a, word in record.inner.items() %}{% endfor %}",
    "{% set g %}{{ word }}{% endset %}{% for a, word in record.inner.items() %}{% endfor %}",
    "{% filter upper %}{{ word }}{% endfilter %}{% with word = 1 %}{% endwith %}",
    "{% for x in sizes %}{% break %}{% else %}none{% endfor %}",
    "{% for x in sizes %}{% generation %}{% break %}{% endgeneration %}{% endfor %}",
    "{% for x in names %}{{ loop.changed(x[0]) }}{% endfor %}",
    "{% for x in names %}{{ [loop.cycle('a', 'b'), 1] }}{% endfor %}",
    "{% for x in names %}{% for y in [loop.cycle('a', 'b')] %}{{ y }}{% endfor %}{% endfor %}",
    "{{ rows|groupby('kind')|map(attribute='grouper')|list }}",
    "{{ rows|groupby('kind')|map(attribute='list')|list }}",
    "{{ rows|max(attribute='name') }}",
    "{{ word|max }}",
    "{{ range(3) }}",
    "{{ range(3)|tojson }}",
    "{{ '{a[0]}'.format(a=word) }}",
    "{{ '{:{}}'.format(word, 20) }}|",
    "{{ '{!r}'.format(nope) }}",
    "{{ '%r' % (nope,) }}",
    "{{ '{:>4}'.format(nope) }}",
    "{{ word.split('o'|e) }}",
    "{{ ('<'|e) is escaped }}",
    "{{ nope is callable }}",
    "{{ nope|indent }}",
    "{{ nope|wordwrap }}",
    "{{ none|indent }}",
    "{{ none|truncate }}",
    "{{ true|wordwrap }}",
    "{{ [1]|truncate(3) is string }}",
    "{{ ''|wordwrap(0) }}",
    "{{ record|urlencode }}",
    "{{ record[:1] }}",
    "{{ nothing[:1] }}",
    "{{ word.join(nope) }}",
    "{{ dict(nope) }}",
    "{% set ns = namespace(nope) %}",
    "{{ rows|sort(attribute='n', reverse=nope) }}",
    "{{ names|batch(0)|list }}",
    "{{ {}|dictsort|slice(2, 'f')|list }}",
    "{{ (1 * 'ab')[::-2] }}",
    "{% for c in rows|join %}{{ c }}{% endfor %}",
    "{% macro many() %}{{ varargs }}{% endmacro %}{{ many(*word) }}",
    "{% macro many() %}{{ varargs }}{% endmacro %}{{ many(*record) }}",
    "{% macro many() %}{{ varargs }}{% endmacro %}{{ many(*rows[7]) }}",
    "{% macro wrap() %}{{ kwargs }}{% endmacro %}{% call wrap() %}{% endcall %}",
    "{% filter length %}abc{% endfilter %}",
    "{% macro m() %}{% set m.x = 1 %}{% endmacro %}{{ m() }}",
    "{{ dict.fromkeys(['a']) }}",
    "{% macro m() %}{% endmacro %}{{ '{:>{}}'.format(m, 2) }}",
    "{{ '{:>9}'.format([1]) }}",
    "{{ '{:>9}'.format(none) }}",
    "{{ '{!s:>9}'.format([1]) }}",
    "{{ none[0:] }}",
    "{{ 3[:1]|default('x') ~ 'a' }}",
    "{{ 'abc'['a':] }}",
    "{{ none[0:][0:] }}",
    "{{ none[0:] ~ word }}",
    "{% set x = none[0:] %}",
    "{% for x in range(7) %}{{ rows|sort(attribute='name') }}{{ record['no' ~ 'pe'] }}{% endfor %}",
    "{{ messages[:1]|urlencode }}",
    "{{ 1 or none[::2] }}",
    "{{ 'upper' is filter nope }}",
    "{{ 'x' % nope }}{{ 'x' % [1] }}{{ 'x' % range(3) }}",
    "{% for m in messages %}{% macro m(a=m.content) %}{{ a }}{% endmacro %}{{ m() }}{% endfor %}",
]
"""What the generated templates found; each is here so that it stays found."""


@pytest.mark.parametrize("text", DISAGREED)
def test_once_disagreed(text: str) -> None:
    same(text, CHATS[1])


# ---- pure ----


@given(CHAT)
@settings(max_examples=60)
def test_deterministic(messages: list[dict[str, Any]]) -> None:
    for template in templates():
        once, again = (
            render_outcome(copy.deepcopy(template), copy.deepcopy(messages), tools=TOOLS)
            for _ in range(2)
        )
        assert once == again


@given(CHAT, st.booleans())
@settings(max_examples=60)
def test_inputs_are_not_modified(messages: list[dict[str, Any]], prompted: bool) -> None:
    given = {
        "messages": messages,
        "tools": TOOLS,
        "documents": [{"title": "a", "text": "b"}],
        "extra": {"a": [1]},
    }
    inputs = copy.deepcopy(given)
    before = pickle.dumps(inputs)
    for template in templates():
        render_outcome(template, add_generation_prompt=prompted, **inputs)
        assert pickle.loads(before) == inputs, template.name


@pytest.mark.parametrize("continued", ["content", True])
def test_continued_message_is_not_modified(continued: bool | str) -> None:
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": [{"type": "text", "text": "b"}]},
    ]
    before = copy.deepcopy(messages)
    for template in templates():
        render_outcome(template, messages, continue_final_message=continued)
        assert messages == before


# ---- from any thread, in any process ----

THREADS, ROUNDS = 8, 15


def mark_chat(number: int) -> list[dict[str, Any]]:
    """A conversation in which every text has the number of its thread."""
    word = f"thread{number:02}word"
    call = {
        "id": word[:9],
        "type": "function",
        "function": {"name": word, "arguments": {word: word}},
    }
    return [
        {"role": "system", "content": word},
        {"role": "user", "content": f"{word} " * (number + 1)},
        {"role": "assistant", "content": word, "tool_calls": [call]},
        {"role": "tool", "content": word, "name": word},
    ]


def test_threads_do_not_meet() -> None:
    for template in templates():
        expected = [render_outcome(template, mark_chat(number)) for number in range(THREADS)]

        def run(number: int, template: Template = template) -> list[Any]:
            return [render_outcome(template, mark_chat(number)) for _ in range(ROUNDS)]

        with ThreadPoolExecutor(THREADS) as pool:
            for number, results in enumerate(pool.map(run, range(THREADS))):
                assert all(result == expected[number] for result in results), template.name
                foreign = re.compile(rf"thread(?!{number:02})\d\dword")
                assert not any(foreign.search(str(result)) for result in results), template.name


def elsewhere(template: Template) -> list[Any]:
    return [render_outcome(template, chat, tools=TOOLS) for chat in CHATS]


def test_another_process_gives_the_same() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        for template, results in zip(templates(), pool.map(elsewhere, templates()), strict=True):
            assert results == elsewhere(template), template.name


# ---- nothing but TurnwiseError ----


def survives(text: Any, messages: Any, **arguments: Any) -> None:
    """Any exception but ours, from compiling, rendering, or reading what was rendered, fails the test."""
    try:
        rendering = turnwise.compile(text).render(
            messages, now=corpus.NOW, normalise=False, **arguments
        )
        assert "".join(piece.text for piece in rendering.pieces) == rendering.text
        rendering.show()
    except turnwise.TurnwiseError as error:
        assert str(error)


def mutate(chance: random.Random, text: str) -> str:
    """A template with spans of it taken out, doubled, exchanged or moved."""
    for _ in range(chance.randint(1, 3)):
        a, b, c = sorted(chance.randrange(len(text) + 1) for _ in range(3))
        b, c = min(b, a + 40), min(c, b + 40)
        text = chance.choice(
            [
                text[:a] + text[b:],
                text[:b] + text[a:],
                text[:a] + text[b:c] + text[a:b] + text[c:],
                text[:a]
                + chance.choice(["{{", "}}", "{%", "%}", "(", "'", "-", ".", "|", "x", "0"])
                + text[a:],
            ]
        )
    return text


def broken(chance: random.Random) -> tuple[str, list[dict[str, Any]]]:
    names = sorted(corpus.load_published())
    text = corpus.load_published()[chance.choice(names)].text if names else grammar.template(chance)
    return mutate(chance, text[:6000]), chance.choice(CHATS)


@given(st.randoms(use_true_random=False).map(broken))
@QUIET
def test_broken_templates(case: tuple[str, list[dict[str, Any]]]) -> None:
    survives(*case, tools=TOOLS)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_broken_templates_at_length(part: int) -> None:
    for seed in range(part * 3000, part * 3000 + 3000):
        survives(*broken(random.Random(seed)), tools=TOOLS)


@given(st.text(max_size=60))
@QUIET
@example("{{ ")
@example("\ud800")
@example("\0")
def test_any_text_as_template(text: str) -> None:
    survives(text, CHATS[0])


def cyclic() -> list[Any]:
    chat: list[Any] = [{"role": "user"}]
    chat[0]["content"] = chat
    return chat


def deep(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


class RefusingObject:
    """An object that refuses everything."""

    def __repr__(self) -> str:
        raise ValueError("no")

    def __eq__(self, other: object) -> bool:
        raise ValueError("no")

    __hash__ = None  # type: ignore[assignment]


ODDITIES: list[Callable[[], Any]] = [
    lambda: None,
    lambda: b"bytes",
    lambda: bytearray(b"x"),
    lambda: 10**6000,
    lambda: -(10**4400),
    lambda: float("nan"),
    lambda: float("-inf"),
    lambda: 1j,
    lambda: "\ud800",
    lambda: "a\udfff\0\x1b[31m",
    lambda: {"\udc00": 1},
    lambda: {1: {2: 3}},
    lambda: {None: None},
    lambda: {(1, 2): 3},
    lambda: {1, 2},
    lambda: (1, "x"),
    lambda: range(3),
    lambda: object(),
    lambda: RefusingObject(),
    lambda: RefusingObject,
    lambda: len,
    lambda: iter([1]),
    lambda: cyclic(),
    lambda: deep(240),
    lambda: deep(3000),
    lambda: deep(20_000),
    lambda: True,
    lambda: [],
    lambda: {},
    lambda: "",
    lambda: [[]],
    lambda: [None],
    lambda: ["text"],
    lambda: [{"role": None, "content": 5}],
    lambda: [{"role": "user", "content": {"a": "b"}, "tool_calls": "none", "reasoning": 3}],
    lambda: [
        {
            "role": "assistant",
            "tool_calls": [{"function": None}, 3, {"function": {"arguments": "{"}}],
        }
    ],
]
PLACES: list[Callable[[Any], dict[str, Any]]] = [
    lambda odd: {"messages": odd},
    lambda odd: {"messages": [odd]},
    lambda odd: {"messages": [{"role": odd, "content": "x"}]},
    lambda odd: {"messages": [{"role": "user", "content": odd}]},
    lambda odd: {
        "messages": [
            {"role": "assistant", "content": odd, "tool_calls": odd, "reasoning_content": odd}
        ]
    },
    lambda odd: {"messages": CHATS[1], "continue_final_message": odd},
    lambda odd: {
        "messages": [*CHATS[0], {"role": "assistant", "content": odd}],
        "continue_final_message": True,
    },
    lambda odd: {"messages": CHATS[0], "tools": odd},
    lambda odd: {"messages": CHATS[0], "tools": [odd]},
    lambda odd: {"messages": CHATS[0], "tools": [{"type": "function", "function": odd}]},
    lambda odd: {"messages": CHATS[0], "documents": odd},
    lambda odd: {"messages": CHATS[0], "documents": [{"title": odd, "text": odd}]},
    lambda odd: {"messages": CHATS[0], "bos_token": odd, "enable_thinking": odd},
    lambda odd: {"messages": CHATS[0], "add_generation_prompt": odd},
]
SEES_ALL = (
    "{{ messages }}{{ messages|tojson }}{{ tools|tojson }}{{ documents }}{{ bos_token }}{{ bos_token|tojson }}"
    "{% for m in messages %}{{ m.content ~ m.role }}{{ m.content|trim }}{{ m['tool_calls']|string }}{% endfor %}"
)


@pytest.mark.law
@pytest.mark.parametrize("odd", range(len(ODDITIES)))
def test_any_value_as_input(odd: int, sample: Any) -> None:
    texts = [SEES_ALL, *(template.text for template in sample(templates()[::3], 2))]
    for place in PLACES:
        for text in texts:
            survives(text, **place(ODDITIES[odd]()))


KEYS = st.sampled_from(["role", "content", "tool_calls", "function", "name", "type", "text"])
JUNK = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=5),
        st.binary(max_size=3),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(KEYS, inner, max_size=4),
    ),
    max_leaves=12,
)


@given(JUNK, JUNK, JUNK)
@QUIET
def test_random_values_as_input(messages: Any, tools: Any, documents: Any) -> None:
    for template in (SEES_ALL, templates()[-3].text):
        survives(template, messages, tools=tools, documents=documents)
        survives(template, [messages], tools=[tools], documents=[documents])
        survives(template, [{"role": "user", "content": messages}], extra=tools)


@pytest.mark.parametrize("text", [None, 3, b"{{ 1 }}", ["a"], RefusingObject()])
def test_template_of_another_type(text: Any) -> None:
    survives(text, CHATS[0])


SANDBOX = jinja2.sandbox.ImmutableSandboxedEnvironment()
SORTED_VALUES = [
    "none",
    "1",
    "2.5",
    "'b'",
    "'A'",
    "{'a': 1}",
    "[1]",
    "[none]",
    "nope",
    "true",
    "(1,)",
]


@pytest.mark.parametrize(
    "call", ["sort", "sort(reverse=true)", "sort(case_sensitive=true)", "sort(attribute='a')"]
)
def test_values_that_cannot_be_compared_are_sorted_as_in_jinja2(call: str) -> None:
    """jinja2 compares lists of one element, so equal elements need no order."""
    for values in itertools.product(SORTED_VALUES, repeat=2):
        text = f"{{{{ [{', '.join(values)}, {values[0]}]|{call} }}}}"
        try:
            wanted: str | None = SANDBOX.from_string(text).render()
        except (TypeError, jinja2.TemplateError):
            wanted = None
        try:
            found: str | None = turnwise.compile(text).render([], normalise=False).text
        except turnwise.TemplateRuntimeError:
            found = None
        assert found == wanted, text
