"""InternLM2 by the id of its model: the blocks of its page, both ways, and what other readings of it leave out."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import turnwise
from corpus import needs_corpus
from internlm2_page import blocks
from turnwise.errors import MessageError, TurnwiseError, TurnwiseWarning
from turnwise.shapes import parse_transcript
from turnwise.shapes.transcript import SPELLINGS

MODEL = "internlm/internlm2-chat-7b"
FILE = {"role": "user", "name": "file", "content": "[]"}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
OTHER_READINGS = ["internlm2-tools", "xtuner:internlm2_chat", "lmdeploy:internlm2"]
OTHER_READINGS += ["llamafactory:intern2"]


def current(block: str) -> str:
    """The block in the spelling that the published vocabulary has, after the token that begins a text."""
    for old, new in zip(SPELLINGS["original"], SPELLINGS["current"], strict=True):
        block = block.replace(old, new)
    return f"<s>{block}"


@needs_corpus
@pytest.mark.parametrize("number", range(4))
def test_the_blocks_of_the_page_by_the_id_of_the_model(number: int) -> None:
    template, block = turnwise.load(MODEL), blocks()[number]
    read = parse_transcript(block)
    assert template.render(read.messages()).text == current(block)
    messages, tools = read.to_openai()
    assert not any(message["role"] == "environment" for message in messages)
    written = template.render(messages, tools=tools).text
    # The page's JSON has commas that JSON does not allow, and white space of its own.
    assert re.sub(r"[\s,]", "", written) == re.sub(r"[\s,]", "", current(block))
    first = "<|im_start|>user"
    assert written.split(first)[1:] == current(block).split(first)[1:]


@needs_corpus
def test_a_reply_of_the_page_is_parsed_and_written_again() -> None:
    template = turnwise.load(MODEL)
    for block in blocks():
        messages, tools = parse_transcript(block).to_openai()
        for index, message in enumerate(messages):
            if message["role"] != "assistant" or "tail" in message:
                continue
            prompt = template.render(messages[:index], tools=tools, add_generation_prompt=True)
            whole = template.render(messages[: index + 1], tools=tools).text
            reply = whole[len(prompt.text) :].removesuffix("\n")
            parsed = template.parse(reply, tools=tools)
            again = template.render([*messages[:index], parsed], tools=tools)
            assert again.text == whole


PLAIN = st.builds(
    lambda role, name, content: (
        {"role": role, "content": content} | ({"name": name} if name else {})
    ),
    st.sampled_from(["system", "user", "assistant", "environment"]),
    st.sampled_from(["", "plugin", "interpreter", "file"]),
    st.text("ab\n<", max_size=5),
)
CALL = st.sampled_from(
    [
        {"type": "function", "id": "c1", "function": {"name": "f", "arguments": {"x": "é"}}},
        {"type": "code_interpreter", "id": "c2", "code": "print(1)"},
        {"type": "code_interpreter", "id": "c2", "code": "x", "lang": "r", "before": "and"},
    ]
)
CALLED = st.builds(
    lambda calls, tail: {"role": "assistant", "content": "so", "tool_calls": calls, **tail},
    st.lists(CALL, min_size=1, max_size=2),
    st.sampled_from([{}, {"tail": "\n"}]),
)
RESULT = st.builds(
    lambda call, rest: {"role": "tool", "content": "42", **call, **rest},
    st.sampled_from([{}, {"tool_call_id": "c1"}, {"tool_call_id": "c2"}]),
    st.sampled_from([{}, {"name": "interpreter"}, {"name": "f"}]),
)


@given(st.lists(st.one_of(PLAIN, CALLED, RESULT), max_size=6), st.booleans(), st.booleans())
def test_the_entry_writes_what_the_dialect_writes(
    messages: list[dict[str, Any]], has_tools: bool, opened: bool
) -> None:
    tools = [WEATHER] if has_tools else None
    arguments: dict[str, Any] = {
        "tools": tools,
        "add_generation_prompt": opened,
        "normalise": False,
    }
    dialect = turnwise.compile({}, "internlm2")
    expected = dialect.render(messages, **arguments).text
    assert turnwise.load(MODEL).render(messages, **arguments).text == f"<s>{expected}"


@pytest.mark.parametrize("name", ["a b", "x<|im_end|>", "x\ny"])
def test_a_name_stays_in_its_header(name: str) -> None:
    with pytest.raises(TurnwiseError, match="a name in a header"):
        turnwise.load(MODEL).render([{**FILE, "name": name}])


@pytest.mark.parametrize("entry", OTHER_READINGS)
def test_a_name_that_is_left_out_is_reported_with_the_entry_that_writes_it(entry: str) -> None:
    template = turnwise.load(entry)
    with pytest.warns(TurnwiseWarning, match=r"messages\[0\].name; the entry internlm2 does"):
        template.render([FILE])
    with pytest.raises(MessageError, match="the entry internlm2 does"):
        template.render([FILE], strict=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        turnwise.load("qwen2.5").render([FILE])  # no reading of that model writes names
        turnwise.load(MODEL).render([FILE])


def test_the_published_template_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has neither names nor tools: loading shows where the entry differs, and a name is missed."""
    snapshot = tmp_path / "models--internlm--internlm2-chat-7b" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    turn = "<|im_start|>{{ m.role }}\\n{{ m.content }}<|im_end|>\\n"
    text = f"{{% for m in messages %}}{turn}{{% endfor %}}".replace("\\n", "{{ '\\n' }}")
    (snapshot / "chat_template.jinja").write_text(text)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.warns(TurnwiseWarning, match="differs from the built-in entry internlm2"):
        template = turnwise.load(MODEL)
    with pytest.warns(TurnwiseWarning, match="the entry internlm2 does"):
        template.render([FILE])


def test_tools_that_are_left_out_are_reported_with_the_entry_that_writes_them() -> None:
    template = turnwise.load("xtuner:internlm2_chat")
    with pytest.warns(TurnwiseWarning, match="nothing of tools; the entry internlm2 does"):
        template.render([{"role": "user", "content": "hi"}], tools=[WEATHER])


def test_tools_stay_where_rendering_would_not_put_them_back() -> None:
    text = "".join(
        f"<|im_start|>{header}\n{body}<|im_end|>\n"
        for header, body in [
            ("system name=<|plugin|>", '[{"name": "f"}]'),
            ("system name=<|interpreter|>", "You may run code."),
            ("user", "hi"),
            ("environment name=clock", "noon"),
        ]
    )
    messages, tools = parse_transcript(text).to_openai()
    assert tools is None and messages[0]["name"] == "plugin" and messages[-1]["name"] == "clock"
    assert turnwise.load(MODEL).render(messages).text == f"<s>{text}"
