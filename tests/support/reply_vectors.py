"""The vectors of other parsers: replies of many models, and what their own tests expect of them.

A vector names a template. Its reply is parsed by the parser of that template, which is given what a server gives it:
a prompt, the tools, and a declaration of what is left in the content (`reasoning_format: none`, `tool_choice: none`).
Nothing of the reply or of the message is changed here: what a row expects is compared with what the parser returned.

llama.cpp's rows render their prompt with the row's options. vLLM's rows have none: they name the one parser that was
called alone (`layer`), a reasoning parser where reasoning is open, a tool parser where it is over. Their prompt is the
template's header, with the opener of reasoning where that is open.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import corpus
import turnwise
from published_templates import template_of
from turnwise.replies.grammar import Grammar
from turnwise.replies.parser.parser import Parser
from turnwise.replies.parser.prefill import assistant_header, prefill_of

# What a vector calls a template, where the corpus has it under another name.
NAMES = {
    "Qwen-Qwen3-0.6B": "npm-qwen3",
    "Qwen-Qwen2.5-7B-Instruct": "npm-qwen2_5",
    "meta-llama-Llama-3.2-3B-Instruct": "npm-llama3_2",
    "meta-llama-Llama-3.3-70B-Instruct": "llamacpp-meta-llama-Llama-3.1-8B-Instruct",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": "entry hermes",
}
# Rows without a template whose family has one: in the corpus, or as a registry entry.
FAMILIES = {
    "pythonic": "vllm-tool_chat_template_llama3.2_pythonic",
    "internlm2": "entry internlm2-tools",
    "granite": "vllm-tool_chat_template_granite",
    "granite-20b-fc": "vllm-tool_chat_template_granite_20b_fc",
    "hunyuan-a13b": "vllm-tool_chat_template_hunyuan_a13b",
    "phi4mini": "entry phi-4-mini",
    "deepseek-v3": "entry deepseek-v3",
    "mistral": "entry mistral-v3",
    "cohere-command": "hfjs-CohereLabs--c4ai-command-a-03-2025",
    "llama4": "ollama-llama4-latest",
}
# What the source's parser of a family does with calls that it does not hand on.
POLICIES = {
    "minicpm5": {"undeclared_tools": "refuse", "cut_calls": "drop_broken"},
    "gpt-oss": {"cut_calls": "drop_broken"},
}
# vLLM's parsers for which a reply without the opener of reasoning has none: their prompts do not open it.
EXPLICIT = ("granite", "hunyuan")
# vLLM's parsers that leave reasoning in the content.
APPENDING = ("minimax_m2_append",)


@cache
def rows() -> tuple[Mapping[str, Any], ...]:
    folder = corpus.folder()
    if folder is None:
        return ()
    lines = (folder / "parse" / "vectors.jsonl").read_text(encoding="utf-8").splitlines()
    return tuple(json.loads(line) for line in lines)


def template_name(row: Mapping[str, Any]) -> str | None:
    """The corpus name of a row's template, or `entry NAME`; None if neither corpus nor registry has it."""
    if row["template"] is None:
        return FAMILIES.get(row["family"])
    name = row["template"].removesuffix(".jinja")
    return NAMES.get(name) or (
        f"llamacpp-{name}" if f"llamacpp-{name}" in corpus.load_published() else None
    )


@cache
def template(name: str) -> turnwise.Template:
    if name.startswith("entry "):
        return turnwise.load(name.removeprefix("entry "))
    return template_of(name)


@cache
def grammar(name: str) -> Grammar:
    return template(name).grammar


def parser(row: Mapping[str, Any]) -> Parser:
    """A parser as anyone would make one: of the row's template, prompt, tools and settings."""
    name = template_name(row)
    assert name is not None
    tools, declared = row.get("tools"), declaration(row)
    policy = dict(POLICIES.get(row["family"], {}))
    if not tools:
        policy.pop("undeclared_tools", None)  # nothing is declared
    return template(name).parser(prompt(row, name), tools, declared=declared, **policy)


