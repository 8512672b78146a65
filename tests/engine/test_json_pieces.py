"""Pieces of JSON whose form was seen before are those that the program finds."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import turnwise
from turnwise.errors import TurnwiseError

TEXTS = st.text('ab "\\\n\t{}[]:,01é\x00', max_size=4) | st.sampled_from(
    ["null", '"', '":', '", "']
)
NUMBERS = st.none() | st.booleans() | st.integers() | st.floats(-2, 2)
KEYS = st.sampled_from(["a", "b", "", "1", "true", '"', 'a": "', "é,", 1, True, None, 1.0]) | TEXTS
VALUES = st.recursive(
    TEXTS | NUMBERS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
SOURCE = (
    "{% for m in messages %}{% if m.tool_calls %}[{{ m.tool_calls[0].function.arguments|tojson(%s) }}]"
    "{% else %}{{ m.role }}{{ m.content|tojson(%s) }}{% endif %}{% endfor %}"
)
STYLES = (
    "",
    "ensure_ascii=true",
    "indent=1",
    "indent='\t'",
    "separators=(',', ':')",
    "separators=(' ,', ' : ')",
    "separators=('', ':')",
    "separators=(',,', '')",
    "indent='--'",
)
RENDERERS = [turnwise.compile(SOURCE.replace("%s", style)).renderer for style in STYLES]


def chat(arguments: Any, text: str) -> list[dict[str, Any]]:
    call = {"type": "function", "function": {"name": "f", "arguments": arguments}}
    return [
        {"role": "user", "content": text},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    ]


def change(value: Any, texts: list[Any], numbers: list[Any]) -> Any:
    """Return a value with the same keys, and other texts and numbers."""
    if isinstance(value, dict):
        return {key: change(one, texts, numbers) for key, one in value.items()}
    if isinstance(value, list):
        return [change(one, texts, numbers) for one in value]
    others = texts if isinstance(value, str) else numbers
    return others[len(repr(value)) % len(others)]


def with_texts_as_keys(value: Any) -> Any:
    """Return a value that is mostly written in the same way."""
    if isinstance(value, dict):
        return {str(key): with_texts_as_keys(one) for key, one in value.items()}
    return [with_texts_as_keys(one) for one in value] if isinstance(value, list) else value


@given(
    st.dictionaries(KEYS, VALUES, max_size=3),
    st.lists(TEXTS, min_size=1, max_size=3),
    st.lists(NUMBERS, min_size=1, max_size=3),
    st.sampled_from(RENDERERS),
)
def test_forms_that_were_seen_change_no_origin(
    arguments: Any, texts: list[str], numbers: list[Any], renderer: Any
) -> None:
    program = renderer.with_programs(lambda same: same)  # it always runs
    values = [arguments, change(arguments, texts, numbers), change(arguments, numbers, texts)]
    values = [*values, *map(with_texts_as_keys, values), *values]
    for one in values:
        messages = chat(one, "x".join(texts))
        try:
            expected = program.render(messages)
        except TurnwiseError:
            continue
        found = renderer.render(messages)
        assert found.text == expected.text
        assert [(text, repr(origin)) for text, origin in found.pieces] == [
            (text, repr(origin)) for text, origin in expected.pieces
        ]
        assert [piece.expression for piece in found.pieces] == [
            piece.expression for piece in expected.pieces
        ]


@pytest.mark.parametrize("name", ["glm-4.5", "qwen3"])
def test_arguments_of_one_form_are_joined(name: str) -> None:
    renderer = turnwise.load(name).renderer
    program = renderer.with_programs(lambda same: same)
    dice = random.Random(name)
    for number in range(12):
        arguments = {"place": "é" * dice.randint(1, 4), "days": number, "tags": ['"', str(number)]}
        messages = chat(arguments, f"question {number}") * dice.randint(1, 3)
        found = renderer.render(messages)
        assert found.pieces == program.render(messages).pieces
    assert found._join_sections() is not None


@pytest.mark.parametrize("key", [None, 1.5, True, 7, "a b"])
def test_origins_name_keys_of_any_type(key: Any) -> None:
    found = RENDERERS[0].render(chat({key: {"a": "b"}}, "x"))
    fields = [origin.field for _, origin in found.pieces]
    place = f"messages[1].tool_calls[0].function.arguments[{key!r}]"
    assert {place, f"{place}.a"} <= {*fields}
