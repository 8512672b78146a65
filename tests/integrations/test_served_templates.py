"""Exported `response_template`s in the engines that serve with them: vLLM's and SGLang's own checks and parsers."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import corpus
import reply_vectors as replyvectors
import sglang_modules
import turnwise
from corpus import needs_corpus
from reply_messages import MESSAGES, TOOLS
from turnwise.replies.write import write

pytestmark = [needs_corpus, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

SIZES = (10**6, 1, 3, 7)
EQUAL = 0.99  # of the written replies, whole and in chunks of each size
EXPORTED = 230


class Characters:
    """A tokenizer whose ids are characters."""

    def decode(self, ids: Any, **options: Any) -> str:
        return "".join(map(chr, ids))

    def encode(self, text: str, **options: Any) -> list[int]:
        return list(map(ord, text))

    def get_vocab(self) -> dict[str, int]:
        return {}


def list_exports() -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """The templates of the corpus that can be exported: name, grammar and export."""
    for name in corpus.load_published():
        grammar = replyvectors.grammar(name)
        try:
            yield name, grammar, grammar.to_response_template(profile="serving", partly=True)
        except turnwise.TurnwiseError:
            continue


def to_expected(grammar: Any, message: Any) -> Any:
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    reasoning = message.get("reasoning_content") or ""
    if grammar.reasoning is not None:
        ends = (grammar.reasoning.close.core, grammar.content.open.core)
        if grammar.opening.rstrip().endswith(tuple(filter(None, ends))):
            reasoning = ""  # the prompt says that there shall be none
    named = [(call["name"], call["arguments"]) for call in calls]
    return message.get("content") or "", reasoning, named


def write_replies(grammar: Any) -> Iterator[tuple[Any, str]]:
    for message in MESSAGES.values():
        has_calls, has_reasoning = "tool_calls" in message, "reasoning_content" in message
        if has_calls > (grammar.calls is not None):
            continue
        if has_reasoning <= (grammar.reasoning is not None):
            yield message, write(grammar, message)


def test_vllm() -> None:
    pytest.importorskip("vllm")
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.parser.response_template import (
        ResponseTemplateParser,
        validate_response_template_for_serving,
    )

    logging.disable(logging.WARNING)  # vLLM's, of calls that it cannot read
    chat = [{"role": "user", "content": "Hi"}]
    request = ChatCompletionRequest(messages=chat, model="m", tools=TOOLS, tool_choice="auto")
    tokens, counts, failed = Characters(), Counter[int](), []
    names = set()
    for name, grammar, template in list_exports():
        names.add(name)
        validate_response_template_for_serving(template)
        for message, reply in write_replies(grammar):
            for size in SIZES:
                parser = ResponseTemplateParser(
                    tokens, request.tools, response_template=template, enable_auto_tools=True
                )
                parser.set_prompt_token_ids(tokens.encode(grammar.opening))
                found = read(parser, request, reply, size)
                counts[size] += 1
                if found != to_expected(grammar, message):
                    failed.append((name, size))
    logging.disable(logging.NOTSET)
    assert len(names) >= EXPORTED and counts[1] > 1000
    wrong = Counter(size for _, size in failed)
    assert all(wrong[size] <= (1 - EQUAL) * counts[size] for size in SIZES), sorted(set(failed))


def read(parser: Any, request: Any, reply: str, size: int) -> Any:
    content, reasoning, calls = "", "", []
    for start in range(0, len(reply), size):
        chunk = reply[start : start + size]
        last = start + size >= len(reply)
        delta = parser.parse_delta(chunk, list(map(ord, chunk)), request, finished=last)
        if delta is None:
            continue
        content += delta.content or ""
        reasoning += delta.reasoning or ""
        for call in delta.tool_calls or ():
            calls.append((call.function.name, json.loads(call.function.arguments)))
    return content, reasoning, calls


def test_sglang_accepts_all() -> None:
    pytest.importorskip("msgspec")
    sglang_modules.load()
    from sglang.srt.parser.response_template import validate_response_template_for_serving

    names = set()
    for name, _, template in list_exports():
        names.add(name)
        validate_response_template_for_serving(template)
    assert len(names) >= EXPORTED
