"""What is changed in a conversation, and what is reported about it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

import turnwise
from loaded import load_entry
from turnwise.errors import MessageError

TEXT_ONLY = "{% for m in messages %}<{{ m.role }}>{{ m.content + '' }}</{{ m.role }}>{% endfor %}"
PARTS_ONLY = "{% for m in messages %}<{{ m.role }}>{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}"
NO_SYSTEM = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    "<{{ m.role }}>{{ m.content }}{% endfor %}"
)
SYSTEM_FIRST = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('System message must be at the beginning.') }}{% endif %}"
    "<{{ m.role }}>{{ m.content }}{% endfor %}"
)
CALLS = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content + '' }}{% for c in m.tool_calls or [] %}"
    "[{{ c.function.name }} {{ c.function.arguments | tojson }}]{% endfor %}{% endfor %}"
)
NINE_LETTERS = (
    "{% for m in messages %}{% for c in m.tool_calls or [] %}{% if c.id | length != 9 %}"
    "{{ raise_exception('nine!') }}{% endif %}[{{ c.id }} {{ c.function.name }} "
    "{{ c.function.arguments | tojson }}]{% endfor %}{% if m.role == 'tool' %}"
    "{% if m.tool_call_id | length != 9 %}{{ raise_exception('nine!') }}{% endif %}"
    "{{ m.tool_call_id }}={% endif %}{{ m.content }};{% endfor %}"
)
HI = {"role": "user", "content": "Hi"}
RULE = {"role": "system", "content": "Be brief."}


def call(arguments: Any, **fields: Any) -> dict[str, Any]:
    function = {"name": "tide", "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_0123456789", "type": "function", "function": function}],
        **fields,
    }


def render_normalised(source: str, messages: list[Any], **more: Any) -> tuple[str, list[str]]:
    """Return the text, and the paths of what was changed."""
    rendering = turnwise.compile(source, "jinja").render(messages, **more)
    return rendering.text, [change.path for change in rendering.changes]


def test_nothing_is_changed_that_needs_no_change() -> None:
    messages = [RULE, HI, {"role": "assistant", "content": "Hello"}]
    text, changes = render_normalised(TEXT_ONLY, messages)
    assert text == "<system>Be brief.</system><user>Hi</user><assistant>Hello</assistant>"
    assert changes == []


def test_text_parts_are_joined_where_only_text_is_taken() -> None:
    parts = [{"type": "text", "text": "One"}, {"type": "text", "text": "Two"}]
    assert render_normalised(TEXT_ONLY, [{"role": "user", "content": parts}]) == (
        "<user>One\nTwo</user>",
        ["messages[0].content"],
    )


def test_text_becomes_a_part_where_only_parts_are_taken() -> None:
    assert render_normalised(PARTS_ONLY, [HI]) == ("<user>Hi", ["messages[0].content"])


def test_null_content_is_empty() -> None:
    text, changes = render_normalised(TEXT_ONLY, [HI, {"role": "assistant", "content": None}, HI])
    assert text == "<user>Hi</user><assistant></assistant><user>Hi</user>"
    assert changes == ["messages[1].content"]


def test_json_text_of_arguments_becomes_a_mapping() -> None:
    text, changes = render_normalised(CALLS, [HI, call('{"h": "é"}')])
    assert text == '<user>Hi<assistant>[tide {"h": "é"}]'
    assert changes == ["messages[1].tool_calls[0].function.arguments", "messages[1].content"]


def test_arguments_that_are_no_json_stay_as_they_are() -> None:
    with pytest.warns(turnwise.TurnwiseWarning, match="is no JSON object"):
        assert render_normalised(CALLS, [HI, call("{broken")])[0].endswith('[tide "{broken"]')


def test_a_message_that_went_through_json_renders_as_before() -> None:
    template = load_entry("llama-3.1")
    tools = [{"type": "function", "function": {"name": "tide", "parameters": {"type": "object"}}}]
    prompt = template.render([HI], tools=tools, add_generation_prompt=True)
    message = template.parse('{"name": "tide", "parameters": {"h": "A"}}<|eot_id|>', prompt, tools)
    copied = json.loads(json.dumps(message))
    assert template.render([HI, copied], tools=tools) == template.render([HI, message], tools=tools)


def test_ids_become_nine_letters_where_others_are_refused() -> None:
    result = {"role": "tool", "tool_call_id": "call_0123456789", "content": "7"}
    text, changes = render_normalised(NINE_LETTERS, [HI, call({"h": 1}), result])
    assert '[123456789 tide {"h": 1}]' in text and "123456789=7" in text
    assert "messages[1].tool_calls[0].id" in changes and "messages[2].tool_call_id" in changes


def test_a_short_id_becomes_nine_letters_too() -> None:
    one = call({"h": 1})
    one["tool_calls"][0]["id"] = "c-1"
    text, _ = render_normalised(NINE_LETTERS, [HI, one])
    assert re.search(r"\[[0-9a-f]{9} tide", text)


def test_keys_of_an_sdk_that_are_null_are_dropped() -> None:
    source = "{% for m in messages %}{{ m.content }}{{ 'x' if 'refusal' in m }}{% endfor %}"
    answer = {"role": "assistant", "content": "Yes", "refusal": None, "tool_calls": []}
    assert render_normalised(source, [HI, answer])[0] == "HiYes"


def test_nulls_of_a_table_are_dropped_from_tools_and_arguments() -> None:
    source = "{{ tools | tojson }}" + CALLS
    schema = {
        "type": "object",
        "properties": {"h": {"type": "string", "enum": None, "default": None}},
    }
    tools = [
        {"type": "function", "function": {"name": "tide", "parameters": schema, "strict": None}}
    ]
    text, changes = render_normalised(source, [HI, call({"h": "A", "city": None})], tools=tools)
    assert '"default": null' in text and "strict" not in text and "city" not in text
    assert changes[0] == "tools[0]"


def test_a_developer_is_a_system_where_there_is_none() -> None:
    source = "{% for m in messages if m.role in ['system', 'user'] %}{{ m.role }}:{{ m.content }};{% endfor %}"
    assert (
        render_normalised(source, [{**RULE, "role": "developer"}, HI])[0]
        == "system:Be brief.;user:Hi;"
    )


def test_a_system_text_goes_to_the_user_where_there_is_no_system() -> None:
    chat = [RULE, HI, {**HI, "role": "assistant"}]
    assert render_normalised(NO_SYSTEM, chat) == (
        "<user>Be brief.\n\nHi<assistant>Hi",
        ["messages[0]"],
    )
    assert turnwise.Normaliser(turnwise.compile(NO_SYSTEM, "jinja")).normalise(chat).positions == (
        1,
        2,
    )


@pytest.mark.parametrize("name", ["mistral", "gemma-2"])
def test_a_system_text_in_parts_goes_to_the_user_too(name: str) -> None:
    parts = [{"type": "text", "text": "Be brief."}]
    text = load_entry(name).render([{**RULE, "content": parts}, HI], strict=True).text
    assert "Be brief.\n\nHi" in text


def test_a_system_text_before_a_reply_becomes_a_users() -> None:
    chat = [RULE, {"role": "assistant", "content": "Hello"}]
    assert render_normalised(NO_SYSTEM, chat)[0] == "<user>Be brief.<assistant>Hello"


def test_a_second_system_text_is_joined_to_the_first() -> None:
    more = {"role": "system", "content": "In French."}
    text, changes = render_normalised(SYSTEM_FIRST, [RULE, more, HI])
    assert text == "<system>Be brief.\n\nIn French.<user>Hi"
    assert changes == ["messages[1]"]


@pytest.mark.parametrize(
    ("role", "meant"), [("usr", "user"), ("Assistant", "assistant"), ("bot", "assistant")]
)
def test_a_misspelt_role_is_reported(role: str, meant: str) -> None:
    found = turnwise.Normaliser(load_entry("qwen3")).normalise([{"role": role, "content": "Hi"}])
    assert found.problems == (f"messages[0] has the role '{role}'; did you mean '{meant}'?",)
    assert found.messages == [{"role": role, "content": "Hi"}]


def test_a_message_without_a_role_is_reported() -> None:
    found = turnwise.Normaliser(load_entry("chatml")).normalise([{"Role": "user", "content": "Hi"}])
    assert found.problems == ("messages[0] has no role; did you mean 'role' where it has 'Role'?",)


def test_a_role_that_the_template_names_is_fine() -> None:
    source = "{% for m in messages %}{{ '<c>' if m.role == 'critic' }}{{ m.content }}{% endfor %}"
    template = turnwise.compile(source, "jinja")
    assert (
        turnwise.Normaliser(template).normalise([{"role": "critic", "content": "Hm"}]).problems
        == ()
    )


def test_a_template_that_costs_too_much_to_ask_gets_the_input_as_it_is() -> None:
    source = "{% for i in range(50000) %}{% for j in range(9999) %}{% endfor %}{% endfor %}"
    found = turnwise.Normaliser(turnwise.compile(source, "jinja")).normalise(
        [{"role": "user", "content": None}]
    )
    assert found.messages == [{"role": "user", "content": None}] and not found.changes


@pytest.mark.parametrize("wrong", ["hello", 5, {"role": "user"}, [5]])
def test_what_is_no_conversation_is_refused(wrong: Any) -> None:
    with pytest.raises(MessageError):
        turnwise.Normaliser(load_entry("qwen3")).normalise(wrong)


def test_capabilities_are_printed() -> None:
    table = str(load_entry("gemma-2").capabilities)
    assert "system                         refused   there is no system role" in table
