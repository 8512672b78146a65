"""A constraint as a structural tag: the JSON that xgrammar reads, and with it vLLM, SGLang and TensorRT-LLM.

Texts, sequences, choices, repetition and JSON schemas have formats of their own there; free text is `any_text` with the
texts that it excludes. What has no format (values in Python's or a template's own notation, which nest) is written as
a `grammar` in its EBNF. So is JSON that xgrammar 0.2 reads too narrowly: strings of a length or a pattern, in which it
accepts no escapes, not even a line break, and constants with brackets, in which it accepts no blanks. Formats cannot
refer to each other: parts that share rules are one grammar.
"""

from __future__ import annotations

from typing import Any

from turnwise.replies.export.constraint_tree import (
    CharacterNode,
    ChoiceNode,
    ConstantType,
    ConstraintTree,
    Definitions,
    FreeTextNode,
    JsonNode,
    LiteralNode,
    Node,
    RepeatNode,
    RuleNode,
    SequenceNode,
    StringType,
    ValueType,
    find_names,
    has_characters,
    inner_nodes,
    shares_definitions,
    to_json_schema,
    walk_types,
)
from turnwise.replies.export.gbnf import write_gbnf

__all__ = ["to_structural_tag"]

Format = dict[str, Any]
REPETITIONS = {(0, None): "star", (1, None): "plus", (0, 1): "optional"}
INLINE_RULES = ("body", "more")  # parts of a reply, which are used in a few places


def to_structural_tag(tree: ConstraintTree) -> Format:
    """Return a tree as a structural tag."""
    return {"type": "structural_tag", "format": _TagWriter(tree).write(tree.start)}


class _TagWriter:
    def __init__(self, tree: ConstraintTree) -> None:
        self._tree = tree
        # A call is written where it is the first, and where it follows.
        self._grammars: dict[Node, Format] = {}
        self._shares_definitions = shares_definitions(tree)

    def write(self, node: Node) -> Format:
        """Return the format of a node."""
        if isinstance(node, LiteralNode):
            return {"type": "const_string", "value": node.text}
        if isinstance(node, RuleNode) and node.name in INLINE_RULES:
            return self.write(self._tree.rules[node.name])
        if self._needs_grammar(node):
            return self._write_grammar(node)
        if isinstance(node, SequenceNode):
            if not node.parts:
                return {"type": "const_string", "value": ""}
            return {"type": "sequence", "elements": [self.write(part) for part in node.parts]}
        if isinstance(node, ChoiceNode):
            return {"type": "or", "elements": [self.write(option) for option in node.options]}
        if isinstance(node, RepeatNode):
            return self._repeat(node)
        if isinstance(node, FreeTextNode):
            return _free_text(node)
        assert isinstance(node, JsonNode)
        if _is_read_otherwise(node.value, self._tree.definitions):
            return self._write_grammar(node)
        schema = to_json_schema(node.value, self._tree.definitions)
        return {"type": "json_schema", "json_schema": schema}

    def _write_grammar(self, node: Node) -> Format:
        if node not in self._grammars:
            self._grammars[node] = {"type": "grammar", "grammar": write_gbnf(self._tree, node)}
        return self._grammars[node]

    def _needs_grammar(self, node: Node) -> bool:
        if isinstance(node, RuleNode):
            return node.name not in INLINE_RULES
        if isinstance(node, FreeTextNode):
            return bool(node.least or node.most is not None or node.not_first)
        if isinstance(node, RepeatNode):
            return has_characters(node.item)
        if isinstance(node, (SequenceNode, ChoiceNode)):
            return sum(map(self._has_rules, inner_nodes(node))) > 1
        return isinstance(node, CharacterNode)

    def _has_rules(self, node: Node) -> bool:
        """Return whether a node refers to rules, or to definitions that are written as rules."""
        if isinstance(node, RuleNode):
            return node.name not in INLINE_RULES
        if isinstance(node, JsonNode):
            return self._shares_definitions and bool(find_names(node.value))
        return any(map(self._has_rules, inner_nodes(node)))

    def _repeat(self, node: RepeatNode) -> Format:
        kind = REPETITIONS.get((node.least, node.most))
        content = self.write(node.item)
        if kind is not None:
            return {"type": kind, "content": content}
        return {"type": "repeat", "min": node.least, "max": node.most, "content": content}


def _is_read_otherwise(value: ValueType, definitions: Definitions) -> bool:
    """Return whether xgrammar takes a part of a type for less than it is: bounded strings, constants with brackets."""
    for one in walk_types(value, definitions):
        if isinstance(one, StringType) and one != StringType():
            return True
        if isinstance(one, ConstantType) and any(text[0] in "{[" for text in one.texts):
            return True
    return False


def _free_text(node: FreeTextNode) -> Format:
    excluded = list(dict.fromkeys(text for text in (*node.without, node.ending) if text))
    text: Format = {"type": "any_text", "excludes": excluded}
    if not node.ending:
        return text
    ending = {"type": "const_string", "value": node.ending}
    return {"type": "sequence", "elements": [text, ending]}
