"""Values as nodes, in the notations of templates: JSON, Python literals, and JSON with quotes of the template's own.

Where a target reads JSON schemas itself, JSON is left to it (`JsonNode`, `to_json_schema`); the nodes of JSON are for
targets that do not. A number looks the same in every notation, so it is a `JsonNode` everywhere.

The members of an object come in the order of the schema, as all engines have it: any order would be a grammar of
exponential size.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from os.path import commonprefix
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
from turnwise.replies.write import to_json

# ---- number nodes ----
#
# Numbers as nodes, for grammars that have no arithmetic: bounds are written digit by digit.
#
# A number with bounds is written without an exponent: with one, its digits do not show its size.


DIGIT = characters("0-9")


def number_node(value: NumberType) -> Node:
    """Return a number as JSON writes it."""
    if value.minimum is not None or value.maximum is not None:
        return _bounded_numbers(value)
    digits = make_choice([LiteralNode("0"), make_sequence(characters("1-9"), RepeatNode(DIGIT))])
    whole = make_sequence(make_optional(LiteralNode("-")), digits)
    if value.is_whole:
        return whole
    fraction = make_optional(make_sequence(".", RepeatNode(DIGIT, 1)))
    sign = make_optional(characters("+-"))
    exponent = make_optional(make_sequence(characters("eE"), sign, RepeatNode(DIGIT, 1)))
    return make_sequence(whole, fraction, exponent)


def _bounded_numbers(value: NumberType) -> Node:
    """Return the numbers between two bounds, of which one may be missing; 0 is written without a sign."""
    bounds = [Decimal(str(bound)) for bound in (value.minimum, value.maximum) if bound is not None]
    places = max(len(f"{bound:f}".partition(".")[2].rstrip("0")) for bound in bounds)
    low, high = _scale(value.minimum, places), _scale(value.maximum, places)
    is_low_excluded, is_high_excluded = value.excludes_minimum, value.excludes_maximum
    options: list[Node] = []
    if low is None or low < 0:
        nearest = _Bound(0, True) if high is None or high >= 0 else _Bound(-high, is_high_excluded)
        farthest = None if low is None else _Bound(-low, is_low_excluded)
        found = _magnitudes(nearest, farthest, places, value.is_whole)
        options += [make_sequence("-", one) for one in found]
    if high is None or high >= 0:
        nearest = _Bound(0, False) if low is None or low < 0 else _Bound(low, is_low_excluded)
        farthest = None if high is None else _Bound(high, is_high_excluded)
        options += _magnitudes(nearest, farthest, places, value.is_whole)
    return make_choice(options)


class _Bound(NamedTuple):
    """A bound of numbers that are not negative, in units of the last place, and whether it is excluded."""

    units: int
    is_excluded: bool


def _scale(number: float | None, places: int) -> int | None:
    if number is None or isinstance(number, int):
        return number and number * 10**places
    return int(Decimal(str(number)).scaleb(places))


def _magnitudes(low: _Bound, high: _Bound | None, places: int, is_whole: bool) -> Iterator[Node]:
    """Yield the numbers between two bounds: those with at most as many digits as the bounds have, then longer ones."""
    for count in range(places + 1):
        unit = 10 ** (places - count)
        first = (low.units + unit - 1 + low.is_excluded) // unit
        last = None if high is None else (high.units - high.is_excluded) // unit
        if last is None or first <= last:
            yield _fixed_numbers(first, last, count)
    if is_whole:
        return
    point = "" if places else "."
    zeros = RepeatNode(LiteralNode("0"))
    first = low.units + low.is_excluded
    last = None if high is None else high.units - 1
    if last is None or first <= last:
        yield make_sequence(_fixed_numbers(first, last, places), point, RepeatNode(DIGIT, 1))
    if low.is_excluded:
        more = make_sequence(zeros, characters("1-9"), RepeatNode(DIGIT))
        yield make_sequence(_spell(low.units, places), point, more)
    if high is not None and not high.is_excluded:
        yield make_sequence(_spell(high.units, places), point, "0", zeros)


def _fixed_numbers(low: int, high: int | None, places: int) -> Node:
    """Return the numbers from `low` to `high`, in units of the last place, with so many digits after the point."""
    options: list[Node] = []
    size = max(len(str(low)), places + 1)
    if high is None:
        longer = make_sequence(characters("1-9"), RepeatNode(DIGIT, size - places))
        fraction = make_sequence(".", RepeatNode(DIGIT, places, places)) if places else NOTHING
        options.append(make_sequence(longer, fraction))
        high = 10**size - 1
    for count in range(size, max(size, len(str(high))) + 1):
        first = max(low, 10 ** (count - 1) if count > places + 1 else 0)
        last = min(high, 10**count - 1)
        options.append(_same_length(_spell(first, places), _spell(last, places)))
    return make_choice(options)


def _spell(units: int, places: int) -> str:
    digits = str(units).zfill(places + 1)
    return f"{digits[:-places]}.{digits[-places:]}" if places else digits


def _same_length(low: str, high: str) -> Node:
    """Return the numbers between two that are spelled alike, with one part for each digit of the bounds."""
    common = commonprefix([low, high])
    if common == low:
        return LiteralNode(low)
    first, last = int(low[len(common)]), int(high[len(common)])
    low_rest, high_rest = low[len(common) + 1 :], high[len(common) + 1 :]
    zeros, nines = (re.sub(r"\d", digit, low_rest) for digit in "09")
    options: list[Node] = []
    if low_rest != zeros:  # only some of the numbers with this first digit
        options.append(make_sequence(str(first), _same_length(low_rest, nines)))
        first += 1
    if high_rest != nines:
        options.append(make_sequence(str(last), _same_length(zeros, high_rest)))
        last -= 1
    if first <= last:
        whole, point, fraction = low_rest.partition(".")
        digits = [make_repeat(DIGIT, len(part), len(part)) for part in (whole, fraction)]
        between = CharacterNode(((str(first), str(last)),))
        options.append(make_sequence(between, digits[0], point, digits[1]))
    return make_sequence(common, make_choice(options))


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


class Quoting(NamedTuple):
    """How strings are written: between quotes, with escapes; or, without escapes, up to the closing text."""

    open: str
    close: str
    plain: CharacterNode = JSON_PLAIN
    escape: Node | None = JSON_ESCAPE
    without: tuple[
        str, ...
    ] = ()  # what a text without escapes cannot contain, besides the closing text


class ValueNotation(NamedTuple):
    """How a template writes values."""

    name: str
    quotings: tuple[Quoting, ...]
    write: Callable[[Any], str]  # writes a constant
    has_bare_keys: bool = False
    comma: Node = LiteralNode(",")
    colon: Node = LiteralNode(":")
    space: Node = NOTHING  # after an opening bracket, and before a closing one


_BLANK = make_optional(LiteralNode(" "))
JSON_NOTATION = ValueNotation(
    "json",
    (Quoting('"', '"'),),
    to_json,
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
    repr,
    comma=make_sequence(",", _BLANK),
    colon=make_sequence(":", _BLANK),
)


MAX_DEPTH = 20  # of rules that are made while others are


class ValueNodes:
    """Makes the nodes of values in one notation; shared parts become rules of a tree."""

    def __init__(self, tree: ConstraintTree, notation: ValueNotation) -> None:
        self._tree = tree
        self._notation = notation
        self._rules: dict[ValueType, RuleNode] = {}
        self._depth = 0  # of rules that are being made
        self._waiting: list[tuple[RuleNode, ValueType]] = []  # rules that are made afterwards
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
            texts = [self.constant(text) for text in value.texts]
            # Where a template has a notation of its own, null may be what Jinja prints for it.
            texts += (
                [str(None)] if "null" in value.texts and self._notation.name == "quoted" else []
            )
            return make_choice(map(LiteralNode, texts))
        if isinstance(value, StringType):
            return make_choice(self.string(quoting, value) for quoting in self._notation.quotings)
        if isinstance(value, ArrayType):
            return self._array(value)
        if isinstance(value, ObjectType):
            return self._object(value)
        return JsonNode(value)

    def constant(self, text: str) -> str:
        """Return a constant, given as JSON, in the notation."""
        return self._notation.write(json.loads(text))

    def _shared(self, name: str, value: ValueType, target: ValueType) -> Node:
        """Return the rule of a type, which may contain itself."""
        if value not in self._rules:
            rule = self._tree.add_rule(f"{self._notation.name}-{_rule_name(name)}", NOTHING)
            self._rules[value] = rule  # for references within it
            self._waiting.append((rule, target))
            if self._depth < MAX_DEPTH:
                self._make_waiting()
        return self._rules[value]

    def _make_waiting(self) -> None:
        """Make the rules that wait. A long chain of definitions is deeper than Python's stack, so its end waits."""
        self._depth += 1
        while self._waiting:
            rule, target = self._waiting.pop()
            self._tree.rules[rule.name] = self.make(target)
        self._depth -= 1

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
        comma = self._notation.comma
        more: Node = NOTHING
        items = [(self.make(one), index < value.least) for index, one in enumerate(value.leading)]
        if value.element is not None and (items or value.most != 0):
            element = self.make(value.element)
            items = items or [(element, value.least > 0)]
            least = max(value.least - len(items), 0)
            most = None if value.most is None else max(value.most - len(items), 0)
            more = make_repeat(make_sequence(comma, element), least, most)
        inside = self.members(items, comma, None, ordered=True, tail=more)
        return self._bracketed("[", inside, "]")

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
            return self._notation.write(name)
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
            is_used_once = rest == NOTHING or (len(pairs) == 1 and (needed or ordered))
            shared = rest if is_used_once else self._tree.add_rule("rest", rest)
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
    ranges = allowed.without((sign, sign) for sign in following)
    options: list[Node] = []
    if ranges.ranges:
        options.append(make_sequence(ranges, RepeatNode(allowed)))
    for sign, rests in following.items():
        if allowed.accepts(sign):
            options.append(make_sequence(sign, _key_except(rests, allowed, False)))
    node = make_choice(options)
    return node if is_start or "" in names else make_optional(node)


def _rule_name(text: str) -> str:
    return "".join(sign if sign.isascii() and sign.isalnum() else "-" for sign in text).lower()
