"""Where text came from: values stay plain, a *trail* goes beside each, and trails are followed only when asked.

A traced string type pays for its origin at every operation. Here a value is an ordinary `str`, `list` or `dict`, and
the generated code carries a second local variable for its trail, which is one of

    int               the number of a template node: text that the template's author wrote
    (parent, key)     the child of another trail: `((((ROOT, "messages"), 3), "content")`
    (RULE, *inputs)   how an operation made the value; RULE knows how to follow it
    None              nobody wrote it: a loop index, a length

Building one costs a tuple. Following one (`runs`) happens when somebody reads `Rendering.pieces`: it splits a text
into runs, each with a leaf, and a leaf is a node number, a `Field`, or `Computed` from some fields. Since values and
trails are immutable, following later gives what following at once would have given.

A rule that cannot say which character came from where (`wordwrap` of two fields) answers `Computed` with the fields
that went in: origins may become coarse, they are never lost.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import accumulate, groupby
from json.encoder import encode_basestring, encode_basestring_ascii
from operator import itemgetter
from typing import Any, NamedTuple

Trail = Any  # int | tuple | None, as above; a recursive type would say no more
Path = tuple[str | int, ...]


class Field(NamedTuple):
    """Text of an input value, or with `key` the text of its key."""

    path: Path
    key: bool = False


class Computed(NamedTuple):
    """Text that was made from these fields, or from none."""

    sources: tuple[Path, ...] = ()


Leaf = int | Field | Computed
Fragment = tuple[str, Leaf]
Steps = Generator[tuple[str, Trail], list[Fragment], list[Fragment]]

NOWHERE = Computed()


class Rule:
    """How to follow one kind of trail: `runs` for text, `child` for an element of a container.

    `runs(text, *inputs)` returns the runs, or is a generator that yields `text, trail` to be sent the runs of it.
    """

    __slots__ = ("child", "name", "runs")

    def __init__(
        self,
        name: str,
        runs: Callable[..., Steps | list[Fragment]] | None = None,
        child: Callable[..., Trail] | None = None,
    ) -> None:
        self.name = name
        self.runs = runs
        self.child = child

    def __repr__(self) -> str:
        return self.name


ROOT = Rule("ROOT")


def root_trail(name: str) -> Trail:
    return (ROOT, name)


def resolve(trail: Trail) -> Trail | Field:
    """Resolve a chain of children to a field, or to the rule (or node) that made the value."""
    keys: list[Any] = []
    while True:
        if trail is None or type(trail) is int:
            return trail
        head = trail[0]
        if head is ROOT:
            return Field((trail[1], *reversed(keys)))
        if type(head) is Rule:
            if not keys:
                return trail
            if head.child is None:
                return trail  # an element of text: the text's own rule answers for it
            trail = head.child(keys.pop(), *trail[1:])
        else:
            keys.append(trail[1])
            trail = head


def is_from_input(trail: Trail) -> bool:
    """A trail that leads to a part of the input as it was given: a tree that was measured at the door."""
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


class FragmentCache:
    """Runs that were found before: parts of one text all ask for the runs of the whole."""

    def __init__(self) -> None:
        self.found: dict[
            tuple[int, str], tuple[Any, list[Fragment]]
        ] = {}  # by identity; the trail itself must stay


def split_by_origin(text: str, trail: Trail, cache: FragmentCache | None = None) -> list[Fragment]:
    """Split text into runs by origin; their texts join to `text`.

    A rule asks for the runs of its inputs by yielding them, and the asking is kept on a list: a text that was built in
    ten thousand steps has a trail ten thousand deep, and Python's stack is not.
    """
    cache = cache or FragmentCache()
    waiting: list[tuple[str, Any, Steps]] = []
    answer: Any = start_splitting(text, trail, waiting, cache)  # None starts a generator
    while waiting:
        whole, found, steps = waiting[-1]
        try:
            asked = steps.send(answer)
        except StopIteration as finished:
            waiting.pop()
            answer = check_fragments(whole, finished.value)
            cache.found[id(found), whole] = (found, answer)
        else:
            answer = start_splitting(*asked, waiting, cache)
    result: list[Fragment] = answer
    return result


def start_splitting(
    text: str, trail: Trail, waiting: list[tuple[str, Any, Steps]], cache: FragmentCache
) -> list[Fragment] | None:
    """The runs, if they are plain to see or were seen before; else the rule that finds them starts."""
    if not text:
        return []
    found: Any = resolve(trail)
    if found is None:
        return [(text, NOWHERE)]
    if type(found) is int or type(found) is Field:
        return [(text, found)]
    if (id(found), text) in cache.found:
        return cache.found[id(found), text][1]
    rule, inputs = found[0], found[1:]
    if rule.runs is None:
        return [(text, NOWHERE)]
    made = rule.runs(text, *inputs)
    if isinstance(made, list):
        return check_fragments(text, made)
    waiting.append((text, found, made))
    return None


def check_fragments(text: str, result: list[Fragment]) -> list[Fragment]:
    """A rule that lost count must not misattribute: then all of its leaves answer for all of the text."""
    if "".join([part for part, _ in result]) != text:
        return [(text, merge_leaves(leaf for _, leaf in result))]
    return merge_neighbours(result) if len(result) > 64 else result


def merge_neighbours(result: list[Fragment]) -> list[Fragment]:
    """Neighbours with one leaf as one run."""
    return [
        ("".join([part for part, _ in group]), leaf)
        for leaf, group in groupby(result, key=itemgetter(1))
    ]


def merge_leaves(leaves: Iterable[Leaf]) -> Leaf:
    """One leaf for text that several went into."""
    kinds = list(dict.fromkeys(leaves))
    if len(kinds) == 1:
        return kinds[0]
    fields = [leaf for leaf in kinds if isinstance(leaf, Field)]
    sources = [leaf.path for leaf in fields]
    sources += [path for leaf in kinds if isinstance(leaf, Computed) for path in leaf.sources]
    return Computed(tuple(dict.fromkeys(sources)))


def pairs_of(parts: Sequence[Any]) -> Iterator[tuple[str, Trail]]:
    """The pairs of a flat `text, trail, text, trail, ...` sequence."""
    return zip(parts[::2], parts[1::2], strict=True)


# ---- rules for text ----


def _joined(text: str, parts: Sequence[Any]) -> Steps:
    result: list[Fragment] = []
    for part, trail in pairs_of(parts):
        result += yield part, trail
    return result


def _part(text: str, whole: str, trail: Trail, start: int) -> Steps:
    return slice_fragments((yield whole, trail), start, start + len(text))


def _stripped(text: str, whole: str, trail: Trail) -> Steps:
    return _part(text, whole, trail, whole.find(text))


def _stripped_left(text: str, whole: str, trail: Trail) -> Steps:
    return _part(text, whole, trail, len(whole) - len(text))


def _stripped_right(text: str, whole: str, trail: Trail) -> Steps:
    return _part(text, whole, trail, 0)


def _recased(text: str, whole: str, trail: Trail, change: Callable[[str], str]) -> Steps:
    before = yield whole, trail
    if len(text) == len(whole):  # letters keep their places
        ends = list(accumulate(len(part) for part, _ in before))
        return [
            (text[end - len(part) : end], leaf)
            for (part, leaf), end in zip(before, ends, strict=True)
        ]
    return [(change(part), leaf) for part, leaf in before]


def _repeated(text: str, whole: str, trail: Trail) -> Steps:
    before = yield whole, trail
    return [(text, before[0][1])] if len(before) == 1 else before * (len(text) // len(whole))


def _replaced(
    text: str, whole: str, trail: Trail, old: str, new: str, new_trail: Trail, limit: int
) -> Steps:
    result: list[Fragment] = []
    before = yield whole, trail
    inserted = yield new, new_trail
    at, found = 0, -1 if limit == 0 else whole.find(old)
    while found >= 0:
        result += slice_fragments(before, at, found) + inserted
        limit -= 1
        if old:
            at = found + len(old)
            found = whole.find(old, at) if limit else -1
        else:  # an empty needle stands before every character and at the end
            result += slice_fragments(before, found, found + 1)
            at = found + 1
            found = at if limit and at <= len(whole) else -1
    return result + slice_fragments(before, at, len(whole))


def _blend(text: str, *inputs: Any) -> Steps:
    """Text that some operation made of these texts and trails; one leaf for all of it."""
    leaves: list[Leaf] = []
    for part, trail in pairs_of(inputs):
        leaves += [leaf for _, leaf in (yield part or " ", trail)]
    return [(text, merge_leaves(leaves or [NOWHERE]))]


def _around(text: str, whole: str, trail: Trail) -> Steps:
    """Text that was padded."""
    before = yield whole, trail
    at = text.find(whole)
    if at < 0:
        return [(text, merge_leaves(leaf for _, leaf in before))]
    padded = [(text[:at], NOWHERE), *before, (text[at + len(whole) :], NOWHERE)]
    return [run for run in padded if run[0]]


def _lines(text: str, whole: str, trail: Trail) -> Steps:
    """Text whose lines were indented: each line of the original ends a line of the result."""
    result: list[Fragment] = []
    before, at = (yield whole, trail), 0
    pieces = whole.split("\n")
    for number, (line, shown) in enumerate(zip(pieces, text.split("\n"), strict=False)):
        result.append((shown[: len(shown) - len(line)], NOWHERE))
        result += slice_fragments(before, at, at + len(line) + (number < len(pieces) - 1))
        at += len(line) + 1
    return [run for run in result if run[0]]


LAST_CUT: tuple[Any, list[int]] = (None, [])


def slice_fragments(before: list[Fragment], start: int, stop: int) -> list[Fragment]:
    """The runs between two offsets. Where the runs are many, the first is looked up rather than walked to."""
    first, at = 0, 0
    if len(before) > 16:
        ends = fragment_ends(before)
        first = bisect_right(ends, start)
        at = ends[first - 1] if first else 0
    result = []
    for index in range(first, len(before)):
        if at >= stop:
            break
        part, leaf = before[index]
        inside = part[max(start - at, 0) : stop - at]
        if inside:
            result.append((inside, leaf))
        at += len(part)
    return result


def fragment_ends(before: list[Fragment]) -> list[int]:
    """Where each run ends; kept until other runs are asked about, since one text is mostly cut many times."""
    global LAST_CUT
    last, ends = LAST_CUT
    if last is not before:
        ends = list(accumulate(len(part) for part, _ in before))
        LAST_CUT = (before, ends)
    return ends


JOINED = Rule("JOINED", runs=_joined)  # (texts and trails, flat)
PART = Rule("PART", runs=_part)  # whole, its trail, start
STRIPPED = Rule(
    "STRIPPED", runs=_stripped
)  # whole, its trail; the first letter is none that was stripped before it
LSTRIPPED = Rule("LSTRIPPED", runs=_stripped_left)  # whole, its trail
RSTRIPPED = Rule("RSTRIPPED", runs=_stripped_right)  # whole, its trail
RECASED = Rule("RECASED", runs=_recased)  # whole, its trail, function
REPEATED = Rule("REPEATED", runs=_repeated)  # whole, its trail
REPLACED = Rule("REPLACED", runs=_replaced)  # whole, its trail, old, new, new's trail, limit
BLEND = Rule("BLEND", runs=_blend)  # text, trail, text, trail, ...
AROUND = Rule("AROUND", runs=_around)  # whole, its trail
LINES = Rule("LINES", runs=_lines)  # whole, its trail


# ---- rules for containers ----


def _items_child(key: Any, trails: Any, keys: Any = None) -> Trail:
    try:
        return trails[key]
    except (LookupError, TypeError):
        return None


def _pick_child(key: Any, trail: Trail, indices: Sequence[int]) -> Trail:
    return (trail, indices[key])


def _times_child(key: Any, trail: Trail, length: int) -> Trail:
    return (trail, key % length)


def _each_child(key: Any, trail: Trail) -> Trail:
    return (EACH, trail)


def _each_runs(text: str, trail: Trail) -> Steps:
    """Some part of what the trail leads to: whatever went into that answers for it."""
    return _blend(text, "", trail)


def _chain_child(key: Any, length: int, first: Trail, second: Trail) -> Trail:
    return (first, key) if key < length else (second, key - length)


def _keys_child(key: Any, trail: Trail, keys: Sequence[Any]) -> Trail:
    return (KEY, trail, keys[key])


def _pairs_child(key: Any, trail: Trail, keys: Sequence[Any]) -> Trail:
    name = keys[key]
    return (ITEMS, ((KEY, trail, name), (trail, name)))


def key_leaf(trail: Trail, key: Any) -> Leaf:
    """The leaf of a key's text: it came with the mapping, or whoever made the mapping wrote it."""
    owner = resolve(trail)
    if type(owner) is Field:
        return Field((*owner.path, key), key=True)
    if type(owner) is tuple and owner[0] is ITEMS and len(owner) > 2:
        return merge_leaves(leaf for _, leaf in split_by_origin(" ", owner[2].get(key)))
    if type(owner) is tuple and owner[0] is EACH:
        return merge_leaves(leaf for _, leaf in split_by_origin(" ", owner))
    return owner if type(owner) is int else NOWHERE


