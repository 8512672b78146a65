"""The types of values that a tool's JSON schema declares, read strictly: for constraints, nothing may be guessed.

A schema becomes a tree of a few types, in which references, unions, `allOf`, `nullable`, the aliases of type names and
missing types are resolved. An object with declared members has no others unless `additionalProperties` allows them: a
model that may invent keys is what a constraint is against. `format` is an annotation, as JSON Schema has it.

A keyword that is not known here would be ignored silently, and a value could break it; so it is an error.

The parser asks the same schemas another question (`parser/tool_schema.py`): which types a text may have, whatever is
wrong with the schema elsewhere. What both need is there: the shapes of tools, references, the aliases of type names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import combinations
from math import ceil, floor, isfinite
from typing import Any, NoReturn

from turnwise.errors import MessageError, did_you_mean, short_repr
from turnwise.messages import JsonObject
from turnwise.replies.export.constraint_tree import (
    ANY,
    BOOLEAN,
    NULL,
    ArrayType,
    ConstantType,
    Definitions,
    NamedType,
    NumberType,
    ObjectType,
    StringType,
    ToolSignature,
    UnionType,
    ValueType,
    make_union,
)
from turnwise.replies.export.patterns import ANY_CHARACTER, pattern_node
from turnwise.replies.export.value_check import are_disjoint, fits_type
from turnwise.replies.parser.tool_schema import (
    JSON_TYPES,
    Schema,
    names_of_types,
    read_function,
    resolve_pointer,
    schema_of_type_name,
)

MAX_DEPTH = 48  # schemas within schemas
MAX_TYPES = 20_000  # of one tool
MAX_DEFINITIONS = 200  # of one tool
MAX_NAME = 200  # characters of a member's name, which grammars write one by one
MAX_REPEATS = 1000  # of a character or an item: grammars write the repetition out
MAX_WHOLE = 10**30  # the bounds of whole numbers: grammars write them digit by digit
MAX_NUMBER, MIN_NUMBER = 1e15, 1e-15  # those of other numbers, which engines write out as well

ANNOTATIONS = frozenset(
    {
        *("title", "description", "default", "examples", "example", "deprecated", "format"),
        *("readOnly", "writeOnly", "nullable", "strict", "optional", "contentMediaType"),
        *("contentEncoding", "$comment", "$schema", "$id", "$anchor", "$defs", "definitions"),
    }
)
# Keywords, with the types that a schema has that does not name one.
KEYWORD_TYPES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("properties", "required", "additionalProperties"), ("object",)),
    **dict.fromkeys(("items", "prefixItems", "minItems", "maxItems"), ("array",)),
    **dict.fromkeys(("pattern", "minLength", "maxLength"), ("string",)),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), ("number",)),
}
SCALAR_KEYWORDS = [key for key, (name,) in KEYWORD_TYPES.items() if name in ("string", "number")]
ONE_OF_HINT = "Use anyOf, or require a member with a `const` of its own in each option."
KNOWN = {*KEYWORD_TYPES, "type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"}
# Keywords that have no effect with one of these values.
KEYWORDS_WITHOUT_EFFECT: Mapping[str, tuple[Any, ...]] = {
    "uniqueItems": (False,),
    "minProperties": (0,),
    "patternProperties": ({},),
    "dependentRequired": ({},),
    "unevaluatedProperties": (True, {}),
    "minContains": (0,),
}


def read_signatures(tools: Any, sorts_keys: bool = False) -> list[ToolSignature]:
    """Return the signatures of tools in OpenAI's shape; the members of objects in their order, or that of their names.

    Raises:
        MessageError: what is given are no tools, or a schema cannot be followed; names the tool and the place in it.
    """
    if isinstance(tools, (str, bytes, Mapping)) or not isinstance(tools, Iterable):
        _refuse("tools", f"must be a list of tools, not {short_repr(tools)}")
    signatures: dict[str, ToolSignature] = {}
    for index, tool in enumerate(tools):
        path = f"tools[{index}]"
        name, schema = read_function(tool) or ("", None)
        if not name:
            _refuse(path, f"is no tool: {short_repr(tool)}", "A tool has a name and parameters.")
        if name in signatures:
            _refuse(path, f"has the name {name!r}, as another tool has")
        reader = _SchemaReader(f"{path}.parameters", schema, sorts_keys)
        signatures[name] = reader.read_signature(name)
    if not signatures:
        _refuse("tools", "has no tool", "A grammar of calls needs the tools that may be called.")
    return list(signatures.values())


def read_value_type(schema: Any, path: str) -> tuple[ValueType, Definitions]:
    """Return the type that a JSON schema declares, and the definitions that it refers to."""
    reader = _SchemaReader(path, schema)
    found = reader.read_schema(schema, path, 0)
    reader.check_aliases()
    return found, reader.definitions


def _refuse(path: str, problem: str, hint: str | None = None) -> NoReturn:
    raise MessageError(f"{path} {problem}", hint=hint)


def _require_list(value: Any, path: str) -> Sequence[Any]:
    if not isinstance(value, (list, tuple)):
        _refuse(path, f"must be a list, not {short_repr(value)}")
    return value


def _require_schema(value: Any, path: str) -> Schema:
    if not isinstance(value, Mapping):
        _refuse(path, f"is no JSON schema: {short_repr(value)}")
    return value


class _SchemaReader:
    def __init__(self, path: str, root: Any, sorts_keys: bool = False) -> None:
        self._path = path
        self._sorts_keys = sorts_keys
        self._root = root
        self.definitions: dict[str, ValueType] = {}
        # Where each definition was first referred to; those that it refers to come before it, unless they contain it.
        self._places: dict[str, str] = {}
        self._count = 0

    def read_signature(self, name: str) -> ToolSignature:
        schema = _require_schema({} if self._root is None else self._root, self._path)
        if not schema.keys() - ANNOTATIONS:  # a tool without parameters
            schema = {"type": "object", "properties": {}}
        found = self.read_schema(schema, self._path, 0)
        self.check_aliases()
        found = self.resolve(found)
        if not isinstance(found, ObjectType):
            _refuse(self._path, "must describe an object", "Arguments have names.")
        if not self._is_finite(found):
            _refuse(self._path, "recurses without end: no value that ends can be of it")
        return ToolSignature(name, found, self.definitions)

    def resolve(self, value: ValueType) -> ValueType:
        while isinstance(value, NamedType):
            value = self.definitions[value.name]
        return value

    # -- schemas

    def read_schema(self, schema: Any, path: str, depth: int) -> ValueType:
        """Return the type that a schema declares."""
        self._count += 1
        if depth > MAX_DEPTH or self._count > MAX_TYPES:
            _refuse(path, "is nested too deeply, or too large")
        if schema is True or schema == {}:
            return ANY
        schema = _require_schema(schema, path)
        self._check_keywords(schema, path)
        if "$ref" in schema and not schema.keys() - {"$ref"} - ANNOTATIONS:
            found: ValueType = self._read_reference(schema["$ref"], path, depth)
        elif "$ref" in schema or "allOf" in schema:
            found = self.read_schema(self._merge_parts(schema, path), path, depth + 1)
        elif "anyOf" in schema or "oneOf" in schema:
            found = self._read_union(schema, path, depth)
        else:
            found = self._read_types(schema, path, depth)
        if schema.get("nullable") is True:
            found = make_union([found, NULL])
        return found

    def _check_keywords(self, schema: Schema, path: str) -> None:
        for key, value in schema.items():
            known = key in KNOWN or key in ANNOTATIONS or str(key).startswith("x-")
            if known or value in KEYWORDS_WITHOUT_EFFECT.get(key, ()):
                continue
            hint = did_you_mean(str(key), sorted(KNOWN), "Keywords")
            _refuse(path, f"has the keyword {key!r}, which a grammar cannot follow", hint)

    def _read_reference(self, pointer: Any, path: str, depth: int) -> ValueType:
        target = resolve_pointer(self._root, pointer) if isinstance(pointer, str) else None
        if target is None:
            _refuse(path, f"refers to {short_repr(pointer)}, which is not in the schema")
        name = f"{self._path}{pointer}"  # two tools may use one name for two types
        if name not in self.definitions:
            if len(self.definitions) >= MAX_DEFINITIONS:
                _refuse(path, f"refers to more than {MAX_DEFINITIONS} parts of the schema")
            self.definitions[name] = NamedType(name)  # for references within it
            self.definitions[name] = self.read_schema(target, f"{path}({pointer})", depth + 1)
            self._places[name] = path
        return NamedType(name)

    def _merge_parts(self, schema: Schema, path: str) -> Schema:
        """Return one schema for `allOf`, and for a reference with other keywords beside it."""
        merged = {key: value for key, value in schema.items() if key not in ("allOf", "$ref")}
        parts = [{"$ref": schema["$ref"]}] if "$ref" in schema else []
        for part in (*parts, *_require_list(schema.get("allOf", ()), f"{path}.allOf")):
            merged = _merge_two(merged, self._follow(part, path), path)
        return merged

    def _follow(self, part: Any, path: str) -> Schema:
        """Return a schema with its reference, and those that it leads to, replaced by what they refer to."""
        for _ in range(MAX_DEPTH):
            found = _require_schema(part, path)
            if "$ref" not in found:
                return found
            target = resolve_pointer(self._root, str(found["$ref"]))
            rest = {key: value for key, value in found.items() if key != "$ref"}
            part = _merge_two(rest, target, path) if rest else target
        _refuse(path, "recurses without end")

    def _read_union(self, schema: Schema, path: str, depth: int) -> ValueType:
        key = "anyOf" if "anyOf" in schema else "oneOf"
        rest = {name: value for name, value in schema.items() if name != key}
        limits = rest.keys() - ANNOTATIONS
        options = []
        for index, option in enumerate(_require_list(schema[key], f"{path}.{key}")):
            place = f"{path}.{key}[{index}]"
            if limits:  # what is declared beside the union holds for each option
                option = _merge_two(rest, self._follow(option, place), place)
                if option.get("type") == []:
                    continue  # the types beside the union exclude it
            options.append(self.read_schema(option, place, depth + 1))
        if not options:
            _refuse(f"{path}.{key}", "has no option that fits")
        if key == "oneOf":
            for one, other in combinations(options, 2):
                if not are_disjoint(one, other, self.definitions):
                    _refuse(f"{path}.oneOf", "has options that one value may fit both", ONE_OF_HINT)
        return make_union(options)

    def _read_types(self, schema: Schema, path: str, depth: int) -> ValueType:
        declared = schema.get("type")
        if declared is not None and not (declared and _are_texts(declared)):
            _refuse(f"{path}.type", f"must be the name of a type, not {short_repr(declared)}")
        if "enum" in schema or "const" in schema:
            return self._read_constants(schema, path, depth)
        names = names_of_types(schema.get("type"))
        if not names:
            names = [name for key in schema for name in KEYWORD_TYPES.get(key, ())]
        types = [self._read_type(name, schema, path, depth) for name in dict.fromkeys(names)]
        return make_union(types) if types else ANY

    def _read_constants(self, schema: Schema, path: str, depth: int) -> ValueType:
        values = schema["enum"] if "enum" in schema else [schema["const"]]
        names = names_of_types(schema.get("type"))
        listed = _require_list(values, f"{path}.enum")
        texts = [_to_json(value, path) for value in listed if _fits(value, names)]
        if "const" in schema:
            only = _to_json(schema["const"], path)
            texts = [text for text in texts if text == only]
        limits = {key: value for key, value in schema.items() if key in SCALAR_KEYWORDS}
        for kind in {name for key in limits for name in KEYWORD_TYPES[key]}:
            limit = self._read_type(kind, limits, path, depth)
            texts = [
                text
                for text in texts
                if not _fits(value := json.loads(text), [kind]) or fits_type(value, limit)
            ]
        if not texts:
            _refuse(path, "has no value that fits its type and its other keywords")
        return ConstantType(tuple(texts))

    def _read_type(self, name: str, schema: Schema, path: str, depth: int) -> ValueType:
        readers = {
            "object": self._read_object,
            "array": self._read_array,
            "string": self._read_string,
            "number": self._read_number,
            "integer": self._read_number,
        }
        if name in readers:
            return readers[name]({**schema, "type": name}, path, depth)
        if name in ("boolean", "null"):
            return BOOLEAN if name == "boolean" else NULL
        alias = schema_of_type_name(name)
        if alias is None:
            hint = did_you_mean(name, ["null", "boolean", *readers], "Types")
            _refuse(path, f"has the unknown type {name!r}", hint)
        return self.read_schema({**schema, **alias}, path, depth + 1)

    def _read_object(self, schema: Schema, path: str, depth: int) -> ValueType:
        properties = schema.get("properties", {})
        if not isinstance(properties, Mapping):
            _refuse(f"{path}.properties", f"must be a mapping, not {short_repr(properties)}")
        other = schema.get("additionalProperties", "properties" not in schema)
        if not isinstance(other, (bool, Mapping)):
            _refuse(f"{path}.additionalProperties", f"is no JSON schema: {short_repr(other)}")
        required = [*map(str, _require_list(schema.get("required", ()), f"{path}.required"))]
        declared = {str(name): inner for name, inner in properties.items()}
        for name in required:  # one that is not declared is of the type of other members
            declared.setdefault(name, other or {})
        if any(len(name) > MAX_NAME for name in declared):
            _refuse(path, f"has a member with a name of more than {MAX_NAME} characters")
        members = [
            (name, self.read_schema(inner, f"{path}.properties[{name!r}]", depth + 1))
            for name, inner in declared.items()
        ]
        if self._sorts_keys:
            members.sort(key=lambda member: member[0].lower())
        rest = None
        if other is not False:
            rest = self.read_schema(other, f"{path}.additionalProperties", depth + 1)
        return ObjectType(tuple(members), frozenset(required), rest)

    def _read_array(self, schema: Schema, path: str, depth: int) -> ValueType:
        items, leading = schema.get("items", True), schema.get("prefixItems", ())
        if isinstance(items, list):  # before 2020, a list of schemas was written in `items`
            items, leading = True, items
        first = tuple(
            self.read_schema(one, f"{path}.prefixItems[{index}]", depth + 1)
            for index, one in enumerate(_require_list(leading, f"{path}.prefixItems"))
        )
        element = None
        if items is not False:
            element = self.read_schema(items, f"{path}.items", depth + 1)
        least, most, checked = _read_counts(schema, "minItems", "maxItems", path)
        if element is None:
            most = len(first) if most is None else min(most, len(first))
        return ArrayType(element, first, least, most, checked)

    def _read_string(self, schema: Schema, path: str, depth: int) -> ValueType:
        pattern = schema.get("pattern")
        if pattern is not None and not isinstance(pattern, str):
            _refuse(f"{path}.pattern", f"must be a string, not {short_repr(pattern)}")
        least, most, checked = _read_counts(schema, "minLength", "maxLength", path)
        if pattern is not None and (least or most is not None):
            _refuse(path, "has a pattern and a length, and a grammar can follow one of them")
        if pattern is not None:
            try:
                pattern_node(pattern, ANY_CHARACTER)
            except MessageError as error:
                raise MessageError(f"{path}.pattern: {error.message}", hint=error.hint) from None
        return StringType(least, most, pattern, checked)

    def _read_number(self, schema: Schema, path: str, depth: int) -> ValueType:
        low = _read_number_bound(schema, "minimum", path)
        high = _read_number_bound(schema, "maximum", path)
        above = _read_number_bound(schema, "exclusiveMinimum", path)
        below = _read_number_bound(schema, "exclusiveMaximum", path)
        # of two bounds on one side, the narrower one holds
        excludes_low = above is not None and (low is None or above >= low)
        excludes_high = below is not None and (high is None or below <= high)
        low, high = above if excludes_low else low, below if excludes_high else high
        is_whole = schema.get("type") == "integer"
        if is_whole:
            low, high = _next_whole(low, excludes_low, 1), _next_whole(high, excludes_high, -1)
            excludes_low = excludes_high = False
        is_strict = excludes_low or excludes_high
        if low is not None and high is not None and (low > high or (is_strict and low == high)):
            _refuse(path, "has no number between its bounds")
        low = _limit_bound(low, is_whole, 1, path)
        high = _limit_bound(high, is_whole, -1, path)
        return NumberType(is_whole, low, high, excludes_low, excludes_high)

    # -- recursion

    def check_aliases(self) -> None:
        """Raise an error for a definition that is itself one of the types that it may be."""
        aliases: dict[str, list[str]] = {}
        for name in self._places:
            value = self.definitions[name]
            options = value.options if isinstance(value, UnionType) else (value,)
            aliases[name] = [one.name for one in options if isinstance(one, NamedType)]
        try:
            TopologicalSorter(aliases).prepare()
        except CycleError as error:
            name = error.args[1][0]
            _refuse(self._places[name], "recurses without end: it refers to itself")

    def _is_finite(self, root: ValueType) -> bool:
        """Return whether a value of the type can end: whether its required parts do not contain it."""
        ending: set[str] = set()
        waiting, before = list(self._places), -1
        while len(ending) > before:  # what a definition refers to mostly comes before it
            before = len(ending)
            ending.update(name for name in waiting if _can_end(self.definitions[name], ending))
            waiting = [name for name in waiting if name not in ending]
        return _can_end(root, ending)


# ---- parts of schemas ----


def _merge_two(first: Schema, second: Any, path: str) -> JsonObject:
    other = _require_schema(second, path)
    try:
        return _merge_keywords(first, other, path)
    except (TypeError, ValueError):  # a keyword with a value of another type
        _refuse(path, "has parts that cannot be put together")


def _merge_keywords(first: Schema, second: Schema, path: str) -> JsonObject:
    merged = dict(first)
    for key, value in second.items():
        if key not in merged or key in ANNOTATIONS or merged[key] == value:
            merged.setdefault(key, value)
        elif key in MERGERS:
            merged[key] = MERGERS[key](merged[key], value)
        else:
            _refuse(path, f"says {key!r} twice, in a way that cannot be put together")
    return merged


def _merge_properties(first: Any, second: Any) -> JsonObject:
    merged = dict(first)
    for name, schema in dict(second).items():
        merged[name] = {"allOf": [merged[name], schema]} if name in merged else schema
    return merged


def _common_types(first: Any, second: Any) -> list[str]:
    others = names_of_types(second)
    if "number" in others:
        others = [*others, "integer"]
    return [name for name in names_of_types(first) if name in others]


# What holds of two parts that have the same keyword.
MERGERS: Mapping[str, Callable[[Any, Any], Any]] = {
    "properties": _merge_properties,
    "required": lambda first, second: list(dict.fromkeys([*first, *second])),
    "type": _common_types,
    **dict.fromkeys(("minimum", "minLength", "minItems"), max),
    **dict.fromkeys(("maximum", "maxLength", "maxItems"), min),
}


def _read_number_bound(schema: Schema, key: str, path: str) -> float | None:
    value = schema.get(key)
    if isinstance(value, bool):  # before 2019, this was a flag beside `minimum`
        value = schema.get(key.removeprefix("exclusive").lower()) if value else None
    is_number = isinstance(value, int) or (isinstance(value, float) and isfinite(value))
    if value is not None and not is_number:
        _refuse(f"{path}.{key}", f"must be a number, not {short_repr(value)}")
    return value


def _read_counts(
    schema: Schema, low: str, high: str, path: str
) -> tuple[int, int | None, int | None]:
    """Return how many characters or items there are at least, at most, and at most for those who check."""
    least, most = schema.get(low), schema.get(high)
    least = 0 if least is None else least
    for key, value in ((low, least), (high, most)):
        if value is not None and (type(value) is not int or value < 0):
            _refuse(f"{path}.{key}", f"must be a whole number, not {short_repr(value)}")
    if least > MAX_REPEATS:
        _refuse(f"{path}.{low}", f"is beyond {MAX_REPEATS}, which a grammar would write out")
    if most is not None and most < least:
        _refuse(path, f"has {high} below {low}")
    # A bound that hardly any reply reaches is none for grammars, rather than a grammar of that size.
    return least, None if most is not None and most > MAX_REPEATS else most, most


def _can_end(value: ValueType, ending: set[str]) -> bool:
    if isinstance(value, NamedType):
        return value.name in ending
    if isinstance(value, UnionType):
        return any(_can_end(option, ending) for option in value.options)
    if isinstance(value, ObjectType):
        return all(
            _can_end(member, ending) for name, member in value.members if name in value.required
        )
    if isinstance(value, ArrayType):
        needed = value.leading[: value.least]
        if value.least > len(value.leading) and value.element is not None:
            needed = (*needed, value.element)
        return all(_can_end(element, ending) for element in needed)
    return True


def _are_texts(declared: Any) -> bool:
    listed = isinstance(declared, (list, tuple))
    return isinstance(declared, str) or (listed and all(isinstance(one, str) for one in declared))


def _fits(value: Any, names: list[str]) -> bool:
    kind = JSON_TYPES.get(type(value), "null" if value is None else "")
    known = [name for name in names if name in JSON_TYPES.values() or name == "null"]
    is_number = kind == "integer" and "number" in known
    return not known or kind in known or is_number


def _next_whole(bound: float | None, is_excluded: bool, side: int) -> int | None:
    """Return the first whole number within a bound; `side` is 1 for a lower bound, and -1 for an upper one."""
    if bound is None:
        return None
    return side * (floor(side * bound) + 1 if is_excluded else ceil(side * bound))


def _limit_bound(bound: float | None, is_whole: bool, side: int, path: str) -> float | None:
    """Return a bound that a grammar can write out; `side` is 1 for a lower bound, and -1 for an upper one.

    One that hardly any number is beyond is none, rather than a grammar of that size.
    """
    limit = MAX_WHOLE if is_whole else MAX_NUMBER
    if bound is None or side * bound < -limit:
        return None
    if side * bound > limit:
        _refuse(path, f"has a bound beyond {limit:g}, which a grammar would write out")
    if 0 < abs(bound) < MIN_NUMBER:
        _refuse(path, f"has a bound nearer to 0 than {MIN_NUMBER:g}", "Write 0.")
    return bound


def _to_json(value: Any, path: str) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        _refuse(path, f"has a value that JSON cannot express: {short_repr(value)}")
