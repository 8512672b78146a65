"""Messages, tools and histories that tests write with every template and read back."""

from __future__ import annotations

from typing import Any

Message = dict[str, Any]

ARGUMENTS = {
    "city": 'São <b> "P"',
    "days": 3,
    "note": "12",
    "deep": {"a": [1, True, None], "b": "x"},
}

TYPES = {"city": "string", "days": "integer", "note": "string", "deep": "object", "text": "string"}

MANY = {
    "s": "plain",
    "i": -7,
    "f": 2.5,
    "b": False,
    "n": None,
    "l": [1, "two", {"k": [True]}],
    "o": {"a": {"b": "c"}},
}

KINDS = {
    "s": "string",
    "i": "integer",
    "f": "number",
    "b": "boolean",
    "n": "null",
    "l": "array",
    "o": "object",
}

LETTERS = {
    "city": "Zürich 漢字 😀 \u2028 é",
    "text": "tab\tline\nback\\slash 'q' \"d\" & {x} [y] <|z|>",
}


def tool(name: str, **types: str) -> dict[str, Any]:
    properties = {key: {"type": kind} for key, kind in types.items()}
    parameters = {"type": "object", "properties": properties}
    return {
        "type": "function",
        "function": {"name": name, "description": "d", "parameters": parameters},
    }


TOOLS = [tool("get_weather", **TYPES), tool("now"), tool("many", **KINDS)]
PLAIN_TOOLS = [tool("get_weather", city="string", days="integer"), tool("now")]
"""For templates that know few types."""


def call(name: str, arguments: Any, number: int) -> dict[str, Any]:
    return {
        "id": f"abcd0000{number}",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


FIRST, SECOND, THIRD = call("get_weather", ARGUMENTS, 1), call("now", {}, 2), call("many", MANY, 1)

MESSAGES: dict[str, Message] = {
    "content": {"content": "It is fine.\n\nSo."},
    "reasoning": {"content": "It is fine.", "reasoning_content": "Let me see:\n1 < 2."},
    "call": {"content": "", "tool_calls": [FIRST]},
    "calls": {"content": "", "tool_calls": [FIRST, SECOND]},
    "content and call": {"content": "I look.", "tool_calls": [FIRST]},
    "reasoning and call": {"content": "", "reasoning_content": "Hm.", "tool_calls": [FIRST]},
    "no arguments": {"content": "", "tool_calls": [SECOND]},
    "many kinds of values": {
        "content": "",
        "tool_calls": [THIRD, call("get_weather", ARGUMENTS, 2)],
    },
    "letters of many kinds": {"content": "", "tool_calls": [call("get_weather", LETTERS, 1)]},
    "everything": {
        "content": "I look.",
        "reasoning_content": "Hm.\nSo?",
        "tool_calls": [FIRST, SECOND],
    },
}

# Templates that write what cannot be read back, and why.
UNREADABLE = {
    "lcpptest-GLMEdge": "every rendering ends with the generation prompt, so a rendered turn is not a reply",
    "mistralcommon-v2": "quotes are written as HTML: &#34;",
    "mistralcommon-v3_image": "quotes are written as HTML: &#34;",
    "mistralcommon-v3_spm": "quotes are written as HTML: &#34;",
    "mistralcommon-v7_audio": "quotes are written as HTML: &#34;",
    "mistralcommon-v7_spm": "quotes are written as HTML: &#34;",
    "vllm-tool_chat_template_llama3.2_pythonic": "texts are written without quotes",
    "vllm-tool_chat_template_toolace": "texts are written without quotes",
    "hfjs-LiquidAI--LFM2.5-VL-450M": "quotes within quotes are not escaped",
    "chujie-falcon-instruct": "white space within the content is changed",
    "ollama-llama4-latest": "the content before a call stands between markers that content alone does not have",
}
