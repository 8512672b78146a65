"""Usual messages are read with the result of the long way; what the path of a conversation is."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import pytest

import turnwise
from loaded import load_entry
from turnwise.engine.program import Program
from turnwise.normalisation.normaliser import _Conversation
from turnwise.shapes.foreign_turns import read_foreign

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "tide",
            "description": "High water.",
            "parameters": {"type": "object", "properties": {"harbour": {"type": "string"}}},
        },
    }
]
ENTRIES = (
    *("qwen3", "llama-3.1", "mistral-tekken", "deepseek-v3.1", "gemma-3", "gpt-oss", "chatml"),
    *("gemma-2", "idefics3", "command-r"),
)
ASK = {"role": "user", "content": "When is high water?"}
RULES = {"role": "system", "content": "Be brief."}


def call(arguments: Any, content: Any = None, **fields: Any) -> dict[str, Any]:
    function = {"name": "tide", "arguments": arguments}
    calls = [{"id": "abcdefgh1", "type": "function", "function": function}]
    return {"role": "assistant", "content": content, "tool_calls": calls, **fields}


def calls(*ids: str) -> dict[str, Any]:
    function = {"name": "tide", "arguments": '{"harbour": "Brest"}'}
    made = [{"id": id, "type": "function", "function": {**function}} for id in ids]
    return {"role": "assistant", "content": None, "tool_calls": made}


def results(*ids: str) -> list[dict[str, Any]]:
    return [{"role": "tool", "tool_call_id": id, "content": f"of {id}"} for id in ids]


def parts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


RESULT = {"role": "tool", "tool_call_id": "abcdefgh1", "content": "12:10"}
NESTED = {"harbour": "Brest", "days": [1, 2.5, None], "deep": {"a": "b"}}
REPLY = {"role": "assistant", "content": "At noon."}
NULLS = dict.fromkeys(["refusal", "audio", "function_call", "name", "annotations"])
STREAMED = {**call("{}")["tool_calls"][0], "index": 0}
THOUGHT = {"type": "thinking", "thinking": "Hm"}
USED = {"type": "tool_use", "id": "t1", "name": "tide", "input": {"harbour": "Brest"}}
ANSWERED = {"type": "tool_result", "tool_use_id": "t1", "content": "12:10"}
CHATS: dict[str, list[dict[str, Any]]] = {
    "calls": [RULES, ASK, call({"harbour": "Brest"}, ""), RESULT],
    "nested arguments": [ASK, call(NESTED, "Wait."), RESULT],
    "JSON text": [ASK, call(json.dumps(NESTED)), RESULT, ASK],
    "infinite number": [ASK, call('{"x": 1e999}'), RESULT],
    "deep JSON text": [ASK, call('{"x": ' + "[" * 450 + "]" * 450 + "}"), RESULT],
    "blank arguments": [ASK, call(" "), RESULT],
    "null argument": [ASK, call({"harbour": None}), RESULT],
    "parts": [{**RULES, "content": parts("Be", "brief.")}, {**ASK, "content": parts("Hi", "you")}],
    "no parts": [{**ASK, "content": []}],
    "reasoning": [ASK, {"role": "assistant", "content": "12", "reasoning_content": "Hm"}, ASK],
    "reasoning and parts": [ASK, {**call("{}", parts("So")), "reasoning": "Hm"}, RESULT],
    "results in parts": [ASK, call({}, ""), {**RESULT, "content": parts("12:10")}],
    "late system": [RULES, ASK, call({}, ""), RESULT, RULES, ASK],
    "two systems": [RULES, {**RULES, "content": "In French."}, ASK],
    "null without calls": [ASK, {"role": "assistant", "content": None}, ASK],
    "developer": [{**RULES, "role": "developer"}, ASK],
    "late developer": [RULES, ASK, REPLY, {**RULES, "role": "developer"}, ASK],
    "null keys": [{**ASK, **NULLS}, {**call("{}"), **NULLS}, {**RESULT, "name": None}, ASK],
    "no calls": [ASK, {**REPLY, "tool_calls": []}, ASK],
    "long ids": [ASK, calls("call_0123456789"), *results("call_0123456789"), ASK],
    "short ids": [ASK, calls("é", "7"), *results("é", "7"), ASK],
    "streamed call": [ASK, {**call("{}"), "tool_calls": [STREAMED]}, RESULT],
    "a call without a type": [
        ASK,
        {**call("{}"), "tool_calls": [{**STREAMED, "type": None}]},
        RESULT,
    ],
    "arguments that are no object": [ASK, call("[1]"), RESULT, ASK],
    "arguments that are no JSON": [ASK, call('{"a": '), RESULT, ASK],
    "arguments with spaces": [ASK, call(' {"a": 2} '), RESULT, ASK],
    "arguments with NaN": [ASK, call('{"a": NaN}'), RESULT, ASK],
    "arguments of null": [ASK, call(None), RESULT, ASK],
    "several calls": [ASK, calls("a", "b"), *results("a", "b"), REPLY, ASK],
    "results out of order": [ASK, calls("a", "b"), *results("b", "a"), REPLY, ASK],
    "results that are missing": [ASK, calls("a", "b"), *results("a"), REPLY, ASK],
    "results so far": [ASK, calls("a", "b"), *results("a")],
    "a stray result": [ASK, calls("a"), *results("z"), REPLY, ASK],
    "two results": [ASK, calls("a"), *results("a", "a"), REPLY, ASK],
    "a named result": [ASK, call("{}"), {**RESULT, "name": "tide"}, ASK],
    "a function's result": [ASK, call("{}"), {**RESULT, "role": "function"}, ASK],
    "data": [ASK, call("{}"), {**RESULT, "content": {"time": "12:10"}}, ASK],
    "a number": [ASK, call("{}"), {**RESULT, "content": 5}, ASK],
    "a number of a user": [{**ASK, "content": 5}],
    "a part": [{**ASK, "content": parts("Hi")[0]}],
    "an empty mapping": [{**ASK, "content": {}}],
    "other parts": [{**ASK, "content": ["Hi", {"type": "input_text", "text": "you"}]}],
    "a cached part": [{**ASK, "content": [{**parts("Hi")[0], "cache_control": {"type": "e"}}]}],
    "an image": [{**ASK, "content": [*parts("Hi"), {"type": "image_url", "image_url": {}}]}],
    "thinking parts": [ASK, {**REPLY, "content": [THOUGHT, *parts("So")]}, ASK],
    "reasoning twice": [ASK, {**REPLY, "reasoning": "Hm", "thinking": "Oh"}, ASK],
    "reasoning under two keys": [ASK, {**REPLY, "reasoning_content": "Hm", "thinking": "Hm"}, ASK],
    "late system and reasoning": [ASK, {**REPLY, "reasoning": "Hm"}, RULES, ASK, REPLY, ASK],
    "a refusal": [ASK, {"role": "assistant", "content": None, "refusal": "No."}, ASK],
    "more keys": [ASK, {**REPLY, "metadata": {"a": [1, None]}, "weight": 0.5}, ASK],
    "a key that is no text": [{**ASK, 1: None, "name": None}, REPLY, ASK],  # type: ignore[dict-item]
    "a misspelt role": [{**ASK, "role": "usr"}, REPLY, ASK],
    "no role": [{"content": "Hi"}, REPLY, ASK],
    "Anthropic": [ASK, {"role": "assistant", "content": [USED]}, {**ASK, "content": [ANSWERED]}],
}


def describe(template: turnwise.Template, chat: list[Any], tools: Any) -> Any:
    """Return all that a caller sees of a conversation, normalised and rendered."""
    try:
        given = turnwise.Normaliser(template).normalise(chat, tools)
        rendering = template.render(chat, tools=tools)
    except turnwise.TurnwiseError as error:
        return str(error)
    normalised = given._replace(read=None)
    return normalised, rendering.text, rendering.changes, rendering.warnings, rendering.pieces


def add_all_unusual(self: Any, messages: Sequence[Any]) -> Any:
    """What `_Conversation.add_all` does, without a fast path."""
    foreign = read_foreign(messages)
    for index, message in enumerate(() if foreign else messages, self._first):
        self.chat.append(self._read_unusual(message, index))
    return foreign


def mix_chat(seed: int) -> list[dict[str, Any]]:
    """Return a conversation of messages from all of the others."""
    dice = random.Random(seed)
    chats = dice.sample(list(CHATS.values()), 3)
    return [message for chat in chats for message in chat if dice.random() < 0.9]


MIXED = [mix_chat(seed) for seed in range(60)]


@pytest.mark.law(3)
@pytest.mark.filterwarnings("ignore::turnwise.TurnwiseWarning")
@pytest.mark.parametrize("entry", ENTRIES)
def test_the_usual_way_ends_where_the_long_way_does(
    entry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for chat in (*CHATS.values(), *MIXED):
        for tools in (None, TOOLS):
            found = describe(load_entry(entry), chat, tools)
            with monkeypatch.context() as patched:
                patched.setattr(_Conversation, "add_all", add_all_unusual)
                assert found == describe(load_entry(entry), chat, tools), chat


@pytest.mark.law(2)
@pytest.mark.parametrize("policy", [None, "front"])
@pytest.mark.parametrize("entry", ENTRIES)
def test_messages_that_were_read_are_read_on_as_if_all_were_new(entry: str, policy: Any) -> None:
    normaliser, grown = turnwise.Normaliser(load_entry(entry)), 0
    for chat in (*CHATS.values(), *MIXED):
        for end in range(1, len(chat)):
            try:
                start = normaliser.normalise(chat[:end], TOOLS, late_system=policy).read
                found = normaliser.normalise(chat, TOOLS, late_system=policy)
            except turnwise.TurnwiseError:
                break
            if start is not None and start.reading is not None:
                grown += 1
                longer = normaliser.normalise(chat, TOOLS, late_system=policy, earlier=start)
                assert longer._replace(read=None) == found._replace(read=None), chat
                reads = [one.read and one.read._replace(reading=None) for one in (longer, found)]
                assert reads[0] == reads[1], chat
    assert grown > 100


def test_a_template_may_take_no_content_beside_calls() -> None:
    chat = [ASK, call({"harbour": "Brest"}, None), RESULT]
    rendering = load_entry("lfm2.5-vl").render(chat, tools=TOOLS)
    assert "Brest" in rendering.text and not rendering.warnings


@pytest.mark.parametrize("entry", ["qwen3", "qwen3-coder", "gpt-oss", "glm-4.5", "kimi-k2"])
def test_no_program_runs_to_find_losses(entry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools and arguments that are written field by field are known to be written."""
    template, runs = load_entry(entry), []
    chat = [ASK, call({"harbour": "Brest"}, ""), RESULT] if entry != "gpt-oss" else [ASK]
    for _ in range(4):
        template.render(chat, tools=TOOLS)
    run = Program.run
    monkeypatch.setattr(Program, "run", lambda *given: runs.append(given) or run(*given))
    assert not template.render(chat, tools=TOOLS).warnings
    assert not runs


