"""Conversations of every kind of part that an API can hold, made up from a seed."""

from __future__ import annotations

import json
from random import Random
from typing import Any

Row = dict[str, Any]

API_NAMES = ("anthropic", "responses", "gemini")
WORDS = ("tide", "Brest", "潮汐", "прилив", "a\n\nb", "<|im_end|>", '"quoted"', " ", "0", "{}", "é")
CACHE = {"cache_control": {"type": "ephemeral"}}
BREAKPOINT = {"prompt_cache_breakpoint": {"mode": "explicit"}}
PNG, PDF = "data:image/png;base64,iVBORw0KGgo=", "data:application/pdf;base64,JVBERi0="
ANNOTATION = {"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 1}
CITATION = {
    "type": "char_location",
    "cited_text": "x",
    "document_index": 0,
    "document_title": None,
    "start_char_index": 0,
    "end_char_index": 1,
}
DETAILS: dict[str, list[Row]] = {
    "anthropic": [
        {"type": "thinking", "thinking": "I look.", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "b3BhcXVl"},
    ],
    "responses": [
        {"type": "reasoning", "id": "rs_a", "summary": [], "encrypted_content": "b3BhcXVl"},
        {
            "type": "reasoning",
            "id": "rs_b",
            "summary": [{"type": "summary_text", "text": "I look."}],
        },
    ],
    "gemini": [{"text": "I look.", "thought": True, "thoughtSignature": "c2ln"}],
}
DETAIL_TEXTS = {"thinking": "I look.", "rs_b": "I look."}


class ChatMaker:
    """Makes conversations that an API can hold.

    Args:
        seed: which conversations.
        api: which API; "" for what all of them can hold.
    """

    def __init__(self, seed: int, api: str = "") -> None:
        self.random = Random(f"{seed} {api}")
        self.api = api
        self.calls = 0

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def text(self) -> str:
        return " ".join(self.random.choices(WORDS, k=self.random.randint(1, 5)))

    def chat(self) -> list[Row]:
        """Return a conversation."""
        messages: list[Row] = []
        if self.chance(0.5):
            messages.append({"role": "system", "content": self.content(self.text_part)})
        for _ in range(self.random.randint(1, 4)):
            messages.append({"role": "user", "content": self.content(self.user_part)})
            if self.api == "anthropic" and self.chance(0.2):
                messages.append({"role": "system", "content": self.content(self.text_part)})
            if self.api == "responses" and self.chance(0.2):
                role = self.random.choice(["system", "developer"])
                messages.append({"role": role, "content": self.content(self.text_part)})
            for _ in range(self.random.randint(0, 2)):
                messages += self.call_turn()
            messages.append(self.reply())
        return messages

    def content(self, part: Any) -> Any:
        if self.chance(0.6):
            return self.text()
        return [part() for _ in range(self.random.randint(1, 3))]

    def text_part(self) -> Row:
        part = {"type": "text", "text": self.text()}
        if self.api == "anthropic" and self.chance(0.3):
            part |= CACHE
        return part

    def user_part(self) -> Row:
        if self.api == "responses" and self.chance(0.2):
            return {"type": "text", "text": self.text(), **BREAKPOINT}
        return self.random.choice([self.text_part, self.image, self.file])()

    def image(self) -> Row:
        url = self.random.choice([PNG, "https://example.com/a.png"])
        image: Row = {"url": url}
        if self.api == "responses" and self.chance(0.5):
            image["detail"] = "low"
        if self.api in ("responses", "anthropic") and self.chance(0.2):
            image = {"file_id": "file_1"}
        return {"type": "image_url", "image_url": image}

    def file(self) -> Row:
        file: Row = {"file_data": PDF}
        if self.chance(0.5):
            file["filename"] = "a.pdf"
        return {"type": "file", "file": file}

    def reasoning(self) -> Row:
        if not self.chance(0.5):
            return {}
        if not self.api or self.chance(0.5):
            return {"reasoning_content": self.text()}
        details = self.random.sample(
            DETAILS[self.api], self.random.randint(1, len(DETAILS[self.api]))
        )
        texts = [detail.get("thinking") or detail.get("text") or "" for detail in details]
        texts += [part["text"] for detail in details for part in detail.get("summary", ())]
        text = "\n\n".join(filter(None, texts))
        return {"reasoning_details": details} | ({"reasoning_content": text} if text else {})

    def reply(self) -> Row:
        content = self.content(self.reply_part)
        if self.api == "responses" and self.chance(0.1):
            return {
                "role": "assistant",
                "content": None,
                "refusal": self.text(),
                **self.reasoning(),
            }
        return {"role": "assistant", "content": content, **self.reasoning()}

    def reply_part(self) -> Row:
        part = {"type": "text", "text": self.text()}
        if self.api == "anthropic" and self.chance(0.3):
            part["citations"] = [CITATION]
        if self.api == "responses" and self.chance(0.3):
            part["annotations"] = [ANNOTATION]
        return part

    def call_turn(self) -> list[Row]:
        calls, results = [], []
        for _ in range(self.random.randint(1, 3)):
            self.calls += 1
            name = self.random.choice(["tide", "depth"])
            values = {"harbour": self.text(), "days": [1, None, {"x": 1.5}]}
            arguments: Any = values if self.chance(0.5) else json.dumps(values, ensure_ascii=False)
            function = {"name": name, "arguments": arguments}
            calls.append({"id": f"call{self.calls:05}", "type": "function", "function": function})
            result: Row = {"role": "tool", "tool_call_id": f"call{self.calls:05}"}
            result["content"] = self.text()
            if self.api in ("anthropic", "responses"):
                result["content"] = self.content(self.result_part)
            if self.api in ("gemini", "responses") and self.chance(0.5):
                result["name"] = name
            if self.api == "anthropic" and self.chance(0.3):
                result["is_error"] = True
            results.append(result)
        self.random.shuffle(results)
        content = self.random.choice([None, self.text()])
        return [
            {"role": "assistant", "content": content, **self.reasoning(), "tool_calls": calls},
            *results,
        ]

    def result_part(self) -> Row:
        return self.random.choice([self.text_part, self.image])()

    def tools(self) -> list[Row] | None:
        """Return tools that the calls may be of."""
        if self.chance(0.3):
            return None
        tools = []
        for name in ("tide", "depth"):
            function: Row = {"name": name}
            if self.chance(0.8):
                function["description"] = self.text()
            schema = {"type": "object", "properties": {"harbour": {"type": "string"}}}
            function["parameters"] = {**schema, "required": ["harbour"]}
            tools.append({"type": "function", "function": function})
        return tools
