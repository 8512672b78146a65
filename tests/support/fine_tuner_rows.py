"""Rows as fine-tuners have them: ShareGPT, Alpaca and OpenAI mixed, with the damage that tables and SDKs do.

Every text of a row is a word that occurs nowhere else, so a text that is lost, or written in Python's or JSON's
notation, is seen in the encoded text.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from turnwise.shapes import conversation

TOOL = {
    "name": "tide_table",
    "description": "Tides.",
    "parameters": {
        "type": "object",
        "properties": {"harbour": {"type": "string"}, "days": {"type": "integer"}},
    },
}
WRONG_ROLES = ("asistant", "Assistant", "usr", "bot", "User", "human")


class FineTunerRow(NamedTuple):
    """A row, and the words of which each must be in the text or in a message of the library."""

    data: Any
    words: tuple[str, ...]


class RowWriter:
    """Writes rows with words of its own."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._seed = seed
        self.words: list[str] = []

    def word(self) -> str:
        self.words.append(f"w{self._seed}x{len(self.words)}q")
        return self.words[-1]

    def text(self) -> str:
        return f"The {self.word()} comes and {self.word()} goes."

    def choose(self, *values: Any) -> Any:
        return self._random.choice(values)

    def arguments(self) -> Any:
        found = {"harbour": self.word(), "days": 3}
        padded = {**found, "city": None}  # as tables give each row the keys of all
        return self.choose(found, padded, json.dumps(found))

    def call(self) -> dict[str, Any]:
        function = {"name": "tide_table", "arguments": self.arguments()}
        calls = [{"id": "call_abc123DEF", "type": "function", "function": function}]
        return {
            "role": "assistant",
            "content": self.choose(None, "", self.text),
            "tool_calls": calls,
        }

    def content(self) -> Any:
        text = self.text()
        return self.choose(text, [{"type": "text", "text": text}], text)

    def pad(self, message: dict[str, Any]) -> dict[str, Any]:
        """Add the keys without a value that SDKs and tables add."""
        extra = self.choose(
            {}, {"refusal": None, "tool_calls": None}, {"name": None, "tool_calls": []}
        )
        return {**extra, **message} if "tool_calls" not in message else message

    def sharegpt(self) -> dict[str, Any]:
        turns = [{"from": "human", "value": self.text()}]
        if self.choose(True, False):
            called = {"name": "tide_table", "arguments": {"harbour": self.word(), "days": 3}}
            turns.append({"from": "function_call", "value": json.dumps(called)})
            turns.append({"from": "observation", "value": self.text()})
        turns.append({"from": "gpt", "value": self.text()})
        row: dict[str, Any] = {"conversations": turns, "tools": json.dumps([TOOL])}
        if self.choose(True, False):
            row["system"] = self.text()
        return row

    def alpaca(self) -> dict[str, Any]:
        return {
            "instruction": self.text(),
            "input": self.choose("", self.text()),
            "output": self.text(),
            "system": self.choose("", self.text()),
            "history": [[self.text(), self.text()]] if self.choose(True, False) else [],
        }

    def openai(self) -> dict[str, Any]:
        messages: list[dict[str, Any]] = []
        if self.choose(True, False):
            messages.append({"role": self.choose("system", "developer"), "content": self.content()})
        messages.append({"role": "user", "content": self.content()})
        row: dict[str, Any] = {"messages": messages}
        if self.choose(True, False):
            row["tools"] = [{"type": "function", "function": TOOL}]
            call = self.call()
            if callable(call["content"]):
                call["content"] = call["content"]()
            if self.choose(True, False):
                call["reasoning_content"] = self.text()
            result = {"role": "tool", "tool_call_id": "call_abc123DEF", "content": self.content()}
            messages += [call, result]
        reply = {"role": "assistant", "content": self.choose(self.content(), self.content(), None)}
        messages.append(self.pad(reply))
        if self.choose(True, False, False, False):
            messages[-1]["role"] = self.choose(*WRONG_ROLES)
        return row


SHAPES: tuple[Callable[[RowWriter], dict[str, Any]], ...] = (
    RowWriter.sharegpt,
    RowWriter.alpaca,
    RowWriter.openai,
)


def rows(count: int) -> Iterator[FineTunerRow]:
    """Yield so many rows, the same every time."""
    for seed in range(count):
        writer = RowWriter(seed)
        data = SHAPES[seed % len(SHAPES)](writer)
        shown = json.dumps(data)
        # words that were written and not chosen are not in the row
        yield FineTunerRow(data, tuple(word for word in writer.words if word in shown))


def read(row: FineTunerRow) -> dict[str, Any]:
    """Return the arguments of `encode` that a row gives."""
    return conversation(row.data).arguments
