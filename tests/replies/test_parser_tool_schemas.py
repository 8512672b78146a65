"""What a tool says of its parameters decides what a text becomes, wherever in its schema it is said.

Each case is a schema and what `1` becomes for the parameter `x`: the text where a string is declared, else the number.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

import turnwise
from turnwise.replies.parser.tool_schema import ValueSchema, read_tool_types

TEXT, COUNT = {"type": "string"}, {"type": "integer"}
X = {"type": "object", "properties": {"x": TEXT}}
CHAIN = {f"D{n}": {"$ref": f"#/$defs/D{n + 1}"} for n in range(40)} | {"D40": TEXT}
ROUND = {"A": {"$ref": "#/$defs/B"}, "B": {"allOf": [{"$ref": "#/$defs/A"}, X]}}
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


def read(tool: dict[str, Any], text: str = "1") -> Any:
    reply = f"<call=f><arg=x>{text}</arg></call><|end|>"
    message = turnwise.compile(TEMPLATE, dialect="jinja").parse(reply, tools=[tool])
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
    assert ValueSchema([deep]).types == {"integer"}
    wide = {
        "$defs": {
            str(n): {"anyOf": [{"$ref": f"#/$defs/{m}"} for m in range(60)]} for n in range(60)
        }
    }
    tool = {
        "name": "f",
        "parameters": {**wide, "properties": {str(n): {"$ref": f"#/$defs/{n}"} for n in range(60)}},
    }
    schema = read_tool_types([tool])["f"]
    assert {schema.member(name).types for name in schema.names} == {frozenset()}


# The name of a type, a text, and what it becomes.
NAMES: list[tuple[Any, str, Any]] = [
    ("float", "2.5", 2.5),
    ("double", "2", 2),
    ("int", "7", 7),
    ("int64", "7", 7),
    ("uint", "x", "x"),
    ("bool", "True", True),
    ("list", "['a', None]", ["a", None]),
    ("dict", "{'a': True}", {"a": True}),
    ("str", "7", "7"),
    ("Text", "true", "true"),
    ("NoneType", "None", None),
    ("any", "7", 7),
    ("Port", "7", 7),
    ("string[]", '["a"]', ["a"]),
    ("list[int]", "[1, 2]", [1, 2]),
    ("Dict[str, List[int]]", '{"a": [1]}', {"a": [1]}),
    ("typing.Optional[int]", "null", None),
    ("int?", "null", None),
    ("Union[int, str]", "x", "x"),
    ("Union[int, str]", "7", 7),
    ("int | None", "None", None),
    ("array<string>", "[", "["),
    (["string", "null"], "null", None),
    (["integer", "string"], "null", "null"),
    ("integer", "null", None),
    ("string", "null", "null"),
    ("|[<", "7", 7),
]


@pytest.mark.parametrize(("type", "text", "expected"), NAMES)
def test_types_have_aliases(type: Any, text: str, expected: Any) -> None:
    schema = {"properties": {"x": {"type": type}}}
    assert read({"name": "f", "parameters": schema}, text) == expected


UNIONS: list[tuple[Any, str, Any]] = [
    ({"anyOf": [COUNT, {"type": "null"}]}, "null", None),
    ({"anyOf": [TEXT, {"type": "null"}]}, "null", None),
    ({"anyOf": [TEXT, {"type": "null"}]}, "7", "7"),
    ({"oneOf": [COUNT, TEXT]}, "seven", "seven"),
    ({"oneOf": [COUNT, {"type": "array"}]}, "[1]", [1]),
    ({"type": "integer", "nullable": True}, "null", None),
    ({"enum": ["1", "2"]}, "1", "1"),
    ({"const": 1}, "1", 1),
]


@pytest.mark.parametrize(("schema", "text", "expected"), UNIONS)
def test_unions(schema: Any, text: str, expected: Any) -> None:
    tool = {"name": "f", "parameters": {"properties": {"x": schema}}}
    assert read(tool, text) == expected


NODE = {
    "type": "object",
    "properties": {
        "label": TEXT,
        "size": COUNT,
        "tags": {"type": "array", "items": TEXT},
        "next": {"$ref": "#/$defs/Node"},
    },
}
TREE = {"properties": {"x": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": NODE}}
QUOTED = (
    "{% macro w(v) %}{% if v is string %}<q>{{ v }}<q>{% elif v is mapping %}{{ '{' }}"
    "{% for k, o in v | items %}{{ k }}:{{ w(o) }}{{ ',' if not loop.last }}{% endfor %}{{ '}' }}"
    "{% elif v is iterable %}[{% for o in v %}{{ w(o) }}{{ ',' if not loop.last }}{% endfor %}]"
    "{% else %}{{ v | tojson }}{% endif %}{% endmacro %}"
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% for c in m.tool_calls or [] %}"
    "<call>{{ c.function.name }}{{ w(c.function.arguments) }}</call>{% endfor %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def test_values_within_values_have_types() -> None:
    """A bare word within a value is a text where its schema says so, however deep, and a schema may hold itself."""
    tool = {"name": "f", "parameters": TREE}
    reply = (
        "<call>f{x:{label:7,size:7,tags:[1,true],next:{label:null,size:8,note:9}}}</call><|end|>"
    )
    message = turnwise.compile(QUOTED, dialect="jinja").parse(reply, tools=[tool])
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {
        "x": {
            "label": "7",
            "size": 7,
            "tags": ["1", "true"],
            "next": {"label": "null", "size": 8, "note": 9},
        }
    }


def test_elements_have_types() -> None:
    tool = {"name": "f", "parameters": TREE}
    template = (
        "{% macro w(v) %}{% if v is mapping %}{% for k, o in v | items %}<{{ k }}>{{ w(o) }}</{{ k }}>{% endfor %}"
        "{% elif v is iterable and v is not string %}{% for o in v %}<item>{{ w(o) }}</item>{% endfor %}"
        "{% else %}{{ v if v is string else v | tojson }}{% endif %}{% endmacro %}"
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% for c in m.tool_calls or [] %}"
        '<invoke name="{{ c.function.name }}">{{ w(c.function.arguments) }}</invoke>{% endfor %}<|end|>'
        "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    inside = (
        "<label>7</label><size>7</size><tags><item>1</item></tags><next><label>8</label></next>"
    )
    reply = f'<invoke name="f"><x>{inside}</x></invoke><|end|>'
    message = turnwise.compile(template, dialect="jinja").parse(reply, tools=[tool])
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {
        "x": {"label": "7", "size": 7, "tags": ["1"], "next": {"label": "8"}}
    }
