"""An agent as its users write it: tools, a loop, replies that are streamed. Checked by mypy and pyright, and run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import turnwise
from turnwise import ChatMessage, Message, ReplyToolCall, Tool

TIDES = {"Brest": "12:04", "Oban": "15:40"}
TIDE: Tool = {
    "type": "function",
    "function": {
        "name": "tide",
        "description": "Return the time of high water.",
        "parameters": {
            "type": "object",
            "properties": {"port": {"type": "string"}},
            "required": ["port"],
        },
    },
}
SCRIPT = (
    "<think>\nA tool knows.\n</think>\n\n"
    '<tool_call>\n{"name": "tide", "arguments": {"port": "Oban"}}\n</tool_call><|im_end|>',
    "<think>\nIt answered.\n</think>\n\nHigh water in Oban is at 15:40.<|im_end|>",
)


def sample(prompt: Sequence[int], turn: int) -> Iterator[str]:
    """Stand in for an engine that streams text."""
    assert prompt
    reply = SCRIPT[turn]
    yield from (reply[start : start + 7] for start in range(0, len(reply), 7))


def read_text(message: Message) -> str:
    return message["content"] or ""


def read_reasoning(message: Message) -> str | None:
    return message.get("reasoning_content")


def call_tool(call: ReplyToolCall) -> ChatMessage:
    arguments: dict[str, str] = json.loads(call["function"]["arguments"])
    port = arguments.get("port", "")
    return {
        "role": "tool",
        "tool_call_id": call["id"],
        "name": call["function"]["name"],
        "content": TIDES.get(port, f"no port {port!r}"),
    }


def answer(question: str, shown: list[str]) -> list[ChatMessage]:
    template = turnwise.load("qwen3")
    messages: list[ChatMessage] = [
        {"role": "system", "content": "You know the sea."},
        {"role": "user", "content": question},
    ]
    for turn in range(len(SCRIPT)):
        prompt = template.encode(messages, "turnwise", tools=[TIDE], add_generation_prompt=True)
        parser = template.parser(prompt, [TIDE], cut_calls="drop")
        for chunk in sample(prompt.input_ids, turn):
            shown.extend(event.text for event in parser.feed(chunk) if event.kind == "text")
        message = parser.close()
        messages.append(message)
        for call in message.get("tool_calls", []):
            messages.append(call_tool(call))
        if message.finish_reason != "tool_calls":
            break
    return messages


if __name__ == "__main__":
    shown: list[str] = []
    for message in answer("When is high water in Oban?", shown):
        print(message["role"], "|", message.get("content"))
    print("shown", "|", "".join(shown))
