"""Every verb gives the template the forms that it takes, numbers messages as the caller does, and tells losses."""

from __future__ import annotations

import json
import pickle
import re
import warnings
from typing import Any

import pytest

import turnwise
from loaded import load_entry
from operations import count_operations
from turnwise.errors import MessageError, TemplateRaised

HI = {"role": "user", "content": "Hi"}
YES = {"role": "assistant", "content": "Yes."}
RULE = {"role": "system", "content": "Be brief."}
LATE = {"role": "system", "content": "In French."}
MARKED = "<system-reminder>\nIn French.\n</system-reminder>"
TOOLS = [
    {
        "type": "function",
        "function": {"name": "tide", "description": "Tides.", "parameters": {"type": "object"}},
    }
]
NO_TOOLS = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"


def collect_warnings(
    template: turnwise.Template, messages: list[Any], **arguments: Any
) -> list[str]:
    """Return the warnings of a rendering."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        template.render(messages, **arguments)
    # Other tests of the process may have made the same warning, and every tenth says how many.
    return [re.sub(r" \(\d+ times so far.*", "", str(one.message)) for one in caught]


pytestmark = pytest.mark.filterwarnings("error::turnwise.errors.TurnwiseWarning")


def test_plain_turns_are_rendered_as_they_are() -> None:
    template = load_entry("qwen3")
    rendering = template.render([RULE, HI, YES])
    assert rendering.changes == ()
    assert rendering == template.render([RULE, HI, YES], normalise=False)


def test_plain_turns_beside_tools_that_are_known_are_rendered_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    template = load_entry("qwen3")
    tools = [{**TOOLS[0], "cache_control": {"type": "ephemeral"}}]
    first = template.render([RULE, HI, YES], tools=tools)
    assert [change.path for change in first.changes] == ["tools[0]"]
    monkeypatch.setattr(turnwise.Normaliser, "normalise", None)
    again = template.render([RULE, HI, YES], tools=tools)
    assert again == first and again.changes == first.changes


@pytest.mark.parametrize("refusal", ["", "{{ raise_exception('no') }}"])
def test_a_system_text_that_tools_replace_is_put_before_the_users(refusal: str) -> None:
    source = (
        "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}"
        "{% if tools and m.role == 'system' %}" + refusal + "{% else %}"
        "<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}"
    )
    template = turnwise.compile(source, "jinja")
    for _ in range(3):
        assert template.render([HI, YES], tools=TOOLS).changes == ()
        rendering = template.render([RULE, HI, YES], tools=TOOLS)
        assert rendering.text.endswith("<user>Be brief.\n\nHi<assistant>Yes.")
        assert [change.path for change in rendering.changes] == ["messages[0]"]
        assert template.render([RULE, HI, YES]).changes == ()


def test_turns_beside_tools_become_parts_where_only_parts_are_taken() -> None:
    source = (
        "{{ tools | tojson }}{% for m in messages %}<{{ m.role }}>"
        "{% for part in m.content %}{{ part.text }}{% endfor %}{% endfor %}"
    )
    template = turnwise.compile(source, "jinja")
    for _ in range(3):
        rendering = template.render([HI, YES], tools=TOOLS)
        assert rendering.text.endswith("<user>Hi<assistant>Yes.")
        assert len(rendering.changes) == 2


def test_pieces_number_messages_as_the_caller_does() -> None:
    template = load_entry("gemma-2")
    rendering = template.render([RULE, HI, YES, {**HI, "content": "More?"}])
    assert [change.path for change in rendering.changes] == ["messages[0]"]
    assert rendering.spans(field="messages[2].content") != []
    asked = rendering.spans(field="messages[3].content")
    assert [rendering.text[start:end] for start, end in asked] == ["More?"]


def test_labels_and_owners_number_messages_as_the_caller_does() -> None:
    template = load_entry("gemma-2")
    encoded = template.encode([RULE, HI, YES], "turnwise")
    trained = [
        owner.message
        for owner, label in zip(encoded.owners, encoded.labels, strict=True)
        if label >= 0
    ]
    assert trained and set(trained) == {2}
    assert [turn.message for turn in encoded.turns] == [2]
    assert encoded.rendering.changes[0].path == "messages[0]"
    copied = pickle.loads(pickle.dumps(encoded))
    assert copied.turns == encoded.turns and copied.owners == encoded.owners


def test_examples_number_messages_as_the_caller_does() -> None:
    template = load_entry("gemma-2")
    samples = template.examples([RULE, HI, YES, HI, YES], "turnwise")
    assert sorted(turn.message for sample in samples for turn in sample.turns) == [2, 4]
    assert samples[0].rendering.changes


def test_truncation_keeps_the_numbers_of_the_caller() -> None:
    template = load_entry("gemma-2")
    chat = [RULE, HI, YES, {**HI, "content": "And now?"}, YES]
    whole = template.encode(chat, "turnwise")
    shorter = template.encode(chat, "turnwise", max_length=len(whole) - 1)
    assert list(shorter.kept)[-2:] == [3, 4]


def test_a_late_system_text_is_in_the_prompt() -> None:
    chat = [HI, YES, LATE, HI]
    with pytest.raises(TemplateRaised):
        load_entry("gemma-2").render(chat, normalise=False)
    for name in ("gemma-2", "qwen3", "llama-3.1", "mistral-v3"):
        assert "In French." in load_entry(name).render(chat).text, name


@pytest.mark.parametrize(
    ("role", "meant"), [("usr", "user"), ("Assistant", "assistant"), ("bot", "assistant")]
)
def test_a_misspelt_role_is_never_silent(role: str, meant: str) -> None:
    template = load_entry("qwen3")
    warned = collect_warnings(template, [{"role": role, "content": "Hi"}])
    assert warned[0] == f"qwen3: messages[0] has the role '{role}'; did you mean '{meant}'?"
    [lost] = warned[1:]  # and how often, if that was told of before
    assert lost.startswith("qwen3: the template writes nothing of messages[0].content")
    with pytest.raises(MessageError, match="did you mean"):
        template.render([{"role": role, "content": "Hi"}], strict=True)


def test_text_that_is_not_written_is_reported() -> None:
    source = "{% for m in messages if m.role != 'tool' %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    template = turnwise.compile(source, "jinja")
    result = {"role": "tool", "content": "forty-two"}
    assert collect_warnings(template, [HI, result]) == [
        "template: the template writes nothing of messages[1].content"
    ]
    with pytest.raises(MessageError, match=r"writes nothing of messages\[1\].content"):
        template.render([HI, result], strict=True)
    assert collect_warnings(template, [HI, result], normalise=False) == []


def test_the_number_in_a_warning_is_that_of_the_caller() -> None:
    source = (
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}"
        "{{ m.content if m.role == 'user' }}{% endfor %}"
    )
    warned = collect_warnings(turnwise.compile(source, "jinja"), [RULE, HI, YES])
    assert warned == ["template: the template writes nothing of messages[2].content"]


def test_the_second_of_two_calls_that_is_not_written_is_reported() -> None:
    source = (
        "{% for m in messages %}{{ m.content }}{% if m.tool_calls %}"
        "{{ m.tool_calls[0].function | tojson }}{% endif %}{% endfor %}"
    )
    calls = [
        {"function": {"name": name, "arguments": {"h": "A"}}} for name in ("tide", "moonrise_time")
    ]
    message = {"role": "assistant", "content": "", "tool_calls": calls}
    warned = collect_warnings(turnwise.compile(source, "jinja"), [HI, message])
    assert warned == ["template: the template writes nothing of messages[1].tool_calls[1]"]


def test_tools_and_documents_that_are_not_written_are_reported() -> None:
    template = turnwise.compile(NO_TOOLS, "jinja")
    assert collect_warnings(template, [HI], tools=TOOLS) == [
        "template: the template writes nothing of tools"
    ]
    documents = [{"title": "T", "text": "The moon."}]
    assert collect_warnings(template, [HI], documents=documents) == [
        "template: the template writes nothing of documents"
    ]


def test_an_image_that_is_not_written_is_reported() -> None:
    part = {"type": "image_url", "image_url": {"url": "cat.png"}}
    chat = [{"role": "user", "content": [part, {"type": "text", "text": "What is it?"}]}]
    warned = collect_warnings(load_entry("chatml"), chat)
    assert len(warned) == 1 and "messages[0].content[0]" in warned[0]


def test_reasoning_that_history_drops_on_purpose_is_not_reported() -> None:
    reply = {**YES, "reasoning_content": "Because of the moon."}
    assert collect_warnings(load_entry("qwen3"), [HI, reply, HI]) == []


def test_reasoning_that_is_never_written_is_reported() -> None:
    reply = {**YES, "reasoning": "Because of the moon."}
    assert "messages[1].reasoning" in collect_warnings(load_entry("llama-3.1"), [HI, reply])[0]


def test_another_dialect_keeps_its_own_rules() -> None:
    vicuna = turnwise.load("fastchat:vicuna_v1.1")
    assert vicuna.render([HI, YES]).changes == ()


@pytest.mark.parametrize("name", ["qwen3", "llama-3.1", "mistral-v3", "hermes-3", "gpt-oss"])
def test_a_parsed_message_and_its_json_render_alike(name: str) -> None:
    template = load_entry(name)
    prompt = template.render([HI], tools=TOOLS, add_generation_prompt=True)
    call = {"id": "call00001", "function": {"name": "tide", "arguments": '{"h": "A"}'}}
    message = {"role": "assistant", "content": None, "tool_calls": [{"type": "function", **call}]}
    whole = template.render([HI, message], tools=TOOLS).text
    parsed = template.parse(whole.removeprefix(prompt.text), prompt, TOOLS)
    texts = [
        template.render([HI, message], tools=TOOLS).text
        for message in (parsed, json.loads(json.dumps(parsed)), message)
    ]
    assert texts == [whole] * 3


def test_a_session_takes_messages_as_people_have_them() -> None:
    template = load_entry("gemma-2")
    session = template.session("turnwise")
    session.prompt([RULE, {"role": "user", "content": [{"type": "text", "text": "Hi"}]}])
    assert "Be brief.\n\nHi" in session.text
    assert [change.path for change in session.changes] == ["messages[1].content", "messages[0]"]
    session.add_reply("Yes.<end_of_turn>")
    before = session.text
    session.extend([LATE, HI])
    assert session.text.startswith(before) and f"{MARKED}\n\nHi" in session.text
    assert session.changes[-1].path == "messages[2]"


def test_a_session_puts_a_late_system_text_into_a_turn_of_its_own() -> None:
    session = load_entry("gemma-2").session("turnwise")
    session.prompt([HI])
    session.add_reply("Yes.<end_of_turn>")
    session.extend([LATE])
    assert session.messages[-1] == {"role": "user", "content": MARKED}


def test_a_session_as_it_is() -> None:
    session = load_entry("gemma-2").session("turnwise", normalise=False)
    with pytest.raises(TemplateRaised):
        session.prompt([RULE, HI])


CALL = {"id": "call_1", "type": "function", "function": {"name": "tide", "arguments": {"h": "A"}}}
ROUND = [
    HI,
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": "High water at 07:41."},
    YES,
]


@pytest.mark.parametrize(
    ("chat", "tools"), [([HI, YES] * 10, None), (ROUND * 5, TOOLS), ([HI, YES] * 10, TOOLS)]
)
def test_what_needs_nothing_costs_little_more_than_rendering(chat: Any, tools: Any) -> None:
    """Counted in operations: time depends on the machine, and is measured by `benchmarks/normalise.py`."""
    template = load_entry("qwen3")
    chat = [{**one, "content": f"{one['content']} {index}"} for index, one in enumerate(chat)]
    given = {"tools": tools}
    for _ in range(20):  # tools are learnt when they come often
        template.render(chat, **given)
        template.render(chat, **given, normalise=False)
    whole = count_operations(lambda: template.render(chat, **given))
    rendering = count_operations(lambda: template.render(chat, **given, normalise=False))
    assert whole < 1.1 * rendering, f"normalising takes {whole / rendering:.2f} times as much"
