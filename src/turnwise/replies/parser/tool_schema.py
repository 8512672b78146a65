"""What a tool's JSON schema declares of its parameters, and of the values within them.

A schema may declare a value anywhere: at its root, after a `$ref`, in an `anyOf`. All of it is
looked at, each part once and up to a bound, so a schema that refers to itself, or is very wide,
costs no more than that bound. The schemas of members and elements are looked up only where a value
has them, so a schema may nest without end.

Tools are often written by hand, or made from the annotations of a Python function. So the names of
types have aliases (`int`, `float`, `dict`), and may be those of Python or TypeScript (`list[int]`,
`string[]`, `Optional[str]`, `int | None`). An unknown name declares nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any
from urllib.parse import unquote

Schema = Mapping[str, Any]  # a JSON schema, or a part of one
TypeSet = frozenset[str]  # names of JSON types: "string", "integer", ...

STRING_ONLY: TypeSet = frozenset({"string"})
ARRAY_ONLY: TypeSet = frozenset({"array"})
OBJECT_ONLY: TypeSet = frozenset({"object"})
UNDECLARED: TypeSet = frozenset()

_MAX_SCHEMA_PARTS = 256  # that are looked at for one value
_MAX_TYPE_NAME_LENGTH = 256
_COMBINATORS = ("anyOf", "oneOf", "allOf")
JSON_TYPES: Mapping[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
}
# The names of each type, in lower case. A number of bits may follow: `int64`.
_TYPE_NAMES: Mapping[str, tuple[str, ...]] = {
    "string": ("string", "str", "text", "char", "varchar"),
    "integer": ("integer", "int", "uint", "long", "short", "bigint"),
    "number": ("number", "num", "float", "double", "decimal"),
    "boolean": ("boolean", "bool"),
    "array": ("array", "arr", "list", "sequence", "tuple", "set"),
    "object": ("object", "dict", "dictionary", "map", "mapping", "record"),
    "null": ("null", "none", "nonetype"),
}
_TYPES_BY_NAME = {name: type for type, names in _TYPE_NAMES.items() for name in names}
_GENERIC = re.compile(r"([\w.]+)\s*[\[<](.*)[\]>]", re.DOTALL)
_BITS = re.compile(r"\d+$")


class ValueSchema:
    """What is declared of one value: the types it may have, and what its members and elements may be.

    Args:
        schemas: The schemas that describe it; each may be anything, and what is no schema is ignored.
        root: The schema that a `$ref` points into.
    """

    def __init__(self, schemas: Sequence[Any] = (), root: Any = None) -> None:
        self._schemas = schemas
        self._root = root
        self._members: dict[str, ValueSchema] = {}

    @cached_property
    def _parts(self) -> list[Schema]:
        return list(_walk_schemas(self._schemas, self._root))

    @cached_property
    def types(self) -> TypeSet:
        """The types that are declared; empty if none are."""
        types: set[str] = set()
        for part in self._parts:
            types |= _types_of_part(part)
        if types and any(part.get("nullable") is True for part in self._parts):
            types.add("null")
        return frozenset(types)

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of the members that are declared."""
        named = (_as_mapping(part.get("properties")) for part in self._parts)
        return frozenset(str(name) for properties in named for name in properties)

    def member(self, name: str) -> ValueSchema:
        """Return what is declared of a member; of one that is not named, what is declared of all others."""
        if name not in self.names:
            return self.other
        if name not in self._members:
            found = [
                _as_mapping(part.get("properties")).get(name)
                for part in self._parts
                if name in _as_mapping(part.get("properties"))
            ]
            self._members[name] = ValueSchema(found, self._root)
        return self._members[name]

    @cached_property
    def other(self) -> ValueSchema:
        """What is declared of members that are not named."""
        return self._behind("additionalProperties")

    @cached_property
    def element(self) -> ValueSchema:
        """What is declared of the elements of a list."""
        return self._behind("items")

    def _behind(self, key: str) -> ValueSchema:
        found = [part[key] for part in self._parts if isinstance(part.get(key), Mapping)]
        return ValueSchema(found, self._root) if found else NO_SCHEMA


NO_SCHEMA = ValueSchema()  # of a value of which nothing is declared
ToolTypes = Mapping[str, ValueSchema]  # the schemas of all arguments, by the name of the tool


