"""A text that is written from segments is what the program writes, whatever the conversations before were."""

from __future__ import annotations

import random
import subprocess
import sys
from datetime import datetime
from threading import Thread, get_ident
from typing import Any

import pytest

import corpus
import turnwise
from published_templates import compile_published
from random_expressions import ExpressionMaker
from random_rounds import TemplateMaker
from turnwise.analysis.losses import find_losses
from turnwise.engine import renderer as renderer_module
from turnwise.engine.program import Program
from turnwise.engine.provenance.rendering import Rendering
from turnwise.engine.renderer import Renderer
from turnwise.engine.segments import segments
from turnwise.engine.segments.functions import instrument
from turnwise.errors import TurnwiseError
from turnwise.messages import InputReader, ReadMessages, find_plain_kind

pytestmark = pytest.mark.filterwarnings("ignore::turnwise.TurnwiseWarning")
NOW = datetime(2024, 5, 17, 10, 30)
LEARNT_AFTER = 16  # renderings with tools or options; tests learn after one
TEXTS = (
    *("Hi", "  spaced \n", "</think> x", "<think>a</think>b", "a\n\nb", "é 中文", "user", "", " "),
    *(
        "<tool_response>x</tool_response>",
        '{"a": 1}',
        "line\n",
        "<think>\nr\n</think>\n\nso",
        "\ufdd0",
    ),
)
ARGUMENTS: tuple[Any, ...] = (
    *({"a": "b"}, {"x": 1, "y": [1, 2]}, {"q": {"z": None}}, {}, '{"a": 1}'),
    {"b": {"k": [0.5, True, "x"]}, "A": -1e300},
)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "f",
            "description": "d",
            "parameters": {"type": "object", "properties": {"a": {"type": "string"}}},
        },
    }
]
MESSAGES = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello"},
    {"role": "user", "content": "Bye"},
]


def make_chat(dice: random.Random) -> list[dict[str, Any]]:
    """Return a conversation: mostly turns, with calls, reasoning, and some roles out of order."""
    chat: list[dict[str, Any]] = []
    if dice.random() < 0.4:
        chat.append({"role": "system", "content": dice.choice(TEXTS)})
    role = "user"
    for _ in range(dice.randint(1, 8)):
        message: dict[str, Any] = {"role": role, "content": dice.choice(TEXTS)}
        following = "assistant" if role == "user" else "user"
        if role == "assistant" and dice.random() < 0.2:
            message["reasoning_content"] = dice.choice(TEXTS)
        if role == "assistant" and dice.random() < 0.25:
            message["content"] = dice.choice((None, "", "Let me see"))
            message["tool_calls"] = [make_call(dice) for _ in range(dice.randint(1, 2))]
            following = "tool"
        if role == "tool":
            message["tool_call_id"] = "abcdefghi"
            following = dice.choice(("tool", "assistant"))
        chat.append(message)
        role = following if dice.random() < 0.95 else dice.choice(("user", "tool", "system"))
    return chat


def make_call(dice: random.Random) -> dict[str, Any]:
    function = {"name": dice.choice("fg"), "arguments": dice.choice(ARGUMENTS)}
    return {"id": "abcdefghi", "type": "function", "function": function}


def find_origins(rendering: Rendering) -> list[tuple[str, Any]]:
    return [(piece.text, piece.origin) for piece in rendering.pieces]


def check(renderer: Renderer, dice: random.Random, tries: int, make: Any = make_chat) -> int:
    """Compare texts and origins from segments with those of the program; return how many were written so."""
    written = 0
    program = renderer.with_programs(lambda same: same)  # it always runs
    for _ in range(tries):
        reader = InputReader()
        messages = reader.read_messages(make(dice))
        chat = ReadMessages(messages, reader.aliases, find_plain_kind(messages))
        tools = TOOLS if dice.random() < 0.3 else None
        more = {"add_generation_prompt": dice.random() < 0.5, "now": NOW}
        try:
            expected = program.render(chat, tools=tools, **more)
        except TurnwiseError as error:
            with pytest.raises(type(error)) as raised:
                renderer.render(chat, tools=tools, **more)
            assert str(raised.value) == str(error)
            continue
        found = renderer.render(chat, tools=tools, **more)
        assert found.text == expected.text, chat.messages
        if found._output is None:
            written += 1
            assert find_origins(found) == find_origins(expected), chat.messages
        losses = [find_losses(one, chat.messages, tools) for one in (found, expected)]
        assert losses[0] == losses[1], chat.messages
        if dice.random() < 0.4:
            check_beginnings(renderer, program, chat, dice, tools, {**more, "text": found.text})
    return written


