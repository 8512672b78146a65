"""LMDeploy's templates: its documented JSON, every golden row byte for byte, its strings, its rules for models."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corpus
import oracle
import turnwise
from corpus import needs_corpus, with_mappings
from turnwise.dialects import guess_dialect, lmdeploy
from turnwise.dialects.lmdeploy_styles import STYLES
from turnwise.errors import SourceError

# As it is printed in LMDeploy's documentation (advance/chat_template.md).
DOCUMENTED = r"""{
      "model_name": "your awesome chat template name",
      "system": "<|im_start|>system\n",
      "meta_instruction": "You are a robot developed by LMDeploy.",
      "eosys": "<|im_end|>\n",
      "user": "<|im_start|>user\n",
      "eoh": "<|im_end|>\n",
      "assistant": "<|im_start|>assistant\n",
      "eoa": "<|im_end|>",
      "separator": "\n",
      "capability": "chat",
      "stop_words": ["<|im_end|>"]
  }"""
CODELLAMA = '{"model_name": "codellama", "capability": "completion"}'  # llm/codellama.md
HI = {"role": "user", "content": "Hi"}
HO = {"role": "assistant", "content": "Ho"}
CALL = {"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
TOOL = {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}
OTHER_KEYS = {("interns1", "reasoning_thinking_key"), ("intern-s1", "reasoning_thinking_key")}
"""Rows in which reasoning is under `thinking`, which LMDeploy does not know: here every template sees it."""


@cache
def template(name: str, exact: bool = True) -> turnwise.Template:
    return turnwise.load(f"lmdeploy:{name}", exact=exact)


def names() -> list[str]:
    return list(lmdeploy.read_data()["entries"])


# The documented JSON


def test_the_documented_json(tmp_path: Path) -> None:
    file = tmp_path / "lmdeploy.json"
    file.write_text(DOCUMENTED, encoding="utf-8")
    system = "<|im_start|>system\nYou are a robot developed by LMDeploy.<|im_end|>\n"
    text = f"{system}<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    for found in (turnwise.compile(DOCUMENTED), turnwise.load(file), turnwise.load(str(file))):
        assert found.dialect == "lmdeploy" and found.stops() == ("<|im_end|>",)
        assert found.render([HI], add_generation_prompt=True).text == text
        assert found.render([HI, HO, HI]).text == f"{text}Ho<|im_end|>\n{text[len(system) : -22]}"
        message = found.parse("Ho<|im_end|>", text)
        assert found.render([HI, message]).text == f"{text}Ho<|im_end|>\n"
    exact = turnwise.load(file, exact=True)
    assert exact.render([HI]).text == text and exact.render([HI, HO]).text == f"{text}Ho"


def test_what_is_learnt_is_the_reply_and_its_end() -> None:
    rendering = turnwise.compile(DOCUMENTED).render([HI, HO, HI, HO])
    learnt = [rendering.text[start:end] for start, end in rendering.spans(generation=True)]
    assert learnt == ["Ho<|im_end|>"] * 2


def test_exact_is_trained_too() -> None:
    """A final reply has no end in LMDeploy's text; `encode` adds it."""
    exact = turnwise.compile(DOCUMENTED, exact=True)
    rendering = exact.render([HI, HO, HI, HO])
    learnt = [rendering.text[start:end] for start, end in rendering.spans(generation=True)]
    assert learnt == ["Ho<|im_end|>", "Ho"]
    encoded = exact.encode([HI, HO, HI, HO], "turnwise")
    assert encoded.labels.count(-100) == len(encoded.labels) - 6


def test_no_messages() -> None:
    assert turnwise.compile(DOCUMENTED, exact=True).render([]).text == "<|im_start|>assistant\n"
    plain = turnwise.compile(DOCUMENTED)
    assert plain.render([]).text == ""
    assert plain.render([], add_generation_prompt=True).text == "<|im_start|>assistant\n"


