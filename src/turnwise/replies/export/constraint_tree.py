"""The form between a reply grammar and the grammars of constrained decoding: a tree of nodes, with named rules.

    LiteralNode     exactly this text
    CharacterNode   one character of a set
    SequenceNode    one node after the other
    ChoiceNode      one of several nodes
    RepeatNode      a node several times
    RuleNode        the node of a named rule, so that values can nest and parts can be shared
    FreeTextNode    any text up to the first of some texts
    JsonNode        a JSON value of a type (below)

`reply_tree.py` builds such a tree from a grammar and tools; `lark.py`, `gbnf.py` and `structural_tag.py` write it. A
writer knows nothing of templates and tools, and the builder nothing of the languages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from turnwise.shapes.row import drop_nulls

# ---- value types ----
#
# The types of values that a grammar of calls knows: what a tool's JSON schema becomes (`schema_reader.py`).


Json = dict[str, Any]
MAX_REPEATED_DEFINITIONS = 100


@dataclass(frozen=True, slots=True)
class AnyValue:
    """Any JSON value."""


@dataclass(frozen=True, slots=True)
class StringType:
    """A string."""

    least: int = 0
    most: int | None = None
    pattern: str | None = None  # that occurs in it
    checked_most: int | None = None  # a bound that is too large for grammars


@dataclass(frozen=True, slots=True)
class NumberType:
    """A number, or a whole one, between bounds that may be excluded; those of whole numbers are whole, and included."""

    is_whole: bool = False
    minimum: float | None = None
    maximum: float | None = None
    excludes_minimum: bool = False
    excludes_maximum: bool = False


@dataclass(frozen=True, slots=True)
class ConstantType:
    """One of the JSON texts of some values."""

    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ArrayType:
    """A list: first the elements of `leading`, then any number of `element`; None allows no more."""

    element: ValueType | None
    leading: tuple[ValueType, ...] = ()
    least: int = 0
    most: int | None = None
    checked_most: int | None = None  # a bound that is too large for grammars


@dataclass(frozen=True, slots=True)
class ObjectType:
    """An object: declared members in their order, then others of the type `other`; None allows no others."""

    members: tuple[tuple[str, ValueType], ...] = ()
    required: frozenset[str] = frozenset()
    other: ValueType | None = None


@dataclass(frozen=True, slots=True)
class UnionType:
    """A value of one of several types."""

    options: tuple[ValueType, ...]


@dataclass(frozen=True, slots=True)
class NamedType:
    """A type of `ToolSignature.definitions`, which may contain itself."""

    name: str


ValueType = (
    AnyValue
    | StringType
    | NumberType
    | ConstantType
    | ArrayType
    | ObjectType
    | UnionType
    | NamedType
)
Definitions = Mapping[str, ValueType]
ANY = AnyValue()
BOOLEAN = ConstantType(("true", "false"))
NULL = ConstantType(("null",))


@dataclass(frozen=True, slots=True)
class ToolSignature:
    """A tool's name and the type of its arguments."""

    name: str
    arguments: ObjectType
    definitions: Definitions


def inner_types(value: ValueType) -> tuple[ValueType, ...]:
    """Return the types that a type is made of."""
    if isinstance(value, UnionType):
        return value.options
    if isinstance(value, ArrayType):
        element = () if value.element is None else (value.element,)
        return (*value.leading, *element)
    if isinstance(value, ObjectType):
        other = () if value.other is None else (value.other,)
        return (*(member for _, member in value.members), *other)
    return ()


def walk_types(value: ValueType, definitions: Definitions | None) -> Iterator[ValueType]:
    """Yield a type and all types that it is made of; with definitions, also those that names refer to, each once."""
    seen: set[str] = set()
    waiting = [value]
    while waiting:
        one = waiting.pop()
        yield one
        waiting += inner_types(one)
        if definitions is not None and isinstance(one, NamedType) and one.name not in seen:
            seen.add(one.name)
            waiting.append(definitions[one.name])