def declaration(row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What the row's settings leave in the content."""
    leaves_reasoning = (row["reasoning"] or {}).get("reasoning_format") == "none"
    without = []
    if leaves_reasoning or parser_name(row) in APPENDING:
        without.append("reasoning")
    if (row.get("request") or {}).get("tool_choice") == "none":
        without.append("calls")
    return {"without": without} if without else None


def prompt(row: Mapping[str, Any], name: str) -> Any:
    """The prompt; None, which is the template's own, if the template does not take the row's conversation."""
    rules, layer = grammar(name), row.get("layer")
    if layer not in ("reasoning", "tool"):
        return render_row(row, name)
    header = assistant_header(rules)
    is_thinking = options(row).get("enable_thinking", True)
    is_open = is_thinking and parser_name(row) not in EXPLICIT
    if layer == "tool" or not is_open or rules.reasoning is None:
        return header
    return header + rules.reasoning.open.core


def options(row: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the template that a row sets."""
    settings, request = row["reasoning"] or {}, row.get("request") or {}
    given = (request.get("chat_template_kwargs"), settings.get("chat_template_kwargs"))
    found = {key: value for keywords in given for key, value in (keywords or {}).items()}
    if "enable_thinking" in settings:
        found["enable_thinking"] = settings["enable_thinking"]
    return found


def parser_name(row: Mapping[str, Any]) -> str:
    """Which of vLLM's parsers a row is about."""
    return str(row["id"]).split("/")[1]


def render_row(row: Mapping[str, Any], name: str) -> Any:
    """The template's prompt for the row's conversation, and the message that the row begins."""
    messages = row.get("messages") or [{"role": "user", "content": "Hi"}]
    is_begun = bool((row.get("options") or {}).get("continue_final_message"))
    try:
        sent = template(name).render(
            messages[:-1] if is_begun else messages,
            tools=row.get("tools"),
            add_generation_prompt=True,
            now=corpus.NOW,
            **options(row),
        )
    except turnwise.TurnwiseError:
        return None
    if not is_begun:
        return sent
    has_reasoning = (row["reasoning"] or {}).get("reasoning_format") != "none"
    rules = grammar(name)
    return str(sent).removesuffix(prefill_of(rules, str(sent))) + write_beginning(
        rules, messages[-1], has_reasoning
    )


def write_beginning(rules: Grammar, message: Mapping[str, Any], reasoning: bool) -> str:
    """The beginning of a reply as the grammar writes it, up to the last text of the message."""
    text = ""
    if message.get("reasoning_content") and rules.reasoning is not None and reasoning:
        text = rules.reasoning.open.text + message["reasoning_content"]
        text += rules.reasoning.close.text if message.get("content") else ""
    return text + (rules.content.open.text + message["content"] if message.get("content") else "")


def differences(row: Mapping[str, Any], message: Mapping[str, Any]) -> list[str]:
    """In which of the specified fields a message is not what the row expects."""
    expected, loose = row["expected"], "strip()" in row["compare"]
    wrong: list[str] = []
    for field in ("content", "reasoning_content"):
        if field in row["specified"]:
            want, got = expected.get(field) or "", message.get(field) or ""
            if (want.strip() != got.strip()) if loose else (want != got):
                wrong.append(field)
    calls = message.get("tool_calls") or []
    if "tool_call_count" in expected and len(calls) != expected["tool_call_count"]:
        wrong.append("tool_call_count")
    if "tool_calls" in row["specified"]:
        wanted = expected.get("tool_calls") or []
        exhaustive = row.get("tool_calls_exhaustive", True)
        if (
            len(calls) < len(wanted)
            or (exhaustive and len(calls) != len(wanted))
            or not all(same_call(want, call) for want, call in zip(wanted, calls, strict=False))
        ):
            wrong.append("tool_calls")
    return wrong


def same_call(want: Mapping[str, Any], call: Mapping[str, Any]) -> bool:
    function = call["function"]
    text = function["arguments"]
    try:
        arguments = json.loads(text)
    except ValueError:
        arguments = None
    return (
        want.get("name") in (None, function["name"])
        and want.get("id") in (None, call["id"])
        and ("arguments" not in want or want["arguments"] == arguments)
        and ("arguments_text" not in want or want["arguments_text"] == text)
        and all(
            (arguments or {}).get(key) == value
            for key, value in (want.get("arguments_include") or {}).items()
        )
    )


def outcome(row: Mapping[str, Any]) -> tuple[list[str], Mapping[str, Any]]:
    reader = parser(row)
    reader.feed(row["input"])
    message = reader.close()
    return differences(row, message), message
