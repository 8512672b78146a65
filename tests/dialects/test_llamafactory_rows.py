"""OpenAI rows as LLaMA-Factory reads them: what it keeps of a row is what ours says in ShareGPT's words.

Its converter loses what ShareGPT cannot say and drops rows that it could not train on; ours keeps all, and the writer
refuses. So a row is first reduced to what survives there, and the rule by which rows are dropped is checked itself.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

import corpus
from corpus import needs_corpus
from turnwise.errors import MessageError
from turnwise.shapes import conversation, write

LOST = {"reasoning_content", "reasoning", "thinking", "name", "tool_call_id"}
NAMES = {
    "human": "user",
    "gpt": "assistant",
    "function_call": "function",
    "observation": "observation",
}
JOINED = "\n</tool_response>\n<tool_response>\n"
ROWS = [
    row for row in corpus.lines("golden/llamafactory.jsonl") if row["kind"] == "openai_converter"
]


def prepare_row(row: dict[str, Any]) -> dict[str, Any]:
    """The row, without the results at its end, which have no reply and the converter drops."""
    chat = corpus.chats()[row["c"]]
    messages = list(chat.messages)
    while messages[-1]["role"] == "tool":
        messages.pop()
    return {"messages": messages, "tools": chat.arguments.get("tools")}


def reduce_message(message: dict[str, Any]) -> dict[str, Any]:
    """A message without what is lost there: ids, names, reasoning, text beside a call."""
    kept = {key: value for key, value in message.items() if key not in LOST}
    if message.get("tool_calls"):
        calls = [
            {"type": "function", "function": call["function"]} for call in message["tool_calls"]
        ]
        return {**kept, "content": None, "tool_calls": calls}
    return kept


def turns(row: dict[str, Any]) -> list[list[Any]]:
    """A row as ours writes it in ShareGPT's words, with results that follow each other made one."""
    whole = conversation(prepare_row(row))
    reduced = replace(whole, messages=[reduce_message(message) for message in whole.messages])
    found: list[list[Any]] = []
    for turn in write(reduced, "sharegpt")["conversations"]:
        role = NAMES[turn["from"]]
        if found and role == found[-1][0] == "observation":
            found[-1][1] += JOINED + turn["value"]
        else:
            found.append([role, calls(turn["value"]) if role == "function" else turn["value"]])
    return found


def calls(text: str) -> list[Any]:
    """One call or several, which there is always a list."""
    value = json.loads(text)
    return value if isinstance(value, list) else [value]


def trainable(messages: list[dict[str, Any]]) -> bool:
    """Whether LLaMA-Factory keeps a row: rounds of a question or results, and an answer, to the end."""
    rest = messages[1:] if messages[0]["role"] == "system" else messages
    asks = [message["role"] for message in rest]
    alone = [
        role
        for at, role in enumerate(asks)
        if not (role == "tool" and asks[at - 1 : at] == ["tool"])
    ]
    sides = [role == "assistant" for role in alone]
    return (
        all(role in ("user", "assistant", "tool") for role in asks)
        and bool(sides)
        and sides == [at % 2 == 1 for at in range(len(sides) // 2 * 2)]
    )


@needs_corpus
def test_rows_that_are_dropped() -> None:
    answered = [row for row in ROWS if "out" in row]
    kept = {row["c"] for row in answered if row["out"]["_response"]}
    assert {row["c"] for row in answered if trainable(prepare_row(row)["messages"])} == kept
    assert (len(ROWS), len(answered), len(kept)) == (75, 70, 35)
    for row in answered:
        conversation(prepare_row(row))  # which is no reason to drop one here


@needs_corpus
@pytest.mark.parametrize("row", [row for row in ROWS if "error" in row], ids=lambda row: row["c"])
def test_rows_that_it_fails_on(row: dict[str, Any]) -> None:
    with pytest.raises(MessageError):
        write(conversation(prepare_row(row)), "sharegpt")


@needs_corpus
@pytest.mark.parametrize(
    "row", [r for r in ROWS if r.get("out", {}).get("_response")], ids=lambda row: row["c"]
)
def test_rows_that_are_kept(row: dict[str, Any]) -> None:
    out, read = row["out"], prepare_row(row)
    theirs = [[turn["role"], turn["content"]] for turn in (*out["_prompt"], *out["_response"])]
    if any(isinstance(content, list) for _, content in theirs):
        with pytest.raises(MessageError, match="has a text here, not list"):
            turns(row)
        return
    assert turns(row) == [
        [role, calls(text) if role == "function" else text] for role, text in theirs
    ]
    assert (json.loads(out["_tools"]) if out["_tools"] else None) == (read["tools"] or None)
    first = read["messages"][0]
    system = first["content"] if first["role"] == "system" else ""
    note = "" if read["tools"] else "detailed thinking off"
    assert out["_system"] == "\n".join(filter(None, (system, note)))
