"""`diff`: it finds what edits change, and shows it with the smallest conversation."""

from __future__ import annotations

import json
from typing import Any

import pytest

import turnwise
from loaded import load_entry
from turnwise.analysis.conversations import Probe, conversations
from turnwise.analysis.counterexample import is_well_formed, shrink, smaller_probes
from turnwise.analysis.wide_conversations import list_common_probes, rare_conversations
from turnwise.evidence import diff
from turnwise.tokens.tokenizers import tokenizer

HI = {"role": "user", "content": "hi"}


def chatml(
    turn: str = "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n",
) -> turnwise.Template:
    return turnwise.compile("{% for m in messages %}" + turn + "{% endfor %}")


def test_equal_templates_have_no_difference() -> None:
    found = diff(
        chatml(),
        turnwise.compile(
            "{%- for x in messages -%}{{ '<|im_start|>' + x['role'] + '\n' ~ x['content'] }}"
            "<|im_end|>{{ '\n' }}{%- endfor -%}"
        ),
    )
    assert found.equal and found
    assert found.tried > len(list(list_common_probes({}))) and "two rounds" in found.covers
    assert found.unreached == () and found.coverage.percent == 100


def test_the_witness_is_the_smallest_conversation() -> None:
    found = diff(chatml(), chatml("<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n"))
    assert found.witness is not None
    (message,) = found.witness.probe.messages
    assert message["content"].strip() != message["content"] and len(message["content"]) == 1
    assert found.witness.probe.options == {} and found.witness.probe.tools is None
    left, right = found.witness.pieces
    assert left is not None and str(left.origin) == "messages[0].content"
    assert "they differ on:" in str(found)


CALLING = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}[{{ c.function.name }}]{% endfor %}{% endfor %}"
)


@pytest.mark.parametrize(
    "edit",
    [
        ("[{{ c.function.name }}]", "[]"),
        ("[{{", "[ {{"),
        ("<{{ m.role }}>", "<{{ 'result' if m.role == 'tool' else m.role }}>"),
    ],
)
def test_the_witness_is_well_formed(edit: tuple[str, str]) -> None:
    """Shrinking leaves no call without a name, and no result without a call."""
    found = diff(turnwise.compile(CALLING), turnwise.compile(CALLING.replace(*edit)))
    assert found.witness is not None and is_well_formed(found.witness.probe)
    first = found.witness.probe.messages[0]
    assert first["tool_calls"][0]["function"] == {"name": "w", "arguments": {}}
    assert len(found.witness.probe.messages) <= 2


def test_types_and_arguments_stay_what_they_are() -> None:
    """A type is kept or left out, and arguments that are JSON stay JSON."""
    tool = {"type": "function", "function": {"name": "find", "description": "Finds."}}
    call = {"type": "function", "function": {"name": "find", "arguments": '{"city": "Rome"}'}}
    asked: dict[str, Any] = {"role": "assistant", "tool_calls": [call]}
    for probe in (Probe("tool", [HI], tools=[tool]), Probe("call", [asked])):
        for smaller in smaller_probes(probe):
            for one in (*(smaller.tools or ()), *smaller.messages[0].get("tool_calls", ())):
                assert one.get("type", "function") == "function"
                json.loads(one.get("function", {}).get("arguments", "{}"))
    smallest = shrink(Probe("call", [asked]), lambda one: True).messages
    assert smallest == [
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
    ]


