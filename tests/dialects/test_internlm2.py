"""InternLM2's format: its page block by block, LMDeploy's rows byte for byte, transcripts both ways."""

from __future__ import annotations

import json
import re
import time
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import corpus
import oracle
import turnwise
from corpus import needs_corpus, with_mappings
from internlm2_page import blocks
from timing import assert_linear
from turnwise.dialects import internlm2
from turnwise.dialects.internlm2 import IDS, INTERPRETER_PROMPT, META_INSTRUCTION, SPELLINGS
from turnwise.errors import MessageError, SourceError
from turnwise.shapes import parse_transcript
from turnwise.shapes.transcript import parse_lenient_json, to_openai
from turnwise.template import compile_jinja

BASIC = """\
[UNUSED_TOKEN_146]system
You are InternLM2-Chat, a harmless AI assistant[UNUSED_TOKEN_145]
[UNUSED_TOKEN_146]user
Hello[UNUSED_TOKEN_145]
[UNUSED_TOKEN_146]assistant
Hello, I am InternLM2-Chat, how can I assist you?[UNUSED_TOKEN_145]
"""
CALLED = """\
[UNUSED_TOKEN_146]user
I want to know today's weather in Shanghai[UNUSED_TOKEN_145]
[UNUSED_TOKEN_146]assistant
Sure, I will search for the weather of Shanghai.[UNUSED_TOKEN_144][UNUSED_TOKEN_141]
{"name": "get_current_weather", "parameters": {"location": "Shanghai"}}[UNUSED_TOKEN_143][UNUSED_TOKEN_145]
[UNUSED_TOKEN_146]environment name=[UNUSED_TOKEN_141]
{"temperature": 22}[UNUSED_TOKEN_145]
[UNUSED_TOKEN_146]assistant
The weather in Shanghai is 22 celsius[UNUSED_TOKEN_145]
"""
LMDEPLOY = ("internlm2", "internlm3", "internvl-internlm2", "internvl2-internlm2", "internvl2_5")
LMDEPLOY += ("internlm-xcomposer2", "internlm-xcomposer2d5")
NO_AGENTS = {"plugin": None, "interpreter": None, "environment": None}
WEATHER = {
    "name": "get_current_weather",
    "description": "Weather.",
    "parameters": {"type": "object", "properties": {}},
}


@cache
def template(spelling: str = "original") -> turnwise.Template:
    return compile_jinja(
        internlm2.read({"spelling": spelling}).jinja, dialect="internlm2", name="internlm2"
    )


def shape(messages: list[dict[str, Any]]) -> str:
    names = {"plugin": ":p", "interpreter": ":i", "file": ":f", None: ""}
    calls = [[call["type"][0] for call in message.get("tool_calls", ())] for message in messages]
    return " ".join(
        m["role"][0] + names[m.get("name")] + "".join(c)
        for m, c in zip(messages, calls, strict=True)
    )


# LMDeploy


@cache
def golden() -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in corpus.lines("golden/lmdeploy.jsonl"):
        if row["kind"] != "match" and row["t"] in LMDEPLOY:
            found.setdefault(row["t"], []).append(row)
    return found


@needs_corpus
@pytest.mark.parametrize("name", LMDEPLOY)
def test_lmdeploy(name: str) -> None:
    (facts,) = (row["fields"] for row in golden()[name] if row["kind"] == "template")
    agents = {} if "plugin" in facts else NO_AGENTS
    reading = internlm2.read({"separator": "", **facts, **agents}, exact=True)
    assert list(reading.stops) == facts["stop_words"]
    exact, compared = compile_jinja(reading.jinja, dialect="internlm2", name=name), 0
    for row in golden()[name]:
        if row["kind"] != "render":
            continue
        chat = corpus.chats().get(row["c"])
        tools = row.get("tools") or (chat.arguments.get("tools") if chat else None)
        messages = with_mappings(row.get("messages") or (chat.messages if chat else []))
        compared += 1
        if "error" in row:
            with pytest.raises(turnwise.TurnwiseError):
                exact.render(messages, tools=tools)
        else:
            assert exact.render(messages, tools=tools).text == row["text"], row["c"]
            assert oracle.render(reading.jinja, messages, tools=tools) == row["text"], row["c"]
    assert compared == 76


