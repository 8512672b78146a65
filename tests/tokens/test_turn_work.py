"""The work of a turn is that of its new messages, however many came before them: counted, not timed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

import turnwise
from label_law import full_tokenizer
from loaded import load_entry
from turnwise.tokens.growing import GrowingPrompt

TOOL = {
    "type": "function",
    "function": {
        "name": "tide",
        "description": "Tides.",
        "parameters": {"type": "object", "properties": {"port": {"type": "string"}}},
    },
}
AGENTS = ["qwen3", "qwen3-coder", "llama-3.1", "deepseek-v3.1", "glm-4.5", "gpt-oss"]
SHORT, LONG = 31, 121  # messages
MOST = 2.0  # times as much work; all messages again would be about 4 times


def count_operations(run: Callable[[], object]) -> int:
    """Return how many operations of Python a function takes."""
    count = 0

    def trace(frame: Any, event: str, argument: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(None)
    return count


def make_chat(count: int, has_calls: bool) -> list[dict[str, Any]]:
    chat: list[dict[str, Any]] = [{"role": "user", "content": "When is low water?"}]
    while len(chat) < count:
        id = f"call{len(chat):05}"
        if has_calls:
            function = {"name": "tide", "arguments": {"port": f"Oslo {id}"}}
            call = {"id": id, "type": "function", "function": function}
            chat.append({"role": "assistant", "content": "", "tool_calls": [call]})
            chat.append({"role": "tool", "tool_call_id": id, "content": f"low {id}"})
        else:
            chat.append({"role": "assistant", "content": f"At noon, {id}."})
            chat.append({"role": "user", "content": f"And after {id}?"})
    return chat


def grow_by_session(template: turnwise.Template, chat: list[dict[str, Any]]) -> int:
    session = template.session(full_tokenizer())
    session.prompt(chat[:1])
    for reply, asked in zip(chat[1:-2:2], chat[2:-2:2], strict=True):
        session.add_reply(f"{reply['content']}<|im_end|>", message=reply)
        session.extend([asked])
    session.add_reply(f"{chat[-2]['content']}<|im_end|>", message=chat[-2])
    return count_operations(lambda: session.extend([chat[-1]]))


def grow_by_encode(template: turnwise.Template, chat: list[dict[str, Any]], **more: Any) -> int:
    growing = GrowingPrompt()

    def encode(end: int) -> object:
        given: Any = {"add_generation_prompt": True, "growing": growing, **more}
        return template.encode(chat[:end], full_tokenizer(), **given)

    for end in range(len(chat) - 8, len(chat), 2):
        encode(end)
    return count_operations(lambda: encode(len(chat)))


@pytest.mark.law(3)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("has_calls", [True, False])
@pytest.mark.parametrize("name", AGENTS)
def test_a_turn_of_a_long_chat_takes_little_more_than_one_of_a_short_one(
    name: str, has_calls: bool
) -> None:
    template, more = load_entry(name), {"tools": [TOOL]} if has_calls else {}
    short, long = [
        grow_by_encode(template, make_chat(count, has_calls), **more) for count in (SHORT, LONG)
    ]
    assert long <= MOST * short, (short, long)


@pytest.mark.parametrize("name", ["chatml", "qwen3"])
def test_a_turn_of_a_long_session_takes_little_more(name: str) -> None:
    template = load_entry(name)
    short, long = [grow_by_session(template, make_chat(count, False)) for count in (SHORT, LONG)]
    assert long <= 1.5 * short, (short, long)
