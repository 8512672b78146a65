"""Calls that no template should be given: they are put right, or reported with their path."""

from __future__ import annotations

from typing import Any

import pytest

import turnwise
from loaded import load_entry

ASKED = {"role": "user", "content": "Tides?"}
ARGUMENTS = r"messages\[1\]\.tool_calls\[0\]\.function\.arguments "
BY_ARGUMENT_FORM = pytest.mark.parametrize("name", ["qwen3", "qwen3.6"])  # text, and a mapping


def make_chat(calls: Any) -> list[dict[str, Any]]:
    return [ASKED, {"role": "assistant", "content": None, "tool_calls": calls}]


def call(arguments: Any) -> list[dict[str, Any]]:
    function = {"name": "tide", "arguments": arguments}
    return make_chat([{"type": "function", "function": function}])


@BY_ARGUMENT_FORM
@pytest.mark.parametrize("blank", ["", " \n"])
def test_empty_text_is_no_arguments(name: str, blank: str) -> None:
    template = load_entry(name)
    rendering = template.render(call(blank), strict=True)
    assert str(rendering) == str(template.render(call({})))
    assert rendering.changes[0].path == "messages[1].tool_calls[0].function.arguments"


@BY_ARGUMENT_FORM
@pytest.mark.parametrize("text", ['{"harbour": "Brest"', "[1,2]", '{"n": NaN}'])
def test_text_that_is_no_object(name: str, text: str) -> None:
    with pytest.raises(turnwise.MessageError, match=ARGUMENTS + "is no JSON object"):
        load_entry(name).render(call(text), strict=True)
    with pytest.raises(turnwise.MessageError, match=ARGUMENTS + "is 7"):
        load_entry(name).render(call(7), strict=True)


@pytest.mark.parametrize("value", ["1" * 5000, '{"n":' * 3000 + "1" + "}" * 3000])
def test_objects_that_python_does_not_read(value: str) -> None:
    text = f'{{"n": {value}}}'
    assert text in str(load_entry("qwen3").render(call(text), strict=True))
    with pytest.raises(turnwise.MessageError, match=ARGUMENTS + "has too long a number or is too"):
        load_entry("qwen3.6").render(call(text), strict=True)


@BY_ARGUMENT_FORM
@pytest.mark.parametrize("odd", [{"type": "custom", "custom": {"input": "b"}}, {"id": "c"}, "tide"])
def test_calls_without_a_name(name: str, odd: Any) -> None:
    template = load_entry(name)
    with pytest.raises(turnwise.MessageError, match=r"messages\[1\]\.tool_calls\[0\]: a tool call"):
        template.render(make_chat([odd]), strict=True)
    with pytest.raises(turnwise.MessageError, match=r"messages\[1\]\.tool_calls is 'tide'"):
        template.render(make_chat("tide"), strict=True)


@BY_ARGUMENT_FORM
def test_a_custom_call_is_one_of_a_function_with_a_text(name: str) -> None:
    template = load_entry(name)
    custom = {
        "type": "custom",
        "custom": {"name": "patch", "description": "Edit.", "format": {"type": "text"}},
    }
    made = {"id": "call00001", "type": "custom", "custom": {"name": "patch", "input": "a\nb"}}
    schema = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    function = {"name": "patch", "description": "Edit.", "parameters": schema}
    call = {"name": "patch", "arguments": {"input": "a\nb"}}
    plain = [{"id": "call00001", "type": "function", "function": call}]
    tools = [{"type": "function", "function": function}]
    found = template.render(make_chat([made]), [custom])
    assert str(found) == str(template.render(make_chat(plain), tools))
    assert {"tools[0]", "messages[1].tool_calls[0]"} <= {change.path for change in found.changes}


@BY_ARGUMENT_FORM
def test_a_call_without_its_list(name: str) -> None:
    template = load_entry(name)
    (one,) = call({"harbour": "Brest"})[1]["tool_calls"]
    assert str(template.render(make_chat(one))) == str(template.render(make_chat([one])))
