"""Random conversations with tools, documents and options, made without any code of the package.

An oracle for "do two templates write the same text?": what `diff` asks is made by other code, from other words. Values
of options and roles are drawn from a usual set and from the words that stand between quotes in the templates.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import turnwise

QUOTED = re.compile(r"'([^'\\\n]{1,40})'|\"([^\"\\\n]{1,40})\"")
WORDS = ("red", "Hallo", "où", "東京", "🙂", "42", "a<b", 'q"q', "it's", "&", "x\ny", "tab\there")
SPACES = ("", "", " ", "\n", "\n\n", "  \n", "\t", "\r\n")
TAILS = ("", "", "", " /no_think", "/nothink", "</think>", "<think>", " /think")
DATES = (
    datetime(2023, 3, 9, 7, 8, 9),
    datetime(2024, 12, 31, 18, 30),
    datetime(2022, 1, 1, 1, 1),
    datetime(2025, 10, 25, 13, 5),
)
TOKENS = {"bos_token": "<BOS>", "eos_token": "<EOS>", "pad_token": "<PAD>", "unk_token": "<UNK>"}
ROLES = ("user", "assistant", "system", "tool", "developer", "ipython", "function", "critic")
PLAIN = (True, False, None, 1, 5, "low", "medium", "high", "none", "auto", "", [], ["a"], {"a": 1})


@dataclass
class RandomChat:
    """One call of `render`."""

    messages: list[dict[str, Any]]
    arguments: dict[str, Any] = field(default_factory=dict)


class ChatDice:
    """Makes random conversations for templates with these texts and variables."""

    def __init__(self, texts: list[str], variables: list[str], seed: int) -> None:
        self.dice = random.Random(seed)
        quoted = [one or two for text in texts for one, two in QUOTED.findall(text)]
        self.quoted = sorted(set(quoted)) or ["x"]
        self.words = [word for word in self.quoted if re.fullmatch(r"[\w-]+", word)] or ["x"]
        known = {"messages", "tools", "documents", "add_generation_prompt", *TOKENS}
        known |= {"sep_token", "cls_token", "mask_token", "continue_final_message"}
        self.options = [name for name in variables if name not in known]

    def make(self) -> RandomChat:
        dice = self.dice
        messages = [self.message(role) for role in self.roles()]
        arguments: dict[str, Any] = {
            "add_generation_prompt": dice.random() < 0.5,
            "now": dice.choice(DATES),
        }
        if dice.random() < 0.8:
            arguments |= TOKENS
        if dice.random() < 0.45:
            arguments["tools"] = [self.tool() for _ in range(dice.choice((0, 1, 1, 2, 3)))]
        if dice.random() < 0.15:
            arguments["documents"] = [
                {"title": self.text(), "text": self.text(), "id": n, "content": self.text()}
                for n in range(dice.choice((1, 2)))
            ]
        for name in self.options:
            if dice.random() < 0.35:
                arguments[name] = self.value()
        return RandomChat(messages, arguments)

    def roles(self) -> list[str]:
        dice = self.dice
        if dice.random() < 0.1:
            pool = (*ROLES, dice.choice(self.words))
            return [dice.choice(pool) for _ in range(dice.randrange(1, 6))]
        roles = [dice.choice(("system", "system", "developer"))] if dice.random() < 0.5 else []
        for _ in range(dice.choice((1, 1, 1, 2, 2, 3, 4, 12))):
            roles.append("user")
            while dice.random() < 0.3:
                roles += ["call", *["tool"] * dice.choice((1, 1, 2))]
            if dice.random() < 0.75:
                roles.append("assistant")
        return roles

    def text(self) -> str:
        dice = self.dice
        count = dice.choice((0, 1, 1, 2, 3, 5, 5, 9)) if dice.random() < 0.97 else 400
        body = " ".join(dice.choice(WORDS) for _ in range(count))
        if dice.random() < 0.06:
            body += dice.choice(self.quoted) + body
        return dice.choice(SPACES) + body + dice.choice(TAILS) + dice.choice(SPACES)

    def message(self, role: str) -> dict[str, Any]:
        dice = self.dice
        message: dict[str, Any] = {"role": "assistant" if role == "call" else role}
        if dice.random() < 0.97:
            message["content"] = self.content(role)
        if role in ("call", "assistant") and dice.random() < 0.35:
            key = dice.choice(("reasoning_content", "thinking", "reasoning"))
            message[key] = self.text()
        if role == "assistant" and dice.random() < 0.2:
            message["content"] = f"<think>{self.text()}</think>{self.text()}"
        if role == "call":
            calls = [self.call(n) for n in range(dice.choice((1, 1, 2)))]
            message["tool_calls"] = calls
            if dice.random() < 0.1:
                message["tool_plan"] = self.text()
        if role == "tool":
            message |= {"name": "lookup", "tool_call_id": f"id{dice.randrange(3)}aaaaaa"}
        if dice.random() < 0.04:
            message[dice.choice(self.words)] = self.value()
        return message

    def content(self, role: str) -> Any:
        dice = self.dice
        chance = dice.random()
        if chance < 0.78:
            return self.text()
        if chance < 0.8:
            return None
        if chance < 0.84 and role == "tool":
            return {"result": self.json(), "ok": True}
        kinds = ("text", "text", "text", "image", "video", "audio", "image_url", "thinking")
        parts = []
        for _ in range(dice.randrange(4)):
            kind = dice.choice(kinds)
            value = {"url": "http://u"} if kind == "image_url" else self.text()
            parts.append({"type": kind, kind: value})
        return parts

    def call(self, number: int) -> dict[str, Any]:
        dice = self.dice
        arguments: Any = {
            dice.choice(("key", "where", "flag", "data")): self.json()
            for _ in range(dice.randrange(4))
        }
        if dice.random() < 0.1:
            arguments = '{"key": "välue"}'
        function = {"name": dice.choice(("lookup", "compute")), "arguments": arguments}
        if dice.random() < 0.08:
            return function
        return {"id": f"id{number}aaaaaa", "type": "function", "function": function}

    def json(self, depth: int = 0) -> Any:
        dice = self.dice
        simple = (self.text(), True, False, None, 7, -1, 2.5, 0, "")
        if depth > 1 or dice.random() < 0.7:
            return dice.choice(simple)
        if dice.random() < 0.5:
            return [self.json(depth + 1) for _ in range(dice.randrange(3))]
        return {f"k{n}": self.json(depth + 1) for n in range(dice.randrange(3))}

    def schema(self, depth: int = 0) -> dict[str, Any]:
        dice = self.dice
        kinds = ("string", "integer", "number", "boolean", "array", "object", "null")
        kind = dice.choice(kinds[: 7 if depth < 2 else 4])
        found: dict[str, Any] = {"type": kind}
        if dice.random() < 0.1:
            found["type"] = [kind, "null"]
        if dice.random() < 0.8:
            found["description"] = self.text()
        if kind == "array" and dice.random() < 0.9:
            found["items"] = self.schema(depth + 1)
        if kind == "object":
            found["properties"] = {
                f"p{n}": self.schema(depth + 1) for n in range(dice.randrange(3))
            }
            found["required"] = ["p0"]
        for key, value in {
            "enum": ["one", "zwölf"],
            "default": self.json(2),
            "nullable": dice.random() < 0.5,
            "additionalProperties": False,
            "format": "date",
        }.items():
            if dice.random() < 0.12:
                found[key] = value
        return found

    def tool(self) -> dict[str, Any]:
        dice = self.dice
        parameters: dict[str, Any] = {
            "type": "object",
            "properties": {f"a{n}": self.schema() for n in range(dice.randrange(4))},
        }
        if dice.random() < 0.8:
            parameters["required"] = ["a0"]
        function: dict[str, Any] = {"name": dice.choice(("lookup", "compute"))}
        if dice.random() < 0.9:
            function["description"] = self.text()
        if dice.random() < 0.92:
            function["parameters"] = parameters
        if dice.random() < 0.1:
            function["strict"] = True
        return {"type": "function", "function": function} if dice.random() < 0.95 else function

    def value(self) -> Any:
        dice = self.dice
        chance = dice.random()
        if chance < 0.55:
            return dice.choice(PLAIN)
        if chance < 0.85:
            return dice.choice(self.words)
        if chance < 0.93:
            return [dice.choice(self.words)]
        return {dice.choice(self.words): dice.choice((True, self.text(), dice.choice(self.words)))}


def render_outcome(template: turnwise.Template, chat: RandomChat) -> str | None:
    """Return the text, or None for a refusal."""
    try:
        return template.renderer.render(chat.messages, **chat.arguments).text
    except turnwise.TurnwiseError:
        return None


def find_difference(
    a: turnwise.Template, b: turnwise.Template, texts: list[str], count: int, seed: int = 1
) -> RandomChat | None:
    """Return the first of so many random conversations on which two templates differ."""
    variables = list(dict.fromkeys((*a.variables, *b.variables)))
    chats = ChatDice(texts, variables, seed)
    for _ in range(count):
        chat = chats.make()
        if render_outcome(a, chat) != render_outcome(b, chat):
            return chat
    return None