@pytest.mark.parametrize(
    "odd",
    [
        {"messages": [{"role": "user"}]},
        {"messages": [{"role": "user", "content": []}]},
        {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
        {"messages": [{"role": "assistant", "content": "a", "tool_calls": [{}]}]},
        {"messages": [{"role": "assistant", "content": "a", "tool_calls": []}]},
        {"messages": [{"role": "assistant", "tool_calls": ["f"]}]},
        {"messages": [{"role": "tool", "content": "a"}]},
        {"messages": [], "tools": []},
        {"messages": [], "tools": [{"function": {"name": "f"}}]},
        {"messages": [], "tools": [{"type": "function", "function": {}}]},
        {"messages": [], "documents": [{}]},
    ],
)
def test_what_is_odd(odd: dict[str, Any]) -> None:
    assert not is_well_formed(Probe("odd", **odd))


def test_a_refusal_is_a_difference() -> None:
    strict = turnwise.compile("{% if not messages %}{{ raise_exception('empty') }}{% endif %}")
    found = diff(strict, turnwise.compile(""))
    assert found.witness is not None and found.witness.probe.messages == []
    assert "a: refuses: empty" in str(found)


LATE = {
    "a fourth round": "{% if messages | length == 8 %}!{% endif %}",
    "a late message": "{% for m in messages %}{% if loop.index == 7 and m.role == 'system' %}!{% endif %}{% endfor %}",
    "a long text": "{% if messages and messages[0].content | string | length > 200 %}!{% endif %}",
    "three tools": "{% if tools and tools | length > 2 %}!{% endif %}",
    "three calls": "{% for m in messages %}{% if m.tool_calls and m.tool_calls | length > 2 %}!{% endif %}{% endfor %}",
    "a late call": "{% for m in messages %}{% if m.tool_calls and loop.index0 > 6 %}!{% endif %}{% endfor %}",
    "late reasoning": "{% for m in messages %}{% if m.reasoning_content and loop.index > 6 %}!{% endif %}{% endfor %}",
    "a carriage return": "{% for m in messages %}{% if '\\r\\n' in m.content | string %}!{% endif %}{% endfor %}",
    "a no-break space": "{% for m in messages %}{% if '\u00a0' in m.content | string %}!{% endif %}{% endfor %}",
    "an audio part": "{% for m in messages %}{% if m.content is iterable and m.content is not string %}"
    "{% for p in m.content %}{% if p.type == 'audio' %}!{% endif %}{% endfor %}{% endif %}{% endfor %}",
    "a number": "{% if level == 3 %}!{% endif %}",
}


@pytest.mark.parametrize("text", LATE.values(), ids=LATE)
def test_what_is_rare_is_asked_too(text: str) -> None:
    assert not diff(turnwise.compile(text), turnwise.compile(text.replace("!", "?"))).equal


def test_the_coverage_is_reported() -> None:
    found = diff(chatml(), chatml())
    topics = "turns, contents, calls, reasoning, rare cases, random"
    assert str(found) == (
        f"no difference in {found.tried} conversations: {topics}\n2 of 2 branches reached"
    )
    loud = turnwise.compile("{% if shout and level %}!{% endif %}")
    assert str(diff(loud, loud)).splitlines()[0].endswith("random, options (shout, level)")
    assert diff(loud, loud).options == ("shout", "level")


def test_names_are_loaded() -> None:
    assert diff("chatml", load_entry("chatml")).equal and not diff("chatml", "vicuna").equal
    with pytest.raises(turnwise.SourceError, match="diff compares templates, not NoneType"):
        diff("chatml", None)  # type: ignore[arg-type]
    with pytest.raises(turnwise.SourceError, match="chatmll"):
        diff("chatml", "chatmll")


def test_special_tokens_of_a_tokenizer_are_used() -> None:
    """Only the tokenizer's own eos_token tells the two apart."""
    eos = tokenizer("turnwise").named["eos_token"]
    a = turnwise.compile("{{ eos_token }}")
    b = turnwise.compile(f"{{{{ '!' if eos_token == {eos!r} else eos_token }}}}")
    assert diff(a, b).equal and not diff(a, b, tokenizer="turnwise").equal
    with pytest.raises(turnwise.TurnwiseError, match="is not a tokenizer"):
        diff(a, b, tokenizer=5)


def test_options_are_asked() -> None:
    loud = turnwise.compile("{% if shout %}!{% endif %}")
    found = diff(loud, turnwise.compile(""))
    assert found.witness is not None and found.witness.probe.options == {"shout": True}


def test_probes_are_deterministic_and_named() -> None:
    assert list(conversations()) == list(conversations())
    listed = [*conversations(), *rare_conversations()]
    assert len({probe.covers for probe in listed}) == len(listed)
    loud = turnwise.compile("{% for m in messages if shout == m.loud %}!{% endfor %}")
    first, second = (diff(loud, chatml()), diff(loud, chatml()))
    assert first.witness == second.witness and diff(loud, loud) == diff(loud, loud)


@pytest.mark.parametrize("opening", [False, True])
def test_every_probe_renders_with_a_lenient_template(opening: bool) -> None:
    lenient = turnwise.compile(
        "{{ messages | tojson }}{{ tools | tojson }}{{ documents | tojson }}"
    )
    for probe in (*conversations(), *rare_conversations()):
        assert str(lenient.render(probe.messages, **probe.arguments()))


def test_two_templates_that_refuse_everything_cannot_be_compared() -> None:
    never = turnwise.compile("{{ raise_exception('no') }}")
    with pytest.raises(turnwise.SourceError, match="both templates refuse all"):
        turnwise.diff(never, turnwise.compile("{{ raise_exception('never') }}"))
