"""Where text came from: values stay plain, and each has a *trail* that is followed only when asked.

A traced string type pays for its origin at every operation. Here a value is an ordinary `str`,
`list` or `dict`, and the generated code carries a second local variable for its trail, which is one
of

    int               the number of a template node: text that the template's author wrote
    (parent, key)     the child of another trail: `((((ROOT, "messages"), 3), "content")`
    (RULE, *inputs)   how an operation made the value; RULE knows how to follow it
    None              no origin: a loop index, a length

Building one costs a tuple. Following one (`Follower.split`) happens when the caller reads
`Rendering.pieces`: it splits a text into fragments, each with a leaf, and a leaf is a node number
(`Written`, if that text is for one part of a message's content), a `Field`, or `Computed` from some
fields. Since values and trails are immutable, following later gives what following at once would
have given.

A rule that cannot say which character came from where (`wordwrap` of two fields) answers `Computed`
with the fields that went in: origins may become coarse, they are never lost.

Following fails closed. It has a budget (`Limits.origins`), and a text beyond it is `UNFOLLOWED`: one
fragment, computed from who knows what, which nobody trusts. The same goes for fragments that do not
join to their text, which only a defect of a rule can cause.

    trails.py           the kinds of trails and leaves, and the marks between texts
    splitting.py        following a trail: a text becomes fragments, within a budget
    text_rules.py       rules for text that was joined, cut, replaced, padded
    container_rules.py  rules for lists and dicts, their elements and keys
    written_values.py   rules for values that were written as JSON or as Python
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from turnwise.messages.paths import Path

Trail = Any  # int | tuple | None, as above; a recursive type would say no more
Output = list[Any]
"""What a program writes: `text, trail, text, trail, ...`, with marks (`piece_table.py`)."""


class Field(NamedTuple):
    """Text of an input value, or with `key` the text of its key."""

    path: Path
    key: bool = False


class Computed(NamedTuple):
    """Text that was made from these fields, or from none.

    Text whose trail was not followed to the end may be from any other field too.
    """

    sources: tuple[Path, ...] = ()
    followed: bool = True


class Written(NamedTuple):
    """Text of a template node that was written for one part of a message's content."""

    node: int
    part: Path


Leaf = int | Field | Computed | Written
Fragment = tuple[str, Leaf]
"""A part of a text with its leaf."""
Fragments = list[Fragment]
TracedText = tuple[str, Trail]
Splitting = Generator[TracedText, Fragments, Fragments]
"""Yields a text and its trail, is sent the fragments of it, and returns fragments."""

NOWHERE = Computed()
UNFOLLOWED = Computed(followed=False)


class AnyText(str):
    """Stands for a text that is not known: asks a trail for all of its leaves."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other


ANY = AnyText(" ")


@dataclass(slots=True, eq=False)
class Rule:
    """How to follow one kind of trail.

    `split(follower, text, *inputs)` returns the fragments of a text, or is a generator that asks for
    the fragments of its inputs (`Splitting`). `child(follower, key, *inputs)` returns the trail of
    one element of a container. Both charge the follower for what they make.
    """

    name: str
    split: Callable[..., Splitting | Fragments] | None = None
    child: Callable[..., Trail] | None = None

    def __repr__(self) -> str:
        return self.name


ROOT = Rule("ROOT")  # name of an input: messages, tools, an option


MESSAGES = (
    ROOT,
    "messages",
)  # one object: trails are compared with those of messages, again and again


def root_trail(name: str) -> Trail:
    """Return the trail of a whole input."""
    return MESSAGES if name == "messages" else (ROOT, name)


def part_of_path(path: Path) -> Path | None:
    """Return the path of the content part that a path leads to or into: `messages[0].content[1]`."""
    if path[:1] != ("messages",):
        return None
    for end in range(len(path) - 1, 2, -1):
        if type(path[end]) is int and path[end - 1] == "content":
            return path[: end + 1]
    return None


def assign_part(fragments: Fragments, part: Path) -> Fragments:
    """Return the fragments of a text that was written for a content part: the template's text belongs to it."""
    return [
        (text, Written(leaf, part)) if type(leaf) is int else (text, leaf)
        for text, leaf in fragments
    ]


def merge_leaves(leaves: Iterable[Leaf]) -> Leaf:
    """Return one leaf for text that several leaves went into."""
    distinct = list(dict.fromkeys(leaves))
    if len(distinct) == 1:
        return distinct[0]
    fields = [leaf.path for leaf in distinct if isinstance(leaf, Field)]
    fields += [leaf.part for leaf in distinct if isinstance(leaf, Written)]
    computed = [leaf.sources for leaf in distinct if isinstance(leaf, Computed)]
    sources = fields + [path for paths in computed for path in paths]
    followed = all(leaf.followed for leaf in distinct if isinstance(leaf, Computed))
    return Computed(tuple(dict.fromkeys(sources)), followed)


# Marks: trails of empty texts. They say what was going on while the next texts were written.
# A loop over messages, or over the parts of a content, writes the trail of each element as a mark,
# between these two.
LOOP = (Rule("LOOP"),)
DONE = (Rule("DONE"),)
BOUND = Rule("BOUND")  # (BOUND, trail): inside a loop a name is bound to an element
NEXT = (Rule("NEXT"),)  # a loop over numbers takes the next
BEGIN = (Rule("BEGIN"),)  # {% generation %}
END = (Rule("END"),)  # {% endgeneration %}
