"""Rules for values that were written as text: as JSON, or as Python's `repr`.

Each text inside of the value keeps its own origin. The punctuation is the template's, where
`tojson` wrote it, and made of the value where a template prints a dict or list as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any, NamedTuple

from turnwise.engine.provenance.container_rules import KEY
from turnwise.engine.provenance.splitting import Follower
from turnwise.engine.provenance.trails import (
    NOWHERE,
    Computed,
    Field,
    Leaf,
    Rule,
    Splitting,
    Trail,
)

ENTRY_COST = 3  # steps of the budget for an element, beside those for the fragments that it makes


class JsonStyle(NamedTuple):
    """How `json.dumps` writes a container."""

    ensure_ascii: bool
    indent: str | None
    comma: str
    colon: str
    sort_keys: bool


PYTHON = JsonStyle(False, None, ", ", ": ", False)  # as `repr` writes values


JSON_PUNCTUATION = frozenset('{}[]:," \n')


def json_source(follower: Follower, trail: Trail) -> Field | None:
    """Return the input that a text is the JSON of, None if it is not JSON or not of one input.

    All of such a text that is not `JSON_PUNCTUATION` came from the input: its keys, texts and numbers.
    """
    written = follower.try_resolve(trail)
    if type(written) is not tuple or written[0] is not JSON:
        return None
    _, _, value_trail, style, *_ = written
    marks = style.comma + style.colon + (style.indent or "")
    source = follower.try_resolve(value_trail) if JSON_PUNCTUATION.issuperset(marks) else None
    return source if type(source) is Field else None


def _split_entries(follower: Follower, entries: Iterator[Any], punctuation: Leaf) -> Splitting:
    """Split a value that is written entry by entry: punctuation; a text with its trail or leaf, and how it is escaped;
    or the entries of what is inside. These are on a list, not on Python's stack: values may be nested deeply.
    """
    fragments = []
    pending = ""
    waiting = [entries]
    while waiting:
        for entry in waiting[-1]:
            if type(entry) is str:
                pending += entry
            elif type(entry) is not tuple:
                follower.charge(ENTRY_COST)
                waiting.append(entry)
                break
            elif entry[0]:
                text, trail, escape = entry
                parts = [(text, trail)] if type(trail) is Field else (yield text, trail)
                fragments.append((pending, punctuation))
                fragments += [(escape(part), leaf) for part, leaf in parts]
                pending = ""
        else:
            waiting.pop()
    fragments.append((pending, punctuation))
    return [fragment for fragment in fragments if fragment[0]]


def _write_value(
    follower: Follower, value: Any, trail: Trail | Field, style: JsonStyle, depth: int = 0
) -> Iterator[Any]:
    if not isinstance(value, (dict, list, tuple)):
        yield from _write_scalar(value, trail, style)
        return
    source = trail if type(trail) is Field else follower.resolve(trail)
    newline = "" if style.indent is None else "\n" + style.indent * depth
    inner = newline + (style.indent or "")
    separator, end = "[]"
    entries: Iterable[Any] = enumerate(value)
    if isinstance(value, dict):
        separator, end = "{}"
        entries = sorted(value.items()) if style.sort_keys else value.items()
    elif style is PYTHON and isinstance(value, tuple):
        separator, end = "(", ",)" if len(value) == 1 else ")"
    for key, item in entries:
        yield separator + inner
        child, own = (trail, key), (KEY, trail, key)
        if type(source) is Field:  # the origin of what it holds is known without following a trail
            path = (*source.path, key)
            # In the places of trails, which `_split_entries` tells apart.
            child, own = Field(path), Field(path, True)  # type: ignore[assignment]
        if end == "}":
            is_name = isinstance(key, str) or style is PYTHON
            yield from _write_scalar(key if is_name else json.dumps(key), own, style)
            yield style.colon
        yield _write_value(follower, item, child, style, depth + 1)
        separator = style.comma
    yield newline + end if value else separator + end


def _write_scalar(value: Any, trail: Trail | Field, style: JsonStyle) -> Iterator[Any]:
    if isinstance(value, str):
        quote = repr(value)[0] if style is PYTHON else '"'
        yield quote
        yield value, trail, ESCAPES[style is PYTHON and quote, style.ensure_ascii]
        yield quote
        return
    is_json = value is None or isinstance(value, (int, float))
    if style is PYTHON:
        yield (repr(value), trail, str) if is_json else repr(value)
    else:
        yield json.dumps(value) if is_json else f'"<{type(value).__name__}>"', trail, str


# What is between quotes, by the quotes of Python, and whether JSON is in ASCII.
ESCAPES: dict[Any, Any] = {
    (False, True): lambda text: encode_basestring_ascii(text)[1:-1],
    (False, False): lambda text: encode_basestring(text)[1:-1],
    # the other quote in front makes `repr` choose this one
    ("'", False): lambda text: repr('"' + text)[2:-1],
    ('"', False): lambda text: repr("'" + text)[2:-1],
}


def _split_repr(follower: Follower, text: str, value: Any, trail: Trail) -> Splitting:
    whole = follower.resolve(trail)
    punctuation: Leaf = Computed((whole.path,)) if type(whole) is Field else NOWHERE
    fragments = yield from _split_entries(
        follower, _write_value(follower, value, trail, PYTHON), punctuation
    )
    if text.isascii():  # `ascii` writes what `repr` does, and escapes what is left
        return [
            (part.encode("ascii", "backslashreplace").decode(), leaf) for part, leaf in fragments
        ]
    return fragments


# value, its trail, JsonStyle, node of the punctuation
JSON = Rule(
    "JSON",
    lambda follower, _, value, trail, style, node: _split_entries(
        follower, _write_value(follower, value, trail, style), NOWHERE if node is None else node
    ),
)
REPR = Rule("REPR", _split_repr)  # value, its trail
