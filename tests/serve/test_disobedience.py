"""Engines that ignore the grammar: no reply that breaks a forced call or a format is passed on as if it obeyed.

Replies are made by damage to good ones, and jsonschema decides which of them break their schema.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import jsonschema
import pytest

from gateway_streams import gateway
from scripted_upstream import ScriptedUpstream
from sdk_requests import ASKED
from served import QUIET

pytestmark = QUIET

COUNT = 360
END = "<|im_end|>"
THOUGHT = "<think>\nHm.\n</think>\n\n"
PORT = {"type": "string"}
DAY = {"type": "integer", "minimum": 1, "maximum": 31}


def closed(**properties: Any) -> dict[str, Any]:
    required = list(properties)[:1]
    made = {"type": "object", "properties": properties, "required": required}
    return {**made, "additionalProperties": False}


# Schemas, and a value that fits each.
SCHEMAS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (closed(port=PORT), {"port": "A"}),
    (closed(port=PORT, day=DAY), {"port": "A", "day": 3}),
    (closed(unit={"enum": ["m", "ft"]}), {"unit": "m"}),
    (closed(days={"type": "array", "items": DAY, "maxItems": 2}), {"days": [1, 2]}),
    (closed(low={"type": "boolean"}, at=closed(port=PORT)), {"low": True, "at": {"port": "A"}}),
    (closed(near={"anyOf": [PORT, {"type": "null"}]}, n={"type": "number"}), {"near": None, "n": 1.5}),
]  # fmt: skip
OTHER_VALUES = ("A", 5, 1.5, True, None, [], {}, ["A"], {"x": 1}, "", -1, 99, "yard")
WORDS = ("Yes, it is low.", "", "null", "```json\n{}\n```", "I cannot say {port}.")


class Case(NamedTuple):
    """A reply that disobeys.

    Attributes:
        way: what is asked for: "schema", "object", "any", "named", "strict" or "single".
        schema: of the content, or of the arguments.
        reply: what the engine writes.
        api: the path of the request.
        streams: whether a stream is asked for.
    """

    way: str
    schema: dict[str, Any]
    reply: str
    api: str
    streams: bool


def damage(chance: random.Random, value: Any) -> Any:
    """Return a value with one thing changed, added or left out, at any depth."""
    if isinstance(value, dict) and value and chance.random() < 0.75:
        key = chance.choice(list(value))
        way = chance.randrange(4)
        if way == 0:
            return {name: item for name, item in value.items() if name != key}
        if way == 1:
            return {**value, "more": chance.choice(OTHER_VALUES)}
        return {**value, key: damage(chance, value[key])}
    if isinstance(value, list) and chance.random() < 0.7:
        return [*value, chance.choice(OTHER_VALUES)]
    return chance.choice(OTHER_VALUES)


def is_valid(text: str, schema: dict[str, Any]) -> bool:
    try:
        jsonschema.validate(json.loads(text), schema)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


def break_json(chance: random.Random, text: str) -> str:
    """Return a text of JSON cut short, or with something around it."""
    ways = (text[: chance.randrange(len(text))], f"{text} indeed", f"Here: {text}", text + text)
    return chance.choice(ways)


def write_call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def make_content(chance: random.Random, way: str, schema: Any, good: Any) -> str:
    """Return content that does not fit."""
    text = json.dumps(damage(chance, good) if way == "schema" else chance.choice(OTHER_VALUES))
    if chance.random() < 0.3:
        text = chance.choice(WORDS) if chance.random() < 0.5 else break_json(chance, text)
    return text


def make_calls(chance: random.Random, way: str, schema: Any, good: Any) -> str:
    """Return calls that are not those that were asked for."""
    fits = json.dumps(good)
    if way == "single":
        return "\n".join([write_call("tide", fits)] * chance.randrange(2, 4))
    if way in ("any", "named") and chance.random() < 0.4:
        others = [*WORDS, write_call("sail", fits), f"The call is {fits}"]
        if way == "named":
            others.append(write_call("now", "{}"))
        return chance.choice(others)
    broken = write_call("tide", json.dumps(damage(chance, good)))
    return f"{write_call('tide', fits)}\n{broken}" if chance.random() < 0.3 else broken


@cache
def make_cases() -> list[Case]:
    chance = random.Random(11)
    cases = list(_list_cases(chance))
    assert len({(case.way, case.reply, case.api, case.streams) for case in cases}) > 300
    return cases


def _list_cases(chance: random.Random) -> Iterator[Case]:
    apis = ("/v1/chat/completions", "/v1/messages", "/v1/responses")
    made = 0
    while made < COUNT:
        schema, good = chance.choice(SCHEMAS)
        way = ("schema", "object", "any", "named", "strict", "single")[made % 6]
        api = apis[made // 6 % 3]
        if way == "object" and api == "/v1/messages":  # which has no such format
            way = "schema"
        if way in ("schema", "object"):
            reply = make_content(chance, way, schema, good)
            if is_valid(reply, schema if way == "schema" else {"type": "object"}):
                continue
        else:
            reply = make_calls(chance, way, schema, good)
            sent = [one.partition('"arguments": ')[2] for one in reply.split("<tool_call>")[1:]]
            fits = [is_valid(one.rpartition("}\n</tool_call>")[0], schema) for one in sent]
            if way != "single" and fits and all(fits) and "sail" not in reply:
                continue
        thought = THOUGHT if chance.random() < 0.5 else ""
        yield Case(way, schema, thought + reply + END, api, chance.random() < 0.5)
        made += 1


def make_body(case: Case) -> dict[str, Any]:
    """Return the request of a case, in the words of its API."""
    if case.way in ("schema", "object"):
        return _make_format(case)
    strict = {"strict": True} if case.way == "strict" else {}
    tools = [("tide", case.schema, strict), ("now", closed(), {})]
    is_forced, is_named = case.way in ("any", "named"), case.way == "named"
    if case.api == "/v1/messages":
        choice: dict[str, Any] = {"type": "tool" if is_named else "any" if is_forced else "auto"}
        if is_named:
            choice["name"] = "tide"
        if case.way == "single":
            choice["disable_parallel_tool_use"] = True
        made = [{"name": name, "input_schema": schema, **more} for name, schema, more in tools]
        return {"messages": ASKED, "max_tokens": 99, "tools": made, "tool_choice": choice}
    single = {"parallel_tool_calls": False} if case.way == "single" else {}
    named: Any = "required" if is_forced else "auto"
    if case.api == "/v1/responses":
        made = [
            {"type": "function", "name": name, "parameters": schema, **more}
            for name, schema, more in tools
        ]
        named = {"type": "function", "name": "tide"} if is_named else named
        return {"input": ASKED, "tools": made, "tool_choice": named, **single}
    functions = [{"name": name, "parameters": schema, **more} for name, schema, more in tools]
    made = [{"type": "function", "function": one} for one in functions]
    named = {"type": "function", "function": {"name": "tide"}} if is_named else named
    return {"messages": ASKED, "tools": made, "tool_choice": named, **single}


def _make_format(case: Case) -> dict[str, Any]:
    flat = {"type": "json_object"}
    if case.way == "schema":
        flat = {"type": "json_schema", "name": "a", "schema": case.schema}  # type: ignore[dict-item]
    if case.api == "/v1/messages":
        return {"messages": ASKED, "max_tokens": 99, "output_config": {"format": flat}}
    if case.api == "/v1/responses":
        return {"input": ASKED, "text": {"format": flat}}
    deep = {"type": "json_schema", "json_schema": flat} if case.way == "schema" else flat
    return {"messages": ASKED, "response_format": deep}


FINISHED = ('"finish_reason": "stop"', '"finish_reason": "tool_calls"', "message_stop", "completed")


@pytest.fixture(scope="module")
def engine() -> ScriptedUpstream:
    return ScriptedUpstream("generate")


@pytest.fixture(scope="module")
def client(engine: ScriptedUpstream) -> Iterator[Any]:
    with gateway(engine) as client:
        yield client


@pytest.mark.law
@pytest.mark.parametrize("number", range(COUNT))
def test_a_disobedient_reply_is_an_error(
    number: int, client: Any, engine: ScriptedUpstream
) -> None:
    case = make_cases()[number]
    engine.replies = [case.reply]
    answer = client.post(case.api, json={**make_body(case), "stream": case.streams})
    if not case.streams:
        assert answer.status_code == 502, (case, answer.text)
        return
    if answer.status_code != 200:
        assert answer.status_code == 502, (case, answer.text)
        return
    *_, last = [line for line in answer.text.splitlines() if line.startswith("data: ")]
    assert '"error"' in last, (case, last)
    assert not any(word in last for word in FINISHED)


@pytest.mark.law(2)
@pytest.mark.parametrize("number", range(len(SCHEMAS)))
def test_a_reply_that_obeys_is_passed_on(
    number: int, client: Any, engine: ScriptedUpstream
) -> None:
    schema, good = SCHEMAS[number]
    for case in make_cases():
        if case.schema == schema and case.way != "single":
            text = json.dumps(good)
            is_format = case.way in ("schema", "object")
            engine.replies = [(text if is_format else write_call("tide", text)) + END]
            answer = client.post(case.api, json=make_body(case))
            assert answer.status_code == 200, answer.text
