"""LLaMA-Factory's templates: every golden row byte for byte, what is learnt, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

import pytest

import corpus
import oracle
import turnwise
from corpus import needs_corpus
from turnwise.dialects import llamafactory
from turnwise.dialects.llamafactory import FORMATS
from turnwise.dialects.turns import Slot, Turns
from turnwise.errors import SourceError
from turnwise.template import compile_jinja

TOKENS = {"bos_token": "<BOS>", "eos_token": "<EOS>"}
CHATML = {
    "format_user": ["<|im_start|>user\n{{content}}<|im_end|>\n<|im_start|>assistant\n"],
    "format_assistant": ["{{content}}<|im_end|>\n"],
    "format_system": ["<|im_start|>system\n{{content}}<|im_end|>\n"],
    "stop_words": ["<|im_end|>"],
}
HI = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
CALL = {"type": "function", "function": {"name": "f", "arguments": {"a": 1, "b": "x"}}}
TOOL = {
    "type": "function",
    "function": {"name": "f", "description": "d", "parameters": {"properties": {}}},
}


@cache
def entries() -> dict[str, dict[str, Any]]:
    file = files("turnwise.registry") / "entries" / "llamafactory.json"
    found: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["templates"]
    return found


@cache
def template(name: str, exact: bool = True) -> turnwise.Template:
    return compile_jinja(
        llamafactory.read(entries()[name], exact=exact).jinja, dialect="llamafactory", name=name
    )


def compile_source(source: Any, exact: bool = False) -> turnwise.Template:
    return compile_jinja(llamafactory.read(source, exact=exact).jinja, dialect="llamafactory")


@cache
def golden() -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in corpus.lines("golden/llamafactory.jsonl"):
        if row["kind"] == "render":
            found.setdefault(row["t"], []).append(row)
    return found


@cache
def fixtures() -> dict[str, tuple[list[dict[str, Any]], Any]]:
    rows = corpus.lines("golden/llamafactory.jsonl")
    return {row["c"]: as_openai(row) for row in rows if row["kind"] == "fixture"}


def as_openai(row: dict[str, Any]) -> tuple[list[dict[str, Any]], Any]:
    """The original's own roles as OpenAI has them: a function's JSON becomes calls, an observation a tool's result."""
    chat = [{"role": "system", "content": row["system"]}] if row["system"] else []
    for message in row["messages"]:
        if message["role"] == "function":
            calls = [
                {"type": "function", "function": call} for call in json.loads(message["content"])
            ]
            chat.append({"role": "assistant", "content": None, "tool_calls": calls})
        else:
            role = {"observation": "tool"}.get(message["role"], message["role"])
            chat.append({"role": role, "content": message["content"]})
    return chat, json.loads(row["tools"]) if row["tools"] else None


def cases(row: dict[str, Any]) -> Iterator[tuple[list[list[str]] | None, dict[str, Any]]]:
    """What the row says, once for many turns and once, where that is different, for the last turn alone."""
    options = {"enable_thinking": False} if row.get("mode") else {}
    yield row.get("pairs"), options
    if "oneturn" in row:
        yield [row["oneturn"]], {**options, "discarding_history_cot": True}


def learnt(pairs: list[list[str]]) -> list[tuple[int, int]]:
    spans, at = [], 0
    for prompt, response in pairs:
        at += len(prompt)
        spans += [(at, at + len(response))] if response else []
        at += len(response)
    return spans


def join_spans(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, end in spans:
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], end)
        elif start < end:
            found.append((start, end))
    return found


@pytest.mark.law
@needs_corpus
@pytest.mark.parametrize("name", sorted(golden()))
def test_golden(name: str) -> None:
    wrong = []
    for row in golden()[name]:
        chat, tools = fixtures()[row["c"]]
        for pairs, options in cases(row):
            place = f"{row['c']} {options}"
            if pairs is None:
                with pytest.raises(turnwise.TurnwiseError):
                    template(name).render(chat, tools=tools, now=corpus.NOW, **TOKENS, **options)
                continue
            rendering = template(name).render(
                chat, tools=tools, now=corpus.NOW, **TOKENS, **options
            )
            if rendering.text != "".join(map("".join, pairs)):
                wrong.append(f"{place}: text {rendering.text!r}")
            elif "discarding_history_cot" not in options and join_spans(
                rendering.spans(generation=True)
            ) != learnt(pairs):
                wrong.append(f"{place}: learnt {rendering.spans(generation=True)}")
    assert not wrong, "\n".join(wrong[:3])