def test_headers_are_as_they_are() -> None:
    """No newline is added to a header, and none is taken away."""
    fields = {"user": "USER: ", "eoh": " ", "assistant": "ASSISTANT: ", "eoa": "</s>"}
    for dialect in ("lmdeploy", "internlm2"):
        found = turnwise.compile({**fields, "system": "", "eosys": ""}, dialect)
        assert found.render([HI, HO]).text.rstrip("\n") == "USER: Hi ASSISTANT: Ho</s>"
    nothing = {"system": "", "eosys": "", "meta_instruction": "", "separator": ""}
    for dialect in ("lmdeploy", "internlm2"):
        found = turnwise.compile({**fields, **nothing}, dialect, exact=True)
        assert found.render([HI, HO, HI]).text == "USER: Hi ASSISTANT: Ho</s>USER: Hi ASSISTANT: "
        assert found.render([]).text == "ASSISTANT: "


TEXTS = st.text(alphabet="aU: \n\r'\"{}%@\\<|>中", max_size=6)
FIELDS = st.fixed_dictionaries(
    {key: TEXTS for key in ("user", "eoh", "assistant", "eoa", "separator", "tool", "eotool")},
    optional={key: TEXTS for key in ("system", "meta_instruction", "eosys")},
)
TURNS = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system", "tool"]), "content": TEXTS}
    ),
    max_size=4,
)


def concatenate(fields: dict[str, str], turns: list[dict[str, str]]) -> str:
    """The documented formula: `{system}{meta_instruction}{eosys}{user}...{eoh}{assistant}...{eoa}{separator}`."""
    parts = {"user": ("user", "eoh"), "system": ("system", "eosys"), "tool": ("tool", "eotool")}
    text = ""
    if turns and turns[0]["role"] != "system":
        text += "".join(fields.get(key, "") for key in ("system", "meta_instruction", "eosys"))
    for turn in turns:
        if turn["role"] == "assistant":
            text += fields["assistant"] + turn["content"] + fields["eoa"] + fields["separator"]
        else:
            header, end = parts[turn["role"]]
            text += fields.get(header, "") + turn["content"] + fields.get(end, "")
    return text


@settings(max_examples=40)
@given(fields=FIELDS, turns=TURNS)
def test_any_fields(fields: dict[str, str], turns: list[dict[str, str]]) -> None:
    text = concatenate(fields, turns)
    assert turnwise.compile(fields, "lmdeploy").render(turns).text == text
    prompt = turnwise.compile(fields, "lmdeploy").render(turns, add_generation_prompt=True).text
    assert prompt == text + fields["assistant"]
    end = fields["eoa"] + fields["separator"]
    if turns and turns[-1]["role"] == "assistant" and end:
        expected = text.removesuffix(end)
    else:
        expected = text + fields["assistant"]
    assert turnwise.compile(fields, "lmdeploy", exact=True).render(turns).text == expected


# LMDeploy's own templates


@cache
def golden() -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in corpus.lines("golden/lmdeploy.jsonl"):
        if row["kind"] == "render":
            found.setdefault(row["t"], []).append(row)
    return found


def arguments(row: dict[str, Any]) -> tuple[list[dict[str, Any]], Any]:
    chat = corpus.chats().get(row["c"])
    tools = row.get("tools") or (chat.arguments.get("tools") if chat else None)
    return row.get("messages") or (chat.messages if chat else []), tools


@pytest.mark.law
@needs_corpus
@pytest.mark.parametrize("name", names())
def test_golden(name: str) -> None:
    assert len(golden()[name]) in (57, 76)
    for row in golden()[name]:
        messages, tools = arguments(row)
        if row.get("text") is None:  # an error, or the None of a template without a chat
            with pytest.raises(turnwise.TurnwiseError):
                template(name).render(messages, tools=tools)
        elif (name, row["c"]) not in OTHER_KEYS:
            assert template(name).render(messages, tools=tools).text == row["text"], row["c"]


