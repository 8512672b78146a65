r"""A constraint in the Lark of llguidance.

Its lexer takes the longest lexeme, so a text and the marker after it must be one lexeme: free text becomes a terminal
that ends with its ending and in which nothing else is complete before, which its operators `&` and `~` say:

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
    CharacterNode,
    ChoiceNode,
    ConstraintTree,
    FreeTextNode,
    JsonNode,
    LiteralNode,
    Node,
    RepeatNode,
    RuleNode,
    SequenceNode,
    find_json_values,
    find_names,
    inner_nodes,
    repeats_definitions,
    to_json_schema,
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
    if special_tokens is not None and not _are_tokens(special_tokens):
        raise MessageError(
            f"special_tokens is {short_repr(special_tokens)}",
            hint="Give the ids of special tokens by their texts: {'<|im_end|>': 151645}.",
        )
    return _LarkWriter(tree, special_tokens or {}).write()


def _are_tokens(special_tokens: object) -> bool:
    return isinstance(special_tokens, Mapping) and all(
        text and isinstance(text, str) and type(id) is int for text, id in special_tokens.items()
    )


class _LarkWriter:
    def __init__(self, tree: ConstraintTree, special_tokens: Mapping[str, int]) -> None:
        self._tree = tree
        self._json_nodes = ValueNodes(tree, JSON_NOTATION)
        values = find_json_values(tree, tree.start)
        self._shares_definitions = repeats_definitions(values, tree.definitions)
        self._tokens = special_tokens
        longest_first = sorted(special_tokens, key=len, reverse=True)
        self._token_pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self._terminals: dict[str, str] = {}  # the name of each terminal, by its definition
        self._values: dict[str, str] = {}  # the name of each rule of a JSON value, by its schema
        self._waiting: list[str] = []

    def write(self) -> str:
        start = self._write(self._tree.start)
        rules: dict[str, str] = {}
        while self._waiting:
            name = self._waiting.pop()
            if name not in rules:
                rules[name] = self._write(self._tree.rules[name])
        lines = ["%llguidance {}", f"start: {start}"]
        lines += [f"{_rule_name(name)}: {text}" for name, text in rules.items()]
        lines += [f"{name}: {schema}" for schema, name in self._values.items()]
        lines += [f"{name}: {definition}" for definition, name in self._terminals.items()]
        return "\n".join(lines) + "\n"

    def _write(self, node: Node) -> str:
        """Return a node as an expression that can stand in a sequence."""
        if isinstance(node, LiteralNode):
            return self._literal(node.text)
        if self._is_pattern(node) and _has_characters(node):
            return self._pattern(node)
        if isinstance(node, SequenceNode):
            return self._sequence(node)
        if isinstance(node, ChoiceNode):
            return f"({' | '.join(map(self._write, node.options))})"
        if isinstance(node, RepeatNode):
            return self._repeat(node)
        if isinstance(node, RuleNode):
            self._waiting.append(node.name)
            return _rule_name(node.name)
        if isinstance(node, FreeTextNode):
            return self._free_text(node)
        assert isinstance(node, JsonNode)  # characters are patterns
        return self._json(node)

    def _literal(self, text: str) -> str:
        """Return a text, in which special tokens are written as tokens."""
        parts, position = [], 0
        for match in self._token_pattern.finditer(text):
            parts.append(text[position : match.start()])
            parts.append(match.group())
            position = match.end()
        parts.append(text[position:])
        written = [
            f"<[{self._tokens[part]}]>" if index % 2 else _quote(part)
            for index, part in enumerate(parts)
            if part
        ]
        return " ".join(written) or '""'

    def _sequence(self, node: SequenceNode) -> str:
        """Return parts one after the other; those that are patterns side by side are one lexeme."""
        written: list[str] = []
        parts = list(node.parts)
        while parts:
            run = list(takewhile(self._is_pattern, parts))
            if any(map(_has_characters, run)):
                written.append(self._pattern(SequenceNode(tuple(run))))
            else:
                run = run or parts[:1]
                written += map(self._write, run)
            del parts[: len(run)]
        return " ".join(written) or '""'

    def _is_pattern(self, node: Node) -> bool:
        """Return whether a node is a regular expression without special tokens."""
        if isinstance(node, LiteralNode):
            return not self._token_pattern.search(node.text)
        if isinstance(node, RepeatNode):
            return self._is_pattern(node.item)
        if isinstance(node, (SequenceNode, ChoiceNode)):
            return all(map(self._is_pattern, inner_nodes(node)))
        return isinstance(node, CharacterNode)

    def _pattern(self, node: Node) -> str:
        """Return the terminal of a pattern. One that may be empty is an optional one that is not."""
        pattern = pattern_of(node)
        if not _can_be_empty(node):
            return self._terminal("CHARS", f"/{pattern}/")
        return self._terminal("CHARS", f"/{pattern}/ & /(?s:.+)/") + "?"

    def _repeat(self, node: RepeatNode) -> str:
        most = "" if node.most is None else node.most
        sign = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((node.least, node.most))
        return f"({self._write(node.item)}){sign or f'{{{node.least},{most}}}'}"

    def _free_text(self, node: FreeTextNode) -> str:
        token = self._token_pattern.search(node.ending)
        ending = node.ending[: token.start()] if token else node.ending
        others = [text for text in (node.ending, *node.without) if text]
        found = "|".join(map(_escape, dict.fromkeys(others)))
        count = ANY_TEXT
        if node.least or node.most is not None:
            count = f"(?s:.{{{node.least},{'' if node.most is None else node.most}}})"
        if node.not_first:
            sign = "".join(map(_escape, node.not_first))
            count = rf"(\s*|\s*[^\s{sign}]{ANY_TEXT})"
        definition = f"/{count}{_escape(ending)}/"
        # Nothing is complete before the ending is; without an ending, nothing at all.
        rest = "(?s:.+)" if node.ending and not token else ANY_TEXT
        if found:
            definition += f" & ~/{ANY_TEXT}({found}){rest}/"
        text = self._terminal("TEXT", definition)
        return f"{text} {self._literal(node.ending[token.start() :])}" if token else text

    def _json(self, node: JsonNode) -> str:
        if self._shares_definitions and find_names(node.value):
            return self._write(self._json_nodes.make(node.value))
        schema = to_json_schema(node.value, self._tree.definitions)
        text = f"%json {json.dumps(schema, ensure_ascii=False)}"
        return self._values.setdefault(text, f"json-{len(self._values) + 1}")

    def _terminal(self, prefix: str, definition: str) -> str:
        return self._terminals.setdefault(definition, f"{prefix}{len(self._terminals) + 1}")


def _rule_name(name: str) -> str:
    return f"r-{name}".replace("-", "_")


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _escape(text: str) -> str:
    """Return a text as a pattern of llguidance's regular expressions."""
    written = []
    for sign in text:
        if sign in SPECIAL_SIGNS:
            written.append(f"\\{sign}")
        elif sign.isprintable() or ord(sign) > 0x7F:
            written.append(sign)
        else:
            written.append(f"\\x{ord(sign):02x}")
    return "".join(written)


def _class_pattern(node: CharacterNode) -> str:
    ranges = []
    for first, last in node.ranges:
        ranges.append(_escape(first) if first == last else f"{_escape(first)}-{_escape(last)}")
    return f"[{'^' * node.negated}{''.join(ranges)}]"


def _has_characters(node: Node) -> bool:
    return isinstance(node, CharacterNode) or any(map(_has_characters, inner_nodes(node)))


def _can_be_empty(node: Node) -> bool:
    """Return whether a pattern matches the empty text."""
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
        return _class_pattern(node)
    patterns = list(map(pattern_of, inner_nodes(node)))
    if isinstance(node, RepeatNode):
        most = "" if node.most is None else node.most
        return f"({patterns[0]}){{{node.least},{most}}}"
    return f"({('|' if isinstance(node, ChoiceNode) else '').join(patterns)})"
