"""Random templates: expressions over a message, with all filters, methods, tests and operators that there are."""

from __future__ import annotations

import random

from turnwise.engine.runtime.filters import FILTERS
from turnwise.engine.runtime.jinja_tests import TESTS
from turnwise.engine.runtime.methods import METHODS

LITERALS = ("''", "'a'", "'hi'", "' '", "'\\n'", "'</think>'", "'user'", "1", "none", "[]")
FILTER_NAMES, METHOD_NAMES, TEST_NAMES = sorted(FILTERS), sorted(METHODS[str]), sorted(TESTS)


class ExpressionMaker:
    """Random expressions over a content, with all filters, methods, tests and operators that there are.

    Args:
        dice: what decides.
        more: other expressions that they are made of.
    """

    def __init__(self, dice: random.Random, more: tuple[str, ...] = ()) -> None:
        self.pick = dice.choice
        self._leaves = ("m.content", "m.content", "m['content']", "m.role", "m", *more, *LITERALS)

    def make(self, depth: int) -> str:
        if depth == 0:
            return self.pick(self._leaves)
        one, other = self.make(depth - 1), self.make(self.pick(range(depth)))
        return self.pick(
            (
                f"({one} + {other})",
                f"({one} ~ {other})",
                f"({one} if {self.make_test(other)} else {other})",
                f"({one}|{self.pick(FILTER_NAMES)})",
                f"({one}|{self.pick(FILTER_NAMES)}({self.pick(LITERALS)}))",
                f"({one}.{self.pick(METHOD_NAMES)}({self.pick(('', *LITERALS))}))",
                f"({one}.{self.pick(('split', 'strip', 'partition'))}({self.pick(LITERALS)}))",
                f"({one}[{self.pick(('0', '-1', '1:', other))}])",
                f"f({one}, {other})",
                f"[{one}, {other}]",
                f"({one} {self.pick(('and', 'or', '*', '%', '<'))} {other})",
            )
        )

    def make_test(self, one: str) -> str:
        literal = self.pick(LITERALS)
        return self.pick(
            (
                f"{literal} in {one}",
                f"{one} == {literal}",
                f"{one} in [{literal}, 'x']",
                f"{one} is {self.pick(TEST_NAMES)}",
                f"{one} is {self.pick(('eq', 'ne', 'in', 'gt'))}({literal})",
                f"not {one}",
                one,
            )
        )