def _key_runs(text: str, trail: Trail, key: Any) -> list[Fragment]:
    return [(text, key_leaf(trail, key))]


def _split_child(key: Any, whole: str, trail: Trail, parts: Sequence[str]) -> Trail:
    return (PART, whole, trail, part_starts(whole, parts)[key])


def _letters_child(key: Any, whole: str, trail: Trail) -> Trail:
    return (PART, whole, trail, key)


LAST_SPLIT: tuple[Any, list[int]] = (None, [])


def part_starts(whole: str, parts: Sequence[str]) -> list[int]:
    """Where each part begins. Parts come in order and never overlap, so looking from the last end finds them.

    The answer is kept until another split is asked about, since mostly all parts of one are, one after the other.
    """
    global LAST_SPLIT
    last, found = LAST_SPLIT
    if last is not parts:
        at, found = 0, []
        for part in parts:
            at = whole.index(part, at)
            found.append(at)
            at += len(part)
        LAST_SPLIT = (parts, found)
    return found


ITEMS = Rule(
    "ITEMS", child=_items_child
)  # a sequence or mapping of trails; for a mapping, those of its keys
PICK = Rule("PICK", child=_pick_child)  # trail, indices
TIMES = Rule("TIMES", child=_times_child)  # trail, length: a list repeated
EACH = Rule("EACH", runs=_each_runs, child=_each_child)  # one trail for every element, however deep
CHAIN = Rule("CHAIN", child=_chain_child)  # length of the first, two trails
KEYS = Rule("KEYS", child=_keys_child)  # trail of a mapping, its keys
PAIRS = Rule("PAIRS", child=_pairs_child)  # trail of a mapping, its keys
KEY = Rule("KEY", runs=_key_runs)  # trail of a mapping, one key
LETTERS = Rule("LETTERS", child=_letters_child)  # whole, its trail
SPLIT = Rule("SPLIT", child=_split_child)  # whole, its trail, parts


