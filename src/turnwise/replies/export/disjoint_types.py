"""Whether a value can be of two types at once: `oneOf` excludes such values, and a grammar cannot.

The answer is "disjoint" only where that is proved. The schema of an object is open unless it says otherwise, while its
type here has the declared members only: so what counts is whether a value that is written for one fits the *schema* of
the other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from turnwise.replies.export.value_check import fits_type
from turnwise.replies.export.value_types import (
    ArrayType,
    ConstantType,
    NamedType,
    NumberType,
    ObjectType,
    StringType,
    UnionType,
    ValueType,
)

MAX_DEPTH = 12
KINDS = {StringType: "string", NumberType: "number", ArrayType: "array", ObjectType: "object"}
JSON_KINDS = {str: "string", int: "number", float: "number", list: "array", dict: "object"}


def are_disjoint(
    first: ValueType, second: ValueType, definitions: Mapping[str, ValueType], depth: int = 0
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
        texts = {_spell(json.loads(text)) for text in other.texts}
        return texts.isdisjoint(map(_spell, values))
    if type(other) not in KINDS:
        return False
    if isinstance(other, StringType | NumberType):
        return not any(fits_type(value, other) for value in values)
    return all(JSON_KINDS.get(type(value)) != KINDS[type(other)] for value in values)


def _spell(value: object) -> str:
    """Return one text for equal values: 1 and 1.0 are equal in JSON Schema, 1 and true are not."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, sort_keys=True)


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
    written: ObjectType, other: ObjectType, definitions: Mapping[str, ValueType], depth: int
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
