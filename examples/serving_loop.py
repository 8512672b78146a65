"""A serving loop without a server: a request in OpenAI's shape becomes ids, sampled ids become deltas and a message.

    python examples/serving_loop.py

`sample` stands for your engine: it takes token ids and yields the ids that a model would write. Here it replays a call
of a tool and then an answer, so that the example runs anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import turnwise

TOOL = {
    "type": "function",
    "function": {
        "name": "tide",
        "parameters": {
            "type": "object",
            "properties": {"harbour": {"type": "string"}},
            "required": ["harbour"],
        },
    },
}
REPLIES = (
    '<think>\nA tool knows.\n</think>\n\n<tool_call>\n{"name": "tide", "arguments": {"harbour": "Brest"}}\n'
    "</tool_call><|im_end|>",
    "<think>\n\n</think>\n\nHigh water is at noon.<|im_end|>",
)


def main() -> None:
    template = turnwise.load("qwen3")
    session = template.session("turnwise", tools=[TOOL])
    ids = session.prompt([{"role": "user", "content": "When is high water in Brest?"}])
    for reply in REPLIES:
        sampled = []
        parser = template.parser(ids, tools=[TOOL], tokenizer=session.tokenizer)
        for token in sample(session.tokenizer.whole(reply), session.stop_token_ids):
            sampled.append(token)
            for event in parser.feed([token]):
                print("delta", json.dumps(event.delta(), ensure_ascii=False))
        message = parser.close()
        print("message", json.dumps(message, ensure_ascii=False))
        session.add_reply(sampled)
        if message.get("tool_calls"):
            ids = session.extend([answer(call) for call in session.messages[-1]["tool_calls"]])


def sample(script: Sequence[int], stops: Sequence[int]) -> Iterator[int]:
    """Yield ids until one of them stops the reply."""
    for token in script:
        yield token
        if token in stops:
            return


def answer(call: Any) -> dict[str, Any]:
    """Run the tool that a call names."""
    arguments = call["function"]["arguments"]
    assert call["function"]["name"] == "tide" and arguments["harbour"]
    return {"role": "tool", "tool_call_id": call["id"], "content": "At noon."}


if __name__ == "__main__":
    main()
