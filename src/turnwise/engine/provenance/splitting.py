"""Follow a trail: split a text into fragments, each with the leaf that it came from.

Following is Python where rendering was C: `('a' * 700000).replace('a', x)` renders in milliseconds
and has 700,000 fragments. So a `Follower` has a budget, a count of the fragments that are made and
of the rules that are followed, each about a microsecond. What the budget does not cover fails
closed: the text is one fragment, `UNFOLLOWED`. Like the budgets of rendering it grows with the
input, which is measured when the budget runs out for the first time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Any

from turnwise.engine.provenance.trails import (
    ANY,
    BOUND,
    NOWHERE,
    ROOT,
    UNFOLLOWED,
    Field,
    Fragments,
    Rule,
    Splitting,
    TracedText,
    Trail,
    merge_leaves,
    part_of_path,
)
from turnwise.errors import TurnwiseWarning, warn_caller
from turnwise.messages.paths import Path

MANY_FRAGMENTS = 64  # from here on neighbours with one leaf are merged, which is not free
MIN_BISECTED = 16  # fewer fragments are searched from the start
LONG_CHAIN = 16  # steps of resolving a trail from which on they are charged, and the answer kept
CHARACTERS_PER_STEP = 4096  # that are joined and compared in the time of one step
RULE_COST = 2  # of following one rule, beside the fragments that it makes

BEYOND_BUDGET = (
    "the template makes its text in more steps than can be followed: some of it has no other origin "
    "than 'computed', and is not trusted"
)

Waiting = list[tuple[str, Trail, Splitting]]  # texts whose rule has asked for another text


class OutOfBudget(Exception):
    """Following trails has cost more than the rendering allows; never leaves the package."""


class Follower:
    """Follows the trails of one rendering, and pays for it.

    Args:
        budget: how many fragments and rules may be followed.
        share: returns what the input of the rendering adds to the budget.
    """

    __slots__ = (
        "_fragments",
        "_left",
        "_places",
        "_resolved",
        "_share",
        "problems",
    )

    def __init__(self, budget: int, share: Callable[[], int] | None = None) -> None:
        self._left = budget
        self._share = share
        self.problems: set[str] = set()
        # What was found before, by the identity of a trail or list, which is stored too so that it
        # stays alive: parts of one text all ask for the fragments of the whole.
        self._fragments: dict[tuple[int, str], tuple[Trail, Fragments]] = {}
        self._resolved: dict[int, tuple[Trail, Any]] = {}
        self._places: dict[int, tuple[Sequence[Any], list[int]]] = {}

    # ---- the budget ----

    def charge(self, steps: int) -> None:
        """Pay for work that is about to be done.

        Raises:
            OutOfBudget: the budget is spent, also that of the input.
        """
        self._left -= steps
        if self._left < 0:
            self._extend()
            if self._left < 0:
                self.warn(BEYOND_BUDGET)
                raise OutOfBudget

    def take(self, steps: int) -> int:
        """Pay for as many of these steps as the budget allows, and return how many that are."""
        if steps > self._left:
            self._extend()
        paid = min(steps, max(self._left, 0))
        self._left -= paid
        if paid < steps:
            self.warn(BEYOND_BUDGET)
        return paid

    @property
    def is_spent(self) -> bool:
        """Whether nothing more can be followed: found out without an error, as it may be asked often."""
        return self._left < 0 and self._share is None

    def _extend(self) -> None:
        """Add the share of the input, once."""
        if self._share is not None:
            share, self._share = self._share, None
            self._left += share()

    def warn(self, problem: str) -> None:
        """Issue a warning, once for each problem of a rendering."""
        if problem not in self.problems:
            self.problems.add(problem)
            warn_caller(problem)

    def report_defect(self, problem: str) -> None:
        """Warn of an origin that was lost by a defect of a rule; its text is not trusted."""
        self.warn(f"{problem}: a defect of turnwise, please report it; the text is not trusted")

    # ---- following ----

    def split(self, text: str, trail: Trail) -> Fragments:
        """Split a text into fragments by origin; their texts join to `text`.

        A rule asks for the fragments of its inputs by yielding them, and who waits is kept on a
        list: a text that was built in ten thousand steps has a trail ten thousand deep, and
        Python's stack is not.
        """
        waiting: Waiting = []
        try:
            self.charge(RULE_COST)
            answer: Any = self._split_or_start(text, trail, waiting)  # None starts a generator
            while waiting:
                whole, resolved, splitting = waiting[-1]
                try:
                    asked_text, asked_trail = splitting.send(answer)
                except StopIteration as finished:
                    waiting.pop()
                    answer = self._check(whole, finished.value)
                    self._fragments[id(resolved), whole] = (resolved, answer)
                else:
                    answer = self._split_or_start(asked_text, asked_trail, waiting)
        except OutOfBudget:
            return [(text, UNFOLLOWED)]
        except TurnwiseWarning:  # the caller has made warnings errors
            raise
        except Exception as error:  # whatever a rule does wrong, no origin is made up
            self.report_defect(f"a trail cannot be followed ({type(error).__name__})")
            return [(text, UNFOLLOWED)]
        fragments: Fragments = answer
        return fragments

    def _split_or_start(self, text: str, trail: Trail, waiting: Waiting) -> Fragments | None:
        """Return the fragments if no other text is needed for them.

        Else add the text's rule to `waiting`.
        """
        if not text:
            return []
        resolved: Any = self.resolve(trail)
        if resolved is None:
            return [(text, NOWHERE)]
        if type(resolved) is int or type(resolved) is Field:
            return [(text, resolved)]
        known = self._fragments.get((id(resolved), text))
        if known is not None:
            return known[1]
        rule = resolved[0]
        if rule.split is None:
            return [(text, NOWHERE)]
        self.charge(RULE_COST)
        result = rule.split(self, text, *resolved[1:])
        if type(result) is list:
            return self._check(text, result)
        waiting.append((text, resolved, result))
        return None

    def _check(self, text: str, fragments: Fragments) -> Fragments:
        """Return fragments that join to `text`.

        A rule that lost count must not give a character to the wrong field: then nobody knows where
        the text came from, and nobody trusts it.
        """
        self.charge(len(fragments) + len(text) // CHARACTERS_PER_STEP)
        if text is ANY:
            return merge_fragments(text, fragments)
        if "".join([part for part, _ in fragments]) != text:
            self.report_defect("the pieces of a text do not join to it")
            return merge_fragments(text, [*fragments, ("", UNFOLLOWED)])
        if len(fragments) <= MANY_FRAGMENTS:
            return fragments
        return [
            ("".join([part for part, _ in group]), leaf)
            for leaf, group in groupby(fragments, key=itemgetter(1))
        ]

    def resolve(self, trail: Trail) -> Trail | Field:
        """Resolve a chain of children to a field, or to the rule (or node) that made the value."""
        if self._resolved and id(trail) in self._resolved:
            return self._resolved[id(trail)][1]
        keys: list[Any] = []
        steps, chain = 0, trail
        while chain is not None and type(chain) is not int:
            head = chain[0]
            if head is ROOT:
                chain = Field((chain[1], *reversed(keys)))
                break
            if type(head) is not Rule:
                keys.append(chain[1])
                chain = head
            elif not keys:
                break
            elif head.child is not None:
                chain = head.child(self, keys.pop(), *chain[1:])
                steps += LONG_CHAIN
            else:
                chain = (ELEMENT, chain)
                break
            steps += 1
        if steps >= LONG_CHAIN:
            self._resolved[id(trail)] = (trail, chain)
            self.charge(steps // LONG_CHAIN)
        return chain

    def try_resolve(self, trail: Trail) -> Trail | Field:
        """Resolve a trail; return it as it is if the budget is spent."""
        try:
            return self.resolve(trail)
        except OutOfBudget:
            return trail

    def part_of_trail(self, trail: Trail) -> Path | None:
        """Return the path of the content part that a trail leads to, None if it leads elsewhere."""
        if type(trail) is not tuple or len(trail) != 2 or type(trail[1]) is not int:
            return None  # no element of a list
        if type(trail[0]) is not tuple or trail[0][0] is ROOT:
            return None  # a message, or a tool
        resolved = self.resolve(trail)
        if type(resolved) is not Field or part_of_path(resolved.path) != resolved.path:
            return None
        return resolved.path

    def part_of_mark(self, trail: Trail, current: Path | None) -> Path | None:
        """Return the content part that is written from a mark on, in a loop that was at `current`."""
        if trail[0] is not BOUND:
            return self.part_of_trail(trail) or current
        # A loop over numbers: the first part that it looks up is the one of this round.
        return current or self.part_of_trail(trail[1])

    # ---- places in texts, found once for each text ----

    def find_parts(self, whole: str, parts: Sequence[str]) -> list[int]:
        """Return where each part of a split text begins."""
        return self._keep_places(parts, lambda: _find_starts(whole, parts))

    def slice_fragments(self, fragments: Fragments, start: int, stop: int) -> Fragments:
        """Return the fragments between two offsets of their text."""
        first, offset = 0, 0
        if len(fragments) > MIN_BISECTED:
            lengths = (len(part) for part, _ in fragments)
            ends = self._keep_places(fragments, lambda: list(accumulate(lengths)))
            first = bisect_right(ends, start)
            offset = ends[first - 1] if first else 0
        result = []
        for index in range(first, len(fragments)):
            if offset >= stop:
                break
            part, leaf = fragments[index]
            inside = part[max(start - offset, 0) : stop - offset]
            if inside:
                result.append((inside, leaf))
            offset += len(part)
        return result

    def _keep_places(self, parts: Sequence[Any], find: Callable[[], list[int]]) -> list[int]:
        """Return what is found in some parts, once."""
        if id(parts) not in self._places:
            self.charge(len(parts))
            self._places[id(parts)] = parts, find()
        return self._places[id(parts)][1]


def _find_starts(whole: str, parts: Sequence[str]) -> list[int]:
    """Return where each part of a split text begins.

    Parts come in order and never overlap, so each is found from the end of the one before, and of what is between all
    of them, which may contain a part.
    """
    gap = (len(whole) - sum(map(len, parts))) // max(len(parts) - 1, 1)
    between = whole[len(parts[0]) :][:gap]
    skipped = gap if between.join(parts) == whole else 0  # else it is white space
    start, starts = 0, []
    for part in parts:
        start = whole.index(part, start)
        starts.append(start)
        start += len(part) + skipped
    return starts


class QuietFollower(Follower):
    """Follows trails that no caller has asked for, or that are followed again if there is a problem."""

    __slots__ = ()

    def warn(self, problem: str) -> None:
        """Keep a problem to itself."""
        self.problems.add(problem)


def pairs_of(flat: Sequence[Any]) -> Iterator[TracedText]:
    """Return the pairs of a flat `text, trail, text, trail, ...` sequence."""
    return zip(flat[::2], flat[1::2], strict=True)


def merge_fragments(text: str, fragments: Fragments) -> Fragments:
    """Return a text of which only the whole is known as one fragment."""
    return [(text, merge_leaves(leaf for _, leaf in fragments))]


def split_blend(follower: Follower, text: str, *inputs: Any) -> Splitting:
    """Give the whole text one leaf, merged from those of all inputs."""
    leaves = []
    for part, trail in pairs_of(inputs):
        fragments = yield part or ANY, trail
        leaves += [leaf for _, leaf in fragments]
    return [(text, merge_leaves(leaves or [NOWHERE]))]


def split_unknown_part(follower: Follower, text: str, trail: Trail) -> Splitting:
    """Give a part of a text the leaf of the whole."""
    return split_blend(follower, text, "", trail)


ELEMENT = Rule("ELEMENT", split_unknown_part)  # trail of a text, of which this is some character
LOST: Trail = (Rule("LOST", lambda _, text: [(text, UNFOLLOWED)]),)  # text that nobody can follow
