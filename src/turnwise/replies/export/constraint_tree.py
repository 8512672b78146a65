"""The form between a reply grammar and the grammars of constrained decoding: a tree of nodes, with named rules.

    LiteralNode     exactly this text
    CharacterNode   one character of a set
    SequenceNode    one node after the other
    ChoiceNode      one of several nodes
    RepeatNode      a node several times
    RuleNode        the node of a named rule, so that values can nest and parts can be shared
    FreeTextNode    any text up to the first of some texts
    JsonNode        a JSON value of a type (`value_types.py`)

`reply_tree.py` builds such a tree from a grammar and tools; `lark.py`, `gbnf.py` and `structural_tag.py` write it. A
writer knows nothing of templates and tools, and the builder nothing of the languages.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from os.path import commonprefix

from turnwise.replies.export.value_types import ValueType

__all__ = [
    "CharacterNode",
    "ChoiceNode",
    "ConstraintTree",
    "FreeTextNode",
    "JsonNode",
    "LiteralNode",
    "Node",
    "RepeatNode",
    "RuleNode",
    "SequenceNode",
]


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


def make_repeat(item: Node, least: int = 0, most: int | None = None) -> Node:
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
    if isinstance(node, ChoiceNode):
        return commonprefix([literal_head(option) for option in node.options])
    return ""


def drop_head(node: Node, head: str) -> Node:
    """Return a node without a text with which it begins."""
    if isinstance(node, SequenceNode):
        return make_sequence(drop_head(node.parts[0], head), *node.parts[1:])
    if isinstance(node, ChoiceNode):
        return make_choice([drop_head(option, head) for option in node.options])
    assert isinstance(node, LiteralNode) and node.text.startswith(head)
    return make_sequence(node.text[len(head) :])


def inner_nodes(node: Node) -> tuple[Node, ...]:
    """Return the nodes that a node is made of; what a rule holds is not looked at."""
    if isinstance(node, SequenceNode):
        return node.parts
    if isinstance(node, ChoiceNode):
        return node.options
    return (node.item,) if isinstance(node, RepeatNode) else ()


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
