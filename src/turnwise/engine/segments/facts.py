"""Trees of facts: what was recorded of a template.

A *section* is what a program does between two places where it takes the next message: the text before the loop over
messages, one round of that loop, the text after it. A loop in a round divides that into sections in the same way. Each
path of the tree of a section is a list of questions with their answers, and ends in a leaf, a *proven segment*: the
texts to write and the new values of namespaces. `code.py` makes one Python function of all trees. The names of a
question are the same for recording and in that function, so one source text is evaluated in both:

    M    the messages         n    how many there are
    i    the round of the loop    m    its message
    j    that of a loop in a round    w    its message
    S    the values of namespaces, by number and name; "now" is the clock
    B1   a list of a namespace, as it was when the program read it; B1f its fields, B1t its trail
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import lru_cache
from sys import getsizeof
from typing import Any

from turnwise.engine.provenance.container_rules import chain_trails
from turnwise.engine.runtime.methods import trace_joined
from turnwise.engine.runtime.operations import escape_html
from turnwise.engine.segments.symbols import (
    SOME_FIELD,
    NotRecordable,
    UnknownList,
    UnknownMessages,
)
from turnwise.messages import JsonObject

FieldPlace = tuple[int, str]
MAX_MADE = 100_000  # characters and elements of a value that is written whole, or joined
IN_NUMBERS = re.compile("(?:[^%]|%[Ymdyj%])*")  # forms of a day that are the same in all languages


def kind_of(value: Any) -> str:
    """Return the kind of a value: as much as a template sees of its type, and whether a text is empty or blank."""
    if type(value) is str:
        return "empty" if not value else "blank" if value.isspace() else "text"
    if value is None or value is True or value is False:
        return str(value)
    return KINDS.get(type(value), "other")


KINDS: dict[type, str] = {int: "int", float: "float", list: "list", dict: "dict"}


def select_messages(
    state: dict[Any, Any],
    messages: list[JsonObject],
    first: int,
    tests: tuple[tuple[str, str | None, bool], ...],
) -> list[int]:
    """Return the indices of the messages from one on that pass all tests; looked for once.

    A test has a field, its value, and whether it has that, or not; without a value: whether there is one.
    """
    found: list[int] | None = state.get((first, tests))
    if found is None:
        found = [*range(first, len(messages))]
        for key, value, is_wanted in tests:
            found = [
                index
                for index in found
                if (key in messages[index] and value in (None, messages[index][key])) is is_wanted
            ]
        state[first, tests] = found
    return found


def align_fields(elements: list[Any], fields: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the fields of each element; if a list that was added whole counts as one, they are not known."""
    return fields if len(fields) == len(elements) else (SOME_FIELD,) * len(elements)


def list_fields(fields: Any) -> tuple[FieldPlace, ...]:
    """Return the fields of messages in what `write_fields` describes."""
    found, waiting, seen = [], [fields], set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:  # lists may hold each other
            continue
        seen.add(id(one))
        if type(one) is dict:
            waiting += one.values()
        elif type(one) is int:
            found.append(SOME_FIELD)
        elif len(one) != 2 or type(one[1]) is not str:
            waiting += one
        elif type(one[0]) is dict:
            waiting.append(one[0].get(one[1], ()))
        else:
            found.append(one if type(one[0]) is int else SOME_FIELD)
    return tuple(found)


def is_small(value: Any) -> bool:
    """Whether a value is small: one that a template made may hold the same text a thousand times."""
    waiting, size = [value], 0
    for one in waiting:  # which becomes longer
        parts = one.values() if type(one) is dict else one if type(one) is list else ()
        size += len(one if type(one) is str else parts)
        if size > MAX_MADE:
            return False
        waiting += parts
    return True


def format_now(now: Any, form: str) -> str:
    """Return the time as `strftime_now` writes it."""
    time: datetime = now() if callable(now) else now
    return format_day(time.date(), form) or time.strftime(form)


@lru_cache(maxsize=16)  # few forms are in use, and a stranger's may be long
def format_day(day: date, form: str) -> str:
    """Return a day in numbers, which takes ten times as long to format as to find; "" for other forms."""
    return day.strftime(form) if IN_NUMBERS.fullmatch(form) else ""


HELPERS = {
    "kind": kind_of,
    "list": list,
    "int": int,
    "float": float,
    "str": str,
    "format_now": format_now,
    "select": select_messages,
    "len": len,
    "range": range,
    "max": max,
    "min": min,
    "tuple": tuple,
    "bool": bool,
    "dict": dict,
    "zip": zip,
    "align": align_fields,
    "list_fields": list_fields,
    "escape": escape_html,
    "is_small": is_small,
    "chain_trails": chain_trails,
    "trace_joined": trace_joined,
    "__builtins__": {},
}