def find_names(value: ValueType, definitions: Definitions | None = None) -> set[str]:
    """Return the names of the definitions that a type is made of; with definitions, also of those within them."""
    found = walk_types(value, definitions)
    return {one.name for one in found if isinstance(one, NamedType)}


def make_union(types: Iterable[ValueType]) -> ValueType:
    """Return the union of types, without unions in it."""
    flat: dict[ValueType, None] = {}
    for type in types:
        flat.update(dict.fromkeys(type.options if isinstance(type, UnionType) else (type,)))
    if ANY in flat:
        return ANY
    return next(iter(flat)) if len(flat) == 1 else UnionType(tuple(flat))


# -- JSON schemas


def to_json_schema(value: ValueType, definitions: Definitions) -> Json:
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
        return drop_nulls({"type": "string", "pattern": value.pattern, **limits})
    if isinstance(value, NumberType):
        low = "exclusiveMinimum" if value.excludes_minimum else "minimum"
        high = "exclusiveMaximum" if value.excludes_maximum else "maximum"
        kind = "integer" if value.is_whole else "number"
        return drop_nulls({"type": kind, low: value.minimum, high: value.maximum})
    if isinstance(value, ArrayType):
        return _array_schema(value, names)
    if isinstance(value, ObjectType):
        return _object_schema(value, names)
    return {}


def _array_schema(value: ArrayType, names: dict[str, str]) -> Json:
    schema: Json = {"type": "array", "minItems": value.least or None, "maxItems": value.most}
    if value.leading:
        schema["prefixItems"] = [_schema_of(one, names) for one in value.leading]
    if value.element is None:
        schema["items"] = False
    elif value.element != ANY:
        schema["items"] = _schema_of(value.element, names)
    return drop_nulls(schema)


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


# ---- constraint tree ----


@dataclass(frozen=True, slots=True)
class LiteralNode:
    """Exactly this text."""

    text: str


@dataclass(frozen=True, slots=True)
class CharacterNode:
    """One character: of the ranges, or of all others."""

    ranges: tuple[tuple[str, str], ...]
    negated: bool = False

    def accepts(self, character: str) -> bool:
        """Return whether the character is of the set."""
        return any(first <= character <= last for first, last in self.ranges) != self.negated

    def without(self, excluded: Iterable[tuple[str, str]]) -> CharacterNode:
        """Return the set without the characters of some ranges."""
        if self.negated:
            return CharacterNode(tuple(sorted({*self.ranges, *excluded})), negated=True)
        ranges = list(self.ranges)
        for low, high in excluded:
            apart = [(first, last) for first, last in ranges if last < low or high < first]
            split = [one for one in ranges if one not in apart]
            apart += [(first, chr(ord(low) - 1)) for first, _ in split if first < low]
            apart += [(chr(ord(high) + 1), last) for _, last in split if high < last]
            ranges = sorted(apart)
        return CharacterNode(tuple(ranges))


@dataclass(frozen=True, slots=True)
class SequenceNode:
    """One part after the other."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class ChoiceNode:
    """One of several options."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class RepeatNode:
    """An item `least` to `most` times; without end if `most` is None."""

    item: Node
    least: int = 0
    most: int | None = None


@dataclass(frozen=True, slots=True)
class RuleNode:
    """The node of a rule of `ConstraintTree.rules`."""

    name: str


@dataclass(frozen=True, slots=True)
class FreeTextNode:
    """Any text, and the `ending` that it goes up to; without an ending, the rest of the reply.

    The ending is where one of `without` or the ending itself is complete for the first time. Of `without`, none is
    complete before; a text of `without` may be the end of the ending (`</p>` of `\\n</p>`), never an inner part of it.
    """

    ending: str
    without: tuple[str, ...] = ()
    least: int = 0  # characters before the ending
    most: int | None = None
    not_first: str = ""  # characters with which it cannot begin, after white space