def check_beginnings(
    renderer: Renderer,
    program: Renderer,
    chat: ReadMessages,
    dice: random.Random,
    tools: Any,
    more: dict[str, Any],
) -> None:
    """Compare the beginnings of a conversation that share a memory with what the program writes for each.

    The origins of some are read: they are written with that memory, too.
    """
    memory = {"text": more.pop("text")}
    counts = list(range(1, len(chat.messages) + 1))
    if dice.random() < 0.3:
        dice.shuffle(counts)
    for count in counts:
        beginning = chat._replace(messages=chat.messages[:count])
        try:
            expected = program.render(beginning, tools=tools, **more)
        except TurnwiseError:
            continue
        found = renderer.render(beginning._replace(memory=memory), tools=tools, **more)
        assert found.text == expected.text, (count, chat.messages)
        if dice.random() < 0.5:
            assert find_origins(found) == find_origins(expected), (count, chat.messages)


@pytest.mark.law(3)
@pytest.mark.parametrize(
    "name",
    ["chatml", "qwen3", "llama-3.1", "gemma-3", "deepseek-v3.1", "mistral-tekken", "glm-4.5"],
)
def test_segments_are_what_the_program_writes(name: str) -> None:
    assert check(turnwise.load(name).renderer, random.Random(name), 80) > 8


def make_agent_chat(dice: random.Random) -> list[dict[str, Any]]:
    """Return some questions, each with thoughts and calls before its answer."""
    chat: list[dict[str, Any]] = []
    for number in range(dice.randint(1, 4)):
        chat.append({"role": "user", "content": f"Question {number}"})
        for _ in range(dice.randint(0, 3)):
            thought = dice.choice(("", "Hm", "So\n"))
            call = {"reasoning_content": thought, "thinking": thought, "content": ""}
            chat.append({"role": "assistant", **call, "tool_calls": [make_call(dice)]})
            chat.append({"role": "tool", "tool_call_id": "abcdefghi", "content": "4"})
        chat.append({"role": "assistant", "content": "Answer", "reasoning_content": "Ah"})
    return chat


# What a template writes of thoughts changes with the last question, which may be far behind a message.
@pytest.mark.parametrize("name", ["qwen3", "gpt-oss", "glm-4.5", "minimax-m2", "kimi-k2-thinking"])
def test_a_new_question_changes_what_was_written_before(name: str) -> None:
    assert check(turnwise.load(name).renderer, random.Random(name), 60, make_agent_chat) > 8


@pytest.mark.law
@pytest.mark.once
@corpus.needs_corpus
def test_segments_of_published_templates() -> None:
    names = list(corpus.load_published())
    written = [
        name for name in names if check(compile_published(name).renderer, random.Random(name), 40)
    ]
    assert len(written) > 0.75 * len(names)


STATE = ("ns.last", "ns['last']", "g(ns)", "ns.at", "ns['at']")  # what earlier rounds left


@pytest.mark.once
def test_random_expressions() -> None:
    dice, written = random.Random(5), 0
    maker = ExpressionMaker(dice, STATE)
    for number in range(150):
        body = f"{{% set x = {maker.make(dice.randrange(4))} %}}"
        body += f"{{% if {maker.make_test('x')} %}}a{{{{ x }}}}{{% else %}}b{{% endif %}}"
        body += f"{{% if loop.index0 > ns.at %}}{{{{ {dice.choice(STATE)} }}}}{{% endif %}}"
        body += f"{{% set ns.at = {dice.choice(('loop.index0', 'ns.at + 1', '0'))} %}}"
        body += (
            f"{{% set ns.last = {dice.choice(('m.role', 'm.content', 'x|string', 'ns.last'))} %}}"
        )
        source = (
            "{% macro f(a, b) %}<{{ a }}{{ b|trim }}{% endmacro %}{% macro g(n) %}{{ n.last }}{% endmacro %}"
            "{% set ns = namespace(at=1, last='-') %}"
            f"{{% for m in messages %}}{body}{{% endfor %}}{{{{ ns.last }}}}"
        )
        try:
            template = turnwise.compile(source, name=f"random {number}")
        except TurnwiseError:
            continue
        written += bool(check(template.renderer, dice, 10))
    assert written > 20


@pytest.mark.once
def test_random_templates() -> None:
    dice, written = random.Random(6), 0
    maker = TemplateMaker(dice)
    for number in range(250):
        template = turnwise.compile(maker.make(), name=f"random {number}")
        written += bool(check(template.renderer, dice, 12))
    assert written > 60