# ---- written-out values: JSON and Python's repr ----


class JsonStyle(NamedTuple):
    """How `json.dumps` writes a container."""

    ensure_ascii: bool
    indent: str | None
    item: str
    colon: str
    sort_keys: bool


def _json_runs(
    text: str,
    value: Any,
    trail: Trail,
    style: JsonStyle,
    node: int | None,
    memo: dict[Any, Any] | None,
) -> list[Fragment]:
    """Each text inside is its field's; the punctuation is the template's. Tools that stay are cut only once."""
    key = (id(value), style, node, "runs")
    if memo is not None and key in memo:
        kept: list[Fragment] = memo[key]
        return kept
    result: list[Fragment] = []
    JsonSplitter(result, style, NOWHERE if node is None else node).write(value, trail)
    if memo is not None:
        memo[key] = result
    return result


class JsonSplitter:
    """Writes a value as `json.dumps` does, run by run. Open containers are on a list, not on Python's stack."""

    def __init__(self, result: list[Fragment], style: JsonStyle, mark: Leaf) -> None:
        self.result = result
        self.style = style
        self.mark = mark
        self.escape = encode_basestring_ascii if style.ensure_ascii else encode_basestring
        self.held = ""  # punctuation that is not a run yet
        self.open: list[OpenContainer] = []

    def write(self, value: Any, trail: Trail) -> None:
        self.value(value, trail)
        while self.open:
            container = self.open[-1]
            entry = next(container.entries, None)
            if entry is None:
                self.open.pop()
                self.held += (
                    self.newline()
                    if container.separator == self.style.item
                    else container.separator
                ) + container.end
                continue
            key, item = entry
            self.held += container.separator + self.newline()
            container.separator = self.style.item
            if container.end == "}":
                name = key if isinstance(key, str) else json.dumps(key)
                self.held += '"'
                self.put(self.escape(name)[1:-1], key_leaf(container.trail, key))
                self.held += '"' + self.style.colon
            self.value(item, (container.trail, key))
        self.put("", self.mark)

    def newline(self) -> str:
        indent = self.style.indent
        return "" if indent is None else "\n" + indent * len(self.open)

    def put(self, text: str, leaf: Leaf) -> None:
        if self.held:
            self.result.append((self.held, self.mark))
            self.held = ""
        if text:
            self.result.append((text, leaf))

    def value(self, value: Any, trail: Trail) -> None:
        if isinstance(value, str):
            self.held += '"'
            for part, leaf in split_by_origin(value, trail):
                self.put(self.escape(part)[1:-1], leaf)
            self.held += '"'
        elif isinstance(value, dict):
            items = sorted(value.items()) if self.style.sort_keys else value.items()
            self.open.append(OpenContainer(iter(items), trail, "{", "}"))
        elif isinstance(value, (list, tuple)):
            self.open.append(OpenContainer(iter(enumerate(value)), trail, "[", "]"))
        else:
            spelled = (
                json.dumps(value)
                if isinstance(value, (int, float, type(None)))
                else f'"<{type(value).__name__}>"'
            )
            for part, leaf in split_by_origin(spelled, trail):
                self.put(part, leaf)