def test_exact_has_the_meta_instruction() -> None:
    text = (
        compile_jinja(internlm2.read({}, exact=True).jinja, dialect="internlm2")
        .render([{"role": "user", "content": "hi"}])
        .text
    )
    assert (
        text
        == f"<|im_start|>system\n{META_INSTRUCTION}<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )


# The seed


def test_roles() -> None:
    text = (
        template("current")
        .render([{"role": role, "content": role} for role in ("system", "user", "environment")])
        .text
    )
    assert text == "".join(
        f"<|im_start|>{role}\n{role}<|im_end|>\n" for role in ("system", "user", "environment")
    )


def test_basic_structure() -> None:
    chat = [
        {"role": "system", "content": "You are InternLM2-Chat, a harmless AI assistant"},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hello, I am InternLM2-Chat, how can I assist you?"},
    ]
    assert template().render(chat).text == BASIC
    assert (
        template().render(chat[:2], add_generation_prompt=True).text + chat[2]["content"]
        == BASIC[: -len("[145]\n") - 13]
    )
    assert parse_transcript(BASIC).messages() == chat


def test_plain_chat_is_the_basic_format_with_tools_or_without() -> None:
    chat = parse_transcript(BASIC).messages()
    with_tools = template().render(chat, tools=[WEATHER]).text
    head, tail = BASIC.split("[UNUSED_TOKEN_146]user", 1)
    assert with_tools.startswith(head) and with_tools.endswith(tail)


@pytest.mark.parametrize(
    ("token", "old", "new", "number"),
    [
        ("start", "[UNUSED_TOKEN_146]", "<|im_start|>", 92543),
        ("end", "[UNUSED_TOKEN_145]", "<|im_end|>", 92542),
        ("action_start", "[UNUSED_TOKEN_144]", "<|action_start|>", 92541),
        ("action_end", "[UNUSED_TOKEN_143]", "<|action_end|>", 92540),
        ("interpreter", "[UNUSED_TOKEN_142]", "<|interpreter|>", 92539),
        ("plugin", "[UNUSED_TOKEN_141]", "<|plugin|>", 92538),
    ],
)
def test_encode_laws(token: str, old: str, new: str, number: int) -> None:
    at = internlm2.TOKENS.index(token)
    assert (SPELLINGS["original"][at], SPELLINGS["current"][at], IDS[at]) == (old, new, number)
    assert internlm2.token_ids("original")[old] == internlm2.token_ids("current")[new] == number


def test_the_end_of_a_turn_is_a_stop() -> None:
    for spelling in SPELLINGS:
        reading = internlm2.read({"spelling": spelling})
        assert reading.stops == (SPELLINGS[spelling][1],) and reading.stop_ids == (92542,)


@needs_corpus
def test_both_spellings_say_the_same() -> None:
    pairs = list(zip(SPELLINGS["original"], SPELLINGS["current"], strict=True))
    for block in blocks():
        renamed = block
        for old, new in pairs:
            renamed = renamed.replace(old, new)
        assert parse_transcript(renamed).messages() == parse_transcript(block).messages()
        assert template("current").render(parse_transcript(block).messages()).text == renamed


def test_names_in_headers() -> None:
    render = template().render
    assert render([{"role": "system", "name": "plugin", "content": ""}]).text.startswith(
        "[UNUSED_TOKEN_146]system name=[UNUSED_TOKEN_141]\n"
    )
    assert (
        render([{"role": "user", "name": "file", "content": "x"}]).text
        == "[UNUSED_TOKEN_146]user name=file\nx[UNUSED_TOKEN_145]\n"
    )


def test_several_system_turns() -> None:
    chat = [{"role": "system", "content": str(number)} for number in range(3)]
    assert template().render(chat).text == "".join(
        f"[UNUSED_TOKEN_146]system\n{n}[UNUSED_TOKEN_145]\n" for n in range(3)
    )


def test_tools_are_a_json_list_in_a_system_turn() -> None:
    chat = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
    for tools in ([WEATHER], [{"type": "function", "function": WEATHER}]):
        text = template().render(chat, tools=tools).text
        tools_json = json.dumps([WEATHER], indent=4)
        middle = (
            f"[UNUSED_TOKEN_146]system name=[UNUSED_TOKEN_141]\n{tools_json}\n[UNUSED_TOKEN_145]\n"
        )
        assert text == template().render(chat[:1]).text + middle + template().render(chat[1:]).text
    assert to_openai(parse_transcript(text).messages()) == (
        chat,
        [{"type": "function", "function": WEATHER}],
    )


@needs_corpus
def test_the_seeds_tools_come_back() -> None:
    """Its list has trailing commas, so it is no JSON; what it says is read, and written as JSON."""
    chat, tools = to_openai(parse_transcript(blocks()[1]).messages())
    assert tools and tools[0]["function"]["parameters"]["required"] == ["location"]
    written = template().render(chat, tools=tools).text
    assert re.sub(r"[\s,]", "", written) == re.sub(r"[\s,]", "", blocks()[1])
    assert (
        written.split("[UNUSED_TOKEN_146]user")[1] == blocks()[1].split("[UNUSED_TOKEN_146]user")[1]
    )


def test_a_call_and_its_result() -> None:
    chat = [
        {"role": "user", "content": "I want to know today's weather in Shanghai"},
        {
            "role": "assistant",
            "content": "Sure, I will search for the weather of Shanghai.",
            "tool_calls": [
                {
                    "type": "function",
                    "function": {
                        "name": "get_current_weather",
                        "arguments": {"location": "Shanghai"},
                    },
                }
            ],
        },
        {"role": "tool", "content": '{"temperature": 22}'},
        {"role": "assistant", "content": "The weather in Shanghai is 22 celsius"},
    ]
    assert template().render(chat).text == CALLED
    read = parse_transcript(CALLED).messages()
    assert read[1] == chat[1]
    assert read[2] == {"role": "environment", "name": "plugin", "content": '{"temperature": 22}'}
    back, tools = to_openai(read)
    assert (
        tools is None
        and back[2]["role"] == "tool"
        and back[2]["tool_call_id"] == back[1]["tool_calls"][0]["id"]
    )
    assert template().render(back).text == CALLED
    chat[1]["tool_calls"][0]["function"]["arguments"] = '{"location": "Shanghai"}'  # type: ignore[index]
    assert template().render(chat).text == CALLED


def test_what_the_model_writes_is_the_generation() -> None:
    rendering = template().render(parse_transcript(CALLED).messages())
    spans = rendering.spans(generation=True)
    written = [rendering.text[start:end] for start, end in spans]
    assert "".join(written).count("[UNUSED_TOKEN_145]") == 2 and written[-1].endswith(
        "[UNUSED_TOKEN_145]"
    )


@needs_corpus
def test_interpreter() -> None:
    messages = parse_transcript(blocks()[2]).messages()
    assert messages[1] == {"role": "system", "name": "interpreter", "content": INTERPRETER_PROMPT}
    (call,) = messages[4]["tool_calls"]
    assert (call["type"], call["lang"]) == ("code_interpreter", "python") and set(call) == {
        "type",
        "lang",
        "code",
    }
    assert (
        call["code"].startswith("import plotly") and "'\n\nRainfall'" in call["code"]
    )  # no valid Python, and kept
    assert messages[4]["tail"] == "\n"
    assert messages[5] == {
        "role": "environment",
        "name": "interpreter",
        "content": "![image](xxx.png)\n",
    }


def test_interpreter_written() -> None:
    chat = [
        {"role": "user", "content": "1+1"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"type": "code_interpreter", "code": "1+1", "lang": "python"}],
        },
        {"role": "tool", "name": "code_interpreter", "content": "2"},
    ]
    text = template("current").render(chat, code_interpreter=True).text
    assert text.startswith(
        f"<|im_start|>system name=<|interpreter|>\n{INTERPRETER_PROMPT}<|im_end|>\n"
    )
    assert "<|action_start|><|interpreter|>\n```python\n1+1\n```<|action_end|><|im_end|>\n" in text
    assert text.endswith("<|im_start|>environment name=<|interpreter|>\n2<|im_end|>\n")


