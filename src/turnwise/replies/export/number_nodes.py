"""Numbers as nodes, for grammars that have no arithmetic: bounds are written digit by digit.

A number with bounds is written without an exponent: with one, its digits say nothing of its size.
"""

from __future__ import annotations

from decimal import Decimal
from typing import NamedTuple

from turnwise.replies.export.constraint_tree import (
    NOTHING,
    CharacterNode,
    LiteralNode,
    Node,
    RepeatNode,
    characters,
    make_choice,
    make_optional,
    make_sequence,
)
from turnwise.replies.export.value_types import NumberType

__all__ = ["number_node"]

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