class OpenContainer:
    """A container that is being written: what is left of it, and what comes before its next entry."""

    __slots__ = ("end", "entries", "separator", "trail")

    def __init__(
        self, entries: Iterator[tuple[Any, Any]], trail: Trail, start: str, end: str
    ) -> None:
        self.entries = entries
        self.trail = trail
        self.separator = start
        self.end = end


def _repr_runs(text: str, value: Any, trail: Trail) -> list[Fragment]:
    whole = resolve(trail)
    mark = (
        Computed((whole.path,)) if type(whole) is Field else NOWHERE
    )  # Python's brackets, made of this value
    return list(_repr(value, trail, mark))


def _repr(value: Any, trail: Trail, mark: Leaf) -> Iterator[Fragment]:
    if isinstance(value, str):
        yield from _repr_text(value, trail, mark)
    elif isinstance(value, dict):
        for number, (key, item) in enumerate(value.items()):
            yield "{" if number == 0 else ", ", mark
            yield from _repr(key, (KEY, trail, key), mark)
            yield ": ", mark
            yield from _repr(item, (trail, key), mark)
        yield "}" if value else "{}", mark
    elif isinstance(value, (list, tuple)):
        start, end = "[]" if isinstance(value, list) else "()"
        for number, item in enumerate(value):
            yield start if number == 0 else ", ", mark
            yield from _repr(item, (trail, number), mark)
        end = ",)" if isinstance(value, tuple) and len(value) == 1 else end
        yield end if value else start + end, mark
    elif value is None or isinstance(value, (int, float)):
        yield from split_by_origin(repr(value), trail)
    else:
        yield repr(value), mark


def _repr_text(value: str, trail: Trail, mark: Leaf) -> Iterator[Fragment]:
    quote = repr(value)[0]
    other = '"' if quote == "'" else "'"
    yield quote, mark
    for part, leaf in split_by_origin(value, trail):
        yield repr(other + part)[2:-1], leaf  # the other quote in front makes repr choose this one
    yield quote, mark


JSON = Rule("JSON", runs=_json_runs)  # value, its trail, Style, node of the punctuation, memo
REPR = Rule("REPR", runs=_repr_runs)  # value, its trail


# ---- marks: not text, but what was going on while text was written ----

# A loop over messages writes an empty text with the trail of each message it takes, between these two.
LOOP = (Rule("LOOP"),)
DONE = (Rule("DONE"),)
BOUND = Rule("BOUND")  # (BOUND, trail): inside a loop a name is bound to an element
NEXT = (Rule("NEXT"),)  # a loop over numbers takes the next
BEGIN = (Rule("BEGIN"),)  # {% generation %}
END = (Rule("END"),)  # {% endgeneration %}
