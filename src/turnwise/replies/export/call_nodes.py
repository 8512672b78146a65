"""Tool calls as nodes: one call of one tool, in the syntax of the template.

The arguments of a call are JSON (`JsonNode`), or written one by one: between tags, as Python's keyword arguments, or as
JSON with quotes of the template's own. Each value gets the markers of its type, as the template writes it.

    JSON        {"name": "tide", "arguments": {"harbour": "Oslo"}}
    tagged      <function=tide><parameter=harbour>Oslo</parameter></function>
    key as tag  <invoke name="tide"><harbour>Oslo</harbour></invoke>
    Python      tide(harbour='Oslo')
    quoted      call:tide{harbour:<|"|>Oslo<|"|>}
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NoReturn

from turnwise.errors import MessageError, TurnwiseError
from turnwise.replies.export.constraint_tree import (
    NOTHING,
    AnyValue,
    ArrayType,
    ConstantType,
    ConstraintTree,
    JsonNode,
    LiteralNode,
    NamedType,
    Node,
    NumberType,
    ObjectType,
    RepeatNode,
    StringType,
    ToolSignature,
    UnionType,
    ValueType,
    characters,
    make_choice,
    make_optional,
    make_repeat,
    make_sequence,
    make_union,
)
from turnwise.replies.export.value_nodes import (
    JSON_NOTATION,
    NOT_STRING,
    PYTHON_NOTATION,
    Quoting,
    ValueNodes,
    ValueNotation,
    check_bare_key,
    key_except,
    raw_text,
)
from turnwise.replies.grammar_parts import (
    KEY,
    Calls,
    JsonCall,
    Marker,
    Pairs,
    RawCall,
    Region,
    default_json_parts,
)
from turnwise.replies.parser.tool_schema import JSON_TYPES
from turnwise.replies.write import write_quoted

NAME = re.compile(r"[\w.\-:/]+")
ID = RepeatNode(characters("A-Za-z0-9_.:-"), 0, 64)
INDEX = RepeatNode(characters("0-9"), 1, 4)
MAX_TAG_DEPTH = 8  # of values that are tags within tags


class CallNodes:
    """Makes the nodes of calls in one format.

    Args:
        tree: Receives the rules.
        calls: The format.
        without: Texts that a value without escapes cannot contain, for they end the call.
    """

    def __init__(self, tree: ConstraintTree, calls: Calls, without: tuple[str, ...]) -> None:
        self._tree = tree
        self._calls = calls
        self._without = without
        self._notations: dict[str, ValueNodes] = {}

    def make(self, tool: ToolSignature) -> Node:
        """Return one call of a tool, with its own markers."""
        if not NAME.fullmatch(tool.name):
            raise MessageError(
                f"the tool name {tool.name!r} cannot be written in a call",
                hint="Names consist of letters, digits and the signs _ . - : /",
            )
        call = self._calls.call
        if isinstance(call, RawCall):
            _refuse("a call is the bare text of one fixed tool")
        parts: Sequence[Marker | str] = call.parts
        arguments: Node = JsonNode(tool.arguments)
        if isinstance(call, JsonCall):
            parts = call.parts or default_json_parts(call)
            if call.as_text:
                _refuse("arguments are a JSON text within a string")
        elif call.pairs is not None:
            arguments = self._pairs(call.pairs, tool.arguments)
        slots: Mapping[str, Node | str] = {
            "name": tool.name,
            "id": self._id(tool, parts),
            "index": INDEX,
            "arguments": arguments,
        }
        inside = [slots[part] if isinstance(part, str) else part.text for part in parts]
        return make_sequence(self._calls.each.open.text, *inside, self._calls.each.close.text)

    def _id(self, tool: ToolSignature, parts: Iterable[Marker | str]) -> Node:
        """Return the id of a call; if no other part has the name, it consists of the name and a number."""
        if "name" in parts:
            return ID
        return make_sequence("functions.", tool.name, ":", INDEX)

    # -- arguments one by one

    def _pairs(self, pairs: Pairs, arguments: ObjectType, depth: int = 0) -> Node:
        members = [
            (self._pair(pairs, name, value, depth), name in arguments.required)
            for name, value in arguments.members
        ]
        extra = None
        if arguments.other is not None:
            extra = self._other_pair(pairs, arguments, arguments.other)
        space = pairs.string.close.trailing_space
        if space and not members and extra is None:
            # A template may write the line break after the last argument although there is none.
            return make_optional(LiteralNode(space))
        comma = LiteralNode(pairs.between.text) if pairs.between.text else NOTHING
        nodes = self._notation(pairs.values, pairs)
        return nodes.members(members, comma, extra)

    def _pair(self, pairs: Pairs, name: str, value: ValueType, depth: int) -> Node:
        check_bare_key(name)
        return self._keyed_value(pairs, name, name, value, depth)

    def _other_pair(self, pairs: Pairs, arguments: ObjectType, value: ValueType) -> Node:
        if pairs.echoed or KEY in pairs.string.close.text or KEY in pairs.other.close.text:
            _refuse(
                "the tag after a value repeats its key, and keys that are not declared are allowed"
            )
        key = key_except([name for name, _ in arguments.members])
        return self._keyed_value(pairs, key, KEY, value, 0)

    def _keyed_value(
        self, pairs: Pairs, key: Node | str, name: str, value: ValueType, depth: int
    ) -> Node:
        """Return a key and its value, with the markers of each type that the value may have; they may repeat `name`."""
        options: list[Node] = []
        for region, types in self._by_region(pairs, value).items():
            opener = region.open.text.replace(KEY, name)
            closer = region.close.text.replace(KEY, name)
            values = [self._value(pairs, type, closer, depth) for type in types]
            options.append(make_sequence(pairs.key.text, key, opener, make_choice(values)))
        return make_choice(options)

    def _by_region(self, pairs: Pairs, value: ValueType) -> dict[Region, list[ValueType]]:
        regions: dict[Region, list[ValueType]] = {}
        typed = dict(pairs.typed)
        for kind, type in self._kinds(value):
            region = pairs.string if kind == "string" else typed.get(kind, pairs.other)
            same = Region(Marker(region.open.text), Marker(region.close.text))
            regions.setdefault(same, []).append(type)
        if pairs.strings == "raw":
            for region, types in regions.items():
                if StringType() in types:  # any text is a text, whatever else it may be
                    regions[region] = [StringType()]
        return regions

    def _kinds(self, value: ValueType) -> list[tuple[str, ValueType]]:
        if isinstance(value, NamedType):
            return self._kinds(self._tree.definitions[value.name])
        if isinstance(value, UnionType):
            return [pair for option in value.options for pair in self._kinds(option)]
        if isinstance(value, AnyValue):
            return self._kinds(make_union([StringType(), NOT_STRING]))
        if isinstance(value, ConstantType):
            found: dict[str, list[str]] = {}
            for text in value.texts:
                kind = JSON_TYPES.get(type(json.loads(text)), "null")
                found.setdefault(kind, []).append(text)
            return [(kind, ConstantType(tuple(texts))) for kind, texts in found.items()]
        if isinstance(value, NumberType):
            return [("integer" if value.is_whole else "number", value)]
        names = {StringType: "string", ArrayType: "array", ObjectType: "object"}
        return [(names[type(value)], value)]

    def _value(self, pairs: Pairs, value: ValueType, closer: str, depth: int) -> Node:
        if isinstance(value, StringType):
            return self._string(pairs, value, closer)
        if isinstance(value, ConstantType):
            texts = [self._constant(pairs, text) for text in value.texts]
            if "null" in value.texts and pairs.values == "quoted":
                texts.append(str(None))  # what Jinja prints
            return make_sequence(make_choice(map(LiteralNode, texts)), closer)
        if isinstance(value, NumberType) or pairs.values == "json":
            return make_sequence(JsonNode(value), closer)
        if pairs.values == "tags":
            return make_sequence(self._tags(pairs, value, depth), closer)
        return make_sequence(self._notation(pairs.values, pairs).make(value), closer)

    def _string(self, pairs: Pairs, value: StringType, closer: str) -> Node:
        if pairs.strings != "raw":
            return make_sequence(self._notation(pairs.strings, pairs).make(value), closer)
        if not closer.strip():
            _refuse("a text is written without quotes, and no marker ends it")
        plain = raw_text(value, closer, (*self._without, pairs.wrap.open.core))
        if not pairs.wrap.open.core:
            return plain
        wrapped = raw_text(value, pairs.wrap.close.text, self._without)
        return make_choice([plain, make_sequence(pairs.wrap.open.text, wrapped, closer)])

    def _constant(self, pairs: Pairs, text: str) -> str:
        if text.startswith('"'):
            if pairs.strings == "raw":
                return str(json.loads(text))
            return self._notation(pairs.strings, pairs).constant(text)
        notation = pairs.values if text[0] in "{[" else pairs.scalars
        if pairs.values == "python":
            notation = "python"
        return self._notation(notation, pairs).constant(text)

    def _tags(self, pairs: Pairs, value: ValueType, depth: int) -> Node:
        if depth >= MAX_TAG_DEPTH:
            _refuse("values are tags within tags, and the schema nests them without end")
        if isinstance(value, ObjectType):
            return self._pairs(pairs, value, depth + 1)
        assert isinstance(value, ArrayType)
        if value.element is None or value.leading:
            _refuse("a list of tags has elements of different types")
        item = self._pair(pairs, "item", value.element, depth + 1)
        return make_repeat(item, value.least, value.most)

    def _notation(self, name: str, pairs: Pairs) -> ValueNodes:
        if name not in self._notations:
            self._notations[name] = ValueNodes(self._tree, self._find_notation(name, pairs))
        return self._notations[name]

    def _find_notation(self, name: str, pairs: Pairs) -> ValueNotation:
        if name == "python":
            return PYTHON_NOTATION
        if name != "quoted":
            return JSON_NOTATION
        opener = pairs.string.open.text.removeprefix(pairs.other.open.text)
        quoting = Quoting(opener, pairs.string.close.text, escape=None, without=self._without)
        comma, colon = (LiteralNode(text) for text in (pairs.between.text, pairs.other.open.text))
        return ValueNotation("quoted", (quoting,), partial(write_quoted, pairs), True, comma, colon)


def _refuse(reason: str) -> NoReturn:
    raise TurnwiseError(
        f"no grammar can be made of these calls: {reason}",
        hint="Template.parse reads such calls without a constraint.",
    )
