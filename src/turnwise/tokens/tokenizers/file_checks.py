"""Check a `tokenizer.json` before a native library sees it.

The libraries trust the file: a table of characters that claims 4 GB, a chain of normalizers in which each doubles the
text, or a regular expression of a hundred kilobytes ends the process or stalls it. Errors in Rust that are a panic can
be caught; memory that cannot be had is the end of the process. So the small parts of a file that say how text is
changed are read here first:

* a chain may make a text at most `MAX_GROWTH` times as long and put `MAX_PREFIX` characters before it;
* a table of characters (`precompiled_charsmap`) has the size that it claims, and no long replacements;
* regular expressions and added tokens are as short as people write them, and no part is a list of thousands.

A file has up to 20 MB, nearly all of it the vocabulary, which the libraries write last and which is not parsed here: it
is enough that no other part can follow it. A file of another layout is parsed as a whole.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

from turnwise.errors import TokenizerError
from turnwise.messages import JsonObject
from turnwise.tokens.tokenizers.special_tokens_config import check_token_length

PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder", "added_tokens")
MAX_GROWTH = 64  # times that a text may get longer
MAX_PREFIX = 64  # characters put before a text; people's tokenizers put one
MAX_COMPONENTS = 100
MAX_VALUES = 10_000  # lists, objects and what is in them, in one part; those of seven well-known tokenizers have 34
MAX_PATTERN = 2_000  # characters of all regular expressions together; the longest known has 800
MAX_REPLACEMENT = (
    100  # bytes that a table of characters puts in the place of one; Unicode's longest has 33
)
UNUSUAL = "No tokenizer that people use is like this."
BYTE_LEVEL_GROWTH = (
    2  # times: each byte of a letter that is not ASCII becomes a letter of two bytes
)

_SPACE = re.compile(r"[ \t\r\n]*")
# No library writes an ASCII letter or `_` as an escape; somebody who does hides the name of a part.
_HIDDEN_NAME = re.compile(r"\\u00(?:4[1-9a-f]|5[0-9af]|6[1-9a-f]|7[0-9a])", re.IGNORECASE)
# A part behind the model; a vocabulary has the same words, with a number behind them.
_AFTER_MODEL = re.compile(f'"(?:{"|".join(PARTS)})"[ \t\r\n]*:[ \t\r\n]*[^-0-9 \t\r\n]')


def check_tokenizer_file(text: str) -> list[tuple[str, Any]]:
    """Return the parts of a file that say how text is changed.

    A text that is not JSON is left to the library, which says what is wrong with it.

    Raises:
        TokenizerError: a library must not read it.
    """
    try:
        parts = _read_parts(text)
    except (ValueError, RecursionError):
        return []  # the libraries refuse it too
    for name, part in parts:
        _check_part(name, part)
    return parts


def _read_parts(text: str) -> list[tuple[str, Any]]:
    """Return the parts of a file that say how text is changed, also those that are there twice."""
    if not _HIDDEN_NAME.search(text):
        found, model = _read_before_model(text)
        if model is None or not _AFTER_MODEL.search(text, model):
            return found
    found = []

    def read_object(pairs: list[tuple[str, Any]]) -> JsonObject:
        found.extend([pair for pair in pairs if pair[0] in PARTS])
        return dict(pairs)

    json.loads(text, object_pairs_hook=read_object)
    return found


def _read_before_model(text: str) -> tuple[list[tuple[str, Any]], int | None]:
    """Return the parts before the model, and where the model begins; None if there is none.

    Raises:
        ValueError: the text is not JSON.
    """
    decode = json.JSONDecoder().raw_decode
    found: list[tuple[str, Any]] = []
    at = _skip(text, 0, "{")
    while text[at : at + 1] != "}":
        name, at = decode(text, at)
        at = _skip(text, at, ":")
        if name == "model":
            return found, at
        value, at = decode(text, at)
        if name in PARTS:
            found.append((name, value))
        at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
        if text[at : at + 1] == ",":
            at = _skip(text, at, ",")
        elif text[at : at + 1] != "}":
            raise ValueError("not JSON")
    return found, None


def _skip(text: str, at: int, mark: str) -> int:
    """Return the position after a mark and the space around it."""
    at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
    if text[at : at + 1] != mark:
        raise ValueError("not JSON")
    return _SPACE.match(text, at + 1).end()  # type: ignore[union-attr]


def _check_part(name: str, part: Any) -> None:
    if name == "added_tokens":
        for row in part if isinstance(part, list) else ():
            check_token_length(_text(row, "content") if isinstance(row, dict) else "")
        return
    growth, prefix, pattern, count = 1, 0, 0, 0
    for component in _flatten(name, part):
        count += "type" in component
        growth *= _growth_of(component)
        prefix += len(_text(component, "prepend"))
        pattern += len(_pattern_of(component, "Regex"))
        _check_charsmap(component.get("precompiled_charsmap"))
    problems = {
        f"makes a text {growth:,} times as long": growth > MAX_GROWTH,
        f"puts {prefix:,} characters before a text": prefix > MAX_PREFIX,
        f"has regular expressions of {pattern:,} characters": pattern > MAX_PATTERN,
        f"has {count:,} components": count > MAX_COMPONENTS,
    }
    for problem, is_broken in problems.items():
        if is_broken:
            raise TokenizerError(f"its {name} {problem}", hint=UNUSUAL)


def _flatten(name: str, part: Any) -> Iterator[JsonObject]:
    """Yield the objects of a part: a library guesses what a component without a good type is.

    A part with very many values is refused: a library needs microseconds for each.
    """
    waiting, count = [part], 0
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield value
            value = list(value.values())
        if isinstance(value, list):
            count += len(value)
            waiting += value
        if count > MAX_VALUES:
            raise TokenizerError(f"its {name} has more than {MAX_VALUES:,} values", hint=UNUSUAL)


def _text(component: JsonObject, key: str) -> str:
    value = component.get(key)
    return value if isinstance(value, str) else ""


def _pattern_of(component: JsonObject, kind: str) -> str:
    pattern = component.get("pattern")
    return _text(pattern, kind) if isinstance(pattern, dict) else ""


def _growth_of(component: JsonObject) -> int:
    """Return how many times longer a component may make a text; Unicode's forms are not counted."""
    if component.get("type") == "ByteLevel":
        return BYTE_LEVEL_GROWTH
    if component.get("pattern") is None or "content" not in component:  # it replaces nothing
        return 1
    size = len(_text(component, "content"))
    if searched := _pattern_of(component, "String"):
        return max(1, -(-size // len(searched)))
    # A regular expression may match one character, or none: then the text grows by what is put there.
    return max(1, size) if _pattern_of(component, "Regex") else size + 1


def _check_charsmap(table: Any) -> None:
    """Check a table of characters: the size of its index, the index, and texts that end in NUL."""
    if not isinstance(table, str):
        return
    try:
        data = base64.b64decode(table, validate=True)
    except ValueError:
        return  # the library refuses it too
    size = int.from_bytes(data[:4], "little")
    if len(data) < 4 or size > len(data) - 4 or size % 4:
        raise TokenizerError(f"its precompiled_charsmap claims an index of {size:,} bytes")
    longest = max(map(len, data[4 + size :].split(b"\0")))
    if longest > MAX_REPLACEMENT:
        raise TokenizerError(f"its precompiled_charsmap has a replacement of {longest:,} bytes")