# Templates in which something gets from one round to the next other than in a namespace, or that look around.
LEAKING = (
    # Lists in namespaces: made in a round and read there, or in the next one.
    "{% set n = namespace(c=[]) %}{% for m in messages %}{% if m.role == 'user' %}{% set n.c = [] %}{% endif %}"
    "{% set n.c = n.c + (m.tool_calls or []) | list %}{{ m.role }}{{ n.c | length }}{% endfor %}",
    "{% set n = namespace(c=[]) %}{% for m in messages %}{% set n.c = [] %}{% set n.c = n.c + [m.content] %}"
    "{{ n.c[0] }};{% endfor %}{{ n.c | length }}",
    "{% set n = namespace(c=false) %}{% for m in messages %}{{ 'called' if n.c }}{% set n.c = m.tool_calls %}"
    "{% endfor %}",
    "{% set n = namespace(c='') %}{% for m in messages %}{{ n.c }}{% set n.c = m.content if loop.first else [1] %}"
    "{% endfor %}",
    # Numbers that are written, first letters, and texts that are split at a constant.
    "{% set n = namespace(i=0) %}{% for m in messages %}[{{ n.i }}] {{ m.content }}{% set n.i = n.i + 1 %}{% endfor %}",
    "{% set n = namespace(i=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set n.i = loop.index %}{% endif %}"
    "{% endfor %}{% for m in messages %}{{ m.content[0] }}{{ m.content[0].type }}{{ loop.index >= n.i }}{% endfor %}",
    "{% for m in messages %}{% set t = '<think></think>' ~ m.content %}{{ t.split('</think>')[-1]|trim }}{% endfor %}",
    "{% for m in messages %}{{ ('a</thi' ~ (m.content or '') ~ 'nk>').split('</think>') | join('|') }}{% endfor %}",
    "{% set seen = [] %}{% for m in messages %}{{ seen|length }}{% set _ = seen.append(m.role) %}{% endfor %}",
    "{% for m in messages %}{{ loop.changed(m.role) }}{% endfor %}",
    "{% set c = cycler('a', 'b') %}{% for m in messages %}{{ c.next() }}{% endfor %}",
    "{% for m in messages %}{{ m.content }}{% else %}none{% endfor %}",
    "{% for m in messages %}{% if m.role == 'assistant' %}{% break %}{% endif %}{{ m.content }}{% endfor %}!",
    "{% set s = tools|map(attribute='type') if tools else [] %}{% for m in messages %}{{ s|list }}{% endfor %}",
    "{% for m in messages if m.role == 'user' %}{{ loop.index }}{{ m.content }}{% endfor %}",
    "{% for m in messages if m.role == 'user' %}{{ loop.last }}{{ m.content }}{% endfor %}",
    "{% for m in messages %}{% for o in messages[loop.index0:] %}{{ o.role[0] }}{% endfor %}{% endfor %}",
    "{% for m in messages[::-1] %}{{ loop.index }}{{ m.content }}{% endfor %}",
    "{% for m in messages %}{{ messages[loop.index0 + 2].role if loop.revindex > 2 }}{{ m.content }}{% endfor %}",
    "{% for m in messages %}{{ loop.nextitem.role if not loop.last }}{{ m.content }}{% endfor %}",
    "{% for m in messages %}{{ m.content if messages[-1].role == 'user' else '-' }}{% endfor %}",
    "{% set n = namespace(k=messages|length, t=1) %}{% for m in messages %}{{ n.k }}{{ n.t }}"
    "{% set n.t = m.role == 'user' %}{% endfor %}{{ n.t }}",
    "{% set n = namespace(k=1 if messages[-1].role == 'user' else true) %}"
    "{% for m in messages %}{{ n.k }}{{ m.content }}{% endfor %}",
    "{% for m in messages[1:] %}{{ loop.last }}{{ m.content }}{{ messages[loop.index0].role }}{% endfor %}",
    "{% set x = messages|length %}{% set n = namespace(k=x) %}{% set y = n.k %}"
    "{% for m in messages %}{% set n.k = loop.index %}{{ y - n.k }}{% endfor %}{{ n.k }}{{ y }}",
    "{% set n = namespace(t='') %}{% for m in messages %}{% set n.t = n.t + m.content %}{% endfor %}{{ n.t }}",
    "{% macro all(ms) %}{% for m in ms %}{{ m.content }}{% endfor %}{% endmacro %}{{ all(messages) }}",
    "{% for m in messages %}{{ loop.previtem.role if loop.previtem else '-' }}{{ loop.revindex }}{% endfor %}",
    "{{ messages|map(attribute='role')|join(',') }}{{ (messages|selectattr('role', 'eq', 'user')|list)|length }}",
    "{{ strftime_now('%d %b') }}{% for m in messages %}{{ m.content[:3] }}{{ m.content|length }}{% endfor %}",
    "{% for m in messages|rejectattr('role', 'equalto', 'tool')|selectattr('tool_calls', 'undefined') %}"
    "{{ loop.index0 }}{{ m.content }}{{ loop.last }}{% endfor %}{% for m in messages %}{{ m.role }}{% endfor %}",
    "{% for m in messages|selectattr('reasoning_content', 'defined') %}{{ m.content }}{% endfor %}",
    "{% set s = messages|selectattr('role', 'eq', 'user') %}{% for m in s %}<{{ m.content }}>{% endfor %}"
    "{% for m in s %}!{% endfor %}{{ 's' if s }}",
    "{% set s = messages|selectattr('role', 'eq', 'user') %}{% for m in messages %}{{ s|list|length }}{% endfor %}",
    "{% for m in (messages|selectattr('role', 'eq', 'user')|list)[1:] %}"
    "{{ loop.previtem.content if loop.previtem }}{{ m.content }}{% endfor %}",
    "{% for m in messages %}{% set s = m.content|safe %}{{ s }}{{ s|string }}{{ s ~ '<' }}{% endfor %}",
    "{% for m in messages %}{% set s = m.content|safe %}{{ s + '<' }}{{ '<' + s }}{{ s == 'Hi' }}{% endfor %}",
)