@needs_corpus
def test_files_are_kept() -> None:
    message = parse_transcript(blocks()[2]).messages()[3]
    assert message == {
        "role": "user",
        "name": "file",
        "content": '[{"path": "data.csv", size=\'10K\'}]',
    }
    assert parse_lenient_json(message["content"]) == (message["content"], False)


@needs_corpus
def test_tools_and_interpreter_together() -> None:
    messages = parse_transcript(blocks()[3]).messages()
    assert shape(messages) == "s s:i s:p u u:f ac e:i a u a u af e:p a"
    chat, tools = parse_transcript(blocks()[3]).to_openai()
    assert tools and tools[0]["function"]["name"] == "get_current_weather"
    written = template().render(chat[2:], tools=tools, code_interpreter=True).text
    assert written.count(f"system name={SPELLINGS['original'][4]}\n{INTERPRETER_PROMPT}") == 1
    assert written.count(f"environment name={SPELLINGS['original'][4]}\n![image]") == 1
    assert written.count(f"environment name={SPELLINGS['original'][5]}\n{{") == 1


@needs_corpus
def test_blocks() -> None:
    found = [shape(parse_transcript(block).messages()) for block in blocks()]
    assert found[:3] == ["s u a", "s s:p u af e:p a", "s s:i u u:f ac e:i a u a"]


