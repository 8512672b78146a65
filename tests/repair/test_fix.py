"""Repairs: what is broken is written as its plain form, what worked stays, and what cannot be repaired is reported."""

from __future__ import annotations

import json
from typing import Any

import pytest

import oracle
import turnwise
from turnwise.analysis.conversations import Probe
from turnwise.repair import NAMES
from turnwise.repair.defects import DEFECTS
from turnwise.repair.proof import Proof, WrittenSet, find_broken_together

CALL = {
    "id": "call00001",
    "type": "function",
    "function": {"name": "tide", "arguments": {"at": "Oslo"}},
}
USER, REPLY = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes"}
NEXT = {"role": "user", "content": "And"}

CHATML = """{%- for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
CALLS = """{%- for message in messages %}
    {{- '<|' + message.role + '|>' }}
    {%- if message.content %}{{ message.content }}{% endif %}
    {%- for call in message.tool_calls or [] %}
        {{- '<call>' + call.function.name + ' ' + CALLED + '</call>' }}
    {%- endfor %}
    {{- '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"""
SYSTEM = """{%- for message in messages %}
    {%- if message.role == 'system' and not loop.first %}
        {{- raise_exception('System message must be at the beginning') }}
    {%- endif %}
    {{- '<|' + message.role + '|>' + message.content + '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"""


def with_arguments(arguments: Any) -> list[dict[str, Any]]:
    call = {**CALL, "function": {"name": "tide", "arguments": arguments}}
    return [USER, {"role": "assistant", "content": "", "tool_calls": [call]}]


def parts(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


CASES: list[tuple[str, str, list[dict[str, Any]], list[dict[str, Any]]]] = [
    (
        *("null-content", CHATML),
        [USER, {"role": "assistant", "content": None}, NEXT],
        [USER, {"role": "assistant", "content": ""}, NEXT],
    ),
    (
        *("null-content", CHATML),
        [USER, {"role": "assistant"}, NEXT],
        [USER, {"role": "assistant", "content": ""}, NEXT],
    ),
    (
        *("list-content", CHATML),
        [{"role": "user", "content": parts("Hi") + parts("there")}, REPLY],
        [{"role": "user", "content": "Hi\nthere"}, REPLY],
    ),
    (
        *("string-arguments", CALLS.replace("CALLED", "(call.function.arguments | tojson)")),
        with_arguments(json.dumps({"at": "Oslo"})),
        with_arguments({"at": "Oslo"}),
    ),
    (
        *("string-arguments", CALLS.replace("CALLED", "(call.function | tojson)")),
        with_arguments(json.dumps({"at": "Oslo"})),
        with_arguments({"at": "Oslo"}),
    ),
    (
        *("mapping-arguments", CALLS.replace("CALLED", "call.function.arguments")),
        with_arguments({"at": "Oslo"}),
        with_arguments(json.dumps({"at": "Oslo"})),
    ),
    (
        *("late-system", SYSTEM),
        [USER, REPLY, {"role": "system", "content": "Rules"}, NEXT],
        [{"role": "system", "content": "Rules"}, USER, REPLY, NEXT],
    ),
]


@pytest.mark.parametrize(("name", "text", "broken", "plain"), CASES)
def test_what_is_broken_is_written_as_its_plain_form(
    name: str, text: str, broken: list[dict[str, Any]], plain: list[dict[str, Any]]
) -> None:
    repair = turnwise.fix(turnwise.compile(text), [name])
    assert [patch.name for patch in repair.patches] == [name], str(repair)
    wanted = oracle.render(text, plain)
    for messages in (broken, plain):
        assert oracle.render(repair.text, messages) == wanted, repair.diff
        ours = turnwise.compile(repair.text).render(messages, normalise=False)
        assert ours.text == wanted
    assert turnwise.fix(turnwise.compile(repair.text), [name]).patches == ()


@pytest.mark.once
def test_the_change_is_small() -> None:
    repair = turnwise.fix(turnwise.compile(CHATML), ["null-content"])
    assert repair.text == CHATML.replace("message['content']", "(message['content'] or '')")
    (patch,) = repair.patches
    assert patch.lines == (2,) and patch.repaired > 1
    added = [line for line in repair.diff.splitlines() if line.startswith("+ ")]
    assert len(added) == 1
    assert str(patch).startswith("null-content: ")


@pytest.mark.once
def test_line_ends_of_the_author_stay() -> None:
    repair = turnwise.fix(turnwise.compile(CHATML.replace("\n", "\r\n")), ["null-content"])
    assert repair.text.count("\r\n") == repair.text.count("\n") == CHATML.count("\n")


@pytest.mark.once
def test_a_missing_generation_prompt() -> None:
    text = CHATML[: CHATML.index("{%- if add_generation_prompt")].rstrip()
    repair = turnwise.fix(turnwise.compile(text), ["generation-prompt"])
    for messages in ([USER], [USER, REPLY, NEXT]):
        prompt = oracle.render(repair.text, messages, add_generation_prompt=True)
        assert prompt == oracle.render(CHATML, messages, add_generation_prompt=True)
        assert oracle.render(repair.text, messages) == oracle.render(text, messages)


RESULT = {"role": "tool", "content": "rain", "name": "tide", "tool_call_id": "call00001"}


@pytest.mark.once
def test_what_cannot_be_repaired_is_reported() -> None:
    by_name = "{% for k, v in call.function.arguments.items() %}{{ k }}={{ v }};{% endfor %}"
    text = CALLS.replace(" + CALLED + '</call>' }}", " }}" + by_name + "{{ '</call>' }}")
    repair = turnwise.fix(turnwise.compile(text), ["string-arguments"])
    assert not repair.changed and repair.diff == ""
    (unfixed,) = repair.unfixed
    assert unfixed.name == "string-arguments" and "JSON" in unfixed.reason
    assert "not fixed" in str(repair)


@pytest.mark.once
def test_misuse() -> None:
    with pytest.raises(turnwise.MessageError, match="there is no defect 'null'"):
        turnwise.fix("chatml", ["null"])
    with pytest.raises(turnwise.SourceError):
        turnwise.fix(7)  # type: ignore[arg-type]
    with pytest.raises(turnwise.SourceError, match="refuses all"):
        turnwise.fix(turnwise.compile("{{ raise_exception('no') }}"))


HOSTILE = (
    "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}",
    "{% for m in messages %}{{ m.content }}{% for i in range(3000) %}{{ i }}{% endfor %}{% endfor %}",
    "{{ 'x' * 90000 }}{% for m in messages %}{{ m.content + 'a' }}{% endfor %}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% for m in messages %}" + "{{ m.content + 'a' }}" * 300 + "{% endfor %}",
)


@pytest.mark.law(1)
@pytest.mark.once
@pytest.mark.filterwarnings("ignore::turnwise.TurnwiseWarning")
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_templates_end_with_an_answer_or_a_project_error(text: str) -> None:
    try:
        repair = turnwise.fix(turnwise.compile(text), generation=True)
    except turnwise.TurnwiseError as error:
        assert str(error)
    else:
        assert turnwise.compile(repair.text).text == repair.text


def test_names() -> None:
    assert NAMES[-1] == "generation" and len(set(NAMES)) == len(NAMES)


@pytest.mark.once
@pytest.mark.parametrize("content", [7, 0, False, {"a": 1}, ["a"], [{"b": 1}]], ids=str)
def test_contents_that_are_no_text_stay(content: Any, written_as_is: tuple[str, str]) -> None:
    before, after = written_as_is
    for role in ("user", "tool"):
        messages = [{"role": role, "content": content}]
        assert oracle.render(after, messages) == oracle.render(before, messages)


@pytest.fixture(scope="module")
def written_as_is() -> tuple[str, str]:
    text = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}</s>{% endfor %}"
    repair = turnwise.fix(turnwise.compile(text), ["null-content", "list-content"])
    assert [patch.name for patch in repair.patches] == ["null-content", "list-content"]
    return text, repair.text


FIRST_SYSTEM = """{%- for m in messages -%}
{%- if m.role == 'system' and loop.first -%}<|system|>{{ m.content }}<|end|>
{%- elif m.role != 'system' -%}<|{{ m.role }}|>{{ m.content }}
{%- for c in m.tool_calls or [] %}<call>{{ c.function.arguments | tojson }}</call>{% endfor %}<|end|>{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}<|assistant|>{% endif %}"""
RULES, LATE = {"role": "system", "content": "Be"}, {"role": "system", "content": "Late"}
NO_RULES = {"role": "system", "content": None}


@pytest.mark.once
def test_repairs_hold_together() -> None:
    repair = turnwise.fix(turnwise.compile(FIRST_SYSTEM))
    assert len(repair.patches) == 4 and not repair.unfixed, str(repair)
    pairs = [
        (
            [RULES, USER, {**LATE, "content": parts("Late")}],
            [{**RULES, "content": "Be\n\nLate"}, USER],
        ),
        ([NO_RULES, USER, LATE], [LATE, USER]),
        ([NO_RULES, USER], [{**RULES, "content": ""}, USER]),
        ([USER, {**RESULT, "content": None}], [USER, {**RESULT, "content": ""}]),
        ([{**USER, "content": [{"type": "text", "text": None}]}], [{**USER, "content": ""}]),
        (with_arguments(""), with_arguments("")),
    ]
    for broken, plain in pairs:
        assert oracle.render(repair.text, broken) == oracle.render(FIRST_SYSTEM, plain)


@pytest.mark.once
def test_what_stays_broken_is_named() -> None:
    renderer = turnwise.compile(CHATML).renderer
    null = Probe("null content", [USER, {"role": "assistant", "content": None}, NEXT])
    proof = Proof(WrittenSet.make(CHATML, renderer, ()), DEFECTS[0], [null])
    assert list(find_broken_together(renderer, [proof])) == [("null-content", "null content")]
    repaired = turnwise.compile(turnwise.fix(turnwise.compile(CHATML)).text).renderer
    assert not list(find_broken_together(repaired, [proof]))
