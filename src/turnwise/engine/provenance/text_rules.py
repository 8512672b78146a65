"""Rules for text that an operation made of other text.

The comment after each rule lists its inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from turnwise.engine.provenance.splitting import pairs_of, slice_fragments
from turnwise.engine.provenance.trails import (
    ANY,
    DONE,
    LOOP,
    NEXT,
    NOWHERE,
    Fragment,
    Leaf,
    Rule,
    Splitting,
    Trail,
    assign_part,
    merge_leaves,
    part_of_mark,
    part_of_trail,
)
from turnwise.messages.paths import Path


def _split_joined(text: str, parts: Sequence[Any]) -> Splitting:
    fragments: list[Fragment] = []
    loops: list[Path | None] = []  # the content part that each open loop is at
    for part, trail in pairs_of(parts):
        if not part:
            _read_mark(trail, loops)
            continue
        found = yield part, trail
        if any(loops):
            written_for = next(path for path in reversed(loops) if path)
            found = assign_part(found, written_for)
        fragments += found
    return fragments


def _read_mark(trail: Trail, loops: list[Path | None]) -> None:
    """Follow a mark inside of a block: which content part is written from here on."""
    if trail is LOOP:
        loops.append(None)
    elif not loops:
        return
    elif trail is DONE:
        loops.pop()
    elif trail is NEXT:
        loops[-1] = None
    elif type(trail) is tuple:
        loops[-1] = part_of_mark(trail, loops[-1])


def _split_within(text: str, inner: Trail, element: Trail) -> Splitting:
    before = yield text, inner
    part = part_of_trail(element)
    return before if part is None else assign_part(before, part)


def _split_part(text: str, whole: str, trail: Trail, start: int) -> Splitting:
    before = yield whole, trail
    if not whole.startswith(text, start) or text is ANY:
        return [(text, _merge(before))]
    return slice_fragments(before, start, start + len(text))


def _merge(fragments: list[Fragment]) -> Leaf:
    """Return one leaf for a text of which only the whole is known."""
    return merge_leaves(leaf for _, leaf in fragments)


def _split_stripped(text: str, whole: str, trail: Trail) -> Splitting:
    # the first letter of the text is none that was stripped before it,
    # so the first hit is the right one
    return _split_part(text, whole, trail, max(whole.find(text), 0))


def _split_stripped_left(text: str, whole: str, trail: Trail) -> Splitting:
    return _split_part(text, whole, trail, max(len(whole) - len(text), 0))


def _split_stripped_right(text: str, whole: str, trail: Trail) -> Splitting:
    return _split_part(text, whole, trail, 0)


def _split_recased(text: str, whole: str, trail: Trail, change: Callable[[str], str]) -> Splitting:
    before = yield whole, trail
    if len(text) != len(whole):  # "ß" becomes "SS"
        return [(change(part), leaf) for part, leaf in before]
    fragments, start = [], 0
    for part, leaf in before:
        end = start + len(part)
        fragments.append((text[start:end], leaf))
        start = end
    return fragments


def _split_repeated(text: str, whole: str, trail: Trail) -> Splitting:
    before = yield whole, trail
    if len(before) <= 1:
        return [(text, _merge(before))]
    return before * (len(text) // len(whole))


def _split_replaced(
    text: str, whole: str, trail: Trail, old: str, new: str, new_trail: Trail, limit: int
) -> Splitting:
    before = yield whole, trail
    inserted = yield new, new_trail
    fragments: list[Fragment] = []
    start = 0
    found = whole.find(old) if limit else -1
    while found >= 0:
        fragments += slice_fragments(before, start, found) + inserted
        limit -= 1
        if old:
            start = found + len(old)
            found = whole.find(old, start) if limit else -1
        else:  # an empty text is found before every character and at the end
            fragments += slice_fragments(before, found, found + 1)
            start = found + 1
            found = start if limit and start <= len(whole) else -1
    return fragments + slice_fragments(before, start, len(whole))


def split_blend(text: str, *inputs: Any) -> Splitting:
    """Give the whole text one leaf, merged from those of all inputs."""
    leaves: list[Leaf] = []
    for part, trail in pairs_of(inputs):
        fragments = yield part or ANY, trail
        leaves += [leaf for _, leaf in fragments]
    return [(text, merge_leaves(leaves or [NOWHERE]))]


def _split_padded(text: str, whole: str, trail: Trail) -> Splitting:
    before = yield whole, trail
    start = text.find(whole)
    if start < 0:
        return [(text, _merge(before))]
    end = start + len(whole)
    padded = [(text[:start], NOWHERE), *before, (text[end:], NOWHERE)]
    return [fragment for fragment in padded if fragment[0]]


def _split_indented(text: str, whole: str, trail: Trail) -> Splitting:
    """Each line of the result is an indent and a line of the original."""
    before = yield whole, trail
    fragments: list[Fragment] = []
    start = 0
    for line, indented in zip(whole.split("\n"), text.split("\n"), strict=False):
        fragments.append((indented[: len(indented) - len(line)], NOWHERE))
        end = start + len(line) + 1  # with its newline, which the last line does not have
        fragments += slice_fragments(before, start, end)
        start = end
    if "".join([part for part, _ in fragments]) != text:
        return [(text, _merge(before))]
    return [fragment for fragment in fragments if fragment[0]]


WITHIN = Rule("WITHIN", _split_within)  # trail, trail of the loop's element it was made for
JOINED = Rule("JOINED", _split_joined)  # texts and trails, flat
PART = Rule("PART", _split_part)  # whole, its trail, start
STRIPPED = Rule("STRIPPED", _split_stripped)  # whole, its trail
LSTRIPPED = Rule("LSTRIPPED", _split_stripped_left)  # whole, its trail
RSTRIPPED = Rule("RSTRIPPED", _split_stripped_right)  # whole, its trail
RECASED = Rule("RECASED", _split_recased)  # whole, its trail, function
REPEATED = Rule("REPEATED", _split_repeated)  # whole, its trail
REPLACED = Rule("REPLACED", _split_replaced)  # whole, its trail, old, new, new's trail, limit
BLEND = Rule("BLEND", split_blend)  # text, trail, text, trail, ...
PADDED = Rule("PADDED", _split_padded)  # whole, its trail
INDENTED = Rule("INDENTED", _split_indented)  # whole, its trail
