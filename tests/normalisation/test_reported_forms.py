"""Warnings about tools that are no functions, reasoning in parts, printed lists and early replies."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import turnwise
from loaded import load_entry
from turnwise.errors import MessageError, TurnwiseWarning

HI = {"role": "user", "content": "Hi"}
YES = {"role": "assistant", "content": "Yes."}
LATE = {"role": "system", "content": "In French."}
TIDE = {"type": "function", "function": {"name": "tide", "parameters": {"type": "object"}}}
FUNCTIONS_ONLY = (
    "{% for t in tools or [] if t.function %}[{{ t.function.name }}]{% endfor %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
)
THINKING_PARTS = (
    "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}{% if p.type == 'thinking' %}[T]{{ p.thinking }}[/T]{% else %}{{ p.text }}"
    "{% endif %}{% endfor %}{% endif %}{% endfor %}"
)
PRINTS_BESIDE_CALLS = (
    "{% for m in messages %}<{{ m.role }}>{% if m.tool_calls %}{{ m.content }}"
    "{% for c in m.tool_calls %}[{{ c.function.name }} {{ c.function.arguments }}]{% endfor %}"
    "{% elif m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}"
    "{% endif %}{% endfor %}"
)


def render_and_warnings(
    source: str, messages: list[Any], **arguments: Any
) -> tuple[str, list[str]]:
    """Return the text and the warnings of a rendering."""
    template = turnwise.compile(source, "jinja", name="mine")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TurnwiseWarning)
        text = template.render(messages, **arguments).text
    return text, [str(one.message) for one in caught]


@pytest.mark.parametrize(
    ("tools", "lost"),
    [([{"type": "web_search"}], "tools"), ([TIDE, {"type": "web_search"}], "tools[1]")],
)
def test_a_tool_that_is_no_function_is_reported_where_it_is_dropped(tools: Any, lost: str) -> None:
    _, warned = render_and_warnings(FUNCTIONS_ONLY, [HI], tools=tools)
    assert warned == [f"mine: the template writes nothing of {lost}"]


def test_a_tool_that_is_no_function_may_be_written() -> None:
    text, warned = render_and_warnings(
        "{{ tools | tojson }}" + FUNCTIONS_ONLY, [HI], tools=[{"type": "web_search"}]
    )
    assert "web_search" in text and not warned


def test_reasoning_that_became_a_part_is_not_lost() -> None:
    answer = {**YES, "reasoning_content": "They greet."}
    text, warned = render_and_warnings(THINKING_PARTS, [HI, answer])
    assert text == "<user>Hi<assistant>[T]They greet.[/T]Yes." and not warned


def test_parts_that_are_printed_as_a_list_are_joined() -> None:
    parts = [{"type": "text", "text": "I look."}, {"type": "text", "text": "Wait."}]
    call = {"id": "call_0123", "type": "function", "function": {"name": "tide", "arguments": "{}"}}
    text, warned = render_and_warnings(
        PRINTS_BESIDE_CALLS, [HI, {"role": "assistant", "content": parts, "tool_calls": [call]}]
    )
    assert text == "<user>Hi<assistant>I look.\nWait.[tide {}]" and not warned


def test_encode_warns_about_a_reply_after_a_later_system_text() -> None:
    template = load_entry("gemma-2")
    chat = [HI, YES, LATE, HI, YES]
    moved = r"messages\[2\], a system text, was moved to before messages\[1\]"
    with pytest.warns(TurnwiseWarning, match=moved):
        template.encode(chat, "turnwise", late_system="front")
    with pytest.raises(MessageError, match=moved):
        template.encode(chat, "turnwise", strict=True, late_system="front")


def test_a_last_reply_after_all_system_texts_is_fine() -> None:
    template = load_entry("gemma-2")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TurnwiseWarning)
        chat = [HI, YES, LATE, HI, YES]
        template.encode(chat, "turnwise", train_on="last", late_system="front")
        template.encode(chat, "turnwise")
    assert not any("was moved" in str(one.message) for one in caught)


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"messages": None}, "give its 'messages'"),
        (HI, "put the message into a list"),
        (None, "for example"),
    ],
)
def test_what_is_no_conversation_gets_a_remedy(given: Any, hint: str) -> None:
    with pytest.raises(MessageError, match="a conversation is a list of messages, not") as caught:
        load_entry("qwen3").render(given)
    assert (caught.value.hint or "").startswith(hint)


def test_a_message_without_role_is_reported_with_the_roles() -> None:
    with pytest.warns(
        TurnwiseWarning, match="has no role, so templates leave it out; give it one of 'system'"
    ):
        load_entry("qwen3").render([{"content": "Hi"}])


def test_a_row_whose_messages_are_null() -> None:
    with pytest.raises(MessageError, match="'messages' is null") as caught:
        turnwise.shapes.conversation({"messages": None})
    assert caught.value.path == "messages"
