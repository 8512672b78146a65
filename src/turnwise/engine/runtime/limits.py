"""The five budgets of a rendering, and the size limits of compiling.

    steps    nodes of the program that are evaluated, and elements that a builtin walks over
    bytes    characters and list elements that operations allocate, charged before they allocate
    output   bytes of the result in UTF-8
    depth    macros within macros, and containers within containers
    origins  fragments of text and rules that are followed to find where the result came from

A loop is charged when it starts (its length times the size of its body), a macro when it is called,
a builtin by the size of what it reads. So charging costs nothing per iteration, and an operation
that would allocate too much never starts.

The input adds its share to the budgets of a rendering: so much for each value, each pair of values
and each character, and altogether at most `max_growth` times the steps. So 10,000 messages
or a text of 1 MB are rendered, a template that looks from every message at all others renders a
thousand of them, and no input buys a template more than that. Output is not capped, as
it is only ever a few times the input. What no input pays for is short, since whoever encodes a
prompt spends microseconds and hundreds of bytes on each byte of it: a template may write what a few
of the largest prompts have, and some times its own length, so that one with long texts of its own
can be rendered, and a short one does not become a long prompt.

A call that renders many times (`stops`, `encode`, `convert`, `diff`) has an `Allowance`: its
renderings share what a few whole ones may spend.

A deadline is off unless it is asked for: a rendering that depends on the speed of the machine is
not reproducible. With one, a rendering gets its budgets in slices, and the clock is read when a
slice is used up.

The defaults are set by two measurements: no template of the corpus spends a tenth of any, and what
a hostile template can do with the whole of one takes less than 100 ms and 64 MB.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from threading import Lock
from time import thread_time
from typing import Any

from turnwise.errors import MessageError, TemplateLimitError, TurnwiseError
from turnwise.messages import NO_TOOLS, JsonMapping, PreparedTools, measure_input

Amounts = Mapping[str, int]  # of budgets, by their names
BUDGETS = ("steps", "bytes", "output")  # those that renderings of one call share
CALL = "call"  # the name of the budget that they share
MAX_CHARACTER_SIZE = 4  # bytes of a character in UTF-8
# Of a conversation that is written from segments; for a longer one the program runs.
MAX_SEGMENTED_MESSAGES = 10_000
MAX_SEGMENTED_LENGTH = 1_000_000
MAX_SOURCE_OUTPUT = (
    76_000  # with the output that is free: the longest prompt that no input pays for
)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one rendering may spend, before the input adds its share.

    Attributes:
        steps: nodes that are evaluated, and elements that a builtin walks over.
        bytes: characters and elements that are allocated.
        output: bytes of the result in UTF-8.
        depth: macros within macros, and containers within containers.
        origins: parts of a text whose origin is followed.
        steps_per_value: steps that each message, part, call, tool or other container of the input adds.
        steps_per_pair: steps that each pair of containers adds: some templates look from every message at all others.
        steps_per_character: steps that each character of the input adds.
        bytes_per_value: bytes that each container of the input adds.
        bytes_per_pair: bytes that each pair of containers adds.
        bytes_per_character: bytes that each character of the input adds.
        output_per_value: output that each container of the input adds.
        output_per_character: output that each character of the input adds.
        output_per_source: output that each character of the template adds, up to 76,000.
        origins_per_value: origins that each container of the input adds.
        origins_per_character: origins that each character of the input adds.
        max_growth: how many times the steps the input may add to them.
        max_bytes_growth: the same for bytes.
        deadline: seconds of processor time of one call; None for no deadline, so that results do
            not depend on the machine.

    Raises:
        MessageError: a limit is not a number, or negative; or the deadline is 0.

    Example:
        >>> template = turnwise.load("chatml").with_limits(turnwise.Limits(steps=1000))
        >>> template.render([{"role": "user", "content": "Hi"}]).text
        '<|im_start|>user\\nHi<|im_end|>\\n'
    """

    steps: int = 600_000
    bytes: int = 3_000_000
    output: int = 24_000
    depth: int = 120
    origins: int = 24_000
    steps_per_value: int = 1_200
    steps_per_pair: int = 4
    steps_per_character: int = 20
    bytes_per_value: int = 4_000
    bytes_per_pair: int = 12
    bytes_per_character: int = 48
    output_per_value: int = 400
    output_per_character: int = 12
    output_per_source: int = 5
    origins_per_value: int = 40
    origins_per_character: int = 1
    max_growth: int = 25
    max_bytes_growth: int = 60
    deadline: float | None = None

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            is_deadline = limit.name == "deadline"
            if is_deadline and value is None:
                continue
            kinds = (int, float) if is_deadline else int
            is_number = isinstance(value, kinds) and not isinstance(value, bool)
            # nothing can be rendered in no time, and nobody would read a deadline of 0 as none
            if not is_number or not (value > 0 if is_deadline else value >= 0):
                kind = "a positive number of seconds" if is_deadline else "a whole number from 0 up"
                raise MessageError(f"a limit is {kind}, not {value!r:.80}", path=limit.name)

    def share_of(self, containers: int, characters: int) -> dict[str, int]:
        """Return what an input of this size adds to each budget."""
        steps = containers * (self.steps_per_value + containers * self.steps_per_pair)
        steps += characters * self.steps_per_character
        size = containers * (self.bytes_per_value + containers * self.bytes_per_pair)
        size += characters * self.bytes_per_character
        return {
            "steps": min(steps, self.steps * self.max_growth),
            "bytes": min(size, self.bytes * self.max_bytes_growth),
            "output": containers * self.output_per_value + characters * self.output_per_character,
        }

    def for_source(self, characters: int) -> Limits:
        """Return these limits with the output that a template of this length adds."""
        added = min(characters * self.output_per_source, MAX_SOURCE_OUTPUT)
        return replace(self, output=self.output + added)

    def share_of_origins(self, context: JsonMapping) -> int:
        """Return what the input adds to the budget of origins."""
        containers, characters = measure_input(context)
        return containers * self.origins_per_value + characters * self.origins_per_character


