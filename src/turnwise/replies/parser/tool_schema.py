"""The types of a tool's parameters, read off its JSON schema.

A schema may declare a parameter anywhere: at its root, behind a `$ref`, in an `anyOf`. All of it is
looked at, each part once and up to a bound, so a schema that refers to itself, or is very wide,
costs no more than that bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

TypeSet = frozenset[str]  # names of JSON types: "string", "integer", ...

STRING_ONLY: TypeSet = frozenset({"string"})
ARRAY_ONLY: TypeSet = frozenset({"array"})
OBJECT_ONLY: TypeSet = frozenset({"object"})
UNDECLARED: TypeSet = frozenset()

_MAX_SCHEMA_PARTS = 256  # that are looked at for one type
_COMBINATORS = ("anyOf", "oneOf", "allOf")
JSON_TYPES: Mapping[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
}


class ParameterTypes(NamedTuple):
    """The types of a tool's parameters, by name; `other` are those of parameters that it does not name."""

    named: Mapping[str, TypeSet]
    other: TypeSet = UNDECLARED


ToolTypes = Mapping[str, ParameterTypes]  # by the name of the tool


def types_at(parameters: ParameterTypes | None, key: str) -> TypeSet:
    """Return the types that are declared for a parameter; empty if none are."""
    if parameters is None:
        return UNDECLARED
    return parameters.named.get(key, parameters.other)


def read_tool_types(tools: Any) -> dict[str, ParameterTypes]:
    """Return the types of all tools' parameters. Whatever is no tool is passed over."""
    types: dict[str, ParameterTypes] = {}
    for tool in tools or ():
        function = tool.get("function", tool) if isinstance(tool, Mapping) else None
        if isinstance(function, Mapping) and isinstance(function.get("name"), str):
            schema = function.get("parameters", function.get("input_schema"))
            types[function["name"]] = _read_parameter_types(schema)
    return types


def _read_parameter_types(schema: Any) -> ParameterTypes:
    named: dict[str, TypeSet] = {}
    other = UNDECLARED
    for part in _walk_schema(schema, schema):
        properties = part.get("properties")
        if isinstance(properties, Mapping):
            for key, value in properties.items():
                known = named.get(str(key), UNDECLARED)
                named[str(key)] = known | schema_types(value, schema)
        other |= schema_types(part.get("additionalProperties"), schema)
    return ParameterTypes(named, other)


def schema_types(schema: Any, root: Any = None) -> TypeSet:
    """Return the types that a schema allows; empty if it does not say. `$ref` points into `root`."""
    types: set[str] = set()
    is_nullable = False
    for part in _walk_schema(schema, root):
        types |= _types_of_part(part)
        is_nullable = is_nullable or part.get("nullable") is True
    if types and is_nullable:
        types.add("null")
    return frozenset(types)


def _types_of_part(part: Mapping[str, Any]) -> set[str]:
    declared = part.get("type")
    candidates = _as_sequence(declared) or [declared]
    types = {name for name in candidates if isinstance(name, str)}
    if types:
        return types
    values = list(_as_sequence(part.get("enum")))
    if "const" in part:
        values.append(part["const"])
    return {JSON_TYPES.get(type(value), "null") for value in values}


def _walk_schema(schema: Any, root: Any) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and all schemas that it is made of, each once."""
    waiting, seen = [schema], set[int]()
    while waiting and len(seen) < _MAX_SCHEMA_PARTS:
        part = waiting.pop()
        if not isinstance(part, Mapping) or id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        for combinator in _COMBINATORS:
            waiting += _as_sequence(part.get(combinator))
        pointer = part.get("$ref")
        if isinstance(pointer, str):
            waiting.append(_resolve_pointer(root, pointer))


def _as_sequence(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else ()


def _resolve_pointer(root: Any, pointer: str) -> Any:
    """Return what a `$ref` points at in its own document; None if it points elsewhere or at nothing."""
    if not pointer.startswith("#"):
        return None
    target = root
    for step in pointer.split("/")[1:]:
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(target, Mapping):
            target = target.get(name)
        else:
            # The elements of a list are named by their numbers.
            numbered = zip(map(str, range(_MAX_SCHEMA_PARTS)), _as_sequence(target), strict=False)
            target = dict(numbered).get(name)
    return target