@dataclass(frozen=True, slots=True)
class JsonNode:
    """A JSON value of a type."""

    value: ValueType


Node = (
    LiteralNode
    | CharacterNode
    | SequenceNode
    | ChoiceNode
    | RepeatNode
    | RuleNode
    | FreeTextNode
    | JsonNode
)
NOTHING = SequenceNode(())


@dataclass(slots=True)
class ConstraintTree:
    """What a reply may be: a node, the rules that it refers to, and the markers it begins with.

    Attributes:
        start: The whole reply.
        calls: The calls alone, from their first character on.
        rules: The nodes of `RuleNode`, by name.
        triggers: The texts of which one begins the calls.
        stops: The texts that end a reply.
        markers: All markers of the grammar, which a tokenizer may have as tokens.
        definitions: The named types that values refer to.
    """

    start: Node = NOTHING
    calls: Node = NOTHING
    rules: dict[str, Node] = field(default_factory=dict)
    triggers: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    markers: tuple[str, ...] = ()
    definitions: dict[str, ValueType] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)  # of the rules of each name

    def add_rule(self, name: str, node: Node) -> RuleNode:
        """Name a node, and return the reference to it; of equal names the later ones are numbered."""
        number = self.counts[name] = self.counts.get(name, 0) + 1
        unique = name if number == 1 else f"{name}-{number}"
        self.rules[unique] = node
        return RuleNode(unique)


# -- making nodes


def make_sequence(*parts: Node | str) -> Node:
    """Return a sequence without sequences in it, in which texts that touch are one text."""
    flat: list[Node] = []
    for part in parts:
        node = LiteralNode(part) if isinstance(part, str) else part
        inner = node.parts if isinstance(node, SequenceNode) else (node,)
        for one in inner:
            last = flat[-1] if flat else None
            if isinstance(one, LiteralNode) and not one.text:
                continue
            if isinstance(one, LiteralNode) and isinstance(last, LiteralNode):
                flat[-1] = LiteralNode(last.text + one.text)
            else:
                flat.append(one)
    return flat[0] if len(flat) == 1 else SequenceNode(tuple(flat))


def make_choice(options: Iterable[Node]) -> Node:
    """Return a choice without choices in it, each option once."""
    flat: dict[Node, None] = {}
    for option in options:
        inner = option.options if isinstance(option, ChoiceNode) else (option,)
        flat.update(dict.fromkeys(inner))
    return next(iter(flat)) if len(flat) == 1 else ChoiceNode(tuple(flat))


def make_repeat(item: Node, least: int, most: int | None) -> Node:
    """Return an item several times; engines refuse a repetition of no times."""
    return NOTHING if most == 0 else RepeatNode(item, least, most)


def make_optional(node: Node) -> Node:
    """Return a node that may be missing."""
    return NOTHING if node == NOTHING else RepeatNode(node, 0, 1)


def characters(allowed: str) -> CharacterNode:
    """Return the set of the characters of a text, in which `a-z` is a range."""
    ranges: list[tuple[str, str]] = []
    position = 0
    while position < len(allowed):
        is_range = allowed[position + 1 : position + 2] == "-" and position + 2 < len(allowed)
        ranges.append((allowed[position], allowed[position + 2 * is_range]))
        position += 3 if is_range else 1
    return CharacterNode(tuple(ranges))


# -- looking at nodes


def literal_head(node: Node) -> str:
    """Return the text with which every text of a node begins; what a rule holds is not looked at."""
    if isinstance(node, LiteralNode):
        return node.text
    if isinstance(node, SequenceNode):
        return literal_head(node.parts[0]) if node.parts else ""
    return ""


def drop_head(node: Node, head: str) -> Node:
    """Return a node without a text with which it begins."""
    if isinstance(node, SequenceNode):
        return make_sequence(drop_head(node.parts[0], head), *node.parts[1:])
    assert isinstance(node, LiteralNode) and node.text.startswith(head)
    return make_sequence(node.text[len(head) :])