# Rounds with loops in them, over messages or over their numbers.
NESTED = (
    "{% for m in messages %}{% set n = namespace(f=false) %}{% for o in messages[loop.index:] %}"
    "{% if o.role == 'assistant' and 'tool_calls' not in o %}{% set n.f = true %}{% endif %}{% endfor %}"
    "{{ n.f }}{{ m.content }}{% endfor %}",
    "{% for m in messages %}{% set n = namespace(t='', k=0) %}{% for o in messages[:loop.index0] %}"
    "{% set n.t = n.t ~ o.content %}{% set n.k = n.k + 1 %}{% endfor %}{{ n.t }}{{ n.k > 2 }}{{ m.role }}{% endfor %}",
    "{% set s = namespace(i=-1) %}{% for i in range(messages|length) %}{% if messages[i].role == 'user' %}"
    "{% set s.i = i %}{% endif %}{% endfor %}{% for m in messages %}{{ m.content if loop.index0 > s.i else '-' }}"
    "{% set p = namespace(r=none) %}{% for j in range(loop.index0 - 1, -1, -1) %}"
    "{% if p.r is none and messages[j].role != 'tool' %}{% set p.r = messages[j].role %}{% endif %}{% endfor %}"
    "{{ p.r == m.role }}{% endfor %}",
    "{% for m in messages %}{% if m.tool_calls %}{% for c in m.tool_calls %}{{ c.function.name }}"
    "{% for o in messages[loop.index:] %}{% if o.tool_call_id == c.id %}{{ o.content }}{% endif %}{% endfor %}"
    "{% endfor %}{% elif m.role != 'tool' %}{{ m.content }}{% endif %}{% endfor %}",
    "{% for m in messages %}{% for o in messages[-2:] %}{{ o.content|trim }}{{ o.content|tojson }}{{ m.role }}"
    "{% endfor %}{% for o in messages|selectattr('role', 'eq', 'user') %}{{ o.content }}{% endfor %}{{ m.content }}"
    "{% endfor %}",
    "{% for m in messages[1:-1] %}{% set t = m.content %}{% for o in messages[::-1] %}{{ loop.last }}{{ t }}"
    "{{ loop.previtem.role if loop.previtem }}{% endfor %}{{ t }}{% endfor %}",
    "{% macro f(v) %}{% if v is mapping %}{% for k, x in v|dictsort %}{{ k }}:{{ f(x) }},{% endfor %}"
    "{% elif v is string %}'{{ v }}'{% elif v is iterable %}{% for x in v %}{{ f(x) }};{% endfor %}"
    "{% elif v is float %}~{{ v }}{% else %}{{ v }}{% endif %}{% endmacro %}"
    "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ f(c.function.arguments) }}"
    "{% endfor %}{{ m.content }}{% endfor %}",
)
# The same with what is not recorded: text that a block collects, rounds that are left, bounds that change.
UNNESTED = (
    "{% set x %}{% for m in messages %}a{% endfor %}{% endset %}{{ x }}b",
    "{% filter upper %}{% for m in messages %}a{% endfor %}{% endfilter %}",
    "{% for m in messages %}{% set x %}{% for o in messages[loop.index:] %}a{% endfor %}{% endset %}"
    "{{ x }}{% endfor %}",
    "{% for m in messages %}{% for o in messages[loop.index:] %}{% if o.role == 'user' %}{% break %}{% endif %}"
    "{{ o.role }}{% endfor %}{{ m.content }}{% endfor %}",
    "{% for m in messages if m.role != 'tool' %}{% for o in messages[loop.index:] %}{% if loop.index0 > 1 %}"
    "{{ o.role }}{% endif %}{% endfor %}{{ loop.index0 > 1 }}{{ m.content }}{% endfor %}",
    "{% set n = namespace(k=0) %}{% for m in messages %}{% set t = messages[n.k:] %}{% set n.k = n.k + 1 %}"
    "{% for o in t %}{{ o.role }}{% endfor %}{{ t[0].content }}{% endfor %}",
    "{% for m in messages %}{% for i in range(loop.index) %}{% for o in messages %}.{% endfor %}{% endfor %}"
    "{% endfor %}",
    "{% for i in range(messages|length + 1) %}{{ i > 2 }}{% endfor %}",
)