@needs_corpus
def test_all_rows_are_compared() -> None:
    assert len(golden()) == len(entries()) == 124
    assert sum(map(len, golden().values())) == 4219


@needs_corpus
@pytest.mark.law
def test_without_exact_only_unclosed_calls_differ(sample: Any) -> None:
    """The better behaviour changes whole conversations of six templates only, and there the turns with calls alone."""
    different = set()
    taken = dict(sample(golden().items()))
    for name, rows in taken.items():
        for row in rows:
            chat, tools = fixtures()[row["c"]]
            if "pairs" not in row:
                continue
            options = {"enable_thinking": False} if row.get("mode") else {}
            text = (
                template(name, False)
                .render(chat, tools=tools, now=corpus.NOW, **TOKENS, **options)
                .text
            )
            if text != "".join(map("".join, row["pairs"])):
                assert any(message.get("tool_calls") for message in chat)
                different.add(name)
    unclosed = {"glm4_moe", "glm4_5v", "glm4_7", "aeva", "minimax2", "seed_oss"}
    assert different == unclosed & taken.keys()


@pytest.mark.law
@needs_corpus
@pytest.mark.parametrize("exact", [True, False])
def test_transformers_agrees(exact: bool, sample: Any) -> None:
    """The same Jinja in transformers: one template of each class and tool format, on all fixtures."""
    kinds = {
        (e.get("tool_format"), e.get("template_class"), "format_tools" in e): name
        for name, e in entries().items()
    }
    for name in sample(kinds.values(), 6):
        jinja = template(name, exact).text
        for chat, tools in fixtures().values():
            try:
                ours = (
                    template(name, exact).render(chat, tools=tools, now=corpus.NOW, **TOKENS).text
                )
            except turnwise.TurnwiseError:
                continue
            assert ours == oracle.render(jinja, chat, tools=tools, now=corpus.NOW, **TOKENS), name


@needs_corpus
def test_stops() -> None:
    for row in corpus.lines("golden/llamafactory.jsonl"):
        if row["kind"] == "template":
            assert list(llamafactory.read(entries()[row["t"]]).stops) == row["stop_words"]


# The dialect


def test_the_opening_is_the_generation_prompt() -> None:
    chatml = compile_source(CHATML)
    assert chatml.render(HI[:1]).text == "<|im_start|>user\nhi<|im_end|>\n"
    assert chatml.render(HI[:1], add_generation_prompt=True).text.endswith(
        "<|im_end|>\n<|im_start|>assistant\n"
    )
    assert chatml.render(HI).text.startswith(chatml.render(HI[:1], add_generation_prompt=True).text)
    exact = compile_source(CHATML, exact=True)
    assert exact.render(HI[:1]).text.endswith("<|im_start|>assistant\n")
    assert exact.render(HI).text == chatml.render(HI).text


def test_system_defaults_and_later_ones() -> None:
    chatml = compile_source({**CHATML, "default_system": "D"})
    assert chatml.render(HI).text.startswith("<|im_start|>system\nD<|im_end|>\n")
    chat = [{"role": "system", "content": "S"}, *HI, {"role": "system", "content": "T"}]
    assert chatml.render(chat).text.count("<|im_start|>system\n") == 2
    developer = [{"role": "developer", "content": "S"}, *HI]
    assert (
        compile_source(CHATML).render(developer).text
        == compile_source(CHATML).render([chat[0], *HI]).text
    )
    with pytest.raises(turnwise.TurnwiseError, match="developer"):
        compile_source(CHATML, exact=True).render(developer)
    with pytest.raises(turnwise.TurnwiseError, match="no slot for the role system"):
        compile_source(CHATML, exact=True).render(chat)
    with pytest.raises(turnwise.TurnwiseError, match="critic"):
        chatml.render([{"role": "critic", "content": "no"}])


def test_llama2_puts_the_system_text_into_the_first_turn() -> None:
    source = {
        "format_user": [{"bos_token"}, "[INST] {{content}} [/INST]"],
        "format_system": ["<<SYS>>\n{{content}}\n<</SYS>>\n\n"],
        "template_class": "Llama2Template",
    }
    text = compile_source(source).render([{"role": "system", "content": "S"}, *HI], **TOKENS).text
    assert text == "<BOS>[INST] <<SYS>>\nS\n<</SYS>>\n\nhi [/INST]ho<EOS>"