def inner_nodes(node: Node) -> tuple[Node, ...]:
    """Return the nodes that a node is made of; what a rule holds is not looked at."""
    if isinstance(node, SequenceNode):
        return node.parts
    if isinstance(node, ChoiceNode):
        return node.options
    return (node.item,) if isinstance(node, RepeatNode) else ()


def has_characters(node: Node) -> bool:
    """Return whether a node has a set of characters in it; what a rule holds is not looked at."""
    return isinstance(node, CharacterNode) or any(map(has_characters, inner_nodes(node)))


def find_json_values(tree: ConstraintTree, start: Node) -> list[ValueType]:
    """Return the types of the JSON values of a node and the rules that it needs, each once."""
    found: dict[ValueType, None] = {}
    rules: set[str] = set()
    waiting = [start]
    while waiting:
        node = waiting.pop()
        if isinstance(node, JsonNode):
            found[node.value] = None
        elif isinstance(node, RuleNode) and node.name not in rules:
            rules.add(node.name)
            waiting.append(tree.rules[node.name])
        waiting += inner_nodes(node)
    return list(found)


def shares_definitions(tree: ConstraintTree) -> bool:
    """Return whether many definitions would be written again, once for each JSON value that refers to them."""
    names = [find_names(value, tree.definitions) for value in find_json_values(tree, tree.start)]
    repeated = sum(map(len, names)) - len(set[str]().union(*names))
    return repeated > MAX_REPEATED_DEFINITIONS


# -- writing nodes


def write_count(node: RepeatNode) -> str:
    """Return how many times a repetition comes, as regular expressions and EBNF write it."""
    sign = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((node.least, node.most))
    return sign or f"{{{node.least},{'' if node.most is None else node.most}}}"


def write_class(node: CharacterNode, escape: Callable[[str], str]) -> str:
    """Return a set of characters in brackets."""
    ranges = [
        escape(first) if first == last else f"{escape(first)}-{escape(last)}"
        for first, last in node.ranges
    ]
    return f"[{'^' * node.negated}{''.join(ranges)}]"


class RuleWriter:
    """Writes nodes as the rules of a language; languages differ in their leaves, which subclasses write."""

    METHODS: Mapping[type, str] = {
        LiteralNode: "write_literal",
        CharacterNode: "write_characters",
        SequenceNode: "write_sequence",
        ChoiceNode: "write_choice",
        RepeatNode: "write_repeat",
        RuleNode: "write_rule",
        FreeTextNode: "write_free_text",
        JsonNode: "write_json",
    }

    def __init__(self, tree: ConstraintTree) -> None:
        self.tree = tree
        self.written: dict[str, str] = {"": ""}  # the texts of rules
        self._waiting: list[str] = []

    def write_rules(self, start: Node) -> dict[str, str]:
        """Return the text of a node, under "", and those of all rules that it needs."""
        self.written[""] = self.write(start)
        while self._waiting:
            name = self._waiting.pop()
            if name not in self.written:
                self.written[name] = self.write(self.tree.rules[name])
        return self.written

    def write(self, node: Node) -> str:
        """Return a node as an expression that can stand in a sequence."""
        text: str = getattr(self, self.METHODS[type(node)])(node)
        return text

    def write_rule(self, node: RuleNode) -> str:
        """Return the name of a rule, which will be written."""
        self._waiting.append(node.name)
        return node.name

    def write_sequence(self, node: SequenceNode) -> str:
        """Return parts one after the other."""
        return " ".join(map(self.write, node.parts)) or '""'

    def write_choice(self, node: ChoiceNode) -> str:
        """Return one of several options."""
        return f"({' | '.join(map(self.write, node.options))})"

    def write_repeat(self, node: RepeatNode) -> str:
        """Return an item several times."""
        return f"({self.write(node.item)}){write_count(node)}"