# Texts of a template, and of messages, that would be Python if they were not quoted.
QUOTED = (
    "{% set u = messages|selectattr('role', 'equalto', '{0}')|list %}{{ u|length }}{{ u[0].content if u }}",
    "{% set u = messages|selectattr('role', 'in', ['user', '}{', '\\'\"'])|list %}{{ u[-1].content if u }}",
    "{% for m in messages %}{{ m['it\\'s']|default('-') }}{{ m['\"'] is defined }}{{ m.get('{0}', 1) }}{% endfor %}",
    "{% for m in messages %}{{ 'a' if m.role == '\\n\\'' }}{{ loop.index is even }}{{ m.M }}{{ m.i }}{% endfor %}",
    "{% for m in messages %}{{ m.role }}{{ m.content.replace('{', '}').split('\\'')|join('\"') }}{% endfor %}",
)
ODD_ROLES = (
    "user",
    "it's",
    '"',
    "{0}",
    "{",
    "\\",
    "\n",
    '"""',
    "x" * 300,
    "__import__('os')",
    "",
    " ",
)
ODD_KEYS = ("it's", '"', "{0}", "M", "i", "['content']", "S[")


def make_odd_chat(dice: random.Random) -> list[dict[str, Any]]:
    chat = []
    for _ in range(dice.randint(1, 5)):
        message = {"role": dice.choice(ODD_ROLES), "content": dice.choice((*TEXTS, *ODD_ROLES))}
        if dice.random() < 0.3:
            message[dice.choice(ODD_KEYS)] = dice.choice(TEXTS)
        chat.append(message)
    return chat


@pytest.mark.parametrize("source", QUOTED)
def test_texts_are_no_code(source: str) -> None:
    check(turnwise.compile(source).renderer, random.Random(source), 80, make_odd_chat)


@pytest.mark.parametrize("source", LEAKING)
def test_what_gets_from_round_to_round(source: str) -> None:
    renderer = turnwise.compile(source).renderer
    check(renderer, random.Random(source), 60)


@pytest.mark.parametrize("source", NESTED)
def test_rounds_with_loops_in_them(source: str) -> None:
    assert check(turnwise.compile(source).renderer, random.Random(source), 60) > 10


# What is written of whole values, of texts that are cut, and by loops that are over other things than messages.
RECORDED = (
    "{% for m in messages %}{{ m.role }}{{ m.tool_calls }}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.arguments|string|trim }}{{ c|string }}{% endfor %}{% endfor %}",
    "{% for m in messages %}{% for c in m.tool_calls or [] %}{% if c.function.arguments is mapping %}"
    "{% for k, v in c.function.arguments.items() %}{{ '%s=%s;'|format(k, v) }}{% endfor %}{% endif %}{% endfor %}"
    "{{ '%s'|format(m.content) }}{% endfor %}",
    "{% for m in messages %}{{ {'role': m.role, 'text': m.content}|tojson }}{{ {'c': m.content}|string }}{% endfor %}",
    "{% for m in messages %}{% for p in m.content or '' %}{% if p['type'] == 'image' %}I{% elif p.type == 'x' %}{{ p }}"
    "{% endif %}{% endfor %}{{ m.role }}{{ m.content }}{% endfor %}",
    "{% for m in messages %}{{ loop.last }}{% endfor %}{% for i in range(messages|length) %}{% if i %}"
    "{{ messages[i - 1].role }}{% endif %}{{ messages[i].content }}{{ loop.last }}{% endfor %}",
    "{% for m in messages %}{{ m.role }}{% endfor %}{% for i in range(1, messages|length) %}"
    "{{ messages[loop.index0].content }}{{ messages[i].role }}{% endfor %}",
    "{% for m in messages %}{% for o in messages %}{{ o.role[0] }}{% endfor %}"
    "{% for i in range(1, messages|length) %}{{ messages[loop.index0].role }}{% endfor %}{{ m.content }}{% endfor %}",
    "{% for m in messages|selectattr('role', 'eq', 'system') %}{{ m.content }}{% endfor %}"
    "{% for m in messages %}{% if m.role != 'system' %}{{ m.role }}{{ m.content }}{% endif %}{% endfor %}",
    "{{ messages[0].content }}{{ messages[-1].content }}{{ tools|string if tools }}",
    "{{ (messages|selectattr('role', 'eq', 'user')|list|last).content if messages|length > 2 else '' }}",
    "{% for m in messages %}{% set t = m.content or '' %}{{ t[t|length - 2:] }}{{ t[:loop.index] }}{{ m.role }}"
    "{% endfor %}",
    "{% set d = {'t': [] if not tools else (['T'] + [tools[0].function.name])} %}"
    "{{ d.t|join(', ') }}{% for m in messages %}{{ m.content }}{% endfor %}",
)


