"""Grammars of tool calls: what is written is accepted, what breaks a schema is not, and what is accepted is read."""

from __future__ import annotations

import json
import random
import time
import warnings
from dataclasses import replace
from typing import Any

import pytest
from tokenizers import Tokenizer

import corpus
import reply_vectors as replyvectors
import turnwise
from corpus import needs_corpus
from gbnf_reader import read_gbnf
from lazy_modules import LazyModule
from loaded import load_entry
from tool_calls import SCHEMAS, TOOLS, mutants, plain_messages, valid_messages
from turnwise.replies.grammar import Grammar
from turnwise.replies.grammar_parts import UNQUOTED, Calls, Marker, TaggedCall
from turnwise.replies.write import write

llguidance = LazyModule("llguidance")
jsonschema = LazyModule("jsonschema")

BYTES = llguidance.LLTokenizer("byte")
HELLO = [{"role": "user", "content": "Hi"}]
# One for each syntax of calls: JSON, a list of it, bare, tagged, with types, Python, quoted, channels, a name as a key.
SAMPLE = (
    "npm-qwen3",
    "npm-mistral_nemo",
    "npm-llama3_2",
    "llamacpp-Qwen3.5-4B",
    "llamacpp-Kimi-K3",
    "llamacpp-LFM2-8B-A1B",
    "unsloth-gemma4",
    "llamacpp-openai-gpt-oss-120b",
    "llamacpp-Apertus-8B-Instruct",
    "llamacpp-openbmb-MiniCPM5-1B",
    "llamacpp-GigaChat3-10B-A1.8B",
)
NAMES = [*corpus.load_published(), *(f"entry {name}" for name in turnwise.entries())]
MAX_SECONDS = 0.02  # of our own, for one grammar
SAMPLES = 200


class Matcher:
    """Decides with llguidance, byte by byte."""

    def __init__(self, lark: str, tokenizer: Any = BYTES) -> None:
        grammar = llguidance.LLMatcher.grammar_from_lark(lark)
        self._matcher = llguidance.LLMatcher(tokenizer, grammar)
        assert not self._matcher.is_error(), self._matcher.get_error()

    def accepts(self, reply: str) -> bool:
        return self.accepts_ids(list(reply.encode()))

    def accepts_ids(self, ids: list[int]) -> bool:
        matcher = self._matcher.deep_copy()
        return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()


