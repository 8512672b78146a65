"""`diff` finds edits: every kind that templates can look at, and random ones of syntax.

Whether an edit changes anything is decided without `diff`: by a large number of random conversations that other code
makes (`random_chats.py`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

import corpus
import turnwise
from loaded import load_entry
from planted_edits import edit_at_random
from random_chats import find_difference
from turnwise.evidence import diff

# Kinds of edits that a comparison must find: what a template may look at, each with the text that only it reaches.
#
# A row is a fragment of a template, or a pair of fragments. `when(condition)` writes something where the condition
# holds, and the edited template writes something else there. Fragments of messages are put into a loop over the
# messages `m`.

BEFORE, AFTER = "[before]", "[after]"
FRAME = (
    "{% for m in messages %}<|{{ m.role }}|>{% if m.content is string %}{{ m.content }}{% endif %}"
    "IN_MESSAGES{% endfor %}ONCE{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def when(condition: str) -> str:
    return f"{{% if {condition} %}}{BEFORE}{{% endif %}}"


def each_call(inner: str) -> str:
    return f"{{% for c in m.tool_calls or [] %}}{inner}{{% endfor %}}"


def each_argument(inner: str) -> str:
    arguments = "(c.function.arguments if c.function.arguments is mapping else {})"
    return each_call(f"{{% for k, v in {arguments}.items() %}}{inner}{{% endfor %}}")


def each_part(inner: str) -> str:
    loop = f"{{% for p in m.content or [] %}}{inner}{{% endfor %}}"
    return f"{{% if m.content is not string %}}{loop}{{% endif %}}"


def each_tool(inner: str) -> str:
    return f"{{% for t in tools or [] %}}{inner}{{% endfor %}}"


def each_parameter(inner: str) -> str:
    loop = "{% for k, p in (t.function.parameters.properties or {}).items() %}"
    return each_tool(
        f"{{% if t.function and t.function.parameters %}}{loop}{inner}{{% endfor %}}{{% endif %}}"
    )


IN_MESSAGES: dict[str, str | tuple[str, str]] = {
    "the role ipython": when("m.role == 'ipython'"),
    "the role tool_results": when("m['role'] == 'tool_results'"),
    "the role developer": when("m.role in ['developer']"),
    "an unknown role": when("m.role == 'umpire_7'"),
    "a role in capitals": when("m.role | upper == 'GOSSIP'"),
    "two tools in turn": when(
        "m.role == 'tool' and loop.previtem is defined and loop.previtem.role == 'tool'"
    ),
    "a tool first": when("loop.first and m.role == 'tool'"),
    "a tool last": when("loop.last and m.role == 'tool'"),
    "a developer and tools": when("m.role == 'developer' and tools"),
    "a developer and documents": when("m.role == 'developer' and documents"),
    "a system after a user": when("m.role == 'system' and loop.index0 > 0"),
    "a system at the end of a call": when("m.role == 'system' and loop.last and loop.index > 2"),
    "a name": when("m.name == 'Ada'"),
    "a field of one template": when("m.recipient is defined"),
    "a field with a value": when("m.channel == 'commentary'"),
    "a field that is true": when("m.prefix"),
    "a field that is false": when("m.trained is defined and not m.trained"),
    "a tool plan": when("m.tool_plan"),
    "an end of a turn": when("m.get('end_turn', false) is true"),
    "content, thinking and calls": when("m.content and m.reasoning_content and m.tool_calls"),
    "thinking and calls in turn": when("m.thinking and m.tool_calls and loop.index > 3"),
    "calls without content": when("m.tool_calls and m.content is none"),
    "two calls": when("m.tool_calls and m.tool_calls | length == 2"),
    "a call with a type": each_call(when("c.type == 'function'")),
    "a call without a wrapper": each_call(when("c.function is not defined")),
    "a tool with a known name": each_call(when("c.function.name == 'brave_search'")),
    "a name that begins so": each_call(
        when("c.function and c.function.name.startswith('browser.')")
    ),
    "arguments that are text": each_call(when("c.function.arguments is string")),
    "an argument that is true": each_argument(when("v is true")),
    "an argument that is false": each_argument(when("v is false")),
    "an argument that is null": each_argument(when("v is none")),
    "an argument with a fraction": each_argument(when("v is float")),
    "an argument in an argument": each_argument(when("v is mapping and v")),
    "booleans as Python writes them": (
        each_argument("{{ v | tojson if v is not string else v }}"),
        each_argument(
            "{{ v | tojson if v is mapping or v is iterable and v is not string else v }}"
        ),
    ),
    "letters of arguments": (
        each_call("{{ c | tojson }}"),
        each_call("{{ c | tojson(ensure_ascii=true) }}"),
    ),
    "spaces of arguments": (
        each_call("{{ c | tojson }}"),
        each_call("{{ c | tojson(separators=(',', ':')) }}"),
    ),
    "white space of reasoning": (
        "{{ m.reasoning_content or '' }}",
        "{{ (m.reasoning_content or '') | trim }}",
    ),
    "newlines of reasoning": (
        "{{ (m.reasoning_content or '').strip() }}",
        "{{ (m.reasoning_content or '').strip('\\n') }}",
    ),
    "two ends of thinking": (
        "{{ m.content.split('</think>')[-1] if m.content is string }}",
        "{% if m.content is string %}{{ m.content.split('</think>')[1] if '</think>' in m.content else m.content }}"
        "{% endif %}",
    ),
    "the start of thinking": (
        "{{ m.content.split('<think>')[0] if m.content is string }}",
        "{% if m.content is string %}"
        "{{ m.content.split('<think>')[-1 if m.content.endswith('<think>') else 0] }}{% endif %}",
    ),
    "/nothink at the end": when("m.content is string and m.content.endswith('/nothink')"),
    "/no_think somewhere": when("m.content is string and '/no_think' in m.content"),
    "the last characters": when("m.content is string and m.content[-4:] == 'WXYZ'"),
    "a text that begins so": when("m.content is string and m.content.startswith('[PREFIX_9]')"),
    "white space of results": (
        "{{ m.content if m.role == 'tool' }}",
        "{{ m.content | trim if m.role == 'tool' and m.content is string else m.content if m.role == 'tool' }}",
    ),
    "a result that is a mapping": when("m.role == 'tool' and m.content is mapping"),
    "an output in a result": when("m.content is mapping and 'output' in m.content"),
    "outputs in results": each_part(when("m.role == 'tool' and p.output is defined")),
    "a result with an id": when(
        "m.role == 'tool' and m.tool_call_id is defined and m.name is not defined"
    ),
    "an image": each_part(when("p.type == 'image'")),
    "a video": each_part(when("p.type == 'video'")),
    "an audio without a type": each_part(when("'audio' in p")),
    "a content part": each_part(when("p.content is defined")),
    "a part of an unknown type": each_part(when("p.type == 'hologram'")),
    "white space of a part": (each_part("{{ p.text }}"), each_part("{{ p.text | trim }}")),
    "two images": (
        "{% if m.content is not string and m.content %}{% set n = m.content | selectattr('type', 'equalto', 'image') %}"
        + when("n | list | length > 1")
        + "{% endif %}"
    ),
    "more than nine messages": when("loop.index == 10"),
    "more than twenty messages": when("loop.index0 > 20"),
    "more than 500 characters": when("m.content is string and m.content | length > 500"),
    "more than 2,000 characters": when("m.content is string and m.content | length > 2000"),
}

ONCE: dict[str, str | tuple[str, str]] = {
    "a mode": when("safety_mode == 'strict'"),
    "another mode": when("safety_mode is defined and safety_mode != 'NONE'"),
    "a tool of the model": when("builtin_tools and 'python' in builtin_tools"),
    "an effort": when("reasoning_effort == 'minimal'"),
    "a number": when("thinking_budget is defined and thinking_budget == 512"),
    "a number from below": when(
        "thinking_budget is defined and thinking_budget is number and thinking_budget < -7"
    ),
    "a field of an option": when(
        "response_format is mapping and response_format.type == 'json_schema'"
    ),
    "an option and no opening": when("enable_thinking is false and not add_generation_prompt"),
    "an option and an opening": when("style == 'terse' and add_generation_prompt"),
    "two options": when("style == 'terse' and tone == 'dry'"),
    "an option and tools": when("style == 'terse' and tools"),
    "an option and empty tools": when("style == 'terse' and tools is not none and not tools"),
    "empty tools": when("tools is defined and tools is not none and tools | length == 0"),
    "tools and documents": when("tools and documents"),
    "three documents": when("documents and documents | length > 1"),
    "a description of a parameter": each_parameter("{{ '[before]' if p.description }}"),
    "every parameter described": (
        "{% set ns = namespace(all=true) %}"
        + each_parameter("{% if not p.description %}{% set ns.all = false %}{% endif %}")
        + when("ns.all and tools and tools[0].function.parameters.properties")
    ),
    "letters of schemas": (
        "{{ tools | tojson(ensure_ascii=false) }}",
        "{{ tools | tojson(ensure_ascii=true) }}",
    ),
    "white space of descriptions": (
        each_tool("{{ t.function.description if t.function }}"),
        each_tool("{{ t.function.description | default('') | trim if t.function }}"),
    ),
    "the key strict": each_tool(when("t.function and t.function.strict")),
    "the key nullable": each_parameter(when("p.nullable")),
    "the key additionalProperties": each_tool(
        when(
            "t.function and t.function.parameters and t.function.parameters.additionalProperties is defined"
        )
    ),
    "an enum": each_parameter(when("p.enum")),
    "a default that is false": each_parameter(when("p.default is defined and p.default is false")),
    "a reference": each_parameter(when("'$ref' in p")),
    "a tool without parameters": each_tool(when("t.function and not t.function.parameters")),
    "the year of a week": ("{{ strftime_now('%Y') }}", "{{ strftime_now('%G') }}"),
    "the day of a month": ("{{ strftime_now('%d') }}", "{{ strftime_now('%e') }}"),
    "the hour of a day": ("{{ strftime_now('%H') }}", "{{ strftime_now('%I') }}"),
    "the last user of many": (
        "{% set ns = namespace(last=-1) %}{% for m in messages %}"
        "{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
        + when("ns.last == 12")
    ),
    "a special token": when("bos_token is defined and messages | length == 3"),
    "no messages": when("not messages"),
    "a message of nothing": when("messages and messages[0].content == ''"),
}


def edited_pairs() -> dict[str, tuple[str, str]]:
    """The templates of every kind of edit, before and after."""
    pairs = {}
    for place, other, rows in (
        ("IN_MESSAGES", "ONCE", IN_MESSAGES),
        ("ONCE", "IN_MESSAGES", ONCE),
    ):
        frame = FRAME.replace(other, "")
        for name, row in rows.items():
            before, after = row if isinstance(row, tuple) else (row, row.replace(BEFORE, AFTER))
            pairs[name] = (frame.replace(place, before), frame.replace(place, after))
    return pairs


# The tests

FOUND = 0.99
KINDS = 79
SAMPLE, ALL = 5, 500  # edits that change something
CHATS = 300  # random conversations, to know whether an edit changes something
SEED = 20261115


@pytest.mark.law
@pytest.mark.once
def test_every_kind_of_edit_is_found() -> None:
    pairs = edited_pairs()
    missed = []
    for name, (before, after) in pairs.items():
        a, b = turnwise.compile(before, "jinja"), turnwise.compile(after, "jinja")
        if diff(a, b).equal:
            missed.append(name)
    assert len(pairs) >= KINDS and not missed, missed


def choose_source(dice: random.Random) -> tuple[str, str]:
    """The name and text of a template of the corpus or of an entry."""
    published = corpus.load_published()
    name = dice.choice([*published, *turnwise.entries()])
    return name, published[name].text if name in published else load_entry(name).text


def edits_that_change_something(
    count: int, dice: random.Random
) -> Iterator[tuple[str, turnwise.Template, turnwise.Template]]:
    while count:
        name, text = choose_source(dice)
        changed = edit_at_random(text, dice)
        try:
            a, b = turnwise.compile(text, "jinja"), turnwise.compile(changed, "jinja")
        except turnwise.TurnwiseError:
            continue
        if changed != text and find_difference(a, b, [text, changed], CHATS) is not None:
            count -= 1
            yield name, a, b


def missed_edits(count: int, seed: int) -> list[str]:
    missed = []
    for name, a, b in edits_that_change_something(count, random.Random(seed)):
        if diff(a, b).equal:
            at = next(
                i for i, pair in enumerate(zip(a.text, b.text, strict=False)) if len({*pair}) > 1
            )
            missed.append(f"{name}: {a.text[at - 30 : at + 30]!r} -> {b.text[at - 30 : at + 30]!r}")
    return missed


@pytest.mark.law
def test_random_edits_are_found(sample: Any) -> None:
    assert not missed_edits(len(sample(range(SAMPLE), 2)), SEED)


@pytest.mark.slow
def test_many_random_edits_are_found() -> None:
    missed = missed_edits(ALL, SEED + 1)
    assert len(missed) <= ALL * (1 - FOUND), "\n".join(missed)