@pytest.mark.parametrize("source", RECORDED)
def test_what_is_written_of_values(source: str) -> None:
    assert check(turnwise.compile(source).renderer, random.Random(source), 80) > 10


@pytest.mark.parametrize("source", UNNESTED)
def test_rounds_with_loops_that_are_not_recorded(source: str) -> None:
    check(turnwise.compile(source).renderer, random.Random(source), 60)


def test_the_clock() -> None:
    renderer = turnwise.compile("{{ strftime_now('%d %b') }}{{ messages[0].content }}").renderer
    for day in (17, 17, 17, 18, 18, 18, 17):
        found = renderer.render(MESSAGES[1:2], now=NOW.replace(day=day))
        assert found.text == f"{day} MayHi"


def test_origins_are_there_when_they_are_asked_for() -> None:
    template = turnwise.load("qwen3")
    first, *_, last = [template.render(MESSAGES) for _ in range(4)]
    assert last.unwritten == () and last.pieces == first.pieces and last == first


def test_pieces_of_sections_know_the_expressions_that_wrote_them() -> None:
    renderer = turnwise.load("chatml").renderer
    for _ in range(3):
        found = renderer.render(MESSAGES)
    assert found._join_sections() is not None
    expected = renderer.with_programs(lambda same: same).render(MESSAGES)
    places = [[piece.expression for piece in one.pieces] for one in (found, expected)]
    assert places[0] == places[1]
    assert None not in places[0]


@pytest.mark.parametrize("source", NESTED[1:3])
def test_pieces_of_rounds_with_loops_in_them_are_joined(source: str) -> None:
    renderer = turnwise.compile(source).renderer
    program = renderer.with_programs(lambda same: same)
    for _ in range(6):
        found = renderer.render(MESSAGES)
        assert found.pieces == program.render(MESSAGES).pieces
    assert found._join_sections() is not None
    places = [
        [piece.expression for piece in one.render(MESSAGES).pieces] for one in (renderer, program)
    ]
    assert places[0] == places[1]


def test_pieces_of_long_conversations_are_joined_from_sections() -> None:
    """The budget of origins grows with the input here too, and messages that are new are read alone."""
    renderer = turnwise.load("qwen3").renderer
    for count in (2, 2, 2, 2, 600, 601):
        found = renderer.render(MESSAGES[1:3] * count)
        joined = found._join_sections()
    assert joined is not None and len(joined[0]) == len(found.pieces) > 4_000
    expected = renderer.with_programs(lambda same: same).render(MESSAGES[1:3] * count)
    assert found.pieces == expected.pieces


@pytest.mark.parametrize("budget", [0, 10, 30, 60, 100, 400])
def test_sections_keep_to_the_budget_of_origins(budget: int) -> None:
    limits = turnwise.Limits(origins=budget, origins_per_value=0, origins_per_character=0)
    renderer = turnwise.load("qwen3").renderer.with_limits(limits)
    found = [renderer.render(MESSAGES * 4).pieces for _ in range(5)]
    assert len(set(found)) == 1


def test_messages_may_be_changed_after_rendering() -> None:
    template = turnwise.load("chatml")
    chat = [dict(message) for message in MESSAGES]
    *_, last = [template.render(chat) for _ in range(4)]
    chat[1]["content"] = "Something else"
    assert "".join(piece.text for piece in last.pieces) == last.text


def test_what_is_not_written_is_still_reported() -> None:
    template = turnwise.compile(
        "{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}"
    )
    for _ in range(5):
        found = template.render(MESSAGES, normalise=True)
        assert found.warnings or found.changes


def test_what_a_loop_over_some_messages_writes_is_not_reported() -> None:
    template = turnwise.compile(
        "{% for m in messages|selectattr('role', 'eq', 'system') %}{{ m.content }}{% endfor %}"
        "{% for m in messages %}{% if m.role != 'system' %}{{ m.content }}{% endif %}{% endfor %}"
    )
    for _ in range(5):
        assert not template.render(MESSAGES).warnings


def test_a_loop_that_looks_for_parts_does_not_pay_for_letters() -> None:
    template = turnwise.compile(
        "{% for m in messages %}{% for p in m.content %}{% if p.type == 'image' %}<image>{% endif %}{% endfor %}"
        "{{ m.content }}{% endfor %}"
    )
    long = [{"role": "user", "content": "é" * 300_000}]
    assert template.render(long).text == "é" * 300_000


def test_budgets_hold() -> None:
    loop = "{% for m in messages %}{{ m.content }}{{ 'x' * 3000 }}{% endfor %}"
    template = turnwise.compile(loop)
    for _ in range(4):
        template.render(MESSAGES)
    many = [{"role": "user", "content": "a"}] * 3000
    with pytest.raises(turnwise.TemplateLimitError):
        template.render(many)