@needs_corpus
def test_the_whole_file_is_used() -> None:
    rows = Counter(row["kind"] for row in corpus.lines("golden/lmdeploy.jsonl"))
    assert rows == {"template": 59, "render": sum(map(len, golden().values())), "match": 161}
    assert set(golden()) == set(names()) and len(names()) == 59


@needs_corpus
def test_fields_are_lmdeploys() -> None:
    for row in corpus.lines("golden/lmdeploy.jsonl"):
        if row["kind"] != "template":
            continue
        own = {"capability": "chat", **lmdeploy.read_data()["entries"][row["t"]]}
        for key, value in row["fields"].items():
            assert own[key.removeprefix("_")] == value, (row["t"], key)
        stops = row["fields"].get("stop_words", [])
        assert list(lmdeploy.read({"model_name": row["t"]}).stops) == stops


@needs_corpus
@pytest.mark.parametrize(
    "name", ["internlm2", "intern-s1", "llama3_1", "qwen2d5", "vicuna", "chatglm"]
)
def test_the_jinja_is_jinja(name: str) -> None:
    """Without arguments as text, which only our engine parses, transformers renders the same."""
    for row in golden()[name]:
        messages, tools = arguments(row)
        if row.get("text") is None or (name, row["c"]) in OTHER_KEYS:
            continue
        text = oracle.render(template(name).text, with_mappings(messages), tools=tools)
        assert text == row["text"], row["c"]


@pytest.mark.law
@pytest.mark.parametrize("name", names())
def test_every_template_takes_a_conversation(name: str) -> None:
    if name in ("base", "llama"):
        assert template(name, exact=False).render([HI]).text == "Hi"
        with pytest.raises(turnwise.TurnwiseError, match="completion"):
            template(name, exact=False).render([HI, HO])
        return
    plain = template(name, exact=False)
    closed = plain.render([HI, HO]).text
    prompt = plain.render([HI], add_generation_prompt=True).text
    assert closed.count("Hi") == closed.count("Ho") == 1 and prompt.count("Hi") == 1
    assert prompt.endswith(lmdeploy.read_data()["entries"][name].get("think", ""))
    assert plain.render([HI, HO, HI]).text.startswith(closed)
    spans = plain.render([HI, HO]).spans(generation=True)
    assert [closed[start:end].startswith("Ho") for start, end in spans] == [True]


def test_a_name_gives_the_defaults() -> None:
    changed = turnwise.compile({"model_name": "vicuna", "user": "HUMAN: ", "eoh": None}, exact=True)
    text = template("vicuna").render([HI]).text
    assert changed.render([HI]).text == text.replace("USER: ", "HUMAN: ") and text.endswith(
        "ASSISTANT:"
    )


def test_a_cut_is_only_of_the_generation_prompt() -> None:
    """LMDeploy cuts the last character of every prompt, that of a reply that is continued, too."""
    assert template("vicuna").render([HI, HO]).text.endswith("ASSISTANT: H")
    plain = template("vicuna", exact=False)
    assert plain.render([HI, HO]).text.endswith("ASSISTANT: Ho</s>")
    assert plain.render([HI], add_generation_prompt=True).text.endswith("ASSISTANT:")
    assert plain.render([HI, HO], continue_final_message=True).text.endswith("ASSISTANT: Ho")


def test_arguments_as_text_are_parsed() -> None:
    text = json.dumps({"b": [1.0, None], "a": "é"}, separators=(",", ":"))
    call = {"type": "function", "function": {"name": "f", "arguments": text}}
    for name in ("internlm2", "qwen2d5", "intern-s1"):
        found = template(name).render(
            [HI, {"role": "assistant", "content": "", "tool_calls": [call]}]
        )
        assert '{"b": [1.0, null], "a": "é"}' in found.text