@dataclass(slots=True, eq=False)
class ProvenSegment:
    """The end of a path: what was written there.

    Attributes:
        texts: the source of each text.
        output: the sources of texts and trails, alternately; None if where the texts came from is not known.
        trails: the source of the trail of each new text of a namespace, by its key in S.
        state: the source of each new value of a namespace, by its key in S.
        keys: the fields of the message at hand that are written whole.
        others: those of other messages, each with the source of the index of the message.
        writes_tools: whether something of each tool is written; None if only of some, or if that is in doubt.
        carried: texts that namespaces had and that are written, each with the source of their fields.
        cost: bytes that it pays for each character of a text.
        steps: that the program paid for.
        size: the bytes that it paid for, beside those for characters of texts.
        price: the share of the budgets of a rendering that it takes, beside what a message adds to them.
        per_character: what each character of texts of other messages takes in addition, by the sources of these texts.
        loop: the loop over messages that follows; None at the end of the program.
    """

    texts: list[str]
    output: list[str] | None
    trails: dict[str, str]
    state: dict[str, str]
    keys: frozenset[str]
    others: tuple[tuple[str, str], ...]
    writes_tools: bool | None
    carried: dict[str, str]
    cost: int
    steps: int
    size: int
    price: float
    per_character: dict[str, float]
    loop: LoopOverMessages | None


@dataclass(slots=True, eq=False)
class FactNode:
    """A node of the tree: a question, and what comes after each answer; None if the program has to run."""

    source: str
    branches: dict[Any, FactBranch] = field(default_factory=dict)


FactBranch = FactNode | ProvenSegment | None


class FactTree:
    """The tree of questions of a section.

    Attributes:
        has_keys: whether a leaf has keys.
        cost, steps, size: the largest of a leaf.
    """

    def __init__(self) -> None:
        self._branches: dict[Any, FactBranch] = {None: None}
        self.has_keys = False
        self.cost = self.steps = self.size = 0

    @property
    def root(self) -> FactBranch:
        """The first question; None if nothing was recorded."""
        return self._branches[None]

    def find(self, path: list[tuple[str, Any]]) -> ProvenSegment | None:
        """Return the leaf of a path, if it is known."""
        node = self.root
        for _, answer in path:
            node = node.branches.get(answer) if isinstance(node, FactNode) else node
        return node if isinstance(node, ProvenSegment) else None

    def note(self, leaf: ProvenSegment) -> None:
        """Note what a leaf costs, of this tree or of a section of the same round."""
        self.has_keys |= bool(leaf.keys)
        for name in ("cost", "steps", "size"):
            setattr(self, name, max(getattr(self, name), getattr(leaf, name)))

    def add(self, path: list[tuple[str, Any]], leaf: ProvenSegment | None) -> None:
        """Add a path."""
        branches, answer = self._branches, None
        for source, following in path:
            node = branches.get(answer)
            if not isinstance(node, FactNode):
                node = branches[answer] = FactNode(source)
            if node.source != source:  # the program is no function of its input
                raise NotRecordable
            branches, answer = node.branches, following
        branches[answer] = leaf


class Constants:
    """The texts of a template, its trails, and writers of JSON, that questions and leaves name."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {"__builtins__": {}}
        self._names: dict[Any, str] = {}
        self.size = 0

    def name(self, value: Any) -> str:
        """Return the source of a constant."""
        if value is None or type(value) in (bool, int) or (type(value) is str and len(value) < 16):
            return repr(value)
        return self._find_name(value, value)

    def keep(self, value: Any) -> str:
        """Return the source of a constant that may have no hash: a trail, or a part of one."""
        if value is None or type(value) in (bool, int, str):
            return self.name(value)
        return self._find_name(id(value), value)

    def _find_name(self, key: Any, value: Any) -> str:
        if key not in self._names:
            self._names[key] = f"K{len(self._names)}"
            self.values[self._names[key]] = value
            self.size += getsizeof(value)
        return self._names[key]


@dataclass(slots=True, eq=False)
class LoopOverMessages:
    """A loop over messages.

    Attributes:
        index: the source of the index of the message of round `i`.
        count: the source of the number of rounds.
        body: the section of one round.
        after: the section that follows.
        skipped: how many messages are before those that it is over; None if it is over others.
        named: the sources of lists that it reads, by their names: or each round would make them.
        element: the source of the message of a round.
        taken: the name that it gets; "" if the loop is over numbers.
        around: the loop in whose round it is, if it is in one.
        owners: the names of the messages at hand, by the sources of their indices.
    """

    index: str
    count: str
    body: FactTree
    after: FactTree
    skipped: int | None
    named: dict[str, str]
    element: str
    taken: str
    around: LoopOverMessages | None
    owners: dict[str, str]


def make_loop(elements: Any, around: LoopOverMessages | None, name: str) -> LoopOverMessages:
    """Return a loop of which nothing is recorded; if it reads a list, that gets a name, or each round would make it."""
    depth = around is not None
    place, taken = "ij"[depth], "mw"[depth]
    if type(elements) is UnknownList:
        fields = f"{name}_fields"
        index, count, skipped = f"{fields}[{place}]", f"len({name})", None
        named = {name: f"S[{name!r}]", fields: f"align({name}, S[{name + '#'!r}])"}
        element = f"{name}[{place}]"
    else:
        index, count = elements.write_index(place), elements.count
        skipped = None if depth else elements.skipped
        if elements.chosen:
            index, count = (one.replace(elements.chosen, name) for one in (index, count))
        if type(elements) is not UnknownMessages and elements.index != "@":
            taken = ""
        named, element = {name: elements.chosen} if elements.chosen else {}, f"M[{index}]"
    return LoopOverMessages(
        index,
        count,
        FactTree(),
        FactTree(),
        skipped,
        named,
        element,
        taken,
        around,
        {**(around.owners if around else {}), index: taken},
    )
