"""The types of values that a grammar of calls knows: what a tool's JSON schema becomes (`schema_reader.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__all__ = ["ToolSignature", "ValueType"]

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
ANY = AnyValue()
BOOLEAN = ConstantType(("true", "false"))
NULL = ConstantType(("null",))


@dataclass(frozen=True, slots=True)
class ToolSignature:
    """A tool's name and the type of its arguments."""

    name: str
    arguments: ObjectType
    definitions: Mapping[str, ValueType]


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


def find_names(value: ValueType) -> set[str]:
    """Return the names of the definitions that a type is made of, without those within them."""
    found: set[str] = set()
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, NamedType):
            found.add(one.name)
        waiting += inner_types(one)
    return found


def repeats_definitions(values: Iterable[ValueType], definitions: Mapping[str, ValueType]) -> bool:
    """Return whether many definitions would be written again, once for each value that refers to them."""
    known: set[str] = set()
    repeated = 0
    for value in values:
        found: set[str] = set()
        waiting = [value]
        while waiting and repeated <= MAX_REPEATED_DEFINITIONS:
            one = waiting.pop()
            if isinstance(one, NamedType) and one.name not in found:
                found.add(one.name)
                waiting.append(definitions[one.name])
                repeated += one.name in known
            waiting += inner_types(one)
        known |= found
    return repeated > MAX_REPEATED_DEFINITIONS


def make_union(types: Iterable[ValueType]) -> ValueType:
    """Return the union of types, without unions in it."""
    flat: dict[ValueType, None] = {}
    for type in types:
        flat.update(dict.fromkeys(type.options if isinstance(type, UnionType) else (type,)))
    if ANY in flat:
        return ANY
    return next(iter(flat)) if len(flat) == 1 else UnionType(tuple(flat))