def test_rounds_are_counted() -> None:
    source = {"format_user": ["[{{idx}}] {{content}} "], "format_assistant": ["{{content}};"]}
    assert (
        compile_source(source).render([*HI, *HI]).text
        == compile_source(source, exact=True).render([*HI, *HI]).text
        == "[0] hi ho;[1] hi ho;"
    )


def test_a_users_braces_are_text_unless_exact() -> None:
    chat = [{"role": "user", "content": "{{idx}} {{content}}"}]
    assert "{{idx}} {{content}}" in compile_source(CHATML).render(chat).text
    assert "0 {{content}}" in compile_source(CHATML, exact=True).render(chat).text


def test_replace_eos_and_tokens_by_text() -> None:
    source = {
        "format_user": [{"token": "<|user|>"}, "{{content}}"],
        "stop_words": ["<|end|>", "</s>"],
        "replace_eos": True,
    }
    reading = llamafactory.read(source)
    assert (
        compile_jinja(reading.jinja, dialect="llamafactory").render(HI).text
        == "<|user|>hiho<|end|>"
    )
    assert reading.stops == ("<|end|>", "</s>")


def test_thoughts() -> None:
    source = {**CHATML, "template_class": "ReasoningTemplate"}
    chat = [HI[0], {"role": "assistant", "content": "ho", "reasoning_content": "hm"}]
    assert "assistant\n<think>\nhm\n</think>\n\nho" in compile_source(source).render(chat).text
    assert (
        "assistant\n<think>\n\n</think>\n\nho"
        in compile_source(source, exact=True).render(chat).text
    )
    off = (
        compile_source(source)
        .render(HI[:1], add_generation_prompt=True, enable_thinking=False)
        .text
    )
    assert off.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert "hm" not in compile_source(source).render(chat, enable_thinking=False).text
    inline = [HI[0], {"role": "assistant", "content": "<think>\na\n</think>\n\nb"}, *HI]
    assert "a\n" not in compile_source(source).render(inline, discarding_history_cot=True).text
    assert dict(llamafactory.read({**source, "enable_thinking": False}).options) == {
        "enable_thinking": False
    }


@pytest.mark.parametrize("name", FORMATS)
def test_tool_formats_tell_call_and_answer(name: str) -> None:
    chat = [
        HI[0],
        {"role": "assistant", "content": "so: ", "tool_calls": [CALL]},
        {"role": "tool", "content": "7"},
        HI[1],
    ]
    text = (
        compile_source({**CHATML, "tool_format": name})
        .render(chat, tools=[TOOL], now=corpus.NOW)
        .text
    )
    assert text.index("f") < text.index("so: ") < text.index("7")
    assert (
        compile_source({**CHATML, "tool_format": name}).render(HI).text
        == compile_source(CHATML).render(HI).text
    )


def test_a_tool_format_of_the_tools_is_that_of_the_calls() -> None:
    source = {**CHATML, "format_tools": {"tool_format": "qwen"}}
    chat = [HI[0], {"role": "assistant", "content": "", "tool_calls": [CALL]}]
    assert '<tool_call>\n{"name": "f"' in compile_source(source).render(chat, tools=[TOOL]).text
    exactly = compile_source(source, exact=True).render(chat, tools=[TOOL]).text
    assert '<tool_call>\n{"name": "f"' not in exactly and "Action: f\nAction Input: " in exactly


def test_results_of_one_turn_are_joined() -> None:
    source = {**CHATML, "format_observation": ["<r>\n{{content}}\n</r><|im_start|>assistant\n"]}
    chat = [HI[0], {"role": "assistant", "content": "", "tool_calls": [CALL, CALL]}]
    chat += [{"role": "tool", "content": "1"}, {"role": "tool", "content": "2"}, HI[1]]
    assert "<r>\n1\n</r>\n<r>\n2\n</r>" in compile_source(source).render(chat).text
    assert (
        "1\n</tool_response>\n<tool_response>\n2"
        in compile_source(source, exact=True).render(chat).text
    )