@pytest.mark.parametrize(
    ("name", "count"), [("mistral-tekken", 15), ("llama-3.1", 60), ("qwen3", 60)]
)
def test_tools_pay_for_their_own_text(name: str, count: int) -> None:
    """Also where there are many, and where their keys and values are written one by one."""
    template = turnwise.load(name)
    tools = [
        {
            "type": "function",
            "function": {"name": f"tide_{number}", "description": "When? " * 60, "parameters": {}},
        }
        for number in range(count)
    ]
    chat = [{"role": role, "content": "Hi"} for role in ["user", "assistant", "user"]]
    *_, last = [template.render(chat, tools=tools) for _ in range(4)]
    assert last.unwritten == () and last._output is None
    program = template.with_limits(turnwise.Limits(deadline=60))  # runs each time
    assert last.text == program.render(chat, tools=tools).text


def test_no_thread_reads_what_another_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A walk that is compiled while the tree grows would lack names, or the end of a path."""
    template = turnwise.load("qwen3")
    at_work: list[int] = []
    overlaps: list[list[int]] = []
    started: list[Thread] = []

    def watch(name: str, chat: list[dict[str, Any]]) -> None:
        real = getattr(segments, name)

        def run(*arguments: Any) -> Any:
            at_work.append(get_ident())
            if len(set(at_work)) > 1:
                overlaps.append(list(at_work))
            if not any(thread.name == name for thread in started):
                other = Thread(target=lambda: template.render(chat).pieces, name=name)
                started.append(other)
                other.start()
                other.join()
            result = real(*arguments)
            at_work.pop()
            return result

        monkeypatch.setattr(segments, name, run)

    template.render(MESSAGES)
    template.render(MESSAGES)  # learns these
    call = {"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
    asked = [*MESSAGES, {"role": "assistant", "content": "", "tool_calls": [call]}]
    answered = [*asked, {"role": "tool", "content": "4"}]
    watch("instrument", MESSAGES[1:])
    watch("compile_walk", answered)
    texts = [str(template.render(chat)) for chat in (asked, answered, MESSAGES) for _ in "ab"]
    assert {thread.name for thread in started} == {"instrument", "compile_walk"}
    assert overlaps == []
    rendered = [turnwise.load("qwen3").render(chat) for chat in (asked, answered, MESSAGES)]
    assert texts == [str(one) for one in rendered for _ in "ab"]


def count_recordings(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    recorded: list[object] = []

    def note(recorder: Any, program: Program) -> Program:
        recorded.append(recorder)
        return instrument(recorder, program)

    monkeypatch.setattr(segments, "instrument", note)
    return recorded


@pytest.mark.parametrize("argument", ["tools", "date_string"])
def test_arguments_that_come_a_few_times_are_not_learnt(
    argument: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Learning takes as long as 20 renderings, and each row of a dataset may have its own tools."""
    monkeypatch.setattr(renderer_module, "LEARNT_AFTER", LEARNT_AFTER)
    recorded, template = count_recordings(monkeypatch), turnwise.load("llama-3.1")
    for row in range(3):
        tool = {"name": f"f{row}", "description": "", "parameters": {}}
        values = {"tools": [{"type": "function", "function": tool}], "date_string": f"day {row}"}
        for _ in range(15):
            template.render(MESSAGES, **{argument: values[argument]})
    assert not recorded
    *_, last = [template.render(MESSAGES, **{argument: values[argument]}) for _ in range(3)]
    assert len(recorded) == 1 and last._output is None


