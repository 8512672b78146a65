"""Values as nodes, in the notations of templates: JSON, Python literals, and JSON with quotes of the template's own.

Where a target reads JSON schemas itself, JSON is left to it (`JsonNode`, `to_json_schema`); the nodes of JSON are for
targets that do not. A number looks the same in every notation, so it is a `JsonNode` everywhere.

The members of an object come in the order of the schema, as all engines have it: any order would be a grammar of
exponential size.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from turnwise.errors import MessageError
from turnwise.replies.export.constraint_tree import (
    NOTHING,
    CharacterNode,
    ConstraintTree,
    FreeTextNode,
    JsonNode,
    LiteralNode,
    Node,
    RepeatNode,
    RuleNode,
    characters,
    make_choice,
    make_optional,
    make_repeat,
    make_sequence,
)
from turnwise.replies.export.patterns import CharacterWriter, pattern_node
from turnwise.replies.export.value_types import (
    ANY,
    BOOLEAN,
    NULL,
    AnyValue,
    ArrayType,
    ConstantType,
    NamedType,
    NumberType,
    ObjectType,
    StringType,
    UnionType,
    ValueType,
    make_union,
)

__all__ = ["JSON_NOTATION", "PYTHON_NOTATION", "ValueNodes", "ValueNotation", "to_json_schema"]

Json = dict[str, Any]
KEY_CHARACTERS = "A-Za-z0-9_"  # of keys that are not declared, in notations without quotes
NOT_STRING = make_union([NumberType(), BOOLEAN, NULL, ArrayType(ANY), ObjectType(other=ANY)])


# -- JSON schemas


def to_json_schema(value: ValueType, definitions: Mapping[str, ValueType]) -> Json:
    """Return a type as a JSON schema that closes its objects and has no keyword beyond those of `schema_reader.py`."""
    names: dict[str, str] = {}
    schema = _schema_of(value, names)
    found: Json = {}
    waiting = list(names)
    while waiting:
        pointer = waiting.pop()
        known = len(names)
        found[names[pointer]] = _schema_of(definitions[pointer], names)
        waiting += islice(reversed(names), len(names) - known)  # those that it refers to first
    return {**schema, "$defs": found} if found else schema


def _schema_of(value: ValueType, names: dict[str, str]) -> Json:
    if isinstance(value, NamedType):
        name = names.setdefault(value.name, f"type{len(names) + 1}")
        return {"$ref": f"#/$defs/{name}"}
    if isinstance(value, UnionType):
        return {"anyOf": [_schema_of(option, names) for option in value.options]}
    if isinstance(value, ConstantType):
        named = {BOOLEAN: "boolean", NULL: "null"}.get(value)
        return {"type": named} if named else {"enum": [json.loads(text) for text in value.texts]}
    if isinstance(value, StringType):
        limits = {"minLength": value.least or None, "maxLength": value.most}
        return _without_none({"type": "string", "pattern": value.pattern, **limits})
    if isinstance(value, NumberType):
        return _number_schema(value)
    if isinstance(value, ArrayType):
        return _array_schema(value, names)
    if isinstance(value, ObjectType):
        return _object_schema(value, names)
    return {}


def _number_schema(value: NumberType) -> Json:
    low = "exclusiveMinimum" if value.excludes_minimum else "minimum"
    high = "exclusiveMaximum" if value.excludes_maximum else "maximum"
    kind = "integer" if value.is_whole else "number"
    return _without_none({"type": kind, low: value.minimum, high: value.maximum})


def _array_schema(value: ArrayType, names: dict[str, str]) -> Json:
    schema: Json = {"type": "array", "minItems": value.least or None, "maxItems": value.most}
    if value.leading:
        schema["prefixItems"] = [_schema_of(one, names) for one in value.leading]
    if value.element is None:
        schema["items"] = False
    elif value.element != ANY:
        schema["items"] = _schema_of(value.element, names)
    return _without_none(schema)


def _object_schema(value: ObjectType, names: dict[str, str]) -> Json:
    schema: Json = {"type": "object"}
    if value.members:
        schema["properties"] = {name: _schema_of(one, names) for name, one in value.members}
    if value.required:
        schema["required"] = [name for name, _ in value.members if name in value.required]
    other: Any = value.other is not None
    if value.other is not None and value.other != ANY:
        other = _schema_of(value.other, names)
    schema["additionalProperties"] = other
    return schema


def _without_none(schema: Json) -> Json:
    return {key: value for key, value in schema.items() if value is not None}


# -- notations


def _escape_json(character: str) -> str:
    return json.dumps(character)[1:-1]


def _escape_python(character: str) -> str:
    return {"'": "\\'"}.get(character) or repr(character)[1:-1]


CONTROLS = (("\0", "\x1f"),)
JSON_PLAIN = CharacterNode((*CONTROLS, ('"', '"'), ("\\", "\\")), negated=True)
HEX = characters("0-9A-Fa-f")
JSON_ESCAPE = make_sequence(
    "\\",
    make_choice([characters('"\\/bfnrt'), make_sequence("u", RepeatNode(HEX, 4, 4))]),
)
PYTHON_ESCAPE = make_sequence(
    "\\",
    make_choice(
        [
            characters("\"'\\abfnrtv"),
            make_sequence("x", RepeatNode(HEX, 2, 2)),
            make_sequence("u", RepeatNode(HEX, 4, 4)),
            make_sequence("U", RepeatNode(HEX, 8, 8)),
        ]
    ),
)


@dataclass(frozen=True, slots=True)
class Quoting:
    """How strings are written: between quotes, with escapes; or, without escapes, up to the closing text."""

    open: str
    close: str
    plain: CharacterNode = JSON_PLAIN
    escape: Node | None = JSON_ESCAPE
    without: tuple[
        str, ...
    ] = ()  # what a text without escapes cannot contain, besides the closing text


@dataclass(frozen=True, slots=True)
class ValueNotation:
    """How a template writes values."""

    name: str
    quotings: tuple[Quoting, ...]
    words: Mapping[str, str] = field(default_factory=dict)  # for true, false and null
    has_bare_keys: bool = False
    comma: Node = LiteralNode(",")
    colon: Node = LiteralNode(":")
    space: Node = NOTHING  # after an opening bracket, and before a closing one

    def write_constant(self, text: str) -> str:
        """Return a value, given as JSON, in this notation."""
        return self._write(json.loads(text))

    def _write(self, value: Any) -> str:
        if self.name == "python":
            return repr(value)
        if self.name == "json":
            return json.dumps(value, ensure_ascii=False)
        if isinstance(value, str):
            return self.quotings[0].open + value + self.quotings[0].close
        if isinstance(value, dict):
            return "{" + ",".join(f"{key}:{self._write(value[key])}" for key in value) + "}"
        if isinstance(value, list):
            return "[" + ",".join(map(self._write, value)) + "]"
        return json.dumps(value)


_BLANK = make_optional(LiteralNode(" "))
JSON_NOTATION = ValueNotation(
    "json",
    (Quoting('"', '"'),),
    comma=make_sequence(RuleNode("space"), ",", RuleNode("space")),
    colon=make_sequence(RuleNode("space"), ":", RuleNode("space")),
    space=RuleNode("space"),
)
PYTHON_NOTATION = ValueNotation(
    "python",
    tuple(
        Quoting(
            quote,
            quote,
            CharacterNode((*CONTROLS, (quote, quote), ("\\", "\\")), negated=True),
            PYTHON_ESCAPE,
        )
        for quote in "'\""
    ),
    words={"true": "True", "false": "False", "null": "None"},
    comma=make_sequence(",", _BLANK),
    colon=make_sequence(":", _BLANK),
)


class ValueNodes:
    """Makes the nodes of values in one notation; shared parts become rules of a tree."""

    def __init__(self, tree: ConstraintTree, notation: ValueNotation) -> None:
        self._tree = tree
        self._notation = notation
        self._rules: dict[ValueType, RuleNode] = {}
        if notation.space == RuleNode("space"):
            # One blank, or a line break and an indentation: a model cannot write blanks without end.
            indent = RepeatNode(characters(" \t"), 0, 40)
            space = make_choice([LiteralNode(" "), make_sequence("\n", indent)])
            tree.rules.setdefault("space", make_optional(space))

    def make(self, value: ValueType) -> Node:
        """Return the node of all values of a type."""
        if isinstance(value, NamedType):
            target = self._tree.definitions[value.name]
            return self._shared(value.name.rpartition("/")[2], value, target)
        if isinstance(value, AnyValue):
            either = make_union([StringType(), *NOT_STRING.options])  # type: ignore[union-attr]  # a union
            return self._shared("any", value, either)
        if isinstance(value, UnionType):
            return make_choice(map(self.make, value.options))
        if isinstance(value, ConstantType):
            return make_choice(LiteralNode(self.constant(text)) for text in value.texts)
        if isinstance(value, StringType):
            return make_choice(self.string(quoting, value) for quoting in self._notation.quotings)
        if isinstance(value, ArrayType):
            return self._array(value)
        if isinstance(value, ObjectType):
            return self._object(value)
        return JsonNode(value)

    def constant(self, text: str) -> str:
        """Return a constant, given as JSON, in the notation."""
        return self._notation.words.get(text) or self._notation.write_constant(text)

    def _shared(self, name: str, value: ValueType, target: ValueType) -> Node:
        """Return the rule of a type, which may contain itself."""
        if value not in self._rules:
            rule = self._tree.add_rule(f"{self._notation.name}-{_rule_name(name)}", NOTHING)
            self._rules[value] = rule  # for references within it
            self._tree.rules[rule.name] = self.make(target)
        return self._rules[value]

    # -- strings

    def string(self, quoting: Quoting, value: StringType) -> Node:
        """Return a string between its quotes."""
        if quoting.escape is None:
            return make_sequence(quoting.open, raw_text(value, quoting.close, quoting.without))
        escape = _escape_python if self._notation.name == "python" else _escape_json
        if value.pattern is not None:
            inner = pattern_node(value.pattern, CharacterWriter(quoting.plain, escape))
        else:
            character = make_choice([quoting.plain, quoting.escape])
            inner = make_repeat(character, value.least, value.most)
        return make_sequence(quoting.open, inner, quoting.close)

    # -- containers

    def _array(self, value: ArrayType) -> Node:
        notation = self._notation
        leading = [self.make(one) for one in value.leading]
        items = [(node, index < value.least) for index, node in enumerate(leading)]
        if value.element is None:
            return self._bracketed(
                "[", self.members(items, notation.comma, None, ordered=True), "]"
            )
        element = self.make(value.element)
        least = max(value.least - len(items), 0)
        most = None if value.most is None else max(value.most - len(items), 0)
        if items:
            more = make_repeat(make_sequence(notation.comma, element), least, most)
            tail = self.members(items, notation.comma, None, ordered=True, tail=more)
            return self._bracketed("[", tail, "]")
        if most == 0:
            return self._bracketed("[", NOTHING, "]")
        rest = None if most is None else most - 1
        several = make_sequence(
            element,
            make_repeat(make_sequence(notation.comma, element), max(least - 1, 0), rest),
        )
        return self._bracketed("[", several if least else make_optional(several), "]")

    def _object(self, value: ObjectType) -> Node:
        pairs = [
            (
                make_sequence(self._key(name), self._notation.colon, self.make(member)),
                name in value.required,
            )
            for name, member in value.members
        ]
        extra = None
        if value.other is not None:
            key = self._other_key([name for name, _ in value.members])
            extra = make_sequence(key, self._notation.colon, self.make(value.other))
        return self._bracketed("{", self.members(pairs, self._notation.comma, extra), "}")

    def _bracketed(self, open: str, inside: Node, close: str) -> Node:
        space = self._notation.space
        return make_sequence(open, space, inside, space, close)

    def _key(self, name: str) -> str:
        if not self._notation.has_bare_keys:
            return self.constant(json.dumps(name))
        check_bare_key(name)
        return name

    def _other_key(self, names: list[str]) -> Node:
        if self._notation.has_bare_keys:
            return key_except(names)
        quote = '"' if self._notation.name == "json" else "'"
        return make_sequence(quote, key_except(names, KEY_CHARACTERS + " .:/$@#-"), quote)

    def members(
        self,
        pairs: list[tuple[Node, bool]],
        comma: Node,
        extra: Node | None,
        *,
        ordered: bool = False,
        tail: Node = NOTHING,
    ) -> Node:
        """Return members in their order, of which some may be missing, with separators between those that are there.

        Args:
            pairs: Each member, and whether it must be there.
            comma: What is between two members; nothing is accepted too.
            extra: Any further member.
            ordered: A member can only be there if all before it are: the elements of a list.
            tail: What follows all members, if the last of them is there.
        """
        if comma == NOTHING:
            parts = [node if needed else make_optional(node) for node, needed in pairs]
            more = NOTHING if extra is None else RepeatNode(extra)
            return make_sequence(*parts, more)
        rest = tail if extra is None else RepeatNode(make_sequence(comma, extra))
        # What the list can begin with, the last member first; one choice at the end, for a long list has many.
        firsts = [] if extra is None else [make_sequence(extra, rest)]
        can_be_empty = True
        for node, needed in reversed(pairs):
            shared = rest if rest == NOTHING else self._tree.add_rule("rest", rest)
            begun = make_sequence(node, shared)
            following = make_sequence(comma, begun)
            if needed:
                firsts, rest, can_be_empty = [begun], following, False
            elif ordered:
                firsts, rest = [begun], make_optional(following)
            else:
                firsts.append(begun)
                rest = make_sequence(make_optional(make_sequence(comma, node)), shared)
        if not firsts:
            return NOTHING
        first = make_choice(reversed(firsts))
        return make_optional(first) if can_be_empty else first


def raw_text(value: StringType, close: str, without: Iterable[str]) -> Node:
    """Return a text without escapes, and the closing text that it goes up to."""
    core = close.strip()
    space = close[len(close.rstrip()) :] if core else ""
    ending = close[: len(close) - len(space)]
    if value.pattern is not None:
        # In the pattern, `.` leaves out the character with which the closing text begins.
        plain = CharacterNode(((core[0], core[0]),), negated=True)
        node = pattern_node(value.pattern, CharacterWriter(plain, str))
        return make_sequence(node, close)
    others = (core, *(text for text in without if text not in ending))
    return make_sequence(FreeTextNode(ending, others, value.least, value.most), space)


def check_bare_key(name: str) -> None:
    """Raise an error for a key that cannot be written without quotes."""
    if not name or not name.isprintable() or any(sign in name for sign in " :,={}[]()<>\"'|"):
        raise MessageError(
            f"the argument {name!r} cannot be written in a call of this template",
            hint="It writes keys without quotes: use letters, digits and underscores.",
        )


def key_except(names: Iterable[str], allowed: str = KEY_CHARACTERS) -> Node:
    """Return the node of all keys but some: those are declared, and have types of their own."""
    return _key_except(sorted(set(names)), characters(allowed), is_start=True)


def _key_except(names: list[str], allowed: CharacterNode, is_start: bool) -> Node:
    following: dict[str, list[str]] = {}
    for name in names:
        if name:
            following.setdefault(name[0], []).append(name[1:])
    ranges = _without_characters(allowed, following)
    options: list[Node] = []
    if ranges.ranges:
        options.append(make_sequence(ranges, RepeatNode(allowed)))
    for sign, rests in following.items():
        if allowed.accepts(sign):
            options.append(make_sequence(sign, _key_except(rests, allowed, False)))
    node = make_choice(options)
    return node if is_start or "" in names else make_optional(node)


def _without_characters(allowed: CharacterNode, excluded: Iterable[str]) -> CharacterNode:
    ranges: list[tuple[str, str]] = list(allowed.ranges)
    for sign in excluded:
        split: list[tuple[str, str]] = []
        for first, last in ranges:
            if not first <= sign <= last:
                split.append((first, last))
                continue
            if first < sign:
                split.append((first, chr(ord(sign) - 1)))
            if sign < last:
                split.append((chr(ord(sign) + 1), last))
        ranges = split
    return CharacterNode(tuple(ranges))


def _rule_name(text: str) -> str:
    return "".join(sign if sign.isascii() and sign.isalnum() else "-" for sign in text).lower()
