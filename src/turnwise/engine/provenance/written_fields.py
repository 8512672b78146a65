"""Which fields of the input a program wrote, read off what it wrote: `text, trail, text, trail, ...`.

Pieces tell the origin of each character, and take longer than rendering. Whether some text was written at all is asked
after every rendering that segments do not prove whole (`Rendering.unwritten`), so no more is read than the question
needs: `WrittenFields` has the texts of each field; blocks are read, and trails followed. A text that is equal by chance
is never taken for another field's: the trail decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

from turnwise.engine.provenance.container_rules import (
    CHAIN,
    ITEMS,
    KEY,
    KEYS,
    PAIRS,
    PICK,
    SPLIT,
)
from turnwise.engine.provenance.piece_table import is_message
from turnwise.engine.provenance.splitting import Follower, pairs_of
from turnwise.engine.provenance.text_rules import (
    JOINED,
    PART,
    RECASED,
    REPEATED,
    REPLACED,
    STRIPPED,
    is_joined,
)
from turnwise.engine.provenance.trails import (
    ROOT,
    Computed,
    Field,
    Leaf,
    Output,
    TracedText,
    Trail,
    Written,
)
from turnwise.engine.provenance.written_values import JSON, REPR
from turnwise.messages import Path

MAX_WRITTEN = 100_000  # texts, with those of blocks, among which tools are looked for
TOOLS = (ROOT, "tools")
WRITTEN_BY_TEMPLATE = {int}  # the types of trails of a block that only the template wrote
# Where trails have the one trail that their values were made of.
PLACES_OF_SOURCE = {
    **dict.fromkeys([KEY, KEYS, PAIRS, PICK], 1),
    **dict.fromkeys([JSON, PART, RECASED, REPEATED, REPR, SPLIT], 2),
}


def unwrap_trail(trail: Trail) -> Trail:
    """Return the trail of a text before white space around it was stripped, or a block wrote it and nothing else."""
    while type(trail) is tuple:
        rule = trail[0]
        if rule is STRIPPED:
            trail = trail[2]
        elif rule is JOINED and len(trail[1]) == 2:
            trail = trail[1][1]
        elif type(rule) is tuple and rule[0] is SPLIT and len(rule[3]) == 1:
            trail = rule[2]  # what it is split at is not in it
        else:
            break
    return trail


def find_written_tools(out: Output, count: int, carried: Iterable[Trail] | None) -> bool | None:
    """Whether something of each of so many tools is written; None if only of some, or if that is in doubt.

    Args:
        out: what is written.
        count: the number of tools.
        carried: the trails of what is written later; None if they are not known.
    """
    missing = set(range(count))
    waiting = [*pairs_of(out)]
    for text, trail in waiting:  # which becomes longer
        while type(trail) is tuple and type(trail[0]) is tuple and trail[0][0] in (CHAIN, ITEMS):
            trail = trail[0][0].child(None, trail[1], *trail[0][1:])
        if type(trail) is not tuple:
            continue
        if trail[0] is JOINED and len(waiting) < MAX_WRITTEN:
            waiting += pairs_of(trail[1])
        source, number = _find_list(trail)
        if source == TOOLS and text.strip():
            missing.discard(number)
            if number is None or not missing:
                return True
    return None if carried is None or _leads_to_tools([*out[1::2], *carried]) else False


def _find_list(trail: Any) -> tuple[Trail, Any]:
    """Return the trail of a list of the input of which something is written, and the number of that element."""
    source, number = trail[2] if trail[0] in (JSON, REPR) else trail, None
    while type(source) is tuple and (type(source[0]) is tuple or source[0] is PAIRS):
        source, number = source if source[0] is not PAIRS else (source[1], number)
    return source, number


def _leads_to_tools(values: list[Any]) -> bool:
    for value in values:
        if value == TOOLS or len(values) > MAX_WRITTEN:
            return True
        if type(value) in (tuple, list, dict):
            values += value.values() if type(value) is dict else value  # so it becomes longer
    return False


class WrittenFields:
    """The texts of fields that were written.

    Args:
        follower: follows trails.

    Attributes:
        texts: the texts of each field, in the order of the output where one block wrote them.
        keys: the fields whose keys were written.
        whole: the fields that were written as JSON, with everything in them.
        computed: texts that were made of several fields, by these; by none, if they are not known.
        parts: the content parts for which the template wrote something of its own.
    """

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._later: list[TracedText] = []
        self._seen: set[int] = set()
        self.texts: dict[Path, list[str]] = {}
        self.keys: set[Path] = set()
        self.whole: set[Path] = set()
        self.computed: dict[tuple[Path, ...], list[str]] = {}
        self.parts: set[Path] = set()

    def read(self, pairs: Iterable[TracedText]) -> None:
        """Read texts with their trails; those that do not name a field at once are kept for later."""
        texts, later = self.texts, self._later
        for pair in pairs:
            text, trail = pair
            if not text or type(trail) is not tuple:
                continue
            if type(trail[0]) is tuple and is_message(trail[0]):
                # the common case: a field of a message
                texts.setdefault(("messages", trail[0][1], trail[1]), []).append(text)
            elif not self._is_of_others(trail):
                later.append(pair)

    def _is_of_others(self, trail: Trail) -> bool:
        """Whether a text was made of a text of the template alone, or of tools that are known to be written."""
        while type(trail) is tuple and trail[0] is not ROOT:
            rule = trail[0]
            trail = rule if type(rule) is tuple else trail[PLACES_OF_SOURCE.get(rule, 0)]
        return type(trail) is int or (trail == TOOLS and TOOLS[1:] in self.whole)

    def _add_value(self, value: Any, trail: Trail) -> None:
        """Note a value that was written with everything in it; one that the template made is taken apart."""
        source = self._follower.try_resolve(trail)
        if type(source) is Field and isinstance(value, str):
            self.add(value, source)  # it may be a part of the field
        elif type(source) is Field:
            self.whole.add(source.path)
        elif isinstance(value, (dict, list, tuple)):
            entries = [*(value.items() if isinstance(value, dict) else enumerate(value))]
            self._later += [(key, (KEY, trail, key)) for key, _ in entries if isinstance(key, str)]
            self._later += [("{}", (JSON, item, (trail, key))) for key, item in entries]
        elif type(source) is tuple:
            self._later.append((str(value), source))

    def read_everything(self) -> None:
        """Read what was kept for later: blocks, and what has to be followed."""
        while self._later:
            waiting, self._later = self._later, []
            for text, trail in waiting:
                inner = unwrap_trail(trail)
                source = self._follower.try_resolve(inner)
                if type(source) is Field:
                    self.add(text, source)
                elif trail[0] is JSON or trail[0] is REPR:
                    self._add_value(trail[1], trail[2])
                elif inner is trail is not source and type(source) is tuple:
                    self.read([(text, source)])  # what made the element of a list
                elif trail[0] is not JOINED or not is_joined(text, trail[1]):
                    self._add_fragments(text, trail)
                # A template may join a text to itself, again and again.
                elif id(trail[1]) not in self._seen:
                    self._seen.add(id(trail[1]))
                    if set(map(type, trail[1][1::2])) != WRITTEN_BY_TEMPLATE:
                        self.read(pairs_of(trail[1]))

    def _add_fragments(self, text: str, trail: Trail) -> None:
        fragments = self._follower.split(text, trail)
        if len(fragments) > 1 and unwrap_trail(trail)[0] is REPLACED:
            others = {leaf for _, leaf in fragments if type(leaf) is not int}
            if len(others) == 1:
                # What the template put in the place of a part of a field counts as that part.
                fragments = [(text, others.pop())]
        for part, leaf in fragments:
            self.add(part, leaf)

    def add(self, text: str, leaf: Leaf) -> None:
        """Add a fragment of the output."""
        if type(leaf) is Field:
            if leaf.key:
                self.keys.add(leaf.path)
            else:
                self.texts.setdefault(leaf.path, []).append(text)
        elif type(leaf) is Computed:
            if leaf.sources or not leaf.followed or len(text) >= MIN_UNTRACED:
                self.computed.setdefault(leaf.sources, []).append(text)
        elif type(leaf) is Written and not text.isspace():
            self.parts.add(leaf.part)

    @cached_property
    def paths(self) -> set[Path]:
        """The beginnings of all paths of which something was written, once everything is read."""
        written = {path for path, texts in self.texts.items() if not all(map(str.isspace, texts))}
        written |= self.whole | self.parts
        for sources in self.computed:
            written.update(sources)
        return {path[:length] for path in written for length in range(1, len(path) + 1)}

    def is_whole(self, path: Path) -> bool:
        """Whether a field, or what it is a part of, was written as JSON."""
        whole = self.whole
        return bool(whole) and any(path[:length] in whole for length in range(1, len(path) + 1))


MIN_UNTRACED = 12  # characters of a text without a known origin in which fields are looked for


def read_output(out: Output, follower: Follower, tools: int) -> WrittenFields:
    """Return the fields that a program wrote; of so many tools, if something of each is, nothing more."""
    written = WrittenFields(follower)
    if tools and find_written_tools(out, tools, None):
        written.whole.add(TOOLS[1:])
    written.read(pairs_of(out))
    written.read_everything()
    return written
