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
    {"type": "string", "enum": ["a", "ab", "abc"], "minLength": 2},
    {"enum": [0, 1, 7, "a", "ab", True], "minimum": 1, "pattern": "b$"},
    {"enum": [1, 7], "const": 7},
    {"type": "string", "pattern": "^[a-c]+$"},
    {"type": "string", "pattern": "^a*[bc]*a*b*$"},
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
        ('{"v": NaN}', "not JSON"),
        ('{"v": [-Infinity]}', "not JSON"),
        ('{"v": {"w": 1, "w": 1}}', "the member 'w' twice"),
        ("{}", "'v' is missing"),
        ('{"v": "a", "w": 1}', "no member 'w'"),
        ('{"v": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
    ],
)
def test_what_is_wrong_is_reported(arguments: str, problem: str) -> None:
    parameters = {"type": "object", "properties": {"v": {}}, "required": ["v"]}
    (tool,) = read_signatures([{"name": "t", "parameters": parameters}])
    assert problem in str(find_misfit(arguments, tool))


@pytest.mark.parametrize(
    ("schema", "value", "longer"),
    [
        ({"type": "string", "maxLength": 2000}, "a" * 2000, "a" * 2001),
        ({"type": "array", "maxItems": 2000}, [1] * 2000, [1] * 2001),
    ],
    ids=["string", "array"],
)
def test_bounds_that_no_grammar_writes_out_are_checked(
    schema: dict[str, Any], value: Any, longer: Any
) -> None:
    assert misfit_of(schema, value) is None
    assert "length" in str(misfit_of(schema, longer))


@pytest.mark.parametrize("pattern", ["^[a-z]+$", "^(ab)+$", "b", "^[^!]*$", "^a.*b$"])
def test_long_texts_are_decided(pattern: str) -> None:
    schema = {"type": "string", "pattern": pattern}
    assert misfit_of(schema, "ab" * 50_000) is None
    if pattern.endswith("$"):
        assert "does not match" in str(misfit_of(schema, "ab" * 50_000 + "!"))


def test_what_cannot_be_decided_within_the_budget_does_not_fit() -> None:
    pattern = {"type": "string", "pattern": "^((a?){900}){900}$"}
    assert "too many steps" in str(misfit_of(pattern, "a" * 3000))
    costly = {"type": "string", "pattern": "^((a?){10}){10}$"}
    assert misfit_of(costly, "a" * 60) is None
    listed = {"type": "array", "items": costly}
    assert "too many steps" in str(misfit_of(listed, ["a" * 60] * 500)), "one budget for all"


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
