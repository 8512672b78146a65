"""Malformed bodies and answers of engines: every one gets a clean answer, never a failure of the server.

Bodies are valid requests in which values were replaced, added or left out; events those of a scripted engine. A failure
names its seed.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from gateway_streams import CHAT, QUESTION, UPSTREAM_KINDS, gateway
from scripted_upstream import ScriptedUpstream
from served import QUIET, TIDE
from turnwise.serve.playground_api import VERBS, call

pytestmark = QUIET

CALL = '<tool_call>\n{"name": "tide", "arguments": {"port": "A"}}\n</tool_call><|im_end|>'
REPLIES = (
    CALL,
    "<think>\nHm.\n</think>\n\nYes.<|im_end|>",
    "漢字 \U0001f600 \u2028 \x85.<|im_end|>",
)
DEEP: Any = 1
for _ in range(70):
    DEEP = [DEEP]
SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"type": "string", "maxLength": 3},
        "b": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]},
        "c": {"type": "array", "items": {"enum": [1, "a"]}, "minItems": 1},
        "d": {"$ref": "#/$defs/x"},
    },
    "required": ["a"],
    "$defs": {"x": {"type": "object"}},
}
ODD: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        2**31,
        2**63,
        10**30,
        1e308,
        -0.0,
        0.5,
        "",
        "x",
        "\x00",
        "\u2028",
    ),
    *("\ud800", "a\udfffb", "required", "auto", "qwen3", "../x", "#", "x" * 5000, "{% for %}"),
    *([], [None], [1], ["x"], [[]], [{}], [True], [-1], [10**20], [0] * 70, [200_000], DEEP),
    *({}, {"a": None}, {"1": "x"}, {"type": 5}, {"type": "function"}, {"function": None}),
    *({"type": "json_schema"}, {"source": 5}, {"type": "string", "pattern": "(("}, {"$ref": "#"}),
)
CALLED = {"id": "c", "type": "function", "function": {"name": "tide", "arguments": "{}"}}
MESSAGES: list[Any] = [
    {"role": "system", "content": "s"},
    {"role": "user", "content": [{"type": "text", "text": "hi"}]},
    {"role": "assistant", "content": None, "reasoning_content": "r", "tool_calls": [CALLED]},
    {"role": "tool", "tool_call_id": "c", "content": "ok"},
]
FORM = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}
CHAT_BODY: dict[str, Any] = {
    **{"model": "qwen3", "messages": MESSAGES, "tools": [TIDE], "tool_choice": "auto"},
    **{"parallel_tool_calls": True, "temperature": 0.5, "top_p": 1, "n": 1, "stop": ["zz"]},
    **{"seed": 1, "max_tokens": 5, "chat_template_kwargs": {"enable_thinking": False}},
    **{"response_format": {"type": "text"}, "logit_bias": {"5": 1}, "stop_token_ids": [3]},
    **{"stream": False, "stream_options": {"include_usage": True}, "documents": []},
    **{"top_k": 1, "min_tokens": 0, "bad_words": ["x"], "reasoning_effort": "low", "\ud800": 1},
}
STRICT = {"name": "t", "strict": True, "parameters": SCHEMA}
BODIES = (
    CHAT_BODY,
    {"messages": QUESTION, "tools": [STRICT]},
    {"messages": QUESTION, "tools": [STRICT], "tool_choice": "required"},
    {"messages": QUESTION, "response_format": FORM},
)
PLAYGROUND_BODY: dict[str, Any] = {
    **{"template": {"source": "{{ messages }}", "dialect": "jinja", "name": "t", "options": {}}},
    **{"messages": MESSAGES, "tools": [TIDE], "documents": [{"text": "b"}], "now": "2025-01-15"},
    **{"options": {"a": 1}, "add_generation_prompt": True, "continue_final_message": False},
    **{"normalise": True, "strict": False, "tokenizer": "turnwise", "train_on": "assistant"},
    **{"reply": "x", "prompt": "y", "chunks": ["a"], "choice": "auto", "to": "xtuner"},
    **{"without": [], "eos_token": "</s>", "bos_token": "<s>", "model": "Qwen/Qwen3-8B"},
}
QUICK_VERBS = [verb for verb in VERBS if verb not in ("check", "diff", "facts")]


def list_places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, (dict, list)) and len(path) < 12:
        for key in value if isinstance(value, dict) else range(len(value)):
            yield (*path, key)
            yield from list_places(value[key], (*path, key))


def spoil(value: Any, chance: random.Random) -> Any:
    """Replace, leave out or add one to three values."""
    value = copy.deepcopy(value)
    for _ in range(chance.choice((1, 1, 2, 3))):
        places = list(list_places(value))
        if not places:
            break
        *path, last = chance.choice(places)
        inside = value
        for key in path:
            inside = inside[key]
        decision = chance.random()
        if decision < 0.75:
            inside[last] = copy.deepcopy(chance.choice(ODD))
        elif decision < 0.9 and isinstance(inside, dict):
            inside[chance.choice(("x", "type", "anyOf", "error"))] = copy.deepcopy(
                chance.choice(ODD)
            )
        else:
            del inside[last]
    return value


def check_error(error: dict[str, Any], context: str) -> None:
    assert "itself failed" not in error["message"] and error["message"], context
    assert error["message"].isprintable() or "\n" in error["message"], context


class Heedless(ScriptedUpstream):
    """An engine that takes every grammar, and follows none."""

    def _events(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        free = {key: value for key, value in body.items() if key not in ("grammar", "json_schema")}
        return super()._events(free)


def send_bodies(kind: str, count: int) -> None:
    with gateway(Heedless(kind, *REPLIES * 20)) as client:
        for seed in range(count):
            chance = random.Random(f"{kind} {seed}")
            body = spoil(chance.choice(BODIES), chance)
            data = json.dumps(body)
            headers = {"content-type": "application/json"}
            answer = client.post(CHAT, content=data, headers=headers)
            context = f"{kind} {seed}: {answer.status_code} {answer.text[:300]} {data[:900]}"
            assert answer.status_code in (200, 404, 422, 502), context
            if answer.status_code != 200:
                check_error(answer.json()["error"], context)


def send_events(kind: str, count: int) -> None:
    chance = random.Random()
    raw = (
        *(b"data: {\n\n", b"data: [DONE]\n\n", b": comment\n\n", b"error:\n\n", b"\xff\xfe\n\n"),
        *(b"data: " + b"[" * 50_000 + b"\n\n", b"data: 5\r\r", b"data: " + b"9" * 5000 + b"\n\n"),
    )

    def edit(events: list[Any]) -> list[Any]:
        place = chance.randrange(len(events))
        decision = chance.random()
        if decision < 0.2:
            return [*events[:place], chance.choice(raw), *events[place:]]
        if decision < 0.3:
            return [*events[:place], *events[place + 1 :]]
        return [*events[:place], spoil(events[place], chance), *events[place + 1 :]]

    upstream = ScriptedUpstream(kind, *REPLIES, edit=edit)
    with gateway(upstream) as client:
        for seed in range(count):
            chance.seed(f"{kind} {seed}")
            upstream.as_text = kind == "text" or (kind != "generate" and chance.random() < 0.5)
            upstream.replies = chance.sample(REPLIES, 2)
            body = {"messages": QUESTION, "tools": [TIDE], "n": chance.choice((1, 1, 2))}
            answer = client.post(CHAT, json={**body, "stream": chance.random() < 0.5})
            context = f"{kind} {seed}: {answer.status_code} {answer.text[-500:]}"
            assert answer.status_code in (200, 502), context
            last = answer.text.rstrip().rpartition("\n\n")[2].removeprefix("data: ")
            if last != "[DONE]" and "error" in json.loads(last):
                check_error(json.loads(last)["error"], context)


def call_playground(count: int) -> None:
    for seed in range(count):
        chance = random.Random(seed)
        verb = chance.choice(QUICK_VERBS)
        body = spoil(PLAYGROUND_BODY, chance)
        answer = call(verb, body)
        text = json.dumps(answer)
        if "error" in answer:
            check_error(answer["error"], f"{seed} {verb}: {text[:300]}")


@pytest.mark.parametrize("kind", UPSTREAM_KINDS)
def test_odd_bodies(kind: str) -> None:
    send_bodies(kind, 60)


@pytest.mark.parametrize("kind", UPSTREAM_KINDS)
def test_odd_events(kind: str) -> None:
    send_events(kind, 40)


def test_odd_calls_of_the_playground() -> None:
    call_playground(80)


@pytest.mark.slow
@pytest.mark.parametrize("kind", UPSTREAM_KINDS)
def test_many_odd_bodies_and_events(kind: str) -> None:
    send_bodies(kind, 600)
    send_events(kind, 300)


@pytest.mark.slow
def test_many_odd_calls_of_the_playground() -> None:
    call_playground(1000)
