"""Values as nodes, in the notations of templates: JSON, Python literals, and JSON with quotes of the template's own.

Where a target reads JSON schemas itself, JSON is left to it (`JsonNode`, `to_json_schema`); the nodes of JSON are for
targets that do not. A number looks the same in every notation, so it is a `JsonNode` everywhere.

The members of an object come in the order of the schema, as all engines have it: any order would be a grammar of
exponential size.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

from turnwise.errors import MessageError
from turnwise.replies.export.constraint_tree import (
    ANY,
    BOOLEAN,
    NOTHING,
    NULL,
    AnyValue,
    ArrayType,
    CharacterNode,
    ConstantType,
    ConstraintTree,
    FreeTextNode,
    JsonNode,
    LiteralNode,
    NamedType,
    Node,
    NumberType,
    ObjectType,
    RepeatNode,
    RuleNode,
    StringType,
    UnionType,
    ValueType,
    characters,
    make_choice,
    make_optional,
    make_repeat,
    make_sequence,
    make_union,
)
from turnwise.replies.export.patterns import CharacterWriter, pattern_node

__all__ = [
    "JSON_NOTATION",
    "PYTHON_NOTATION",
    "ValueNodes",
    "ValueNotation",
    "number_node",
]


# ---- number nodes ----
#
# Numbers as nodes, for grammars that have no arithmetic: bounds are written digit by digit.
#
# A number with bounds is written without an exponent: with one, its digits do not show its size.


DIGIT = characters("0-9")


def number_node(value: NumberType) -> Node:
    """Return a number as JSON writes it."""
    if value.minimum is not None or value.maximum is not None:
        return _whole_numbers(value) if value.is_whole else _decimal_numbers(value)
    digits = make_choice([LiteralNode("0"), make_sequence(characters("1-9"), RepeatNode(DIGIT))])
    whole = make_sequence(make_optional(LiteralNode("-")), digits)
    if value.is_whole:
        return whole
    fraction = make_optional(make_sequence(".", RepeatNode(DIGIT, 1)))
    sign = make_optional(characters("+-"))
    exponent = make_optional(make_sequence(characters("eE"), sign, RepeatNode(DIGIT, 1)))
    return make_sequence(whole, fraction, exponent)


# -- whole numbers


def _whole_numbers(value: NumberType) -> Node:
    """Return the whole numbers between two bounds, of which one may be missing."""
    low = None if value.minimum is None else int(value.minimum)
    high = None if value.maximum is None else int(value.maximum)
    options: list[Node] = []
    if low is None or low < 0:
        nearest = max(1, -high) if high is not None and high < 0 else 1
        options.append(make_sequence("-", _digits_between(nearest, None if low is None else -low)))
    if high is None or high >= 0:
        options.append(_digits_between(max(low or 0, 0), high))
    return make_choice(options)


def _digits_between(low: int, high: int | None) -> Node:
    """Return the numbers from `low` to `high`, neither below 0; without `high`, all from `low` up."""
    options: list[Node] = []
    size = len(str(low))
    if high is None:
        longer = RepeatNode(DIGIT, size)
        options.append(make_sequence(characters("1-9"), longer))
        high = 10**size - 1
    for count in range(size, len(str(high)) + 1):
        first = max(low, 10 ** (count - 1) if count > 1 else 0)
        last = min(high, 10**count - 1)
        options.append(_same_length(str(first), str(last)))
    return make_choice(options)


def _same_length(low: str, high: str) -> Node:
    """Return the numbers between two numbers of the same length, with one part for each digit of the bounds."""
    if not low:
        return NOTHING
    if low[0] == high[0]:
        return make_sequence(low[0], _same_length(low[1:], high[1:]))
    rest = len(low) - 1
    zeros, nines = "0" * rest, "9" * rest
    first, last = int(low[0]), int(high[0])
    options: list[Node] = []
    if low[1:] != zeros:  # only some of the numbers with this first digit
        options.append(make_sequence(low[0], _same_length(low[1:], nines)))
        first += 1
    if high[1:] != nines:
        options.append(make_sequence(high[0], _same_length(zeros, high[1:])))
        last -= 1
    if first <= last:
        between = CharacterNode(((str(first), str(last)),))
        options.append(make_sequence(between, RepeatNode(DIGIT, rest, rest) if rest else NOTHING))
    return make_choice(options)


# -- numbers with a fraction


class _Bound(NamedTuple):
    """A bound of numbers that are not negative: its digits before and after the point, and whether it is excluded."""

    whole: int
    fraction: str
    is_excluded: bool


def _make_bound(value: float, is_excluded: bool) -> _Bound:
    whole, _, fraction = f"{abs(Decimal(str(value))):f}".partition(".")
    return _Bound(int(whole), fraction.rstrip("0"), is_excluded)


def _decimal_numbers(value: NumberType) -> Node:
    """Return the numbers between two bounds, of which one may be missing."""
    low, high = value.minimum, value.maximum
    options: list[Node] = []
    if low is None or low < 0:
        nearest = _Bound(0, "", True)  # 0 is written without a sign
        if high is not None and high < 0:
            nearest = _make_bound(high, value.excludes_maximum)
        farthest = None if low is None else _make_bound(low, value.excludes_minimum)
        options += [make_sequence("-", one) for one in _magnitudes(nearest, farthest)]
    if high is None or high >= 0:
        nearest = _Bound(0, "", False)
        if low is not None and low >= 0:
            nearest = _make_bound(low, value.excludes_minimum)
        farthest = None if high is None else _make_bound(high, value.excludes_maximum)
        options += _magnitudes(nearest, farthest)
    return make_choice(options)


def _magnitudes(low: _Bound, high: _Bound | None) -> list[Node]:
    """Return the numbers between two bounds: with the digits before the point of each of them, and with others."""
    if high is not None and low.whole == high.whole:
        return _with_fraction(low.whole, low, high)
    options = _with_fraction(low.whole, low, None)
    any_fraction = make_optional(make_sequence(".", RepeatNode(DIGIT, 1)))
    last = None if high is None else high.whole - 1
    if last is None or low.whole < last:
        options.append(make_sequence(_digits_between(low.whole + 1, last), any_fraction))
    if high is not None:
        options += _with_fraction(high.whole, None, high)
    return options


def _with_fraction(whole: int, low: _Bound | None, high: _Bound | None) -> list[Node]:
    """Return a whole number and the fractions after it that are within bounds; no option if there is none."""
    fraction = _Fractions(
        low.fraction if low else "",
        high.fraction if high else None,
        excludes_low=bool(low and low.is_excluded),
        excludes_high=bool(high and high.is_excluded),
    )
    options: list[Node] = []
    if fraction.has_zero():
        options.append(LiteralNode(str(whole)))
    digits = fraction.find_digits()
    if digits is not None:
        options.append(make_sequence(str(whole), ".", digits))
    return options


class _Fractions(NamedTuple):
    """The digits after a point that are between two others; without `high`, all that are not below `low`."""

    low: str
    high: str | None
    excludes_low: bool = False
    excludes_high: bool = False

    def has_zero(self) -> bool:
        """Return whether no digit at all is within the bounds."""
        is_above = not self.low and not self.excludes_low
        return is_above and (bool(self.high) or self.high is None or not self.excludes_high)

    def find_digits(self) -> Node | None:
        """Return one digit or more; None if no digits are within the bounds."""
        if not self.low and not self.high:
            return self._find_simple()
        first = int(self.low[:1] or "0")
        last = int(self.high[:1] or "0") if self.high is not None else None
        options: list[Node] = []
        if first == last:
            options += self._after(str(first), self)
        else:
            options += self._after(str(first), self._replace(high=None, excludes_high=False))
            highest = 9 if last is None else last - 1
            if first < highest:
                between = CharacterNode(((str(first + 1), str(highest)),))
                options.append(make_sequence(between, RepeatNode(DIGIT)))
            if last is not None and last > first:
                options += self._after(str(last), self._replace(low="", excludes_low=False))
        return make_choice(options) if options else None

    def _find_simple(self) -> Node | None:
        if self.high is None:
            zeros = RepeatNode(LiteralNode("0"))
            above = make_sequence(zeros, characters("1-9"), RepeatNode(DIGIT))
            return above if self.excludes_low else RepeatNode(DIGIT, 1)
        is_empty = self.excludes_low or self.excludes_high
        return None if is_empty else RepeatNode(LiteralNode("0"), 1)

    def _after(self, digit: str, bounds: _Fractions) -> list[Node]:
        """Return a digit with which a bound begins, and what may follow it."""
        high = bounds.high
        rest = bounds._replace(low=bounds.low[1:], high=high if high is None else high[1:])
        options: list[Node] = []
        if rest.has_zero():
            options.append(LiteralNode(digit))
        digits = rest.find_digits()
        if digits is not None:
            options.append(make_sequence(digit, digits))
        return options


# ---- value nodes ----


KEY_CHARACTERS = "A-Za-z0-9_"  # of keys that are not declared, in notations without quotes
NOT_STRING = make_union([NumberType(), BOOLEAN, NULL, ArrayType(ANY), ObjectType(other=ANY)])


# -- notations


def _escape_json(character: str) -> str:
    return json.dumps(character)[1:-1]


def _escape_python(character: str) -> str:
    return {"'": "\\'"}.get(character) or repr(character)[1:-1]


CONTROLS = (("\0", "\x1f"),)
JSON_PLAIN = CharacterNode((*CONTROLS, ('"', '"'), ("\\", "\\")), negated=True)
HEX = characters("0-9A-Fa-f")
JSON_ESCAPE = make_sequence(
    "\\",
    make_choice([characters('"\\/bfnrt'), make_sequence("u", RepeatNode(HEX, 4, 4))]),
)
PYTHON_ESCAPE = make_sequence(
    "\\",
    make_choice(
        [
            characters("\"'\\abfnrtv"),
            make_sequence("x", RepeatNode(HEX, 2, 2)),
            make_sequence("u", RepeatNode(HEX, 4, 4)),
            make_sequence("U", RepeatNode(HEX, 8, 8)),
        ]
    ),
)


@dataclass(frozen=True, slots=True)
class Quoting:
    """How strings are written: between quotes, with escapes; or, without escapes, up to the closing text."""

    open: str
    close: str
    plain: CharacterNode = JSON_PLAIN
    escape: Node | None = JSON_ESCAPE
    without: tuple[
        str, ...
    ] = ()  # what a text without escapes cannot contain, besides the closing text


@dataclass(frozen=True, slots=True)
class ValueNotation:
    """How a template writes values."""

    name: str
    quotings: tuple[Quoting, ...]
    words: Mapping[str, str] = field(default_factory=dict)  # for true, false and null
    has_bare_keys: bool = False
    comma: Node = LiteralNode(",")
    colon: Node = LiteralNode(":")
    space: Node = NOTHING  # after an opening bracket, and before a closing one

    def write_constant(self, text: str) -> str:
        """Return a value, given as JSON, in this notation."""
        return self._write(json.loads(text))

    def _write(self, value: Any) -> str:
        if self.name == "python":
            return repr(value)
        if self.name == "json":
            return json.dumps(value, ensure_ascii=False)
        if isinstance(value, str):
            return self.quotings[0].open + value + self.quotings[0].close
        if isinstance(value, dict):
            return "{" + ",".join(f"{key}:{self._write(value[key])}" for key in value) + "}"
        if isinstance(value, list):
            return "[" + ",".join(map(self._write, value)) + "]"
        return json.dumps(value)


_BLANK = make_optional(LiteralNode(" "))
JSON_NOTATION = ValueNotation(
    "json",
    (Quoting('"', '"'),),
    comma=make_sequence(RuleNode("space"), ",", RuleNode("space")),
    colon=make_sequence(RuleNode("space"), ":", RuleNode("space")),
    space=RuleNode("space"),
)
PYTHON_NOTATION = ValueNotation(
    "python",
    tuple(
        Quoting(
            quote,
            quote,
            CharacterNode((*CONTROLS, (quote, quote), ("\\", "\\")), negated=True),
            PYTHON_ESCAPE,
        )
        for quote in "'\""
    ),
    words={"true": "True", "false": "False", "null": "None"},
    comma=make_sequence(",", _BLANK),
    colon=make_sequence(":", _BLANK),
)


class ValueNodes:
    """Makes the nodes of values in one notation; shared parts become rules of a tree."""

    def __init__(self, tree: ConstraintTree, notation: ValueNotation) -> None:
        self._tree = tree
        self._notation = notation
        self._rules: dict[ValueType, RuleNode] = {}
        if notation.space == RuleNode("space"):
            # One blank, or a line break and an indentation: a model cannot write blanks without end.
            indent = RepeatNode(characters(" \t"), 0, 40)
            space = make_choice([LiteralNode(" "), make_sequence("\n", indent)])
            tree.rules.setdefault("space", make_optional(space))

    def make(self, value: ValueType) -> Node:
        """Return the node of all values of a type."""
        if isinstance(value, NamedType):
            target = self._tree.definitions[value.name]
            return self._shared(value.name.rpartition("/")[2], value, target)
        if isinstance(value, AnyValue):
            either = make_union([StringType(), *NOT_STRING.options])  # type: ignore[union-attr]  # a union
            return self._shared("any", value, either)
        if isinstance(value, UnionType):
            return make_choice(map(self.make, value.options))
        if isinstance(value, ConstantType):
            return make_choice(LiteralNode(self.constant(text)) for text in value.texts)
        if isinstance(value, StringType):
            return make_choice(self.string(quoting, value) for quoting in self._notation.quotings)
        if isinstance(value, ArrayType):
            return self._array(value)
        if isinstance(value, ObjectType):
            return self._object(value)
        return JsonNode(value)

    def constant(self, text: str) -> str:
        """Return a constant, given as JSON, in the notation."""
        return self._notation.words.get(text) or self._notation.write_constant(text)

    def _shared(self, name: str, value: ValueType, target: ValueType) -> Node:
        """Return the rule of a type, which may contain itself."""
        if value not in self._rules:
            rule = self._tree.add_rule(f"{self._notation.name}-{_rule_name(name)}", NOTHING)
            self._rules[value] = rule  # for references within it
            self._tree.rules[rule.name] = self.make(target)
        return self._rules[value]

    # -- strings

    def string(self, quoting: Quoting, value: StringType) -> Node:
        """Return a string between its quotes."""
        if quoting.escape is None:
            return make_sequence(quoting.open, raw_text(value, quoting.close, quoting.without))
        escape = _escape_python if self._notation.name == "python" else _escape_json
        if value.pattern is not None:
            inner = pattern_node(value.pattern, CharacterWriter(quoting.plain, escape))
        else:
            character = make_choice([quoting.plain, quoting.escape])
            inner = make_repeat(character, value.least, value.most)
        return make_sequence(quoting.open, inner, quoting.close)

    # -- containers

    def _array(self, value: ArrayType) -> Node:
        notation = self._notation
        leading = [self.make(one) for one in value.leading]
        items = [(node, index < value.least) for index, node in enumerate(leading)]
        if value.element is None:
            return self._bracketed(
                "[", self.members(items, notation.comma, None, ordered=True), "]"
            )
        element = self.make(value.element)
        least = max(value.least - len(items), 0)
        most = None if value.most is None else max(value.most - len(items), 0)
        if items:
            more = make_repeat(make_sequence(notation.comma, element), least, most)
            tail = self.members(items, notation.comma, None, ordered=True, tail=more)
            return self._bracketed("[", tail, "]")
        if most == 0:
            return self._bracketed("[", NOTHING, "]")
        rest = None if most is None else most - 1
        several = make_sequence(
            element,
            make_repeat(make_sequence(notation.comma, element), max(least - 1, 0), rest),
        )
        return self._bracketed("[", several if least else make_optional(several), "]")

    def _object(self, value: ObjectType) -> Node:
        pairs = [
            (
                make_sequence(self._key(name), self._notation.colon, self.make(member)),
                name in value.required,
            )
            for name, member in value.members
        ]
        extra = None
        if value.other is not None:
            key = self._other_key([name for name, _ in value.members])
            extra = make_sequence(key, self._notation.colon, self.make(value.other))
        return self._bracketed("{", self.members(pairs, self._notation.comma, extra), "}")

    def _bracketed(self, open: str, inside: Node, close: str) -> Node:
        space = self._notation.space
        return make_sequence(open, space, inside, space, close)

    def _key(self, name: str) -> str:
        if not self._notation.has_bare_keys:
            return self.constant(json.dumps(name))
        check_bare_key(name)
        return name

    def _other_key(self, names: list[str]) -> Node:
        if self._notation.has_bare_keys:
            return key_except(names)
        quote = '"' if self._notation.name == "json" else "'"
        return make_sequence(quote, key_except(names, KEY_CHARACTERS + " .:/$@#-"), quote)

    def members(
        self,
        pairs: list[tuple[Node, bool]],
        comma: Node,
        extra: Node | None,
        *,
        ordered: bool = False,
        tail: Node = NOTHING,
    ) -> Node:
        """Return members in their order, of which some may be missing, with separators between those that are there.

        Args:
            pairs: Each member, and whether it must be there.
            comma: What is between two members; nothing is accepted too.
            extra: Any further member.
            ordered: A member can only be there if all before it are: the elements of a list.
            tail: What follows all members, if the last of them is there.
        """
        if comma == NOTHING:
            parts = [node if needed else make_optional(node) for node, needed in pairs]
            more = NOTHING if extra is None else RepeatNode(extra)
            return make_sequence(*parts, more)
        rest = tail if extra is None else RepeatNode(make_sequence(comma, extra))
        # What the list can begin with, the last member first; one choice at the end, for a long list has many.
        firsts = [] if extra is None else [make_sequence(extra, rest)]
        can_be_empty = True
        for node, needed in reversed(pairs):
            shared = rest if rest == NOTHING else self._tree.add_rule("rest", rest)
            begun = make_sequence(node, shared)
            following = make_sequence(comma, begun)
            if needed:
                firsts, rest, can_be_empty = [begun], following, False
            elif ordered:
                firsts, rest = [begun], make_optional(following)
            else:
                firsts.append(begun)
                rest = make_sequence(make_optional(make_sequence(comma, node)), shared)
        if not firsts:
            return NOTHING
        first = make_choice(reversed(firsts))
        return make_optional(first) if can_be_empty else first


def raw_text(value: StringType, close: str, without: Iterable[str]) -> Node:
    """Return a text without escapes, and the closing text that it goes up to."""
    core = close.strip()
    space = close[len(close.rstrip()) :] if core else ""
    ending = close[: len(close) - len(space)]
    if value.pattern is not None:
        # In the pattern, `.` leaves out the character with which the closing text begins.
        plain = CharacterNode(((core[0], core[0]),), negated=True)
        node = pattern_node(value.pattern, CharacterWriter(plain, str))
        return make_sequence(node, close)
    others = (core, *(text for text in without if text not in ending))
    return make_sequence(FreeTextNode(ending, others, value.least, value.most), space)


def check_bare_key(name: str) -> None:
    """Raise an error for a key that cannot be written without quotes."""
    if not name or not name.isprintable() or any(sign in name for sign in " :,={}[]()<>\"'|"):
        raise MessageError(
            f"the argument {name!r} cannot be written in a call of this template",
            hint="It writes keys without quotes: use letters, digits and underscores.",
        )


def key_except(names: Iterable[str], allowed: str = KEY_CHARACTERS) -> Node:
    """Return the node of all keys but some: those are declared, and have types of their own."""
    return _key_except(sorted(set(names)), characters(allowed), is_start=True)


def _key_except(names: list[str], allowed: CharacterNode, is_start: bool) -> Node:
    following: dict[str, list[str]] = {}
    for name in names:
        if name:
            following.setdefault(name[0], []).append(name[1:])
    ranges = _without_characters(allowed, following)
    options: list[Node] = []
    if ranges.ranges:
        options.append(make_sequence(ranges, RepeatNode(allowed)))
    for sign, rests in following.items():
        if allowed.accepts(sign):
            options.append(make_sequence(sign, _key_except(rests, allowed, False)))
    node = make_choice(options)
    return node if is_start or "" in names else make_optional(node)


def _without_characters(allowed: CharacterNode, excluded: Iterable[str]) -> CharacterNode:
    ranges: list[tuple[str, str]] = list(allowed.ranges)
    for sign in excluded:
        split: list[tuple[str, str]] = []
        for first, last in ranges:
            if not first <= sign <= last:
                split.append((first, last))
                continue
            if first < sign:
                split.append((first, chr(ord(sign) - 1)))
            if sign < last:
                split.append((chr(ord(sign) + 1), last))
        ranges = split
    return CharacterNode(tuple(ranges))


def _rule_name(text: str) -> str:
    return "".join(sign if sign.isascii() and sign.isalnum() else "-" for sign in text).lower()