DEFAULT_LIMITS = Limits()

MAX_TEMPLATE_CHARACTERS = 1 << 20  # a longer text is refused before it is read
# Each about 1.7 times what the largest of 1,051 published templates has: 5,196 tokens, 2,945 nodes, 112 names, and
# 2,020 lines of Python with 161,944 characters.
MAX_SCANNED_TOKENS = 12_400
MAX_TEMPLATE_TOKENS = 9_000
MAX_TEMPLATE_NODES = 5_000
MAX_TEMPLATE_NAMES = 400
MAX_PROGRAM_LINES = 3_400
MAX_PROGRAM_CHARACTERS = 275_000
MAX_NESTING = 60  # blocks within blocks, brackets within brackets
MAX_INTEGER_BITS = 1024  # the range of a float; such an integer is printed and hashed in no time


NO_SHARES: Amounts = dict.fromkeys(BUDGETS, 0)
# Of what an allowance has: steps take most of the time, and output that is not encoded costs little.
FACTORS = {"steps": 1.0, "bytes": 1.33, "output": 25.0}
SLICES = {"steps": 20_000, "bytes": 500_000}  # a few milliseconds, between two looks at the clock


class Allowance:
    """What all renderings of one call may spend together. Threads may share it.

    Args:
        limits: the limits of one rendering.
        renderings: how many times the budgets of one rendering there are. A template of the corpus
            spends less than a tenth of a budget, so there is room for ten times as many renderings.
    """

    __slots__ = ("_limits", "_lock", "_renderings", "_spent", "_total", "seconds")

    def __init__(self, limits: Limits, renderings: float) -> None:
        self.seconds = 0.0  # of processor time, if there is a deadline
        self._limits = limits
        self._renderings = renderings
        self._spent = dict.fromkeys(BUDGETS, 0)
        self._total = dict.fromkeys(BUDGETS, 0)
        self._lock = Lock()
        self.grow(NO_SHARES)

    def left(self, budget: str) -> int:
        """Return what is left of a budget."""
        return self._total[budget] - self._spent[budget]

    @property
    def spent_share(self) -> float:
        """How much of the budget that is nearest to its end was spent, from 0 to 1."""
        return max(self._spent[budget] / max(1, self._total[budget]) for budget in BUDGETS)

    def grow(self, shares: Amounts) -> None:
        """Add what an input adds, unless a larger one did."""
        with self._lock:
            for budget, share in shares.items():
                one_rendering = getattr(self._limits, budget) + share
                total = int(self._renderings * FACTORS[budget] * one_rendering)
                self._total[budget] = max(total, self._total[budget])

    def try_spend(self, steps: int, size: int, output: int) -> bool:
        """Subtract amounts if there is enough left; return whether there is."""
        if self.left("steps") < steps or self.left("bytes") < size or self.left("output") < output:
            return False
        self.spend({"steps": steps, "bytes": size, "output": output})
        return True

    def spend(self, amounts: Amounts, seconds: float = 0.0) -> None:
        """Subtract what a rendering has used."""
        with self._lock:
            self.seconds += seconds
            for budget, amount in amounts.items():
                self._spent[budget] += amount


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
        allowance: what is left for all renderings of a call, if there are several.
    """

    __slots__ = (
        "_context",
        "bytes",
        "depth",
        "ledger",
        "limits",
        "now",
        "output",
        "root_trails",
        "steps",
        "tools",
    )

    def __init__(
        self,
        limits: Limits,
        context: JsonMapping,
        now: datetime | Callable[[], datetime],
        allowance: Allowance | None = None,
        tools: PreparedTools = NO_TOOLS,
    ) -> None:
        self.limits = limits
        self.steps = limits.steps
        self.bytes = limits.bytes
        self.output = limits.output
        self.depth = limits.depth
        self.now = now
        self.tools = tools
        self._context: JsonMapping | None = context
        self.root_trails: dict[str, list[Any]] = {}  # of the elements of inputs, see `start_loop`
        self.ledger: Ledger | None = None
        if allowance is not None or limits.deadline is not None:
            self.ledger = Ledger(self, allowance)

    @property
    def is_extended(self) -> bool:
        """Whether a budget ran out, and the input added its share."""
        return self._context is None

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

    def charge_each(self, count: int, steps: int, size: int) -> None:
        """Pay for each of so many elements: steps, and bytes."""
        self.charge_steps(steps * count)
        self.charge_bytes(size * count)

    def estimate_output(self) -> int:
        """Return what may be output at least: the budget, and what the texts of messages add, which are soon counted.

        Nothing is estimated where renderings share an allowance, which has to know what the input adds.
        """
        if self._context is None or self.ledger is not None:
            return self.output
        messages = self._context.get("messages", ())
        texts = [content for message in messages if type(content := message.get("content")) is str]
        return self.output + self.limits.output_per_character * sum(map(len, texts))

    def charge_output(self, count: int) -> None:
        """Pay for bytes of the result."""
        self.output -= count
        if self.output < 0:
            self._extend("output")

    def _extend(self, budget: str) -> None:
        """Put more into a budget that ran out, the share of the input last, or raise an error."""
        ledger = self.ledger
        if ledger is not None:
            ledger.check_deadline()
            ledger.refill(budget)
        if getattr(self, budget) < 0 and self._context is not None:
            # tools come again with every prompt of a conversation, and are measured once
            containers, characters = measure_input({**self._context, "tools": ""})
            size = self.tools.size
            shares = self.limits.share_of(containers + size[0], characters + size[1])
            self._context = None  # an input without any size
            if ledger is None:
                for name, share in shares.items():
                    setattr(self, name, getattr(self, name) + share)
            else:
                ledger.add_shares(shares)
                ledger.refill(budget)
        if getattr(self, budget) < 0:
            raise limit_error(budget if ledger is None else ledger.blame(budget))


class Ledger:
    """The budgets of a rendering that has a deadline, or shares an allowance with others.

    The rendering has a part of each budget at hand; the ledger holds the rest, and knows how much
    there was at first. Without a deadline, all of it is at hand.
    """

    __slots__ = ("_allowance", "_granted", "_held", "_limit", "_runtime", "_shares", "_start")

    def __init__(self, runtime: Runtime, allowance: Allowance | None) -> None:
        self._runtime = runtime
        self._allowance = allowance
        self._shares = NO_SHARES
        self._granted = dict.fromkeys(BUDGETS, 0)
        self._held = dict.fromkeys(BUDGETS, 0)
        self._limit = self._start = 0.0
        deadline = runtime.limits.deadline
        if deadline is not None:
            self._start = thread_time()
            self._limit = deadline - (0.0 if allowance is None else allowance.seconds)
            if self._limit < 0:  # earlier renderings of the call took all of it
                raise limit_error("deadline")
        for name in BUDGETS:
            setattr(runtime, name, 0)
        self._grant()

    def _limit_of(self, budget: str) -> int:
        """Return how much of a budget the rendering may use in all, if it shares none."""
        limit: int = getattr(self._runtime.limits, budget) + self._shares[budget]
        return limit

    def _grant(self) -> None:
        """Put at hand what the rendering may use in all; with a deadline, a slice of it."""
        for name in BUDGETS:
            granted = self._limit_of(name)
            if self._allowance is not None:
                granted = min(granted, self._allowance.left(name))
            self._held[name] += granted - self._granted[name]
            self._granted[name] = granted
            self.refill(name)

    def refill(self, budget: str) -> None:
        """Put at hand what is missing, and the next slice."""
        at_hand: int = getattr(self._runtime, budget)
        held = self._held[budget]
        wanted = held
        if self._runtime.limits.deadline is not None and budget in SLICES:
            wanted = min(held, max(0, -at_hand) + SLICES[budget])
        self._held[budget] = held - wanted
        setattr(self._runtime, budget, at_hand + wanted)

    def add_shares(self, shares: Amounts) -> None:
        """Add what the input adds, as far as the allowance has it."""
        self._shares = shares
        if self._allowance is not None:
            self._allowance.grow(shares)
        self._grant()

    def blame(self, budget: str) -> str:
        """Return the name of the budget that ran out: that of the rendering, or that of the call."""
        return CALL if self._granted[budget] < self._limit_of(budget) else budget

    def check_deadline(self) -> None:
        """Raise an error if the time is over."""
        if self._runtime.limits.deadline is not None and thread_time() - self._start > self._limit:
            raise limit_error("deadline")

    def close(self, output: int) -> None:
        """Subtract from the allowance what was used."""
        if self._allowance is None:
            return
        used = {"output": output}
        for name in ("steps", "bytes"):
            rest = max(0, getattr(self._runtime, name)) + self._held[name]
            used[name] = max(0, self._granted[name] - rest)
        seconds = thread_time() - self._start if self._start else 0.0
        self._allowance.spend(used, seconds)


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
    CALL: "it was rendered several times, and cost more each time than any real template",
    "deadline": "it takes longer than the caller allows",
}


# What somebody can do whose template is right and whose input is long.
LIMIT_HINTS = {
    "steps": "if you trust the template: with_limits(turnwise.Limits(max_growth=100)), for longer inputs",
    "bytes": "if you trust the template: with_limits(turnwise.Limits(max_bytes_growth=200)), for longer inputs",
    "output": "if you trust the template: with_limits(turnwise.Limits(output=1_000_000)), for longer prompts",
    "deadline": "give a template that you trust more time: with_limits(turnwise.Limits(deadline=...)), in seconds",
}
BUDGET_TITLES = {CALL: "the budget of one call", "deadline": "its deadline"}


def limit_error(budget: str) -> TemplateLimitError:
    """Return the error for a budget that was exceeded."""
    title = BUDGET_TITLES.get(budget, f"its budget of {budget}")
    return TemplateLimitError(
        f"the template went over {title}: {BUDGET_MEANINGS[budget]}",
        budget=budget,
        hint=LIMIT_HINTS.get(budget),
    )


def pays_for_itself(limits: Limits) -> bool:
    """Whether a conversation adds as much to the budgets as its messages and texts may cost, however long it is."""
    return (
        limits.deadline is None
        and limits.output_per_character >= MAX_CHARACTER_SIZE
        and limits.steps * limits.max_growth >= limits.steps_per_value * MAX_SEGMENTED_MESSAGES
        and limits.bytes * limits.max_bytes_growth
        >= limits.bytes_per_character * MAX_SEGMENTED_LENGTH
        + limits.bytes_per_value * MAX_SEGMENTED_MESSAGES
    )


def raise_if_call_ended(error: TurnwiseError) -> None:
    """Raise an error again if it ends a whole call, and not just one of its renderings."""
    if isinstance(error, TemplateLimitError) and error.budget in (CALL, "deadline"):
        raise error
