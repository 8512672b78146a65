"""What a tool says of its parameters decides what a text becomes, wherever in its schema it is said.

Each case is a schema and what `1` becomes for the parameter `x`: the text where a string is declared, else the number.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

import turnwise
from turnwise.replies.parser.tool_schema import read_tool_types, schema_types

TEXT, COUNT = {"type": "string"}, {"type": "integer"}
X = {"type": "object", "properties": {"x": TEXT}}
CHAIN = {f"D{n}": {"$ref": f"#/$defs/D{n + 1}"} for n in range(40)} | {"D40": TEXT}
ROUND = {"A": {"$ref": "#/$defs/B"}, "B": {"allOf": [{"$ref": "#/$defs/A"}, X]}}
REPLY = "<call=f><arg=x>1</arg></call><|end|>"
TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% for c in m.tool_calls or [] %}"
    "<call={{ c.function.name }}>{% for k, v in c.function.arguments | items %}<arg={{ k }}>"
    "{{ v if v is string else v | tojson }}</arg>{% endfor %}</call>{% endfor %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
CASES: dict[str, tuple[Any, Any]] = {
    "at the root": (X, "1"),
    "the root is a reference": ({"$ref": "#/$defs/B", "$defs": {"B": X}}, "1"),
    "the root is a reference to itself": ({"$ref": "#", "properties": {"x": TEXT}}, "1"),
    "the root is made of several": ({"allOf": [{"properties": {"y": COUNT}}, X]}, "1"),
    "of references": ({"allOf": [{"$ref": "#/$defs/B"}], "$defs": {"B": X}}, "1"),
    "one of several": ({"anyOf": [X, {"properties": {"x": {"type": "null"}}}]}, "1"),
    "a round of references": ({"$ref": "#/$defs/A", "$defs": ROUND}, "1"),
    "a round and nothing else": ({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}, 1),
    "a chain of forty": ({"properties": {"x": {"$ref": "#/$defs/D0"}}, "$defs": CHAIN}, "1"),
    "a place in a list": ({"properties": {"x": {"$ref": "#/anyOf/0"}}, "anyOf": [TEXT]}, "1"),
    "any other key is a text": ({"properties": {"y": COUNT}, "additionalProperties": TEXT}, "1"),
    "every key is a text": ({"additionalProperties": TEXT}, "1"),
    "any other key by reference": (
        {"additionalProperties": {"$ref": "#/$defs/T"}, "$defs": {"T": TEXT}},
        "1",
    ),
    "a key that is named is not another": (
        {"properties": {"x": COUNT}, "additionalProperties": TEXT},
        1,
    ),
    "other keys are allowed": ({"properties": {"y": TEXT}, "additionalProperties": True}, 1),
    "no schema": (None, 1),
    "no schema at all": ({"properties": [], "allOf": 5, "$ref": 7, "additionalProperties": []}, 1),
}


def read(tool: dict[str, Any]) -> Any:
    message = turnwise.compile(TEMPLATE, dialect="jinja").parse(REPLY, tools=[tool])
    return json.loads(message["tool_calls"][0]["function"]["arguments"])["x"]


@pytest.mark.parametrize("name", CASES)
def test_a_schema_is_read_wherever_it_stands(name: str) -> None:
    schema, expected = CASES[name]
    shapes = (
        {"type": "function", "function": {"name": "f", "parameters": schema}},
        {"name": "f", "parameters": schema},
        {"name": "f", "description": "d", "input_schema": schema},
    )
    assert [read(shape) for shape in shapes] == [expected] * 3


def test_schemas_without_end_end() -> None:
    deep: Any = TEXT
    for _ in range(100_000):
        deep = {"anyOf": [deep, COUNT]}
    assert schema_types(deep) == {"integer"}
    wide = {
        "$defs": {
            str(n): {"anyOf": [{"$ref": f"#/$defs/{m}"} for m in range(60)]} for n in range(60)
        }
    }
    tool = {
        "name": "f",
        "parameters": {**wide, "properties": {str(n): {"$ref": f"#/$defs/{n}"} for n in range(60)}},
    }
    assert set(read_tool_types([tool])["f"].named.values()) == {frozenset()}