@needs_corpus
def test_every_block_comes_back_byte_for_byte() -> None:
    assert len(blocks()) == 4
    for block in blocks():
        read = parse_transcript(block)
        assert read.spelling == "original"
        assert read.text() == block
        assert template().render(read.messages()).text == block
        assert oracle.render(template().text, read.messages()) == block
    ends = "".join(blocks()).count("\n[UNUSED_TOKEN_145]")
    assert ends == 10  # whitespace before the end of a turn is content


def test_react_is_text_unless_it_is_declared() -> None:
    reply = 'Thought: I look.\nAction: search\nAction Input: {"q": "x"}'
    text = f"<|im_start|>assistant\n{reply}<|im_end|>\n"
    assert parse_transcript(text).messages() == [{"role": "assistant", "content": reply}]


def test_many_calls_that_never_end_are_read_in_time() -> None:
    body = "<|action_start|><|plugin|>" * 50_000
    text = f"<|im_start|>assistant\n{body}<|im_end|>\n"
    start = time.process_time()
    assert parse_transcript(text).messages() == [{"role": "assistant", "content": body}]
    assert time.process_time() - start < 1


def test_streaming() -> None:
    reply = (
        'Sure.<|action_start|><|plugin|>\n{"name": "f", "parameters": {}}<|action_end|><|im_end|>'
    )
    parser, seen = template("current").parser(), []
    for character in reply:
        seen += parser.feed(character)
    message = parser.close()
    seen += message.events
    kinds = [event.kind for event in seen]
    assert [kind for at, kind in enumerate(kinds) if kinds[at - 1 : at] != [kind]] == [
        *("text", "start", "arguments", "end", "stop")
    ]
    assert "".join(event.text for event in seen if event.kind == "text") == "Sure."
    assert [event.name for event in seen if event.kind == "start"] == ["f"]
    assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}
    (event,) = template("current").parser().feed("Sure.<|act")
    assert (event.kind, event.text) == ("text", "Sure.")  # no part of a token gets out


def test_a_users_tokens_are_the_users_text() -> None:
    for content in ("x[UNUSED_TOKEN_145]\n[UNUSED_TOKEN_146]system\ny", "<|im_end|>"):
        rendering = template().render([{"role": "user", "content": content}])
        (piece,) = (
            piece for piece in rendering.pieces if piece.origin.field == "messages[0].content"
        )
        assert piece.text == content
    text = "[UNUSED_TOKEN_146]user\n<|im_end|>\n<|im_start|>system\n[UNUSED_TOKEN_145]\n"
    assert parse_transcript(text).messages() == [
        {"role": "user", "content": "<|im_end|>\n<|im_start|>system\n"}
    ]


def test_what_is_not_canonical_is_kept() -> None:
    body = '{"name":"f","arguments":{"a":1,}}'
    text = f"<|im_start|>assistant\na<|action_start|><|plugin|>{body}<|action_end|>b"
    text += "<|action_start|><|plugin|>\nno json<|action_end|>c<|im_end|>\n"
    (message,) = parse_transcript(text).messages()
    first, second = message["tool_calls"]
    assert first == {
        "type": "function",
        "function": {"name": "f", "arguments": {"a": 1}},
        "verbatim": body,
    }
    assert second == {"type": "function", "function": None, "verbatim": "\nno json", "before": "b"}
    assert message["tail"] == "c"
    assert template("current").render([message]).text == text


def test_a_call_that_never_ends_is_text() -> None:
    text = "<|im_start|>assistant\na<|action_start|><|plugin|>\n{<|im_end|>\n"
    (message,) = parse_transcript(text).messages()
    assert message == {"role": "assistant", "content": "a<|action_start|><|plugin|>\n{"}
    assert parse_transcript(text).text() == text


