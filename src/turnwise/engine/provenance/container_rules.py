"""Rules for lists and dicts: the trail of an element, and the leaf of a key.

The comment after each rule lists its inputs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from turnwise.engine.provenance.splitting import Follower, merge_fragments, split_unknown_part
from turnwise.engine.provenance.text_rules import PART
from turnwise.engine.provenance.trails import (
    ANY,
    ROOT,
    Field,
    Rule,
    Splitting,
    Trail,
)


def is_from_input(trail: Trail) -> bool:
    """Return whether a trail leads to a part of the input as it was given."""
    while type(trail) is tuple:
        head = trail[0]
        if head is ROOT:
            return True
        if head is PICK or head is PAIRS:
            trail = trail[1]
        elif type(head) is Rule:
            return False
        else:
            trail = head
    return False


def pick_trail(trail: Trail, indices: Sequence[int]) -> Trail:
    """Return the trail of a list of some elements of another.

    A list that is picked from a picked one is picked from the first, so trails stay short.
    """
    if type(trail) is not tuple or trail[0] is not PICK:
        return (PICK, trail, indices)
    before = trail[2]
    if type(before) is range and type(indices) is range:
        start, step = before.start + indices.start * before.step, before.step * indices.step
        return (PICK, trail[1], range(start, start + len(indices) * step, step))
    return (PICK, trail[1], [before[index] for index in indices])


def chain_trails(length: int, first: Trail, other_length: int, second: Trail) -> Trail:
    """Return the trail of a list and another added to it.

    A list that grows by one element in every round has one flat trail.
    """
    if not other_length:
        return first
    if not length:
        return second
    ends, trails = _parts_of_chain(length, first)
    other_ends, other_trails = _parts_of_chain(other_length, second)
    return (CHAIN, (*ends, *[length + end for end in other_ends]), trails + other_trails)


def _parts_of_chain(length: int, trail: Trail) -> tuple[tuple[int, ...], tuple[Trail, ...]]:
    if type(trail) is tuple and trail[0] is CHAIN:
        return trail[1], trail[2]
    return (length,), (trail,)


def _split_key(follower: Follower, text: str, trail: Trail, key: Any) -> Splitting:
    """Give the text of a key one leaf: it came with the dict, or with what the dict was made of."""
    owner = follower.resolve(trail)
    if type(owner) is Field:
        return [(text, Field((*owner.path, key), key=True))]
    key_trail: Trail = None
    if type(owner) is int or (type(owner) is tuple and owner[0] is EACH):
        key_trail = owner
    elif type(owner) is tuple and owner[0] is ITEMS and len(owner) > 2:
        key_trail = owner[2].get(key)
    fragments = yield key if isinstance(key, str) and key else ANY, key_trail
    return merge_fragments(text, fragments)


def _child_of_items(follower: Follower, key: Any, trails: Any, keys: Any = None) -> Trail:
    try:
        return trails[key]
    except (LookupError, TypeError):
        return None


def _child_of_chain(
    follower: Follower, key: Any, ends: tuple[int, ...], trails: tuple[Trail, ...]
) -> Trail:
    index = bisect_right(ends, key)
    return (trails[index], key - ends[index - 1] if index else key)


KEY = Rule("KEY", _split_key)  # trail of a dict, one key
ITEMS = Rule("ITEMS", child=_child_of_items)  # trails of elements; for a dict also those of keys
# trail, indices
PICK = Rule("PICK", child=lambda _, key, trail, indices: (trail, indices[key]))
# trail, length: a list repeated
TIMES = Rule("TIMES", child=lambda _, key, trail, length: (trail, key % length))
# one trail for every element, however deep
EACH: Rule = Rule("EACH", split_unknown_part, lambda _, key, trail: (EACH, trail))
CHAIN = Rule("CHAIN", child=_child_of_chain)  # where each list that was added ends, their trails
# trail of a dict, its keys
KEYS = Rule("KEYS", child=lambda _, key, trail, keys: (KEY, trail, keys[key]))
PAIRS = Rule(
    "PAIRS",
    child=lambda _, key, trail, keys: (ITEMS, ((KEY, trail, keys[key]), (trail, keys[key]))),
)
# whole text, its trail
LETTERS = Rule("LETTERS", child=lambda _, key, whole, trail: (PART, whole, trail, key))
# whole text, its trail, parts
SPLIT = Rule(
    "SPLIT",
    child=lambda follower, key, whole, trail, parts: (
        (PART, whole, trail, follower.find_parts(whole, parts)[key])
    ),
)
