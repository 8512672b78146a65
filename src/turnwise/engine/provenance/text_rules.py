"""Rules for text that an operation made of other text.

The comment after each rule lists its inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from turnwise.engine.provenance.splitting import (
    Follower,
    merge_fragments,
    pairs_of,
    split_blend,
)
from turnwise.engine.provenance.trails import (
    ANY,
    DONE,
    LOOP,
    NEXT,
    NOWHERE,
    Fragment,
    Fragments,
    Rule,
    Splitting,
    Trail,
    assign_part,
)
from turnwise.messages.paths import Path

# Steps of the budget, beside those for the fragments that are made: what a Python loop takes for
JOIN_COST = 2  # a text within a text
REPLACE_COST = 2  # a hit
INDENT_COST = 2  # a line


def _split_joined(follower: Follower, text: str, parts: Sequence[Any]) -> Splitting:
    """Read texts within texts as one list.

    A text that grew by one line in every round is as deep as there were rounds.
    """
    fragments: Fragments = []
    loops: list[Path | None] = []  # the content part that each open loop is at
    blocks = [(pairs_of(parts), 0)]  # what is left of each, and how many loops are around it
    while blocks:
        pairs, outer = blocks[-1]
        for part, trail in pairs:
            if not part:
                _read_mark(follower, trail, loops, outer)
                continue
            written_for = next(filter(None, reversed(loops)), None)
            if type(trail) is tuple and trail[0] is JOINED and is_joined(part, trail[1]):
                follower.charge(JOIN_COST + len(trail[1]) // 2)
                blocks.append((pairs_of(trail[1]), len(loops)))
                break
            found = yield part, trail
            if written_for:
                found = assign_part(found, written_for)
            if len(found) > 1:
                follower.charge(len(found))
            fragments += found
        else:
            blocks.pop()
            del loops[outer:]
    return fragments


def is_joined(text: str, parts: Sequence[Any]) -> bool:
    """Return whether a text is what its parts join to; if not, its trail must not be followed."""
    return "".join(parts[::2]) == text


def _read_mark(follower: Follower, trail: Trail, loops: list[Path | None], outer: int) -> None:
    """Follow a mark inside of a block: which content part is written from here on."""
    if trail is LOOP:
        loops.append(None)
    elif len(loops) == outer:
        return
    elif trail is DONE:
        loops.pop()
    elif trail is NEXT:
        loops[-1] = None
    elif type(trail) is tuple:
        loops[-1] = follower.part_of_mark(trail, loops[-1])


def _split_within(follower: Follower, text: str, inner: Trail, element: Trail) -> Splitting:
    before = yield text, inner
    part = follower.part_of_trail(element)
    return before if part is None else assign_part(before, part)


def _split_part(follower: Follower, text: str, whole: str, trail: Trail, start: int) -> Splitting:
    before = yield whole, trail
    if text is ANY:
        return merge_fragments(text, before)
    if not whole.startswith(text, start):
        return []  # a defect: the text is no part
    return follower.slice_fragments(before, start, start + len(text))


def _split_stripped(follower: Follower, text: str, whole: str, trail: Trail) -> Splitting:
    # Nothing was stripped before it, or its first letter is none that was: the first hit is the right one.
    return _split_part(follower, text, whole, trail, max(whole.find(text), 0))


def _split_recased(
    follower: Follower, text: str, whole: str, trail: Trail, change: Callable[[str], str]
) -> Splitting:
    before = yield whole, trail
    if len(text) != len(whole):  # "ß" becomes "SS"
        changed = [(change(part), leaf) for part, leaf in before]
        if "".join([part for part, _ in changed]) != text:  # "Σ" depends on what is around it
            return merge_fragments(text, before)
        return changed
    fragments, start = [], 0
    for part, leaf in before:
        end = start + len(part)
        fragments.append((text[start:end], leaf))
        start = end
    return fragments


def _split_repeated(follower: Follower, text: str, whole: str, trail: Trail) -> Splitting:
    before = yield whole, trail
    if len(before) <= 1 or text is ANY:
        return merge_fragments(text, before)
    times = len(text) // len(whole)
    follower.charge(times * len(before))
    return before * times


def _split_replaced(
    follower: Follower,
    text: str,
    whole: str,
    trail: Trail,
    old: str,
    new: str,
    new_trail: Trail,
    limit: int,
) -> Splitting:
    before = yield whole, trail
    inserted = yield new, new_trail
    if text is ANY or len({leaf for _, leaf in before + inserted}) == 1:
        return merge_fragments(text, before + inserted)
    count = whole.count(old) if limit < 0 else min(whole.count(old), limit)
    follower.charge(count * (REPLACE_COST + len(inserted)))
    fragments: Fragments = []
    start = 0
    # an empty text is found before every character and at the end
    for kept in (whole.split(old) if old else ["", *whole])[:count]:
        end = start + len(kept)
        fragments += follower.slice_fragments(before, start, end)
        fragments += inserted
        start = end + len(old)
    return fragments + follower.slice_fragments(before, start, len(whole))


PADDING: Fragment = ("", NOWHERE)  # may be anybody's text


def _split_padded(follower: Follower, text: str, whole: str, trail: Trail) -> Splitting:
    before = yield whole, trail
    start = text.find(whole)
    if start < 0:
        return merge_fragments(text, [*before, PADDING])
    end = start + len(whole)
    padded = [(text[:start], NOWHERE), *before, (text[end:], NOWHERE)]
    return [fragment for fragment in padded if fragment[0]]


def _split_indented(follower: Follower, text: str, whole: str, trail: Trail) -> Splitting:
    """Each line of the result is an indent and a line of the original."""
    before = yield whole, trail
    follower.charge(INDENT_COST * (whole.count("\n") + 1))
    fragments: Fragments = []
    start = 0
    for line, indented in zip(whole.split("\n"), text.split("\n"), strict=False):
        fragments.append((indented[: len(indented) - len(line)], NOWHERE))
        end = start + len(line) + 1  # with its newline, which the last line does not have
        fragments += follower.slice_fragments(before, start, end)
        start = end
    if "".join([part for part, _ in fragments]) != text:
        return merge_fragments(text, [*before, PADDING])
    return [fragment for fragment in fragments if fragment[0]]


WITHIN = Rule("WITHIN", _split_within)  # trail, trail of the loop's element it was made for
JOINED = Rule("JOINED", _split_joined)  # texts and trails, flat
PART = Rule("PART", _split_part)  # whole, its trail, start
STRIPPED = Rule("STRIPPED", _split_stripped)  # whole, its trail: at one end or at both
RECASED = Rule("RECASED", _split_recased)  # whole, its trail, function
REPEATED = Rule("REPEATED", _split_repeated)  # whole, its trail
REPLACED = Rule("REPLACED", _split_replaced)  # whole, its trail, old, new, new's trail, limit
BLEND = Rule("BLEND", split_blend)  # text, trail, text, trail, ...
PADDED = Rule("PADDED", _split_padded)  # whole, its trail
INDENTED = Rule("INDENTED", _split_indented)  # whole, its trail
