"""Follow a trail: split a text into fragments, each with the leaf that it came from."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Any

from turnwise.engine.provenance.trails import (
    NOWHERE,
    Field,
    Fragment,
    Splitting,
    Trail,
    merge_leaves,
    resolve,
)

MANY_FRAGMENTS = 64  # from here on neighbours with one leaf are merged, which is not free
MIN_BISECTED = 16  # fewer fragments are searched from the start


FragmentCache = dict[tuple[int, str], tuple[Trail, list[Fragment]]]
"""Fragments that were found before: parts of one text all ask for the fragments of the whole.

The key is the identity of a trail and the text; the trail is stored too, so that it stays alive.
"""

Waiting = list[tuple[str, Trail, Splitting]]  # texts whose rule has asked for another text


def split_by_origin(text: str, trail: Trail, cache: FragmentCache | None = None) -> list[Fragment]:
    """Split a text into fragments by origin; their texts join to `text`.

    A rule asks for the fragments of its inputs by yielding them, and who waits is kept on a list: a
    text that was built in ten thousand steps has a trail ten thousand deep, and Python's stack is
    not.
    """
    if cache is None:
        cache = {}
    waiting: Waiting = []
    answer: Any = _split_or_start(text, trail, waiting, cache)  # None starts a generator
    while waiting:
        whole, resolved, splitting = waiting[-1]
        try:
            asked_text, asked_trail = splitting.send(answer)
        except StopIteration as finished:
            waiting.pop()
            answer = _check_fragments(whole, finished.value)
            cache[id(resolved), whole] = (resolved, answer)
        else:
            answer = _split_or_start(asked_text, asked_trail, waiting, cache)
    fragments: list[Fragment] = answer
    return fragments


def _split_or_start(
    text: str, trail: Trail, waiting: Waiting, cache: FragmentCache
) -> list[Fragment] | None:
    """Return the fragments if no other text is needed for them.

    Else add the text's rule to `waiting`.
    """
    if not text:
        return []
    resolved: Any = resolve(trail)
    if resolved is None:
        return [(text, NOWHERE)]
    if type(resolved) is int or type(resolved) is Field:
        return [(text, resolved)]
    known = cache.get((id(resolved), text))
    if known is not None:
        return known[1]
    rule, inputs = resolved[0], resolved[1:]
    if rule.split is None:
        return [(text, NOWHERE)]
    result = rule.split(text, *inputs)
    if isinstance(result, list):
        return _check_fragments(text, result)
    waiting.append((text, resolved, result))
    return None


def _check_fragments(text: str, fragments: list[Fragment]) -> list[Fragment]:
    """Return fragments that join to `text`.

    A rule that lost count must not give a character to the wrong field: then all of its leaves
    together are the origin of all of the text. A rule that cuts its input returns all leaves of the
    input where the text is not what it cut.
    """
    if "".join([part for part, _ in fragments]) != text:
        return [(text, merge_leaves(leaf for _, leaf in fragments))]
    if len(fragments) <= MANY_FRAGMENTS:
        return fragments
    return [
        ("".join([part for part, _ in group]), leaf)
        for leaf, group in groupby(fragments, key=itemgetter(1))
    ]


def pairs_of(flat: Sequence[Any]) -> Iterator[tuple[str, Trail]]:
    """Return the pairs of a flat `text, trail, text, trail, ...` sequence."""
    return zip(flat[::2], flat[1::2], strict=True)


def slice_fragments(fragments: list[Fragment], start: int, stop: int) -> list[Fragment]:
    """Return the fragments between two offsets of their text."""
    first, offset = 0, 0
    if len(fragments) > MIN_BISECTED:
        ends = _fragment_ends(fragments)
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


_last_ends: tuple[Any, list[int]] = (None, [])


def _fragment_ends(fragments: list[Fragment]) -> list[int]:
    """Return where each fragment ends.

    The last answer is cached, since one text is mostly sliced many times.
    """
    global _last_ends
    last, ends = _last_ends
    if last is not fragments:
        ends = list(accumulate(len(part) for part, _ in fragments))
        _last_ends = (fragments, ends)
    return ends
