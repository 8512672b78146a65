"""Check the arguments of a call against the types of a tool's schema (`constraint_tree.py`).

A grammar makes an engine write arguments that fit; this checks whether an engine did, so both read a schema in the same
way. The cost is bounded whatever the schema is: no pair of a value and a type is looked at twice, a pattern is matched
without backtracking, and all that is done for a reply takes steps of one budget. What cannot be decided within it does
not fit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any, NoReturn

from turnwise.errors import printable, short_repr
from turnwise.messages import JsonObject
from turnwise.replies.export.constraint_tree import (
    ArrayType,
    CharacterNode,
    ChoiceNode,
    ConstantType,
    Definitions,
    LiteralNode,
    NamedType,
    Node,
    NumberType,
    ObjectType,
    RepeatNode,
    SequenceNode,
    StringType,
    ToolSignature,
    UnionType,
    ValueType,
)
from turnwise.replies.export.patterns import ANY_CHARACTER, pattern_node

FREE_STEPS = 100_000
STEPS_PER_CHARACTER = 50
MAX_STEPS = 2_000_000  # about a second
CHARACTERS_PER_STEP = 64  # of a text that is scanned for characters of one set
MAX_SHOWN_NAME = 200


class StepBudget:
    """The steps that a check may take: pairs of values and types, and positions that the nodes of a pattern look at.

    Args:
        size: the characters that are checked.
    """

    def __init__(self, size: int) -> None:
        self._left = min(FREE_STEPS + STEPS_PER_CHARACTER * size, MAX_STEPS)

    def take(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise _TooCostly


class _TooCostly(Exception):
    """A check takes too many steps; the error never leaves this module."""


class _OddMember(ValueError):
    """An object has a member twice; the error never leaves this module."""


def find_misfit(
    arguments: str, signature: ToolSignature, budget: StepBudget | None = None
) -> str | None:
    """Return why the arguments of a call, as JSON text, do not fit a tool's schema; None if they do.

    Args:
        arguments: the text.
        signature: the tool.
        budget: for several calls together; by default one for this call.

    Example:
        >>> from turnwise.replies.export.schema_reader import read_signatures
        >>> schema = {"type": "object", "properties": {"port": {"type": "string"}}}
        >>> (tide,) = read_signatures([{"name": "tide", "parameters": schema}])
        >>> find_misfit('{"port": 5}', tide)
        'arguments.port: a string is needed, not 5'
    """
    return find_value_misfit(
        arguments, signature.arguments, signature.definitions, "arguments", budget
    )


def find_value_misfit(
    text: str,
    type: ValueType,
    definitions: Definitions,
    name: str = "value",
    budget: StepBudget | None = None,
) -> str | None:
    """Return why a JSON text does not fit a type; None if it does.

    Args:
        text: the text.
        type: the type.
        definitions: what it refers to.
        name: what the value is called in the answer.
        budget: for several values together; by default one for this value.
    """
    checker = _ValueChecker(definitions, budget or StepBudget(len(text)))
    verb = "are" if name.endswith("s") else "is"
    try:
        value = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_read_members)
        misfit = checker.check(value, type)
    except _OddMember as error:
        return str(error)
    except ValueError:
        return f"the {name} {verb} not JSON: {short_repr(text)}"
    except RecursionError:
        return f"the {name} {verb} nested too deeply"
    except _TooCostly:
        return (
            f"checking the {name} takes too many steps: the schema or its patterns are too complex"
        )
    return None if misfit is None else f"{name}{misfit}"


def fits_type(value: Any, type: ValueType) -> bool:
    """Return whether a value is of a type that refers to no definition; not if that takes too many steps to tell."""
    try:
        size = len(value) if isinstance(value, str) else 0
        return _ValueChecker({}, StepBudget(size)).check(value, type) is None
    except _TooCostly:
        return False


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _read_members(pairs: list[tuple[str, Any]]) -> JsonObject:
    members: JsonObject = {}
    for name, value in pairs:
        if name in members:
            raise _OddMember(f"the arguments have the member {short_repr(name)} twice")
        members[name] = value
    return members


class _ValueChecker:
    """Compares values with types; each check returns the first misfit, None if there is none.

    A misfit begins with the place in the value, and those around it write theirs before it.
    """

    def __init__(self, definitions: Definitions, budget: StepBudget) -> None:
        self._definitions = definitions
        self._budget = budget
        self._known: dict[tuple[int, int], str | None] = {}  # by the identities of value and type
        self._members: dict[int, dict[str, ValueType]] = {}  # by the identity of the type
        self._constants: dict[int, frozenset[str]] = {}

    def check(self, value: Any, type: ValueType) -> str | None:
        while isinstance(type, NamedType):
            type = self._definitions[type.name]
        if not isinstance(value, (dict, list)):
            return self._check_once(value, type)
        key = (id(value), id(type))
        if key not in self._known:
            self._known[key] = self._check_once(value, type)
        return self._known[key]

    def _check_once(self, value: Any, type: ValueType) -> str | None:
        self._budget.take(1)
        check = _CHECKS.get(type.__class__)
        return check(self, value, type) if check is not None else None

    def _check_object(self, value: Any, type: ObjectType) -> str | None:
        if not isinstance(value, dict):
            return _expected("an object", value)
        if id(type) not in self._members:
            self._members[id(type)] = dict(type.members)
        members = self._members[id(type)]
        self._budget.take(len(type.required))
        for name in sorted(type.required):
            if name not in value:
                return f": the member {short_repr(name)} is missing"
        for name, inner in value.items():
            declared = members.get(name, type.other)
            if declared is None:
                return f": there is no member {short_repr(name)} in the schema"
            misfit = self.check(inner, declared)
            if misfit is not None:
                return f".{printable(name, MAX_SHOWN_NAME)}{misfit}"
        return None

    def _check_array(self, value: Any, type: ArrayType) -> str | None:
        if not isinstance(value, list):
            return _expected("a list", value)
        size = len(value)
        if not _is_within(size, type):
            return f": a list of {size} is not of a length that the schema allows"
        for index, inner in enumerate(value):
            declared = type.leading[index] if index < len(type.leading) else type.element
            misfit = declared and self.check(inner, declared)
            if misfit:
                return f"[{index}]{misfit}"
        return None

    def _check_union(self, value: Any, type: UnionType) -> str | None:
        if any(self.check(value, option) is None for option in type.options):
            return None
        return f": {short_repr(value)} is of none of the types that the schema allows"

    def _check_string(self, value: Any, type: StringType) -> str | None:
        if not isinstance(value, str):
            return _expected("a string", value)
        size = len(value)
        if not _is_within(size, type):
            return f": a string of {size} characters is not of a length that the schema allows"
        if type.pattern is not None:
            self._budget.take(len(type.pattern))
            node = pattern_node(type.pattern, ANY_CHARACTER)
            if size not in PatternMatcher(value, self._budget).find_ends(node, {0}):
                return f": {short_repr(value)} does not match the pattern of the schema"
        return None

    def _check_constant(self, value: Any, type: ConstantType) -> str | None:
        # As texts, since True equals 1 in Python.
        if id(type) not in self._constants:
            self._budget.take(len(type.texts))
            self._constants[id(type)] = frozenset(_to_text(json.loads(one)) for one in type.texts)
        text = _to_text(value)
        self._budget.take(len(text))  # those around it are written as well
        if text in self._constants[id(type)]:
            return None
        return _expected(printable(" or ".join(type.texts)), value)

    def _check_number(self, value: Any, type: NumberType) -> str | None:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if type.is_whole and not (is_number and value == value // 1):
            return _expected("a whole number", value)
        if not is_number:
            return _expected("a number", value)
        low, high = type.minimum, type.maximum
        is_low = low is not None and (value < low or (type.excludes_minimum and value == low))
        is_high = high is not None and (value > high or (type.excludes_maximum and value == high))
        if is_low or is_high:
            return f": {short_repr(value)} is not within the bounds of the schema"
        return None


_CHECKS: Mapping[type, Callable[[_ValueChecker, Any, Any], str | None]] = {
    ObjectType: _ValueChecker._check_object,
    ArrayType: _ValueChecker._check_array,
    UnionType: _ValueChecker._check_union,
    StringType: _ValueChecker._check_string,
    NumberType: _ValueChecker._check_number,
    ConstantType: _ValueChecker._check_constant,
}


def _expected(what: str, value: Any) -> str:
    return f": {what} is needed, not {short_repr(value)}"


def _is_within(size: int, type: ArrayType | StringType) -> bool:
    most = type.checked_most if type.most is None else type.most
    return type.least <= size and (most is None or size <= most)


def _to_text(value: Any) -> str:
    """Return one text for equal values: 1 and 1.0 are equal in JSON Schema, 1 and true are not."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, sort_keys=True)


