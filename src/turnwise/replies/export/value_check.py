"""Check the arguments of a call against the types of a tool's schema (`value_types.py`).

A grammar makes an engine write arguments that fit; this tells whether an engine did, so both read a schema in the same
way. The cost is bounded whatever the schema is: no pair of a value and a type is looked at twice, and a pattern is
matched without backtracking.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from turnwise.errors import short_repr
from turnwise.replies.export.constraint_tree import (
    CharacterNode,
    ChoiceNode,
    LiteralNode,
    Node,
    RepeatNode,
    SequenceNode,
)
from turnwise.replies.export.patterns import ANY_CHARACTER, pattern_node
from turnwise.replies.export.value_types import (
    ArrayType,
    ConstantType,
    NamedType,
    NumberType,
    ObjectType,
    StringType,
    ToolSignature,
    UnionType,
    ValueType,
)

__all__ = ["find_misfit"]

MAX_PATTERN_STEPS = 200_000  # positions that the nodes of a pattern look at


def find_misfit(arguments: str, signature: ToolSignature) -> str | None:
    """Return why the arguments of a call, as JSON text, do not fit a tool's schema; None if they do.

    Example:
        >>> from turnwise.replies.export.schema_reader import read_signatures
        >>> schema = {"type": "object", "properties": {"port": {"type": "string"}}}
        >>> (tide,) = read_signatures([{"name": "tide", "parameters": schema}])
        >>> find_misfit('{"port": 5}', tide)
        'arguments.port: a string is needed, not 5'
    """
    try:
        value = json.loads(arguments)
        return _ValueChecker(signature.definitions).check(value, signature.arguments, "arguments")
    except ValueError:
        return f"the arguments are not JSON: {short_repr(arguments)}"
    except RecursionError:
        return "the arguments are nested too deeply"


class _ValueChecker:
    """Compares values with types; each check returns the first misfit, None if there is none."""

    def __init__(self, definitions: Mapping[str, ValueType]) -> None:
        self._definitions = definitions
        self._known: dict[tuple[int, int], str | None] = {}  # by the identities of value and type

    def check(self, value: Any, type: ValueType, path: str) -> str | None:
        while isinstance(type, NamedType):
            type = self._definitions[type.name]
        if not isinstance(value, (dict, list)):
            return self._check_once(value, type, path)
        key = (id(value), id(type))
        if key not in self._known:
            self._known[key] = self._check_once(value, type, path)
        return self._known[key]

    def _check_once(self, value: Any, type: ValueType, path: str) -> str | None:
        if isinstance(type, ObjectType):
            return self._check_object(value, type, path)
        if isinstance(type, ArrayType):
            return self._check_array(value, type, path)
        if isinstance(type, UnionType):
            return self._check_union(value, type, path)
        if isinstance(type, StringType):
            return _check_string(value, type, path)
        if isinstance(type, NumberType):
            return _check_number(value, type, path)
        if isinstance(type, ConstantType) and not _is_constant(value, type):
            return _expected(" or ".join(type.texts), value, path)
        return None

    def _check_object(self, value: Any, type: ObjectType, path: str) -> str | None:
        if not isinstance(value, dict):
            return _expected("an object", value, path)
        members = dict(type.members)
        for name in sorted(type.required):
            if name not in value:
                return f"{path}: the member {short_repr(name)} is missing"
        for name, inner in value.items():
            declared = members.get(name, type.other)
            if declared is None:
                return f"{path}: there is no member {short_repr(name)} in the schema"
            misfit = self.check(inner, declared, f"{path}.{name}")
            if misfit is not None:
                return misfit
        return None

    def _check_array(self, value: Any, type: ArrayType, path: str) -> str | None:
        if not isinstance(value, list):
            return _expected("a list", value, path)
        size = len(value)
        if size < type.least or (type.most is not None and size > type.most):
            return f"{path}: a list of {size} is not of a length that the schema allows"
        for index, inner in enumerate(value):
            declared = type.leading[index] if index < len(type.leading) else type.element
            misfit = declared and self.check(inner, declared, f"{path}[{index}]")
            if misfit:
                return misfit
        return None

    def _check_union(self, value: Any, type: UnionType, path: str) -> str | None:
        misfits = [self.check(value, option, path) for option in type.options]
        if None in misfits:
            return None
        return f"{path}: {short_repr(value)} is of none of the types that the schema allows"


def _expected(what: str, value: Any, path: str) -> str:
    return f"{path}: {what} is needed, not {short_repr(value)}"


def _check_string(value: Any, type: StringType, path: str) -> str | None:
    if not isinstance(value, str):
        return _expected("a string", value, path)
    size = len(value)
    if size < type.least or (type.most is not None and size > type.most):
        return f"{path}: a string of {size} characters is not of a length that the schema allows"
    if type.pattern is not None and not _matches(type.pattern, value):
        return f"{path}: {short_repr(value)} does not match the pattern of the schema"
    return None


def _check_number(value: Any, type: NumberType, path: str) -> str | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if type.is_whole and not (is_number and value == value // 1):
        return _expected("a whole number", value, path)
    if not is_number:
        return _expected("a number", value, path)
    low, high = type.minimum, type.maximum
    is_low = low is not None and (value < low or (type.excludes_minimum and value == low))
    is_high = high is not None and (value > high or (type.excludes_maximum and value == high))
    if is_low or is_high:
        return f"{path}: {short_repr(value)} is not within the bounds of the schema"
    return None


def _is_constant(value: Any, type: ConstantType) -> bool:
    # As texts, since True equals 1 in Python.
    text = json.dumps(value, sort_keys=True)
    return any(text == json.dumps(json.loads(one), sort_keys=True) for one in type.texts)


# -- patterns


def _matches(pattern: str, text: str) -> bool:
    """Return whether a text fits a pattern; also where it would cost too much to tell."""
    matcher = _PatternMatcher(text)
    try:
        return len(text) in matcher.find_ends(pattern_node(pattern, ANY_CHARACTER), {0})
    except _TooCostly:
        return True


class _TooCostly(Exception):
    """A pattern takes too many steps; it never leaves this module."""


class _PatternMatcher:
    """Follows all ways through a pattern at once, as sets of positions in a text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._steps = 0

    def find_ends(self, node: Node, starts: set[int]) -> set[int]:
        """Return where a node may end that begins at one of some positions."""
        self._steps += 1 + len(starts)
        if self._steps > MAX_PATTERN_STEPS:
            raise _TooCostly
        text = self._text
        if isinstance(node, CharacterNode):
            return {at + 1 for at in starts if at < len(text) and node.accepts(text[at])}
        if isinstance(node, LiteralNode):
            return {at + len(node.text) for at in starts if text.startswith(node.text, at)}
        if isinstance(node, ChoiceNode):
            return set[int]().union(*(self.find_ends(one, starts) for one in node.options))
        if isinstance(node, RepeatNode):
            return self._find_repeated(node, starts)
        assert isinstance(node, SequenceNode), "patterns have no other nodes"
        for part in node.parts:
            starts = self.find_ends(part, starts)
        return starts

    def _find_repeated(self, node: RepeatNode, starts: set[int]) -> set[int]:
        for _ in range(node.least):
            starts = self.find_ends(node.item, starts)
        found, count = set(starts), node.least
        while starts and (node.most is None or count < node.most):
            starts = self.find_ends(node.item, starts) - found
            found |= starts
            count += 1
        return found
