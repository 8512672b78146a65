"""The five budgets of a rendering, and the size limits of compiling.

    steps    nodes of the program that are evaluated, and elements that a builtin walks over
    bytes    characters and list elements that operations allocate, charged before they allocate
    output   characters of the result
    depth    macros within macros, and containers within containers
    origins  fragments of text and rules that are followed to find where the result came from

A loop is charged when it starts (its length times the size of its body), a macro when it is called,
a builtin by the size of what it reads. So charging costs nothing per iteration, and an operation
that would allocate too much never starts. Budgets grow with the input: a conversation of 10,000
messages may cost a hundred times as much as one of a hundred, but a template that is quadratic in
its input runs out.

The defaults are set by two measurements: no template of the corpus spends a tenth of any, and what
a hostile template can do with the whole of one takes less than 100 ms and 64 MB.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from turnwise.errors import TemplateLimitError
from turnwise.messages import measure_input
from turnwise.messages.tools_cache import JsonCache


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one rendering may spend, before the input adds its share."""

    steps: int = 600_000
    bytes: int = 6_000_000
    output: int = 4_000_000
    depth: int = 120
    origins: int = 20_000

    # What the input adds. A value is a message, part, call, tool or any other container in it.
    steps_per_value: int = 2_000
    steps_per_character: int = 20
    bytes_per_character: int = 12
    output_per_character: int = 6
    origins_per_value: int = 40
    origins_per_character: int = 1

    def share_of_origins(self, context: Mapping[str, Any]) -> int:
        """Return what the input adds to the budget of origins."""
        containers, characters = measure_input(context)
        return containers * self.origins_per_value + characters * self.origins_per_character


DEFAULT_LIMITS = Limits()

MAX_TEMPLATE_CHARACTERS = 1 << 20  # a longer text is refused before it is read
# about three times the longest template known; reading one costs microseconds each
MAX_TEMPLATE_TOKENS = 12_000
MAX_NESTING = 60  # blocks within blocks, brackets within brackets
MAX_INTEGER_BITS = 1024  # the range of a float; such an integer is printed and hashed in no time


NO_IDS: frozenset[int] = frozenset()
NO_CACHE = JsonCache()  # nothing is put into it, since there are no tools


class Runtime:
    """The state of one rendering: what is left of its budgets, the clock, and the cache of its
    tools.

    The input adds its share when a budget runs out for the first time: most renderings never get
    there, and measuring the input is not free. Generated code subtracts from `steps` and `depth`
    itself.

    Args:
        limits: the budgets.
        context: the variables of the template.
        now: the time for `strftime_now`, or a function that returns it.
    """

    __slots__ = (
        "_context",
        "bytes",
        "cacheable_ids",
        "depth",
        "json_cache",
        "limits",
        "now",
        "output",
        "steps",
    )

    def __init__(
        self, limits: Limits, context: Mapping[str, Any], now: datetime | Callable[[], datetime]
    ) -> None:
        self.limits = limits
        self.steps = limits.steps
        self.bytes = limits.bytes
        self.output = limits.output
        self.depth = limits.depth
        self.now = now
        # JSON texts of tools and their identities, see `PreparedTools`
        self.json_cache = NO_CACHE
        self.cacheable_ids: frozenset[int] = NO_IDS
        self._context: Mapping[str, Any] | None = context

    def charge_steps(self, count: int) -> None:
        """Pay for work that is about to be done."""
        self.steps -= count
        if self.steps < 0:
            self._extend("steps")

    def charge_bytes(self, count: int) -> None:
        """Pay for memory that is about to be allocated."""
        self.bytes -= count
        if self.bytes < 0:
            self._extend("bytes")

    def charge_output(self, count: int) -> None:
        """Pay for characters of the result."""
        self.output -= count
        if self.output < 0:
            self._extend("output")

    def _extend(self, budget: str) -> None:
        """Add the share of the input to all budgets, once, and check whether this one is enough."""
        limits = self.limits
        containers, characters = measure_input(self._context)
        self._context = None  # an input without any size
        self.steps += containers * limits.steps_per_value
        self.steps += characters * limits.steps_per_character
        self.bytes += characters * limits.bytes_per_character
        self.output += characters * limits.output_per_character
        if getattr(self, budget) < 0:
            raise limit_error(budget)


def check_call_budget(rt: Runtime) -> None:
    """Raise an error if steps or depth ran out; generated code calls it when a macro is entered."""
    rt.charge_steps(0)
    if rt.depth < 0:
        raise limit_error("depth")


BUDGET_MEANINGS = {
    "steps": "it does more work than any real template",
    "bytes": "it would build more text than any real template",
    "output": "its output would be longer than any real prompt",
    "depth": "its macros or values are nested too deeply",
}


def limit_error(budget: str) -> TemplateLimitError:
    """Return the error for a budget that was exceeded."""
    return TemplateLimitError(
        f"the template went over its budget of {budget}: {BUDGET_MEANINGS[budget]}", budget=budget
    )
