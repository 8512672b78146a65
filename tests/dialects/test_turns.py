"""Text put into Jinja comes out again, whatever it holds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
import turnwise
from turnwise.dialects.turns import (
    Slot,
    concatenate,
    literal,
    parse_format_string,
    to_format_string,
)

# what a template language may trip over, often; and anything that UTF-8 can hold
texts = st.text(
    st.sampled_from("'\"\\\n\r\t{}%#-+nxuN0 é中😀\u2028\x85\x00") | st.characters(codec="utf-8")
)


@given(texts)
@settings(max_examples=300, deadline=None)
def test_a_literal_is_the_text(text: str) -> None:
    template = "{{- " + literal(text) + " }}"
    assert turnwise.compile(template).render([]).text == text
    assert oracle.render(template, []) == text


@given(texts, texts)
@settings(max_examples=100, deadline=None)
def test_a_sum_is_the_text_around_the_slot(before: str, after: str) -> None:
    template = (
        "{{- " + concatenate((before, Slot("text"), after), {"text": "messages[0].content"}) + " }}"
    )
    chat = [{"role": "user", "content": "{{ hi }}"}]
    assert turnwise.compile(template).render(chat).text == before + "{{ hi }}" + after


@given(texts, texts)
@settings(max_examples=100, deadline=None)
def test_format_strings_come_back(before: str, after: str) -> None:
    names = {"input": "input"}
    written = to_format_string((before, Slot("input"), after), names)
    assert written.format(input="X") == before + "X" + after
    read = parse_format_string(written, names, "it")
    assert read == tuple(part for part in (before, Slot("input"), after) if part)
    assert to_format_string(read, names) == written


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{inptu}", "Did you mean 'input'"),
        ("{}", "unknown placeholder {}"),
        ("{0}", "unknown placeholder {0}"),
        ("{input.x}", "Did you mean 'input'"),
        ("{input!r}", "formats {input}"),
        ("{input:>9}", "formats {input}"),
        ("{input", "not a format string"),
        ("a } b", "not a format string"),
    ],
)
def test_wrong_placeholders_are_named(text: str, problem: str) -> None:
    with pytest.raises(turnwise.SourceError, match="INSTRUCTION") as error:
        parse_format_string(text, ("input", "round"), "INSTRUCTION")
    assert problem in str(error.value)
