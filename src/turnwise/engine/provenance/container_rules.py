"""Rules for lists and dicts: the trail of an element, and the leaf of a key.

The comment after each rule lists its inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turnwise.engine.provenance.splitting import split_by_origin
from turnwise.engine.provenance.text_rules import PART, split_blend
from turnwise.engine.provenance.trails import (
    ANY,
    NOWHERE,
    ROOT,
    Field,
    Fragment,
    Leaf,
    Rule,
    Splitting,
    Trail,
    merge_leaves,
    resolve,
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


def key_leaf(trail: Trail, key: Any) -> Leaf:
    """Return the leaf of a key's text: it came with the dict, or with what the dict was made of."""
    owner = resolve(trail)
    if type(owner) is Field:
        return Field((*owner.path, key), key=True)
    if type(owner) is int:
        return owner
    if type(owner) is tuple and owner[0] is ITEMS and len(owner) > 2:
        return _leaf_of(key, owner[2].get(key))
    if type(owner) is tuple and owner[0] is EACH:
        return _leaf_of(key, owner)
    return NOWHERE


def _leaf_of(key: Any, trail: Trail) -> Leaf:
    text = key if isinstance(key, str) and key else ANY
    return merge_leaves(leaf for _, leaf in split_by_origin(text, trail))


def _child_of_items(key: Any, trails: Any, keys: Any = None) -> Trail:
    try:
        return trails[key]
    except (LookupError, TypeError):
        return None


def _child_of_pick(key: Any, trail: Trail, indices: Sequence[int]) -> Trail:
    return (trail, indices[key])


def _child_of_times(key: Any, trail: Trail, length: int) -> Trail:
    return (trail, key % length)


def _child_of_each(key: Any, trail: Trail) -> Trail:
    return (EACH, trail)


def _split_each(text: str, trail: Trail) -> Splitting:
    return split_blend(text, "", trail)


def _child_of_chain(key: Any, length: int, first: Trail, second: Trail) -> Trail:
    return (first, key) if key < length else (second, key - length)


def _child_of_keys(key: Any, trail: Trail, keys: Sequence[Any]) -> Trail:
    return (KEY, trail, keys[key])


def _child_of_pairs(key: Any, trail: Trail, keys: Sequence[Any]) -> Trail:
    name = keys[key]
    return (ITEMS, ((KEY, trail, name), (trail, name)))


def _split_key(text: str, trail: Trail, key: Any) -> list[Fragment]:
    return [(text, key_leaf(trail, key))]


def _child_of_letters(key: Any, whole: str, trail: Trail) -> Trail:
    return (PART, whole, trail, key)


def _child_of_split(key: Any, whole: str, trail: Trail, parts: Sequence[str]) -> Trail:
    return (PART, whole, trail, _part_starts(whole, parts)[key])


_last_starts: tuple[Any, list[int]] = (None, [])


def _part_starts(whole: str, parts: Sequence[str]) -> list[int]:
    """Return where each part of a split text begins.

    Parts come in order and never overlap, so each is found from the end of the one before. The last
    answer is cached, since mostly all parts of one text are asked for, one after the other.
    """
    global _last_starts
    last, starts = _last_starts
    if last is not parts:
        start, starts = 0, []
        for part in parts:
            start = whole.index(part, start)
            starts.append(start)
            start += len(part)
        _last_starts = (parts, starts)
    return starts


ITEMS = Rule("ITEMS", child=_child_of_items)  # trails of elements; for a dict also those of keys
PICK = Rule("PICK", child=_child_of_pick)  # trail, indices
TIMES = Rule("TIMES", child=_child_of_times)  # trail, length: a list repeated
EACH = Rule("EACH", _split_each, _child_of_each)  # one trail for every element, however deep
CHAIN = Rule("CHAIN", child=_child_of_chain)  # length of the first list, two trails
KEYS = Rule("KEYS", child=_child_of_keys)  # trail of a dict, its keys
PAIRS = Rule("PAIRS", child=_child_of_pairs)  # trail of a dict, its keys
KEY = Rule("KEY", _split_key)  # trail of a dict, one key
LETTERS = Rule("LETTERS", child=_child_of_letters)  # whole text, its trail
SPLIT = Rule("SPLIT", child=_child_of_split)  # whole text, its trail, parts
