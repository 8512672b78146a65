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

from turnwise.engine.provenance.container_rules import KEY, key_leaf
from turnwise.engine.provenance.splitting import split_by_origin
from turnwise.engine.provenance.trails import (
    NOWHERE,
    Computed,
    Field,
    Fragment,
    Leaf,
    Rule,
    Trail,
    resolve,
)


class JsonStyle(NamedTuple):
    """How `json.dumps` writes a container."""

    ensure_ascii: bool
    indent: str | None
    comma: str
    colon: str
    sort_keys: bool


def _split_json(
    text: str,
    value: Any,
    trail: Trail,
    style: JsonStyle,
    node: int | None,
    cache: dict[Any, Any] | None,
) -> list[Fragment]:
    """Split JSON text.

    A tool that stays from rendering to rendering is split once (`messages/tools_cache.py`).
    """
    key = (id(value), style, node, "fragments")
    if cache is not None and key in cache:
        known: list[Fragment] = cache[key]
        return known
    fragments = JsonSplitter(style, NOWHERE if node is None else node).split(value, trail)
    if cache is not None:
        cache[key] = fragments
    return fragments


@dataclass(slots=True)
class OpenContainer:
    """A container that is being written.

    The entries left, and what comes before the next of them.
    """

    entries: Iterator[tuple[Any, Any]]
    trail: Trail
    separator: str
    end: str
    is_empty: bool = True


class JsonSplitter:
    """Writes a value as `json.dumps` does, fragment by fragment.

    Open containers are on a list, not on Python's stack: values may be nested deeply.
    """

    def __init__(self, style: JsonStyle, punctuation: Leaf) -> None:
        self._style = style
        self._escape = encode_basestring_ascii if style.ensure_ascii else encode_basestring
        self._punctuation = punctuation
        self._pending = ""  # punctuation that is not a fragment yet
        self._fragments: list[Fragment] = []
        self._open: list[OpenContainer] = []

    def split(self, value: Any, trail: Trail) -> list[Fragment]:
        self._write_value(value, trail)
        while self._open:
            container = self._open[-1]
            entry = next(container.entries, None)
            if entry is None:
                self._close(container)
            else:
                self._write_entry(container, *entry)
        self._emit("", self._punctuation)
        return self._fragments

    def _write_value(self, value: Any, trail: Trail) -> None:
        if isinstance(value, str):
            self._pending += '"'
            self._emit_parts(value, trail)
            self._pending += '"'
        elif isinstance(value, dict):
            items = sorted(value.items()) if self._style.sort_keys else value.items()
            self._open.append(OpenContainer(iter(items), trail, "{", "}"))
        elif isinstance(value, (list, tuple)):
            self._open.append(OpenContainer(iter(enumerate(value)), trail, "[", "]"))
        elif isinstance(value, (int, float, type(None))):
            self._emit_parts(json.dumps(value), trail, escape=False)
        else:
            self._emit_parts(f'"<{type(value).__name__}>"', trail, escape=False)

    def _write_entry(self, container: OpenContainer, key: Any, item: Any) -> None:
        self._pending += container.separator + self._newline()
        container.separator = self._style.comma
        container.is_empty = False
        if container.end == "}":
            name = key if isinstance(key, str) else json.dumps(key)
            self._pending += '"'
            self._emit(self._escape(name)[1:-1], key_leaf(container.trail, key))
            self._pending += '"' + self._style.colon
        self._write_value(item, (container.trail, key))

    def _close(self, container: OpenContainer) -> None:
        self._open.pop()
        # an empty container has written nothing yet: its separator is the opening bracket
        before = container.separator if container.is_empty else self._newline()
        self._pending += before + container.end

    def _newline(self) -> str:
        indent = self._style.indent
        return "" if indent is None else "\n" + indent * len(self._open)

    def _emit_parts(self, text: str, trail: Trail, escape: bool = True) -> None:
        for part, leaf in split_by_origin(text, trail):
            self._emit(self._escape(part)[1:-1] if escape else part, leaf)

    def _emit(self, text: str, leaf: Leaf) -> None:
        if self._pending:
            self._fragments.append((self._pending, self._punctuation))
            self._pending = ""
        if text:
            self._fragments.append((text, leaf))


def _split_repr(text: str, value: Any, trail: Trail) -> list[Fragment]:
    whole = resolve(trail)
    punctuation = Computed((whole.path,)) if type(whole) is Field else NOWHERE
    return list(_write_repr(value, trail, punctuation))


def _write_repr(value: Any, trail: Trail, punctuation: Leaf) -> Iterator[Fragment]:
    if isinstance(value, str):
        yield from _write_repr_of_text(value, trail, punctuation)
    elif isinstance(value, dict):
        for number, (key, item) in enumerate(value.items()):
            yield "{" if number == 0 else ", ", punctuation
            yield from _write_repr(key, (KEY, trail, key), punctuation)
            yield ": ", punctuation
            yield from _write_repr(item, (trail, key), punctuation)
        yield "}" if value else "{}", punctuation
    elif isinstance(value, (list, tuple)):
        start, end = "[]" if isinstance(value, list) else "()"
        for number, item in enumerate(value):
            yield start if number == 0 else ", ", punctuation
            yield from _write_repr(item, (trail, number), punctuation)
        if isinstance(value, tuple) and len(value) == 1:
            end = ",)"
        yield end if value else start + end, punctuation
    elif value is None or isinstance(value, (int, float)):
        yield from split_by_origin(repr(value), trail)
    else:
        yield repr(value), punctuation


def _write_repr_of_text(value: str, trail: Trail, punctuation: Leaf) -> Iterator[Fragment]:
    quote = repr(value)[0]
    other = '"' if quote == "'" else "'"
    yield quote, punctuation
    for part, leaf in split_by_origin(value, trail):
        # the other quote in front makes `repr` choose this one
        yield repr(other + part)[2:-1], leaf
    yield quote, punctuation


JSON = Rule("JSON", _split_json)  # value, its trail, JsonStyle, node of the punctuation, cache
REPR = Rule("REPR", _split_repr)  # value, its trail
