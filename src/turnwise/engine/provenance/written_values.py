"""Rules for values that were written as text: as JSON, or as Python's `repr`.

Each text inside of the value keeps its own origin. The punctuation is the template's, where
`tojson` wrote it, and made of the value where a template prints a dict or list as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any, NamedTuple

from turnwise.engine.provenance.container_rules import KEY
from turnwise.engine.provenance.splitting import Follower, OutOfBudget
from turnwise.engine.provenance.trails import (
    NOWHERE,
    Computed,
    Field,
    Fragment,
    Leaf,
    Rule,
    Splitting,
    Trail,
)
from turnwise.messages.paths import Path
from turnwise.messages.tools_cache import JsonCache

FRAGMENT_SIZE = 64  # characters that take about as much memory as a fragment
ENTRY_COST = 3  # steps of the budget for an element, beside those for the fragments that it makes


class JsonStyle(NamedTuple):
    """How `json.dumps` writes a container."""

    ensure_ascii: bool
    indent: str | None
    comma: str
    colon: str
    sort_keys: bool


def _split_json(
    follower: Follower,
    text: str,
    value: Any,
    trail: Trail,
    style: JsonStyle,
    node: int | None,
    cache: JsonCache | None,
) -> Splitting:
    """Split JSON text.

    A tool that stays from rendering to rendering is split once (`messages/tools_cache.py`).
    """
    key = (id(value), style, node, "fragments")
    if cache is not None and key in cache:
        known: list[Fragment] = cache[key]
        return known
    splitter = JsonSplitter(follower, style, NOWHERE if node is None else node)
    fragments = yield from splitter.split(value, trail)
    if cache is not None:
        cache.add(key, fragments, FRAGMENT_SIZE * len(fragments))
    return fragments


JSON_PUNCTUATION = frozenset('{}[]:," \n')


def json_source(follower: Follower, trail: Trail) -> Field | None:
    """Return the input that a text is the JSON of, None if it is not JSON or not of one input.

    All of such a text that is not `JSON_PUNCTUATION` came from the input: its keys, texts and numbers.
    """
    try:
        written = follower.resolve(trail)
        if type(written) is not tuple or written[0] is not JSON:
            return None
        _, _, value_trail, style, *_ = written
        marks = style.comma + style.colon + (style.indent or "")
        source = follower.resolve(value_trail) if JSON_PUNCTUATION.issuperset(marks) else None
    except OutOfBudget:
        return None
    return source if type(source) is Field else None


@dataclass(slots=True)
class OpenContainer:
    """A container that is being written.

    The entries left, and what comes before the next of them. Where the container is a part of the
    input, `path` leads to it, and the origin of what it holds is known without following a trail.
    """

    entries: Iterator[tuple[Any, Any]]
    trail: Trail
    path: Path | None
    separator: str
    end: str
    is_empty: bool = True


class JsonSplitter:
    """Writes a value as `json.dumps` does, fragment by fragment.

    Open containers are on a list, not on Python's stack: values may be nested deeply.
    """

    def __init__(self, follower: Follower, style: JsonStyle, punctuation: Leaf) -> None:
        self._follower = follower
        self._style = style
        self._escape = encode_basestring_ascii if style.ensure_ascii else encode_basestring
        self._punctuation = punctuation
        self._pending = ""  # punctuation that is not a fragment yet
        self._fragments: list[Fragment] = []
        self._open: list[OpenContainer] = []

    def split(self, value: Any, trail: Trail) -> Splitting:
        if not self._open_container(value, trail):
            yield from self._write_scalar(value, trail)
        while self._open:
            container = self._open[-1]
            entry = next(container.entries, None)
            if entry is None:
                self._close(container)
                continue
            self._follower.charge(ENTRY_COST)
            key, item = entry
            self._pending += container.separator + self._newline()
            container.separator = self._style.comma
            container.is_empty = False
            if container.end == "}":
                yield from self._write_key(container, key)
            item_trail = (container.trail, key)
            if self._open_container(item, item_trail):
                continue
            if container.path is None:
                yield from self._write_scalar(item, item_trail)
            else:
                self._write_input(item, Field((*container.path, key)))
        self._emit("", self._punctuation)
        return self._fragments

    def _open_container(self, value: Any, trail: Trail) -> bool:
        """Begin to write a list or dict; return False if the value is neither."""
        entries: Any
        if isinstance(value, dict):
            entries = sorted(value.items()) if self._style.sort_keys else value.items()
            brackets = "{}"
        elif isinstance(value, (list, tuple)):
            entries, brackets = enumerate(value), "[]"
        else:
            return False
        owner = self._follower.resolve(trail)
        path = owner.path if type(owner) is Field else None
        self._open.append(OpenContainer(iter(entries), trail, path, *brackets))
        return True

    def _write_key(self, container: OpenContainer, key: Any) -> Splitting:
        name = self._escape(key if isinstance(key, str) else json.dumps(key))[1:-1]
        self._pending += '"'
        if container.path is not None:
            self._emit(name, Field((*container.path, key), key=True))
        else:
            for part, leaf in (yield name, (KEY, container.trail, key)):
                self._emit(part, leaf)
        self._pending += '"' + self._style.colon
        return []

    def _write_input(self, value: Any, leaf: Leaf) -> None:
        """Write a text or number with one leaf."""
        if isinstance(value, str):
            self._pending += '"'
            self._emit(self._escape(value)[1:-1], leaf)
            self._pending += '"'
        else:
            self._emit(_write_number(value), leaf)

    def _write_scalar(self, value: Any, trail: Trail) -> Splitting:
        """Write a text or number whose trail has to be followed."""
        is_text = isinstance(value, str)
        fragments = yield value if is_text else _write_number(value), trail
        if len(fragments) == 1:
            self._write_input(value, fragments[0][1])
            return []
        self._pending += '"' if is_text else ""
        for part, leaf in fragments:
            self._emit(self._escape(part)[1:-1] if is_text else part, leaf)
        self._pending += '"' if is_text else ""
        return []

    def _close(self, container: OpenContainer) -> None:
        self._open.pop()
        # an empty container has written nothing yet: its separator is the opening bracket
        before = container.separator if container.is_empty else self._newline()
        self._pending += before + container.end

    def _newline(self) -> str:
        indent = self._style.indent
        return "" if indent is None else "\n" + indent * len(self._open)

    def _emit(self, text: str, leaf: Leaf) -> None:
        if self._pending:
            self._fragments.append((self._pending, self._punctuation))
            self._pending = ""
        if text:
            self._fragments.append((text, leaf))


def _write_number(value: Any) -> str:
    if isinstance(value, (int, float, type(None))):
        return json.dumps(value)
    return f'"<{type(value).__name__}>"'


def _split_repr(follower: Follower, text: str, value: Any, trail: Trail) -> Splitting:
    """Split what Python's `repr` writes; like JSON without Python's stack."""
    whole = follower.resolve(trail)
    punctuation: Leaf = Computed((whole.path,)) if type(whole) is Field else NOWHERE
    fragments: list[Fragment] = []
    waiting: list[Iterator[Any]] = [iter([(value, trail)])]
    while waiting:
        entry = next(waiting[-1], None)
        if entry is None:
            waiting.pop()
        elif isinstance(entry, str):
            fragments.append((entry, punctuation))
        else:
            follower.charge(ENTRY_COST)
            item, item_trail = entry
            if isinstance(item, (dict, list, tuple)):
                waiting.append(_write_container(item, item_trail))
            elif isinstance(item, str):
                before = (yield item, item_trail) if item else []
                fragments += _write_repr_of_text(item, before, punctuation)
            elif item is None or isinstance(item, (int, float)):
                fragments += yield repr(item), item_trail
            else:
                fragments.append((repr(item), punctuation))
    if text.isascii():  # `ascii` writes what `repr` does, and escapes what is left
        return [(_escape_to_ascii(part), leaf) for part, leaf in fragments]
    return fragments


def _escape_to_ascii(text: str) -> str:
    return text if text.isascii() else text.encode("ascii", "backslashreplace").decode()


def _write_container(value: Any, trail: Trail) -> Iterator[Any]:
    """Yield punctuation, and values with their trails, in the order in which `repr` writes them."""
    if isinstance(value, dict):
        for number, (key, item) in enumerate(value.items()):
            yield "{" if number == 0 else ", "
            yield key, (KEY, trail, key)
            yield ": "
            yield item, (trail, key)
        yield "}" if value else "{}"
        return
    start, end = "[]" if isinstance(value, list) else "()"
    for number, item in enumerate(value):
        yield start if number == 0 else ", "
        yield item, (trail, number)
    if isinstance(value, tuple) and len(value) == 1:
        end = ",)"
    yield end if value else start + end


def _write_repr_of_text(
    value: str, before: list[Fragment], punctuation: Leaf
) -> Iterator[Fragment]:
    quote = repr(value)[0]
    other = '"' if quote == "'" else "'"
    yield quote, punctuation
    for part, leaf in before:
        # the other quote in front makes `repr` choose this one
        yield repr(other + part)[2:-1], leaf
    yield quote, punctuation


JSON = Rule("JSON", _split_json)  # value, its trail, JsonStyle, node of the punctuation, cache
REPR = Rule("REPR", _split_repr)  # value, its trail