@pytest.mark.parametrize("verb", ["render", "encode"])
def test_a_function_that_is_not_written_is_reported(verb: str) -> None:
    def tide(harbour: str) -> str:
        """Return when high water is.

        Args:
            harbour: the harbour.
        """
        return harbour

    template, more = load_entry("chatml"), ["turnwise"] if verb == "encode" else []
    with pytest.warns(turnwise.TurnwiseWarning, match="nothing of tools"):
        getattr(template, verb)([ASK], *more, tools=[tide])


# -- the path


def holds(value: Any, chat: list[dict[str, Any]]) -> bool:
    """Whether a value is a conversation, as it was given or copied, or an object that has one."""
    for name in ("messages", "chat", "given"):
        value = getattr(value, name, value)
    return isinstance(value, list) and len(value) == len(chat) and value[-1] == chat[-1]


def find_longest_path(verb: Callable[[], Any], chat: list[dict[str, Any]]) -> list[str]:
    """Return the functions of the package that hand a conversation on, one to the next, on the longest way."""
    waiting: list[FrameType] = []
    longest: list[str] = []

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "return" and waiting and waiting[-1] is frame:
            waiting.pop()
        if event != "call" or "turnwise" not in code.co_filename:
            return
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if any(holds(frame.f_locals.get(name), chat) for name in names):
            waiting.append(frame)
            if len(waiting) > len(longest):
                longest[:] = [one.f_code.co_qualname for one in waiting]

    sys.setprofile(profile)
    try:
        verb()
    finally:
        sys.setprofile(None)
    return longest


@pytest.mark.parametrize("tools", [None, TOOLS])
def test_few_functions_hand_a_conversation_on(tools: Any) -> None:
    template = load_entry("qwen3").with_limits(turnwise.Limits())  # it has learnt nothing else
    chat = [RULES, ASK] if tools is None else [ASK, call({"harbour": "Brest"}, ""), RESULT]
    verbs: dict[int, Callable[[], Any]] = {
        6: lambda: template.render(chat, tools=tools),
        8: lambda: template.encode(chat, "turnwise", tools=tools),
    }
    for bound, verb in verbs.items():
        for _ in range(4):
            verb()
        path = find_longest_path(verb, chat)
        assert 3 <= len(path) <= bound, path