# -- patterns


class PatternMatcher:
    """Follows all ways through a pattern at once, as sets of positions in a text."""

    def __init__(self, text: str, budget: StepBudget) -> None:
        self._text = text
        self._budget = budget

    def find_ends(self, node: Node, starts: Collection[int]) -> Collection[int]:
        """Return where a node may end that begins at one of some positions."""
        self._budget.take(1 + len(starts))
        text = self._text
        if isinstance(node, CharacterNode):
            return {at + 1 for at in starts if at < len(text) and node.accepts(text[at])}
        if isinstance(node, LiteralNode):
            return {at + len(node.text) for at in starts if text.startswith(node.text, at)}
        if isinstance(node, ChoiceNode):
            return set[int]().union(*(self.find_ends(one, starts) for one in node.options))
        if isinstance(node, RepeatNode):
            if isinstance(node.item, CharacterNode) and node.most is None:
                return self._find_run(node.item, node.least, starts)
            return self._find_repeated(node, starts)
        assert isinstance(node, SequenceNode), "patterns have no other nodes"
        for part in node.parts:
            starts = self.find_ends(part, starts)
        return starts

    def _find_run(
        self, item: CharacterNode, least: int, starts: Collection[int]
    ) -> Collection[int]:
        """Return where characters of one set may end: all positions from the first to the end of each run of them."""
        runs: list[range] = []
        end = -1
        for start in sorted(starts):
            if start <= end:
                continue  # in a run that was found, of which it reaches no more
            found = _compile_run(item).match(self._text, start)
            end = found.end() if found is not None else start
            self._budget.take((end - start) // CHARACTERS_PER_STEP)
            runs.append(range(start + least, end + 1))
        if len(runs) == 1:
            return runs[0]
        self._budget.take(sum(map(len, runs)))
        return set[int]().union(*runs)

    def _find_repeated(self, node: RepeatNode, starts: Collection[int]) -> Collection[int]:
        for _ in range(node.least):
            starts = self.find_ends(node.item, starts)
        found, count = set(starts), node.least
        while starts and (node.most is None or count < node.most):
            starts = set(self.find_ends(node.item, starts)) - found
            found |= starts
            count += 1
        return found


@lru_cache(256)
def _compile_run(item: CharacterNode) -> re.Pattern[str]:
    """Return the expression of any number of characters of a set; it has nothing to go back to."""
    ranges = "".join(f"{re.escape(first)}-{re.escape(last)}" for first, last in item.ranges)
    characters = f"[{'^' if item.negated else ''}{ranges}]" if ranges else "."
    return re.compile(f"{characters}*", re.DOTALL)


# ---- disjoint types ----
#
# Whether a value can be of two types at once: `oneOf` excludes such values, and a grammar cannot.
#
# The answer is "disjoint" only where that is proved. The schema of an object is open unless declared otherwise, while
# its type here has the declared members only: so what counts is whether a value that is written for one fits the
# *schema* of the other.


MAX_DEPTH = 12
CONTAINERS = {ArrayType: list, ObjectType: dict}
KINDS = (StringType, NumberType, *CONTAINERS)


def are_disjoint(
    first: ValueType, second: ValueType, definitions: Definitions, depth: int = 0
) -> bool:
    """Return whether it is proved that no value is of both types."""
    if depth > MAX_DEPTH:
        return False
    pair = [definitions[one.name] if isinstance(one, NamedType) else one for one in (first, second)]
    for one, other in (pair, pair[::-1]):
        if isinstance(one, UnionType):
            return all(are_disjoint(part, other, definitions, depth + 1) for part in one.options)
        if isinstance(one, ConstantType):
            return _excludes_constants(one, other)
    one, other = pair
    if type(one) not in KINDS or type(other) not in KINDS:
        return False  # any value, or a definition that is still being read
    if isinstance(one, ObjectType) and isinstance(other, ObjectType):
        return _lacks_member(one, other, definitions, depth) and _lacks_member(
            other, one, definitions, depth
        )
    return type(one) is not type(other) or _are_apart(one, other)


def _excludes_constants(constants: ConstantType, other: ValueType) -> bool:
    values = [json.loads(text) for text in constants.texts]
    if isinstance(other, ConstantType):
        texts = {_to_text(json.loads(text)) for text in other.texts}
        return texts.isdisjoint(map(_to_text, values))
    if type(other) not in KINDS:
        return False
    if isinstance(other, StringType | NumberType):
        return not any(fits_type(value, other) for value in values)
    return not any(isinstance(value, CONTAINERS[type(other)]) for value in values)


def _are_apart(one: ValueType, other: ValueType) -> bool:
    """Return whether bounds exclude that two types of one kind have a value in common."""
    if isinstance(one, NumberType) and isinstance(other, NumberType):
        return _is_below(one, other) or _is_below(other, one)
    if isinstance(one, StringType | ArrayType) and isinstance(other, StringType | ArrayType):
        return any(
            low.most is not None and low.most < high.least
            for low, high in ((one, other), (other, one))
        )
    return False


def _is_below(low: NumberType, high: NumberType) -> bool:
    if low.maximum is None or high.minimum is None:
        return False
    touches = low.maximum == high.minimum and (low.excludes_maximum or high.excludes_minimum)
    return low.maximum < high.minimum or touches


def _lacks_member(
    written: ObjectType, other: ObjectType, definitions: Definitions, depth: int
) -> bool:
    """Return whether every value of a type lacks a member that the other requires, or has it of another type."""
    members, wanted = dict(written.members), dict(other.members)
    for name in sorted(other.required):
        if name not in members:
            if written.other is None:
                return True
        elif name in wanted and are_disjoint(members[name], wanted[name], definitions, depth + 1):
            return True
    return False