@pytest.mark.parametrize("name", ["internlm2", "intern-s1", "qwen2d5", "qwen3"])
def test_calls_come_back(name: str) -> None:
    plain = template(name, exact=False)
    turn = {"role": "assistant", "content": "Wait.", "tool_calls": [CALL, CALL]}
    prompt = plain.render([HI], tools=[TOOL], add_generation_prompt=True, enable_thinking=False)
    whole = plain.render([HI, turn], tools=[TOOL], enable_thinking=False).text
    header = plain.render([HI], tools=[TOOL], enable_thinking=False).text
    reply = whole[len(header) + len("<|im_start|>assistant\n") :].rstrip("\n")
    message = plain.parse(reply, prompt)
    assert message["content"] == "Wait."
    found = [call["function"] for call in message["tool_calls"]]
    assert found == [{"name": "f", "arguments": '{"a": 1}'}] * 2
    assert plain.render([HI, message], tools=[TOOL], enable_thinking=False).text == whole


def test_parts_of_a_content() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": " two"}]
    message = {"role": "user", "content": parts}
    assert "user\none two<|im_end|>" in turnwise.compile(DOCUMENTED).render([message]).text
    assert "user\none<|im_end|>" in turnwise.compile(DOCUMENTED, exact=True).render([message]).text
    image = {"role": "user", "content": [{"type": "image", "image": "x.png"}]}
    for exact in (False, True):
        with pytest.raises(turnwise.TurnwiseError):
            turnwise.compile(DOCUMENTED, exact=exact).render([image])


# Strings and capabilities


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(
    ("source", "prompt", "text"),
    [
        ({"user": "U:", "eoh": "\n", "assistant": "A:"}, "x", "U:x\nA:"),
        ({"user": "U:", "capability": "voice"}, "x", "U:x"),
        ({"user": "U:", "capability": "completion"}, "x", "x"),
        ({"model_name": "llama3", "capability": "completion"}, "x", "<|begin_of_text|>x"),
        ({"model_name": "vicuna", "capability": "completion"}, "x", "x"),
        (json.loads(CODELLAMA), "def f", "def f"),
        ({"model_name": "codellama", "capability": "python"}, "def f", "def f"),
        (
            {"model_name": "codellama", "capability": "infilling"},
            "a<FILL>b",
            "<PRE> a <SUF>b <MID>",
        ),
        (
            {"model_name": "codellama", "capability": "infilling", "suffix_first": True},
            "a<FILL>b",
            "<PRE> <SUF>b <MID> a",
        ),
        ({"model_name": "chatglm"}, "x", "[Round 1]\n\n问：x\n\n答："),
        ({"model_name": "base"}, "x", "x"),
    ],
)
def test_a_string(source: dict[str, Any], prompt: str, text: str, exact: bool) -> None:
    assert turnwise.compile(source, "lmdeploy", exact=exact).render([], prompt=prompt).text == text


def test_a_string_of_vicuna_is_cut() -> None:
    assert template("vicuna").render([], prompt="x").text.endswith("USER: x ASSISTANT:")
    voice = turnwise.compile({"model_name": "vicuna", "capability": "voice"}, exact=True)
    assert voice.render([], prompt="x").text.endswith("USER: x ASSISTANT: ")


def test_one_message_is_a_string_for_completion() -> None:
    found = turnwise.compile(CODELLAMA)
    assert found.dialect == "lmdeploy" and found.render([HI]).text == "Hi"
    infilling = turnwise.compile({"model_name": "codellama", "capability": "infilling"})
    assert infilling.stops() == ("<EOT>",)
    assert infilling.render([{"role": "user", "content": "a<FILL>"}]).text == "<PRE> a <SUF> <MID>"
    with pytest.raises(turnwise.TurnwiseError, match="one <FILL>"):
        infilling.render([HI])
    exact = turnwise.compile(CODELLAMA, exact=True)  # LMDeploy asks its capability for strings only
    assert exact.render([HI]).text == template("codellama").render([HI]).text


