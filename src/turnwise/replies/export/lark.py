r"""A constraint in the Lark of llguidance.

Its lexer takes the longest lexeme, so a text and the marker after it must be one lexeme: free text becomes a terminal
that ends with its ending and in which nothing else is complete before, as its operators `&` and `~` express:

    TEXT1: /(?s:.*)<tool_call>/ & ~/(?s:.*)(<tool_call>|<\|im_end\|>)(?s:.+)/

JSON is left to `%json`, unless many values refer to the same definitions, which each `%json` would repeat. A special
token of the tokenizer is no text for llguidance; given the ids of special tokens, they are written as `<[151657]>`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import takewhile

from turnwise.errors import MessageError, short_repr
from turnwise.replies.export.constraint_tree import (
    NOTHING,
    CharacterNode,
    ChoiceNode,
    ConstraintTree,
    FreeTextNode,
    JsonNode,
    LiteralNode,
    Node,
    RepeatNode,
    RuleNode,
    RuleWriter,
    SequenceNode,
    find_names,
    has_characters,
    inner_nodes,
    shares_definitions,
    to_json_schema,
    write_class,
    write_count,
)
from turnwise.replies.export.value_nodes import JSON_NOTATION, ValueNodes

__all__ = ["to_lark"]

ANY_TEXT = "(?s:.*)"
SPECIAL_SIGNS = frozenset(r"\.+*?()|[]{}^$#&-~/")


def to_lark(tree: ConstraintTree, special_tokens: Mapping[str, int] | None = None) -> str:
    """Return a tree as a Lark grammar for llguidance.

    Raises:
        MessageError: the special tokens are no mapping of texts to ids.
    """
    given = {} if special_tokens is None else special_tokens
    if not isinstance(given, Mapping) or not all(
        text and isinstance(text, str) and type(id) is int for text, id in given.items()
    ):
        raise MessageError(
            f"special_tokens is {short_repr(special_tokens)}",
            hint="Give the ids of special tokens by their texts: {'<|im_end|>': 151645}.",
        )
    return _LarkWriter(tree, given).write_grammar()


class _LarkWriter(RuleWriter):
    def __init__(self, tree: ConstraintTree, special_tokens: Mapping[str, int]) -> None:
        super().__init__(tree)
        self._json_nodes = ValueNodes(tree, JSON_NOTATION)
        self._shares_definitions = shares_definitions(tree)
        self._tokens = special_tokens
        longest_first = sorted(special_tokens, key=len, reverse=True)
        self._token_pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self._terminals: dict[str, str] = {}  # the name of each terminal, by its definition
        self._values: dict[str, str] = {}  # the name of each rule of a JSON value, by its schema

    def write_grammar(self) -> str:
        rules = self.write_rules(self.tree.start)
        lines = ["%llguidance {}", f"start: {rules.pop('')}"]
        lines += [f"{_rule_name(name)}: {text}" for name, text in rules.items()]
        lines += [f"{name}: {schema}" for schema, name in self._values.items()]
        lines += [f"{name}: {definition}" for definition, name in self._terminals.items()]
        return "\n".join(lines) + "\n"

    def write(self, node: Node) -> str:
        if isinstance(node, LiteralNode):
            return self.write_literal(node)
        is_pattern = self._is_pattern(node) and has_characters(node)
        return self._write_pattern(node) if is_pattern else super().write(node)

    def write_rule(self, node: RuleNode) -> str:
        return _rule_name(super().write_rule(node))

    def write_literal(self, node: LiteralNode) -> str:
        """Return a text, in which special tokens are written as tokens."""
        text, parts, position = node.text, list[str](), 0
        for match in self._token_pattern.finditer(text):
            parts += [_quote(text[position : match.start()]), f"<[{self._tokens[match.group()]}]>"]
            position = match.end()
        parts.append(_quote(text[position:]))
        return " ".join(part for part in parts if part != '""') or '""'

    def write_sequence(self, node: SequenceNode) -> str:
        """Return parts one after the other; those that are patterns side by side are one lexeme."""
        written: list[str] = []
        parts = list(node.parts)
        while parts:
            run = list(takewhile(self._is_pattern, parts))
            if any(map(has_characters, run)):
                written.append(self._write_pattern(SequenceNode(tuple(run))))
            else:
                run = run or parts[:1]
                written += map(self.write, run)
            del parts[: len(run)]
        return " ".join(written) or '""'

    def _is_pattern(self, node: Node) -> bool:
        if isinstance(node, LiteralNode):
            return not self._token_pattern.search(node.text)
        if isinstance(node, (SequenceNode, ChoiceNode, RepeatNode)):
            return all(map(self._is_pattern, inner_nodes(node)))
        return isinstance(node, CharacterNode)

    def _write_pattern(self, node: Node) -> str:
        """Return the terminal of a pattern. One that may be empty is an optional one that is not."""
        pattern = pattern_of(node)
        if not _can_be_empty(node):
            return self._terminal("CHARS", f"/{pattern}/")
        return self._terminal("CHARS", f"/{pattern}/ & /(?s:.+)/") + "?"

    def write_characters(self, node: CharacterNode) -> str:
        return self._write_pattern(node)

    def write_free_text(self, node: FreeTextNode) -> str:
        token = self._token_pattern.search(node.ending)
        ending = node.ending[: token.start()] if token else node.ending
        others = [text for text in (node.ending, *node.without) if text]
        found = "|".join(map(_escape, dict.fromkeys(others)))
        count = ANY_TEXT
        if node.least or node.most is not None:
            count = f"(?s:.{write_count(RepeatNode(NOTHING, node.least, node.most))})"
        if node.not_first:
            sign = "".join(map(_escape, node.not_first))
            count = rf"(\s*|\s*[^\s{sign}]{ANY_TEXT})"
        definition = f"/{count}{_escape(ending)}/"
        # Nothing is complete before the ending is; without an ending, nothing at all.
        rest = "(?s:.+)" if node.ending and not token else ANY_TEXT
        if found:
            definition += f" & ~/{ANY_TEXT}({found}){rest}/"
        text = self._terminal("TEXT", definition)
        return f"{text} {self.write(LiteralNode(node.ending[token.start() :]))}" if token else text

    def write_json(self, node: JsonNode) -> str:
        if self._shares_definitions and find_names(node.value):
            return self.write(self._json_nodes.make(node.value))
        schema = to_json_schema(node.value, self.tree.definitions)
        text = f"%json {json.dumps(schema, ensure_ascii=False)}"
        return self._values.setdefault(text, f"json-{len(self._values) + 1}")

    def _terminal(self, prefix: str, definition: str) -> str:
        return self._terminals.setdefault(definition, f"{prefix}{len(self._terminals) + 1}")


def _rule_name(name: str) -> str:
    return f"r-{name}".replace("-", "_")


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _escape(text: str) -> str:
    written = []
    for sign in text:
        if sign in SPECIAL_SIGNS:
            written.append(f"\\{sign}")
        elif sign.isprintable() or ord(sign) > 0x7F:
            written.append(sign)
        else:
            written.append(f"\\x{ord(sign):02x}")
    return "".join(written)


def _can_be_empty(node: Node) -> bool:
    if isinstance(node, SequenceNode):
        return all(map(_can_be_empty, node.parts))
    if isinstance(node, ChoiceNode):
        return any(map(_can_be_empty, node.options))
    return isinstance(node, RepeatNode) and (node.least == 0 or _can_be_empty(node.item))


def pattern_of(node: Node) -> str:
    """Return a node that consists of texts and characters as a regular expression."""
    if isinstance(node, LiteralNode):
        return _escape(node.text)
    if isinstance(node, CharacterNode):
        return write_class(node, _escape)
    patterns = list(map(pattern_of, inner_nodes(node)))
    if isinstance(node, RepeatNode):
        return f"({patterns[0]}){write_count(node)}"
    return f"({('|' if isinstance(node, ChoiceNode) else '').join(patterns)})"
