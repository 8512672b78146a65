"""Which texts of the input a program wrote, found out at small cost.

Pieces tell the origin of each character, and take longer than rendering. Whether some text was written at all is asked
after every rendering, and answered by what the program wrote (`text, trail, text, trail, ...`):

    writes_texts   most templates write a text as it was given; texts are compared, and no trail is followed
    list_leaves    the trails are followed, but nobody counts loops and messages
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from turnwise.engine.provenance.piece_table import WRITTEN_BY_TEMPLATE, is_message
from turnwise.engine.provenance.splitting import Follower, pairs_of
from turnwise.engine.provenance.text_rules import JOINED, is_joined
from turnwise.engine.provenance.trails import Field, Fragment, Output, Trail

MIN_SEARCHED = 12  # characters; a shorter text may be found by chance
MIN_ROUNDS = 4  # texts; fewer are looked for one by one
MAX_RETURNS = 3  # searches from the start of the text


def writes_texts(out: Output, text: str, texts: Sequence[str]) -> bool:
    """Whether every one of `texts` is written as it was given; False if that is in doubt.

    Args:
        out: what the program wrote.
        text: the rendered text.
        texts: what is looked for, in the order in which it should be written.
    """
    written = out[::2]
    missing = _find_missing(texts, written)
    if not missing or _finds_in_order(text, [one for one in texts if one in missing]):
        return True
    blocks = _list_blocks(out)
    if len(blocks) == 1:
        return False
    missing = _find_missing(texts, [one for block in blocks for one in block[::2]])
    return not missing or _finds_in_order(text, [one for one in texts if one in missing])


def writes_turns(out: Output, text: str, texts: Sequence[str]) -> bool:
    """Do as `writes_texts`, for the contents of turns that a template writes in a loop."""
    return _recurs(texts, out[::2]) or writes_texts(out, text, texts)


def list_leaves(out: Output, follower: Follower) -> Iterator[Fragment]:
    """Yield the texts that are not the template's own, in any order, each with the leaf that it came from."""
    for block in _list_blocks(out):
        for text, trail in pairs_of(block):
            if not text or type(trail) is int or trail is None:
                continue
            if len(trail) == 2 and type(trail[0]) is tuple and is_message(trail[0]):
                # the common case: a field of a message
                yield text, Field(("messages", trail[0][1], trail[1]))
            elif not (_is_block(trail) and is_joined(text, trail[1])):
                # the texts of a block are read with the other blocks
                yield from follower.split(text, trail)


def _recurs(texts: Sequence[str], written: Sequence[str]) -> bool:
    """Whether texts were written one after the other at the same distances, as a loop over turns does it.

    Two turns, of a user and an assistant, are one round of such a template. Comparing slices of lists costs a tenth
    of looking for each text.
    """
    if len(texts) < MIN_ROUNDS:
        return False
    try:
        first = written.index(texts[0])
        second = written.index(texts[1], first + 1)
        third = written.index(texts[2], second + 1)
    except ValueError:
        return False
    step = third - first
    return written[first::step] == texts[::2] and written[second::step] == texts[1::2]


def _find_missing(texts: Sequence[str], written: Sequence[str]) -> set[str]:
    """Return the texts that are not among those that were written, or not as often as they were given."""
    distinct = set(texts)
    missing = distinct.difference(written)
    if len(distinct) < len(texts):
        given = {text: count for text, count in Counter(texts).items() if count > 1}
        times = Counter(filter(given.__contains__, written))
        missing.update(text for text, count in given.items() if times[text] < count)
    return missing


def _finds_in_order(text: str, texts: Sequence[str]) -> bool:
    """Whether texts are found in the rendered text, each behind the one before it; False if that is in doubt."""
    position, returns = 0, MAX_RETURNS
    found: set[int] = set()
    for given in texts:
        part = given.strip()
        if len(part) < MIN_SEARCHED:
            if part:
                return False
            continue
        place = text.find(part, position)
        if place < 0 and returns:  # written before its turn, as a system text may be
            returns -= 1
            place = text.find(part)
        if place < 0 or place in found:  # one place is not two texts
            return False
        found.add(place)
        position = place + len(part)
    return True


def _is_block(trail: Trail) -> bool:
    """Whether a text is what a block or a macro wrote."""
    return type(trail) is tuple and trail[0] is JOINED


def _list_blocks(out: Output) -> list[Output]:
    """Return what the program wrote, and what each block wrote whose text is a part of it."""
    found: list[Output] = []
    waiting, seen = [out], set()
    while waiting:
        block = waiting.pop()
        if id(block) not in seen:  # a template may join a text to itself, again and again
            seen.add(id(block))
            found.append(block)
            trails = block[1::2]
            if set(map(type, trails)) != WRITTEN_BY_TEMPLATE:
                waiting += [trail[1] for trail in trails if _is_block(trail)]
    return found