def read_tool_types(tools: Any) -> dict[str, ValueSchema]:
    """Return the schemas of all tools' arguments. Whatever is no tool is passed over."""
    functions = filter(None, map(read_function, tools or ()))
    return {name: ValueSchema([schema], schema) for name, schema in functions}


def read_function(tool: Any) -> tuple[str, Any] | None:
    """Return the name of a tool in OpenAI's or Anthropic's shape, and the schema of its arguments."""
    function = tool.get("function", tool) if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        return None
    return function["name"], function.get("parameters", function.get("input_schema"))


def resolve_name(name: str, declared: Collection[str]) -> str:
    """Return the declared tool that a name means: itself, or the one that is spelled with another name space.

    Models write `functions.tide` or `tide.tide` where `tide` is declared, and `tide` where `harbour.tide` is. A name
    that may mean several tools, or none, stays as it is.
    """
    if name in declared:
        return name
    shorter = [tool for tool in declared if name.endswith(f".{tool}")]
    if shorter:
        return max(shorter, key=len)
    longer = [tool for tool in declared if tool.endswith(f".{name}")]
    return longer[0] if len(longer) == 1 else name


def _types_of_part(part: Schema) -> set[str]:
    names = names_of_types(part.get("type"))
    if names:
        return {name for name in names if name in _TYPE_NAMES}
    values = list(_as_sequence(part.get("enum")))
    if "const" in part:
        values.append(part["const"])
    return {JSON_TYPES.get(type(value), "null") for value in values}


def names_of_types(declared: Any) -> list[str]:
    """Return the names in the `type` of a schema, which may be anything."""
    candidates = _as_sequence(declared) or [declared]
    return [name for name in candidates if isinstance(name, str)]


def _walk_schemas(schemas: Sequence[Any], root: Any) -> Iterator[Schema]:
    waiting, seen = list(schemas), dict[int, Any]()
    while waiting and len(seen) < _MAX_SCHEMA_PARTS:
        part = waiting.pop()
        if not isinstance(part, Mapping) or id(part) in seen:
            continue
        seen[id(part)] = part  # kept, so that no other part can get the same `id`
        yield part
        for combinator in _COMBINATORS:
            waiting += _as_sequence(part.get(combinator))
        pointer = part.get("$ref")
        if isinstance(pointer, str):
            waiting.append(resolve_pointer(root, pointer))
        waiting += [schema_of_type_name(name) for name in names_of_types(part.get("type"))]


def schema_of_type_name(name: str) -> Schema | None:
    """Return what an unusual name of a type means as a schema; None for JSON's own names and unknown ones."""
    text = name.strip()
    if text in _TYPE_NAMES or len(text) > _MAX_TYPE_NAME_LENGTH:
        return None
    word = text.lower()
    known = _TYPES_BY_NAME.get(_BITS.sub("", word)) or _TYPES_BY_NAME.get(word)
    if known is not None:
        return {"type": known}
    alternatives = _split_outside_brackets(text, "|")
    if len(alternatives) > 1:
        return {"anyOf": [{"type": one} for one in alternatives]}
    if text.endswith("?"):
        return {"anyOf": [{"type": text[:-1]}, {"type": "null"}]}
    if text.endswith("[]"):
        return {"type": "array", "items": {"type": text[:-2]}}
    generic = _GENERIC.fullmatch(text)
    return _schema_of_generic(*generic.groups()) if generic else None


def _schema_of_generic(name: str, inside: str) -> Schema | None:
    """Return the schema of a type with others in brackets: `list[int]`, `Optional[str]`."""
    base = name.rpartition(".")[2].lower()
    inner = [{"type": one} for one in _split_outside_brackets(inside, ",")]
    if base in ("optional", "union"):
        nothing = [{"type": "null"}] if base == "optional" else []
        return {"anyOf": inner + nothing}
    type = _TYPES_BY_NAME.get(base)
    if type == "array":
        return {"type": type, "items": inner[0]}
    if type == "object":
        return {"type": type, "additionalProperties": inner[-1]}
    return {"type": type} if type else None


def _split_outside_brackets(text: str, separator: str) -> list[str]:
    parts, start, depth = list[str](), 0, 0
    for position, char in enumerate(text):
        depth += (char in "[<(") - (char in "]>)")
        if char == separator and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    return [*parts, text[start:].strip()]


def _as_sequence(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else ()


def _as_mapping(value: Any) -> Mapping[Any, Any]:
    return value if isinstance(value, Mapping) else {}


def resolve_pointer(root: Any, pointer: str) -> Any:
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