def test_a_long_conversation_is_learnt_when_it_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next turn of an agent takes ten times as long if the program runs."""
    monkeypatch.setattr(renderer_module, "LEARNT_AFTER", LEARNT_AFTER)
    recorded, template = count_recordings(monkeypatch), turnwise.load("llama-3.1")
    tool = {"name": "f", "description": "", "parameters": {}}
    chat = [MESSAGES[0], *MESSAGES[1:] * 80]
    for turn in range(3):
        chat = [*chat, *MESSAGES[1:]]
        last = template.render(chat, tools=[{"type": "function", "function": tool}])
        assert len(recorded) == min(turn, 1)
    assert last._output is None


def test_how_often_arguments_come_before_they_are_learnt() -> None:
    code = "from turnwise.engine.renderer import LEARNT_AFTER as after; print(after)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert int(done.stdout) == LEARNT_AFTER


def test_segments_that_are_too_large_are_not_learnt_again(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded, template = count_recordings(monkeypatch), turnwise.load("llama-3.1")
    tools = [
        {
            "type": "function",
            "function": {"name": f"tide_{number}", "description": "When? " * 60, "parameters": {}},
        }
        for number in range(1_000)
    ]
    texts = {str(template.render(MESSAGES, tools=tools)) for _ in range(8)}
    assert len(recorded) == 1 and len(texts) == 1


def test_texts_outside_of_rounds_are_paid_by_their_length() -> None:
    """A system text that is changed eighty times costs more than a conversation that is not."""
    grow = "{% set n.t = n.t + '.' %}" * 80
    template = turnwise.compile(
        f"{{% set n = namespace(t=messages[0].content) %}}{grow}{{{{ n.t }}}}"
        "{% for m in messages[1:] %}{{ m.content }}{% endfor %}"
    )

    def render(size: int, others: int) -> turnwise.Rendering:
        chat = [
            {"role": "system", "content": "a" * size},
            {"role": "user", "content": "b" * others},
        ]
        return template.render(chat, normalise=False)

    *_, last = [render(9, 100_000) for _ in range(4)]
    assert last._output is None
    with pytest.raises(turnwise.TemplateLimitError):
        render(900_000, 9)


def test_texts_of_other_messages_are_paid_by_their_length() -> None:
    question = "{% if (messages[0].content + '!') == '!!' %}x{% endif %}"
    template = turnwise.compile(
        f"{{% for m in messages %}}{question}{{{{ m.content }}}}{{% endfor %}}"
    )

    def render(size: int) -> turnwise.Rendering:
        chat = [{"role": "user", "content": "a" * size}, *[{"role": "user", "content": "b"}] * 400]
        return template.render(chat[: 40 if size < 10 else None], normalise=False)

    *_, last = [render(9) for _ in range(4)]
    assert last._output is None
    with pytest.raises(turnwise.TemplateLimitError):
        render(200_000)


@pytest.mark.parametrize("count", range(4))
def test_numbers_are_no_truth_values(count: int) -> None:
    """1 and 0 are equal to True and False, but there are other numbers."""
    source = (
        "{% for m in messages %}{% for p in m.content %}[{{ p.text }}]{% endfor %};{% endfor %}"
    )
    template = turnwise.compile(source)
    for known in (0, 1, 0, 1, count):
        parts = [{"type": "text", "text": str(number)} for number in range(known)]
        chat = [{"role": "user", "content": parts}]
        for _ in range(3):
            assert str(template.render(chat, normalise=False)).count("[") == known


@pytest.mark.parametrize("limits", [(100, 0), (100, 1), (1_000, 1), (3_000, 2), (100, 25)])
def test_a_template_that_was_used_keeps_its_budgets(limits: tuple[int, int]) -> None:
    """A conversation adds to a budget only so many times as much as that has."""
    steps, growth = limits
    few = turnwise.Limits(steps=steps, max_growth=growth)
    text = "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}"
    used, refused = turnwise.compile(text).with_limits(few), []
    for count in (1, 10, 50, 400, 1_600):
        chat = [{"role": "user", "content": "Hi"}] * count
        errors = []
        for template in (used, used, used, turnwise.compile(text).with_limits(few)):
            try:
                errors.append(str(template.render(chat))[:0])
            except TurnwiseError as error:
                errors.append(str(error))
        assert len(set(errors)) == 1
        refused += errors[:1]
    assert not refused[0] and refused[-1]


ROUNDS = {
    "one loop": "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}",
    "two loops": "{% for m in messages %}{% endfor %}{% for m in messages %}{{ m.role }}{% endfor %}",
    "a loop in a round": "{% for m in messages %}{{ m.content }}{% for o in messages %}{{ o.role }}{% endfor %}"
    "{% set z = 3 %}{{ z + 4 }}{% endfor %}",
    "a slice": "{% for m in messages[1:] %}{{ m.content }}{% endfor %}{{ messages[0].content }}",
    "a namespace": "{% set n = namespace(i=1) %}{% for m in messages %}{% set n.i = n.i + 1 %}"
    "{{ m.content }}{% endfor %}{{ n.i }}",
}


@pytest.mark.parametrize("name", ROUNDS)
def test_a_template_that_was_used_pays_each_step(name: str) -> None:
    """Where a conversation adds no steps to the budget, the last one that is missing is found."""
    chat = [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "cd"}] * 4

    def is_enough(steps: int, begun: tuple[int, ...]) -> bool:
        limits = turnwise.Limits(
            steps=steps, steps_per_value=0, steps_per_pair=0, steps_per_character=0
        )
        template, error = turnwise.compile(ROUNDS[name]).with_limits(limits), None
        for count in (*begun, len(chat)):
            try:
                template.render(chat[:count], normalise=False)
                error = None
            except TurnwiseError as failed:
                error = failed
        return error is None

    least = next(steps for steps in range(40, 2_000, 4) if is_enough(steps, ()))
    for steps in range(least - 30, least + 8):
        assert is_enough(steps, (1, 1, 2, 2, 3, 3)) == is_enough(steps, ()), steps