@pytest.mark.parametrize("messages", [[HI], []])
def test_a_string_is_text_without_messages(messages: list[Any]) -> None:
    prompt = "x" if messages else 5
    with pytest.raises(turnwise.TurnwiseError, match="in the place of messages"):
        turnwise.compile(DOCUMENTED).render(messages, prompt=prompt)


# Sources


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ({"eoa": "", "sytem": ""}, "unknown key 'sytem'.*\n.*Did you mean 'system'"),
        ({"user": 3}, "user must be a string, not 3"),
        ({"stop_words": "x"}, "stop_words must be a list of strings"),
        ({"capability": "chatt"}, "capability must be one of .*\n.*Did you mean 'chat'"),
        ({"style": "new"}, "style must be"),
        ({"model_name": "codellama", "capability": "voice"}, "no capability 'voice'"),
        ("internlm2", "is a JSON object"),
    ],
)
def test_bad_sources(source: Any, problem: str) -> None:
    with pytest.raises(SourceError, match=problem):
        turnwise.compile(source, "lmdeploy")


@pytest.mark.parametrize(
    ("source", "dialect"),
    [
        (DOCUMENTED, "lmdeploy"),
        (CODELLAMA, "lmdeploy"),
        ({"model_name": "internlm2"}, "lmdeploy"),
        ({"user": "U", "assistant": "A", "eoh": "", "sytem": "", "stop_words": []}, "lmdeploy"),
        ({"eoh": "x", "stop_words": []}, "internlm2"),
        ({"spelling": "current", "eoa": "x"}, "internlm2"),
        ({"environment": "x", "eoenv": ""}, "internlm2"),
        ({"user": "{user}", "assistant": "{assistant}", "stop_words": []}, "xtuner_v1"),
    ],
)
def test_the_dialect_is_guessed(source: Any, dialect: str) -> None:
    assert guess_dialect(source) == dialect


def test_every_style_is_used() -> None:
    used = {entry.get("style", "base") for entry in lmdeploy.read_data()["entries"].values()}
    assert used == set(STYLES)


# Its rules for models


@needs_corpus
def test_matches() -> None:
    for row in corpus.lines("golden/lmdeploy.jsonl"):
        if row["kind"] != "match":
            continue
        if row["template"] is None:
            with pytest.raises(SourceError, match="no template of lmdeploy"):
                turnwise.match(row["model_path"], source="lmdeploy")
        else:
            found = turnwise.match(row["model_path"], source="lmdeploy")
            assert (found.entry, found.by) == (row["template"], "rule"), row["model_path"]
            assert turnwise.load(found.name).dialect == "lmdeploy"


@pytest.mark.parametrize(
    ("path", "template"),
    [
        ("models--internlm--internlm-chat-7b/snapshots/1234567", "internlm"),
        ("Qwen/Qwen2.5-VL-7B-Instruct-w4", "qwen2d5-vl"),
        ("OpenGVLab/InternVL3-1B", "internvl2_5"),
        ("OpenGVLab/InternVL2-4B", "internvl2-phi3"),
        ("OpenGVLab/Mini-InternVL-Chat-4B-V1-5", "internvl-phi3"),
        ("OpenGVLab/Mini-InternVL-Chat-2B-V1-5", "internvl-internlm2"),
        ("internlm/internlm-xcomposer2d5-7b", "internlm-xcomposer2d5"),
        ("internlm/Intern-S1-mini", "intern-s1"),
    ],
)
def test_more_matches(path: str, template: str) -> None:
    found = turnwise.match(path, source="lmdeploy")
    assert found.name == f"lmdeploy:{template}" and "LMDeploy's rule" in found.reason


def test_a_base_model_is_reported() -> None:
    found = turnwise.match("01-ai/Yi-6B-Base", source="lmdeploy")
    assert found.kind == "base" and found.warning
