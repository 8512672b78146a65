"""What a maker's format writes for a reply is read back as that reply, and ends with a stop."""

import json

import pytest

import turnwise
from turnwise.errors import WarningLog

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}, "n": {"type": "integer"}}}
TOOLS = [
    {"type": "function", "function": {"name": "find", "description": "D", "parameters": SCHEMA}}
]
QUESTION = [{"role": "user", "content": "Ask"}]
ENTRIES = {
    "deepseek-v3.2": {"thinking": True},
    "deepseek-v4": {},
    "deepseek-v4.1": {},
    "kimi-k3": {},
    "gpt-oss-harmony": {},
    "mistral-v13": {},
    "mistral-v15": {"reasoning_effort": "high"},
    "command-cmd4": {},
}


def make_calls(*arguments):
    return [
        {"id": f"call0000{n}", "type": "function", "function": {"name": "find", "arguments": one}}
        for n, one in enumerate(arguments)
    ]


REPLIES = [
    {"content": "Hi there"},
    {"content": "Hi", "reasoning_content": "Why"},
    {"content": "", "reasoning_content": "Why", "tool_calls": make_calls({"text": "x y", "n": 3})},
    {"content": "", "tool_calls": make_calls({"text": 'é\n"q"'}, {"n": 1}, {})},
]


@pytest.mark.parametrize("name", ENTRIES)
def test_a_reply_is_read_back_as_it_was_written(name):
    template = turnwise.load(name)
    for reply in REPLIES:
        with WarningLog(is_quiet=True):
            prompt = template.render(QUESTION, TOOLS, add_generation_prompt=True, **ENTRIES[name])
            chat = [*QUESTION, {"role": "assistant", **reply}]
            whole = template.render(chat, TOOLS, **ENTRIES[name]).text
            assert whole.startswith(prompt.text)
            read = dict(template.parse(whole[len(prompt.text) :], prompt, TOOLS))
        assert (read.get("content") or "") == reply["content"]
        assert (read.get("reasoning_content") or "") == reply.get("reasoning_content", "")
        calls = [call["function"] for call in read.get("tool_calls") or ()]
        assert [json.loads(call["arguments"]) for call in calls] == [
            call["function"]["arguments"] for call in reply.get("tool_calls", ())
        ]
        assert whole.endswith(tuple(template.stops()))
