"""Arguments of calls against the schemas of tools: the same verdict as jsonschema, and a bounded cost."""

from __future__ import annotations

import json
import time
from typing import Any

import jsonschema
import pytest

from turnwise.replies.export.schema_reader import read_signatures
from turnwise.replies.export.value_check import find_misfit

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 7, 2.0, 1.5, 1e300, "", "a", "ab", "abab", "abc", "漢字"),
    *([], [1], ["a"], [1, "a"], [[1]], [1, 2, 3], {}, {"a": 1}, {"a": "x"}, {"a": {"a": None}}),
    {"a": 1, "b": 2},
)
SCHEMAS: tuple[dict[str, Any], ...] = (
    {},
    {"type": "string"},
    {"type": "string", "minLength": 1, "maxLength": 2},
    {"type": "string", "pattern": "^(ab)+$"},
    {"type": "string", "pattern": "^(a|b){1,2}$"},
    {"type": "string", "pattern": "^a?b*a"},
    {"type": "integer"},
    {"type": "number", "minimum": 1, "exclusiveMaximum": 7},
    {"type": "integer", "exclusiveMinimum": 0, "maximum": 1},
    {"type": ["string", "null"]},
    {"type": "boolean"},
    {"enum": [1, "a", None, [1]]},
    {"const": {"a": 1}},
    {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]},
    {"type": "array", "minItems": 1, "maxItems": 2},
    {"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "string"}},
    {"type": "array", "prefixItems": [{"type": "integer"}], "items": False},
    {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False},
    {"type": "object", "required": ["a"], "additionalProperties": {"type": "integer"}},
    {
        "type": "object",
        "properties": {"a": {"$ref": "#/properties/v"}},
        "additionalProperties": True,
    },
)


def misfit_of(schema: dict[str, Any], value: Any) -> str | None:
    parameters = {"type": "object", "properties": {"v": schema}, "required": ["v"]}
    (tool,) = read_signatures([{"name": "t", "parameters": parameters}])
    return find_misfit(json.dumps({"v": value}), tool)


@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
def test_the_verdict_is_that_of_jsonschema(schema: dict[str, Any]) -> None:
    root = {"type": "object", "properties": {"v": schema}, "required": ["v"]}
    verdicts = set()
    for value in VALUES:
        fits = jsonschema.Draft202012Validator(root).is_valid({"v": value})
        misfit = misfit_of(schema, value)
        assert (misfit is None) == fits, (value, misfit)
        assert misfit is None or misfit.startswith("arguments.v")
        verdicts.add(fits)
    assert len(verdicts) == 2 or not schema, "a schema that nothing breaks tests nothing"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("{", "not JSON"),
        ("5", "arguments: an object is needed, not 5"),
        ("{}", "'v' is missing"),
        ('{"v": "a", "w": 1}', "no member 'w'"),
        ('{"v": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
    ],
)
def test_what_is_wrong_is_told(arguments: str, problem: str) -> None:
    parameters = {"type": "object", "properties": {"v": {}}, "required": ["v"]}
    (tool,) = read_signatures([{"name": "t", "parameters": parameters}])
    assert problem in str(find_misfit(arguments, tool))


def test_hostile_schemas_cost_little() -> None:
    start = time.process_time()
    text = "a" * 3000 + "!"
    for pattern in ("^(a+)+$", "^((a?){900}){900}$", "^(a|a|aa)*$", "(a*)*b"):
        misfit_of({"type": "string", "pattern": pattern}, text)
    tree = {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}, {"type": "null"}]}
    part = {"type": "object", "properties": {"x": tree, "y": tree}, "additionalProperties": False}
    definitions = {"a": part, "b": {**part, "required": ["x"]}}
    value: Any = 5
    for _ in range(60):
        value = {"x": value}
    root = {"type": "object", "properties": {"v": tree}, "$defs": definitions}
    (tool,) = read_signatures([{"name": "t", "parameters": root}])
    assert find_misfit(json.dumps({"v": value}), tool) is not None
    assert time.process_time() - start < 5
