"""Replies as templates write them after their own prompts, found by rendering messages in several forms."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import corpus
import turnwise
from published_templates import template_of
from reply_messages import ARGUMENTS, TYPES, call, tool
from turnwise.errors import WarningLog

VALUES = {
    "text": "a b", "whole": 7, "part": 2.5, "yes": True, "nothing": None, "many": [1, "x", {"k": False}],
    "deep": {"a": {"b": "c"}}, "empty": "", "letters": "naïve 漢字 😀",
}  # fmt: skip

KINDS = {
    "text": "string", "whole": "integer", "part": "number", "yes": "boolean", "nothing": "null", "many": "array",
    "deep": "object", "empty": "string", "letters": "string",
}  # fmt: skip

TOOLS = [tool("get_weather", **TYPES), tool("now"), tool("set_values", **KINDS)]

WEATHER, NOW, SET = (
    call("get_weather", ARGUMENTS, 1),
    call("now", {}, 2),
    call("set_values", VALUES, 3),
)

MESSAGES: dict[str, dict[str, Any]] = {
    "content": {"content": "It is fine.\n\nSo."},
    "reasoning": {"content": "It is fine.", "reasoning_content": "Let me see:\n1 < 2."},
    "call": {"content": "", "tool_calls": [WEATHER]},
    "no arguments": {"content": "", "tool_calls": [NOW]},
    "types": {"content": "", "tool_calls": [SET]},
    "calls": {"content": "", "tool_calls": [WEATHER, NOW]},
    "the same call twice": {"content": "", "tool_calls": [WEATHER, {**WEATHER, "id": "abcd00009"}]},
    "content and call": {"content": "I look.", "tool_calls": [WEATHER]},
    "content and calls": {"content": "I look.", "tool_calls": [WEATHER, SET]},
    "reasoning and call": {"content": "", "reasoning_content": "Hm.", "tool_calls": [WEATHER]},
    "everything": {"content": "I look.", "reasoning_content": "Hm.", "tool_calls": [WEATHER, NOW]},
}

APART, CLOSED = "apart", "closed"

SETTINGS = (True, False, "high")  # of what looks like a switch of reasoning

HTML = "quotes are written as HTML, &#34;, so calls are read as content"

UNQUOTED = "texts are written without quotes, so they end nowhere"

BLANK = "white space before the end of a turn is read as content"

OPEN = {
    "lcpptest-GLMEdge": "every rendering ends with the generation prompt, so a rendered turn is not a reply",
    "mistralcommon-v2": HTML,
    "mistralcommon-v3_image": HTML,
    "mistralcommon-v3_spm": HTML,
    "mistralcommon-v7_audio": HTML,
    "mistralcommon-v7_spm": HTML,
    "vllm-tool_chat_template_llama3.2_pythonic": UNQUOTED,
    "vllm-tool_chat_template_toolace": UNQUOTED,
    "hfjs-LiquidAI--LFM2.5-VL-450M": "quotes within quotes are not escaped",
    "llamacpp-openai-gpt-oss-120b": "what is said beside a call is written, and read, as reasoning",
    "trl-gptoss_training": "what is said beside a call is written, and read, as reasoning",
    "ollama-llama4-latest": "content before a call stands between markers that content alone does not have",
    "chujie-falcon-instruct": "white space within the content is changed",
    "hfjs-meetkai--functionary-medium-v2.2": "an empty message stands before each call, and is read as content",
    "axolotl-llava": BLANK,
    "llamacpp-unsloth-Apriel-1.5": BLANK,
    "ollama-falcon2-11b": BLANK,
}
"""Templates for which it does not hold, or for which what comes back unchanged was not understood."""

HISTORY = [{"role": "user", "content": "Q?"}]

IDS = (None, "functions.{name}:{index}")

THOUGHTS = ("reasoning_content", "tool_plan", "thought")


def list_forms(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A message in the ways in which templates may want it."""
    calling, thinking = "tool_calls" in fields, "reasoning_content" in fields
    for as_text, nothing, ids, key, parts in product(
        (False, True) if calling else (False,),
        ("", None) if calling else ("",),
        IDS if calling else IDS[:1],
        THOUGHTS if thinking else THOUGHTS[:1],
        (False, True),
    ):
        content: Any = fields["content"] or nothing
        if parts and content:
            content = [{"type": "text", "text": content}]
        message = {"role": "assistant", "content": content}
        if thinking:
            message[key] = fields["reasoning_content"]
        if calling:
            message["tool_calls"] = [
                spell_call(one, at, as_text, ids) for at, one in enumerate(fields["tool_calls"])
            ]
        yield message


def spell_call(one: dict[str, Any], index: int, as_text: bool, ids: str | None) -> dict[str, Any]:
    function = one["function"]
    arguments = (
        json.dumps(function["arguments"], ensure_ascii=False) if as_text else function["arguments"]
    )
    name = function["name"]
    return {
        **one,
        "id": ids.format(name=name, index=index) if ids else one["id"],
        "function": {"name": name, "arguments": arguments},
    }


def whole(fields: dict[str, Any], reply: str) -> bool:
    """Whether the reply shows all that the message says; parts that are printed as a list are not understood."""
    calls = [one["function"] for one in fields.get("tool_calls", ())]
    words = Counter(
        [*(one["name"] for one in calls), *(key for one in calls for key in one["arguments"])]
    )
    texts = [*fields["content"].split("\n"), fields.get("reasoning_content", "")]
    is_whole = all(reply.count(word) >= count for word, count in words.items()) and all(
        text in reply for text in texts
    )
    return is_whole and "'type': 'text'" not in reply and '"type": "text"' not in reply


def render_or_none(template: turnwise.Template, messages: Any, **arguments: Any) -> str | None:
    try:
        with WarningLog(is_quiet=True):  # of levels of reasoning that the template does not have
            return str(template.render(messages, now=corpus.NOW, **arguments))
    except turnwise.TurnwiseError:
        return None


class ReplyCase(NamedTuple):
    """A reply after a prompt, the arguments of both renderings, and the message in the form that was taken."""

    prompt: str
    reply: str
    arguments: dict[str, Any]
    message: dict[str, Any]


def replies(template: turnwise.Template, fields: dict[str, Any]) -> Iterator[ReplyCase]:
    """What the template writes for a message, with every setting of what looks like a switch of reasoning."""
    switches = [one for one in template.variables if "think" in one or "reason" in one]
    for options in ({}, *({one: value} for one in switches for value in SETTINGS)):
        arguments = {**({"tools": TOOLS} if "tool_calls" in fields else {}), **options}
        prompt = render_or_none(template, HISTORY, add_generation_prompt=True, **arguments)
        before = render_or_none(template, HISTORY, **arguments)
        if prompt is None or before is None:
            continue
        for message in list_forms(fields):
            text = render_or_none(template, [*HISTORY, message], **arguments)
            if text is None or not whole(fields, text[len(before) :]):
                continue
            joined = text.startswith(prompt) and whole(fields, text[len(prompt) :])
            yield ReplyCase(prompt, text[len(prompt) :] if joined else APART, arguments, message)


@cache
def case_of(name: str, kind: str) -> ReplyCase | None:
    """The first reply that goes on from its prompt; if there are others only, one of them."""
    case = None
    for case in replies(template_of(name), MESSAGES[kind]):
        if case.reply != APART:
            break
    return case
