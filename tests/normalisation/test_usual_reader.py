"""Usual conversations are read in one pass, with the result of the long way; what the path of a conversation is."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

import turnwise
from loaded import load_entry
from turnwise.engine.program import Program
from turnwise.normalisation.usual_reader import UsualReader

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
ENTRIES = ("qwen3", "llama-3.1", "mistral-tekken", "deepseek-v3.1", "gemma-3", "gpt-oss", "chatml")
ASK = {"role": "user", "content": "When is high water?"}
RULES = {"role": "system", "content": "Be brief."}


def call(arguments: Any, content: Any = None, **fields: Any) -> dict[str, Any]:
    function = {"name": "tide", "arguments": arguments}
    calls = [{"id": "abcdefgh1", "type": "function", "function": function}]
    return {"role": "assistant", "content": content, "tool_calls": calls, **fields}


def parts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


RESULT = {"role": "tool", "tool_call_id": "abcdefgh1", "content": "12:10"}
NESTED = {"harbour": "Brest", "days": [1, 2.5, None], "deep": {"a": "b"}}
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
}


def describe(template: turnwise.Template, chat: list[Any], tools: Any) -> Any:
    """Return all that a caller sees of a conversation, normalised and rendered."""
    try:
        given = turnwise.Normaliser(template).normalise(chat, tools)
        rendering = template.render(chat, tools=tools)
    except turnwise.TurnwiseError as error:
        return str(error)
    normalised = (given.messages, given.tools, given.changes, given.positions, given.problems)
    return normalised, rendering.text, rendering.changes, rendering.warnings, rendering.pieces


@pytest.mark.law(3)
@pytest.mark.filterwarnings("ignore::turnwise.TurnwiseWarning")
@pytest.mark.parametrize("entry", ENTRIES)
def test_the_usual_way_ends_where_the_long_way_does(
    entry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, chat in CHATS.items():
        for tools in (None, TOOLS):
            found = describe(load_entry(entry), chat, tools)
            with monkeypatch.context() as patched:
                patched.setattr(UsualReader, "read", lambda self, messages, earlier=None: None)
                assert found == describe(load_entry(entry), chat, tools), name


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
    template = load_entry("qwen3")
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