def prompt_of(name: str) -> str | None:
    """What a server would send; None if the template takes no such conversation."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some write nothing of tools
            rendered = replyvectors.template(name).render(
                HELLO, tools=TOOLS, add_generation_prompt=True, now=corpus.NOW
            )
    except turnwise.TurnwiseError:
        return None
    return str(rendered)


def check_template(name: str) -> tuple[int, int]:
    """Check one template; the numbers of replies and mutants that were tried."""
    grammar, prompt = replyvectors.grammar(name), prompt_of(name)
    replies = [write(grammar, one, prompt) for one in valid_messages(grammar).values()]
    plain = [write(grammar, one, prompt) for one in plain_messages(grammar).values()]
    wrong = list(mutants(grammar, prompt))
    forced = Matcher(grammar.to_lark(TOOLS, "required", prompt=prompt))
    free = Matcher(grammar.to_lark(TOOLS, prompt=prompt))
    for reply in replies:
        assert forced.accepts(reply) and free.accepts(reply), reply
    for reply in plain:
        assert free.accepts(reply) and not forced.accepts(reply), reply
    for kind, reply in wrong:
        assert not forced.accepts(reply), (kind, reply)
        if free.accepts(reply):  # then it is content
            found = replyvectors.template(name).parse(reply, prompt, TOOLS)
            assert not found.get("tool_calls"), (kind, reply)
    return len(replies) * 2 + len(plain) * 2, len(wrong) * 2


@needs_corpus
@pytest.mark.parametrize("name", SAMPLE[::2])
def test_replies_and_mutants(name: str) -> None:
    check_template(name)


@pytest.mark.law
@pytest.mark.parametrize("name", NAMES)
def test_no_mutant_is_accepted(name: str) -> None:
    """Some twenty replies with one defect, and others that the grammar makes up, for each template with an export."""
    if not has_export(name):
        return
    _, tried = check_template(name)
    assert tried >= 20
    check_samples(name, 4)


def has_export(name: str) -> bool:
    try:
        grammar = replyvectors.grammar(name)
        return grammar.calls is not None and bool(grammar.to_lark(TOOLS))
    except turnwise.TurnwiseError:
        return False


def check_samples(name: str, count: int) -> None:
    """Texts that are made up from a grammar are read as calls that fit the schemas."""
    grammar, rng = replyvectors.grammar(name), random.Random(name)
    gbnf = read_gbnf(grammar.to_gbnf(TOOLS, "required", reasoning=False).grammar)
    for _ in range(count):
        reply = gbnf.sample(rng)
        # The text that reasoning=False is for begins after the reasoning.
        found = replyvectors.template(name).parse(reply, after_reasoning(grammar), TOOLS)
        assert found.get("tool_calls"), reply
        for call, attempt in zip(found["tool_calls"], found.attempts, strict=True):
            function = call["function"]
            assert attempt.status == "complete", (attempt, reply)
            jsonschema.validate(json.loads(function["arguments"]), SCHEMAS[function["name"]])


def after_reasoning(grammar: Grammar) -> str:
    if grammar.reasoning is None:
        return grammar.opening
    header = grammar.opening.partition(grammar.reasoning.open.core or "\0")[0]
    return (
        header
        + grammar.reasoning.open.text
        + "Hm."
        + grammar.reasoning.close.text
        + (grammar.starts[0] if grammar.starts else "")
    )


@needs_corpus
@pytest.mark.parametrize("name", SAMPLE[1::4])
def test_samples_are_read(name: str) -> None:
    check_samples(name, 10)


@needs_corpus
@pytest.mark.slow
def test_many_samples_are_read() -> None:
    failed = {}
    for name in filter(has_export, NAMES):
        try:
            check_samples(name, SAMPLES)
        except (AssertionError, jsonschema.ValidationError) as error:
            failed[name] = str(error)[:300]
    assert not failed, json.dumps(failed, indent=1, ensure_ascii=False)


@needs_corpus
@pytest.mark.parametrize("name", SAMPLE[::10])
def test_gbnf_accepts_what_is_written(name: str) -> None:
    grammar = replyvectors.grammar(name)
    gbnf = read_gbnf(grammar.to_gbnf(TOOLS, "required").grammar)
    for label, message in valid_messages(grammar).items():
        if label in ("short", "none", "reasoning"):  # the reader is slow
            assert gbnf.accepts(write(grammar, message)), label
    wrong = dict(mutants(grammar))
    assert not any(gbnf.accepts(wrong[kind]) for kind in ("wrong type", "missing key"))


@needs_corpus
@pytest.mark.slow
@pytest.mark.parametrize(
    ("vocabulary", "name"),
    [
        ("qwen3", "npm-qwen3"),
        ("qwen3", "entry qwen3-coder"),
        ("qwen2_5", "npm-qwen2_5"),
        ("llama3", "npm-llama3_2"),
        ("deepseek_v3", "entry deepseek-v3"),
        ("deepseek_v3", "entry deepseek-v3.1"),
        ("internlm2", "entry internlm2-tools"),
    ],
)
def test_real_tokenizers(vocabulary: str, name: str) -> None:
    folder = corpus.tokenizer_folder(vocabulary)
    text = (folder / "tokenizer.json").read_text(encoding="utf-8")
    # llguidance takes every added token of this tokenizer for a special one.
    special = {one["content"]: one["id"] for one in json.loads(text)["added_tokens"]}
    tokenizer, template = Tokenizer.from_str(text), replyvectors.template(name)
    lark = template.grammar.to_lark(TOOLS, "required", special_tokens=special)
    matcher = Matcher(lark, llguidance.LLTokenizer(text))
    grammar = template.grammar
    for message in valid_messages(grammar).values():
        ids = tokenizer.encode(write(grammar, message, stop=False), add_special_tokens=False).ids
        assert matcher.accepts_ids(ids)
    for kind, reply in mutants(grammar):
        ids = tokenizer.encode(reply, add_special_tokens=False).ids
        assert not matcher.accepts_ids(ids), kind


# -- speed


def many_tools(count: int) -> list[dict[str, Any]]:
    function = TOOLS[0]["function"]
    return [
        {"type": "function", "function": {**function, "name": f"book{index}"}}
        for index in range(count)
    ]


def seconds(grammar: Grammar, tools: Any, method: str) -> float:
    best = 10.0
    for _ in range(5):
        start = time.process_time()
        getattr(grammar, method)(tools, "required")
        best = min(best, time.process_time() - start)
    return best


METHODS = ["to_structural_tag", "to_lark", "to_gbnf"]


@pytest.mark.once
@pytest.mark.parametrize("name", ["qwen3", "qwen3-coder"])
@pytest.mark.parametrize("method", METHODS)
def test_a_grammar_is_made_quickly(method: str, name: str) -> None:
    assert seconds(load_entry(name).grammar, TOOLS, method) < MAX_SECONDS


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_time_grows_with_the_tools(method: str) -> None:
    grammar = load_entry("qwen3").grammar
    some, many = (seconds(grammar, many_tools(count), method) for count in (32, 128))
    assert many < 6 * some, (some, many)


@pytest.mark.parametrize("name", ["qwen3", "gemma-4", "kimi-k2", "llama-3.1", "gpt-oss", "glm-4.7"])
def test_no_call_can_begin_where_none_is_chosen(name: str) -> None:
    grammar = load_entry(name).grammar
    matcher = Matcher(grammar.to_lark(TOOLS, "none"))
    assert all(matcher.accepts(write(grammar, one)) for one in plain_messages(grammar).values())
    assert not any(matcher.accepts(write(grammar, one)) for one in valid_messages(grammar).values())
    assert not grammar.to_gbnf(TOOLS, "none").triggers
    assert grammar.to_structural_tag(TOOLS, "none")["type"] == "structural_tag"


def test_an_export_is_the_same_in_every_process() -> None:
    names = ["wind", "tide", "moon", "rain", "snow", "hail"]
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    lark = turnwise.load("glm-4-0414").grammar.to_lark(tools)
    found = [lark.index(f"{name}\\x0a") for name in names]
    assert found == sorted(found)  # in the order of the tools, not of a set


def test_an_export_that_refuses_its_own_reply_is_not_handed_out() -> None:
    grammar = load_entry("qwen3").grammar
    assert grammar.calls is not None
    unmarked = Calls(TaggedCall(("name", Marker(" "), "arguments")))
    with pytest.raises(turnwise.TurnwiseError, match="would not be read as calls"):
        replace(grammar, calls=unmarked).to_lark(TOOLS)
    unquoted = replace(grammar, unreached=(f"calls: {UNQUOTED}",))
    with pytest.raises(turnwise.TurnwiseError, match="without quotes"):
        unquoted.to_gbnf(TOOLS)