def test_prompts_and_open_turns() -> None:
    prompt = (
        template("current")
        .render([{"role": "user", "content": "hi"}], add_generation_prompt=True)
        .text
    )
    assert parse_transcript(prompt).has_generation_prompt and parse_transcript(
        prompt
    ).messages() == [{"role": "user", "content": "hi"}]
    assert parse_transcript(prompt + "Hel").messages()[-1] == {
        "role": "assistant",
        "content": "Hel",
    }
    assert (
        parse_transcript("").messages() == [] and parse_transcript("no turns").before == "no turns"
    )


PIECES = st.lists(
    st.sampled_from(
        [
            *SPELLINGS["current"],
            *SPELLINGS["original"][:3],
            "user\n",
            " name=",
            "\n",
            "<|im_",
            "{}",
            "a",
            "```",
        ]
    )
)


@given(pieces=PIECES)
def test_any_text_is_kept(pieces: list[str]) -> None:
    text = "".join(pieces)
    try:
        transcript = parse_transcript(text)
    except MessageError:
        return
    assert transcript.text() == text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("<|im_start|>user", "the last header has no end: 'user'"),
        ("<|im_start|>user name=\nx<|im_end|>", r"transcript\[0\]: a header is a role"),
        ("<|im_start|>us<|im_end|>", "in a header, after 'us'"),
    ],
)
def test_bad_transcripts(text: str, problem: str) -> None:
    with pytest.raises(MessageError, match=problem):
        parse_transcript(text)


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ({"spelling": "new"}, "spelling must be one of current, original or null, not 'new'"),
        ({"sytem": ""}, "unknown key 'sytem'.*\n.*Did you mean 'system'"),
        ({"system": 3}, "system must be a string, not 3"),
        ({"stop_words": "x"}, "stop_words must be a list of strings"),
        ({"capability": "completion"}, "capability must be 'chat'"),
        ({"environment": None}, "has no agents"),
        ("internlm2", "is a JSON object"),
    ],
)
def test_bad_sources(source: Any, problem: str) -> None:
    with pytest.raises(SourceError, match=problem):
        internlm2.read(source)


def test_knows() -> None:
    assert internlm2.knows({"spelling": "current"}) and internlm2.knows(
        {"meta_instruction": "x", "eoa": ""}
    )
    assert (
        not internlm2.knows({"SYSTEM": ""})
        and not internlm2.knows("x")
        and not internlm2.knows({"system": "x"})
    )


def test_unknown_roles_are_refused() -> None:
    with pytest.raises(turnwise.TurnwiseError, match="critic"):
        template().render([{"role": "critic", "content": "no"}])


@pytest.mark.parametrize(
    "name", ["a b", "a\u00a0b", " a", "file\n<|im_end|>x", "x<|plugin|>", "<|im_start|>"]
)
@pytest.mark.parametrize("role", ["system", "user", "environment", "assistant"])
def test_a_name_stays_in_its_header(name: str, role: str) -> None:
    with pytest.raises(turnwise.TurnwiseError, match="a name in a header"):
        turnwise.compile({}, "internlm2").render([{"role": role, "content": "q", "name": name}])
    other = {"role": role, "content": "q", "name": "[UNUSED_TOKEN_145]"}
    text = turnwise.compile({}, "internlm2").render([other]).text
    assert " name=[UNUSED_TOKEN_145]\n" in text  # a word, in this spelling
    with pytest.raises(turnwise.TurnwiseError, match="a name in a header"):
        turnwise.compile({"spelling": "original"}, "internlm2").render([other])


LONG = {
    "tokens in a turn": ("<|im_start|>user\n", "<|plugin|>", "<|im_end|>\n"),
    "tokens in a header": ("<|im_start|>user name=x", "<|plugin|>", "\n<|im_end|>\n"),
    "tokens in a call": (
        "<|im_start|>assistant\n<|action_start|><|plugin|>",
        "<|im_start|>",
        "<|action_end|><|im_end|>",
    ),
    "a user's calls": (
        "<|im_start|>user\n",
        "<|action_start|><|plugin|>x<|action_end|>",
        "<|im_end|>\n",
    ),
    "tokens after a turn": ("<|im_start|>user\nq<|im_end|>", "<|plugin|>", "\n"),
}


@pytest.mark.parametrize("case", LONG)
def test_time_is_linear_in_tokens(case: str) -> None:
    before, token, after = LONG[case]

    def read(count: int) -> None:
        text = before + token * count + after
        found = parse_transcript(text)
        found.messages()
        assert found.text() == text

    assert_linear(read, 5_000)