def test_json_and_formatters_are_sources_too() -> None:
    class Formatter:
        slots = CHATML["format_user"]
        tool_format = None

    text = compile_source(CHATML).render(HI).text
    assert compile_source(json.dumps(CHATML)).render(HI).text == text
    assert compile_source({**CHATML, "format_user": Formatter()}).render(HI).text == text
    assert llamafactory.knows(CHATML) and llamafactory.knows(json.dumps(CHATML))
    assert (
        not llamafactory.knows({"SYSTEM": ""})
        and not llamafactory.knows('{"formats"')
        and not llamafactory.knows("hi")
    )


def test_written() -> None:
    turns = Turns(
        user=("<u>", Slot("text"), "</u>"),
        prefix="<s>",
        generation_prompt="<a>",
        reply_suffix="</a>",
        eos=True,
        separator="\n",
        system=("<sys>", Slot("text")),
        default_system="D",
        stops=("</a>",),
    )
    source = llamafactory.write(turns)
    assert (
        compile_source(source).render([*HI, *HI], eos_token="E").text
        == "<s><sys>D" + "<u>hi</u><a>ho</a>E\n" * 2
    )
    assert llamafactory.read(source).stops == ("</a>",)
    source = llamafactory.write(
        Turns(user=("{{content}} {{idx}}", Slot("index"), ":", Slot("text")))
    )
    assert (
        compile_source(source).render([*HI, *HI]).text
        == "{{content}} {{idx}}0:hiho{{content}} {{idx}}1:hiho"
    )


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (
            {"format_usr": ["{{content}}"]},
            "unknown key 'format_usr'.*\n.*Did you mean 'format_user'",
        ),
        ({"format_user": ["user: "]}, "format_user must contain {{content}}"),
        ({"format_prefix": ["{{content}}"]}, "format_prefix must not contain {{content}}"),
        ({"format_user": [{"eos"}, "{{content}}"]}, r"format_user\[0\]: unknown token 'eos'"),
        ({"format_user": [3]}, r"format_user\[0\] must be a string"),
        ({"format_user": 3}, "format_user must be a list of slots"),
        (
            {**CHATML, "tool_format": "qwen2"},
            "tool_format must be one of the accepted names, not 'qwen2'.*\n.*Did you mean 'qwen'",
        ),
        (
            {**CHATML, "template_class": "Llama3Template"},
            "template_class must be one of Template, .*, not 'Llama3Template'",
        ),
        (
            {"format_user": ["{{content}}"], "replace_eos": True},
            "replace_eos uses the first of stop_words",
        ),
        ({**CHATML, "efficient_eos": "yes"}, "efficient_eos must be true or false, not 'yes'"),
        ({**CHATML, "stop_words": "</s>"}, "stop_words must be a list of strings"),
        ({**CHATML, "thought_words": ["<think>"]}, "thought_words must be a list of two strings"),
        ({**CHATML, "default_system": 3}, "default_system must be a string"),
        ([], r"must be a mapping, not \[\]"),
        ("{", "is not JSON"),
    ],
)
def test_bad_sources(source: Any, problem: str) -> None:
    with pytest.raises(SourceError, match=problem):
        llamafactory.read(source)


def test_exact_passes_over_what_the_original_passes_over() -> None:
    source = {"format_user": [{"<|endoftext|>"}, "{{content}}"]}
    assert compile_source(source, exact=True).render(HI[:1]).text == "hi"


def test_texts_with_marks_of_ours_are_written_as_they_are() -> None:
    """The Jinja is filled in from parts by `@name@`, which are no marks in the texts of a source."""
    source = {
        "format_user": ["@prompt@{{content}}@open@"],
        "format_assistant": ["{{content}}@user@"],
        "default_system": "@system@ @nothing@",
    }
    template = turnwise.compile(source, "llamafactory")
    chat = [{"role": "user", "content": "hi"}]
    text = template.render(chat, add_generation_prompt=True).text
    assert text == "@system@ @nothing@@prompt@hi@open@"
    source = {"SYSTEM": "@sep@{system}", "INSTRUCTION": "@reply@{input}@bos@"}
    for exact in (True, False):
        template = turnwise.compile(source, "xtuner", exact=exact)
        chat = [{"role": "system", "content": "@default@"}, {"role": "user", "content": "hi"}]
        text = template.render(chat, add_generation_prompt=True, bos_token="").text
        assert text == "@sep@@default@@reply@hi@bos@"
